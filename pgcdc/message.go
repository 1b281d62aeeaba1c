package pgcdc

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// LSN is a byte position in PostgreSQL's write-ahead log.
type LSN = pglogrepl.LSN

// Format tells how a column of a tuple was sent.
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html, TupleData.
type Format byte

const (
	FormatNull      Format = 'n' // NULL; in a key tuple also "not part of the key"
	FormatUnchanged Format = 'u' // a TOASTed value that the update left alone: not sent
	FormatText      Format = 't' // the type's output function
	FormatBinary    Format = 'b' // the type's send function
)

// Value is one column of a tuple as it was sent. Data is nil for FormatNull and FormatUnchanged;
// otherwise it stays valid only as long as whoever handed out the tuple says.
type Value struct {
	Format Format
	Data   []byte
}

// Tuple is one row as it was sent, in the relation's column order.
type Tuple []Value

// Op is what a Change does.
type Op uint8

const (
	OpRelation Op = iota + 1 // the relation's shape from here on
	OpInsert
	OpUpdate
	OpDelete
	OpTruncate
)

// Change is one step of a transaction. It and everything it points to, Relation aside, are valid only until the
// callback that received it returns; the same Change is used again for the next step.
type Change struct {
	Op       Op
	Relation *Relation // shape of the changed relation (OpRelation: the new shape); nil for OpTruncate
	// OldKind is 'K' when Old holds the replica identity's columns (all others are FormatNull), 'O' when it holds the
	// whole old row (identity FULL), 0 when no old tuple was sent: the identity did not change.
	OldKind byte
	Old     Tuple
	New     Tuple
	// Truncated lists the OIDs of all relations emptied by one TRUNCATE, those reached by CASCADE included.
	Truncated []uint32
}

// Transaction is one committed source transaction: its changes, staged in memory or in a spill file until the commit
// arrived. It is owned by whoever received it, who calls Release exactly once.
type Transaction struct {
	XID        uint32
	CommitLSN  LSN // where the commit record starts
	EndLSN     LSN // the byte after the commit record; the transaction's version
	CommitTime time.Time
	// Rows counts inserted, updated and deleted rows and truncated relations as they were staged.
	// Whoever applies the transaction must arrive at the same count.
	Rows int64
	// Spilled says that the changes lie in a file: the transaction is large.
	Spilled bool

	staged *staging
	leave  func() // tells the stream that the memory is free; nil for one that did not come from it
}

// Event is one element of the ordered stream. Exactly one of Transaction and WALEnd is set.
type Event struct {
	Transaction *Transaction
	// WALEnd is a keepalive's end of WAL: every commit that ends at or below it came before this event.
	WALEnd LSN
}
