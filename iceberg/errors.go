package iceberg

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
)

// ErrForeignSnapshot means that somebody else committed to a table: its current metadata is not what we wrote last.
var ErrForeignSnapshot = errors.New("table was changed by another writer")

// MovedError names the tables of a commit, or of an expiry, that somebody else has changed, dropped or made since we looked last. Nothing was
// committed. It is ErrForeignSnapshot.
type MovedError struct{ Tables []MovedTable }

// MovedTable is a table that another writer has changed.
type MovedTable struct {
	Name TableName
	UUID string // ours
}

func (e *MovedError) Error() string {
	names := make([]string, len(e.Tables))
	for i, t := range e.Tables {
		names[i] = t.Name.String()
	}
	return fmt.Sprintf("%v: %s", ErrForeignSnapshot, strings.Join(names, ", "))
}

func (e *MovedError) Unwrap() error { return ErrForeignSnapshot }

// ErrCorrupt means that a file of the warehouse is missing, damaged or contradicts another.
var ErrCorrupt = errors.New("warehouse file is damaged")

// ErrIllegalCommit means that the caller asked for a snapshot that the Iceberg specification or our own rules forbid.
// Nothing was committed.
var ErrIllegalCommit = errors.New("illegal commit")

// damage is ErrCorrupt if a file could not be read because it is gone, too short or unreadable on its disk. Other errors (too many
// open files, no permission) are the machine's: the file may be whole.
func damage(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO) || errors.Is(err, errNoFile) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// errNoFile: there is something else in a file's place.
var errNoFile = errors.New("not a regular file")

// ErrNotRetained means that no retained set of snapshots shows the wanted LSN.
var ErrNotRetained = errors.New("no retained snapshots at this lsn")
