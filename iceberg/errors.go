package iceberg

import "errors"

// ErrForeignSnapshot means that somebody else committed to a table: its current metadata is not what we wrote last.
var ErrForeignSnapshot = errors.New("table was changed by another writer")

// ErrCorrupt means that a file of the warehouse is missing, damaged or contradicts another.
var ErrCorrupt = errors.New("warehouse file is damaged")

// ErrIllegalCommit means that the caller asked for a snapshot that the Iceberg specification or our own rules forbid.
// Nothing was committed.
var ErrIllegalCommit = errors.New("illegal commit")

// ErrNotRetained means that no retained set of snapshots shows the wanted LSN.
var ErrNotRetained = errors.New("no retained snapshots at this lsn")
