package readstate

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/jackc/pglogrepl"

	"pgmirror/deletion"
)

// LSN is a byte position in PostgreSQL's write-ahead log.
type LSN = pglogrepl.LSN

// TableName names a mirrored table as the source does; both parts keep their case.
type TableName struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
}

// State is what one statement may read: every table at LSN. It keeps the files and batches it names alive until Release.
// Its methods may be called by several goroutines.
type State struct {
	LSN    LSN
	Pinned time.Time
	Tables []*Table // sorted by schema and name; tables that cannot be read at LSN are here with Err set
	// Release gives up the pin; calling it again does nothing. Never nil.
	Release func()

	// Settle, if not nil, says that whoever holds the state has copies of its deletion vectors and memory rows now: LSN is not held any more,
	// only the files that the state names are. It is called once at most, before Release.
	Settle func()
	// Kept, if not nil, has those files of a settled state that nothing but such states needs, each path with its size in bytes.
	Kept func() map[string]int64

	ended func() error // nil: it cannot end
	lost  func() error // nil: it cannot be lost
}

// Ended is why the mirror has taken the state from its holder, ErrEnded; nil when it has not. What the state names may then be gone.
func (s *State) Ended() error {
	if s.ended == nil {
		return nil
	}
	return s.ended()
}

// Lost is why the mirror does not keep the state any more, ErrLost or ErrClosed; nil when it does. Files that it names may then be gone.
func (s *State) Lost() error {
	if s.lost == nil {
		return nil
	}
	return s.lost()
}

// Table is one table of a State.
type Table struct {
	Name TableName
	// Schema is the table's at State.LSN: the source's columns in the source's order, each with its Iceberg field id under
	// the metadata key FieldIDKey. The hidden LSN column is not in it.
	Schema *arrow.Schema
	// Err is why the table cannot be read at this LSN (failed, copying, …) with what to do about it; empty when it can.
	Err     string
	Files   []File
	Batches []Batch

	// complete makes the table with all it has; nil when this is it.
	complete func(context.Context) (*Table, error)
}

// Complete returns the table with its files and batches: itself, unless the state was pinned with PinRequest.VectorsLater and some of
// its deletion vectors are still on the other side of the socket. Such a table is incomplete: it has neither Files nor Batches, and
// Err says so. Complete may be called again, and by several goroutines, until the state's Release.
func (t *Table) Complete(ctx context.Context) (*Table, error) {
	if t.complete == nil {
		return t, nil
	}
	return t.complete(ctx)
}

// FieldIDKey is the Arrow field metadata key that carries a column's Iceberg field id, also inside lists.
const FieldIDKey = "PARQUET:field_id"

// DefaultKey is the Arrow field metadata key under which a column has what rows of files without it show (Iceberg's initial-default), as text that
// DuckDB casts to the column's type: what the Iceberg specification's JSON form of a single value has between its quotes, if it has any. Without
// it they show NULL.
const DefaultKey = "pgmirror:initial-default"

// File is a Parquet file. Rows that the state may not see, cut-offs included, are in Deleted.
type File struct {
	Path    string
	Rows    int64
	Bytes   int64
	Deleted *deletion.Vector // frozen; nil when every row is visible
}

// Batch is rows still in memory: the first Rows rows of a memory batch, without those in Deleted.
type Batch struct {
	// ID names the batch within the life of this process (a client gives IDs of its own, so that they stay unique over
	// connections); row k of a batch never changes.
	ID      uint64
	Sealed  bool
	Rows    int
	Deleted *deletion.Vector // frozen; nil when every one of the Rows rows is visible
	Columns ColumnReader
}

// ColumnReader hands out a memory batch's columns. Its methods may be called by several goroutines.
type ColumnReader interface {
	// Read returns rows [from, to) of the columns at the given indexes of Table.Schema. The arrays are immutable, live on
	// the Go heap and need no Release.
	Read(columns []int, from, to int) ([]arrow.Array, error)
}

// PinRequest says at which LSN a state is wanted.
type PinRequest struct {
	// At asks for exactly this LSN (inside the kept window); 0 asks for the newest.
	At LSN
	// AtTime asks for the state after the last commit, in the order of the WAL, whose commit time is not above this; with At it is
	// ignored. It counts in microseconds.
	AtTime time.Time
	// Changes asks for a change feed up to At (0: the newest) in place of a state of all tables.
	Changes *Changes
	// WaitLSN waits until everything up to this LSN is visible.
	WaitLSN LSN
	// WaitSource waits until everything committed on the source before the call is visible.
	WaitSource bool
	// Timeout bounds the wait; 0 means DefaultWait.
	Timeout time.Duration
	// VectorsLater lets a client leave tables incomplete whose deletion vectors it does not have yet: they come with
	// Table.Complete, so that a statement does not wait for those of tables that it never names.
	VectorsLater bool
}

// Changes asks for the row versions of one table that came and went above From and at or below PinRequest.At. The State has that one table, its
// rows in batches: a column ChangeColumn ("insert" or "delete"), a column ChangeLSNColumn (the end LSN of the commit that did it, as a number), and the
// columns that the table has at the end of the range.
type Changes struct {
	Table TableName
	From  LSN // 0: the floor of the window
}

// The first two columns of a change feed. Their field ids are those that Iceberg reserves for the kind and the order of changes
// (https://iceberg.apache.org/spec/#reserved-field-ids), which no column of a table has.
const (
	ChangeColumn       = "_change"
	ChangeLSNColumn    = "_lsn"
	ChangeFieldID      = 2147483543
	ChangeOrderFieldID = 2147483542
)

// DefaultWait bounds how long a pin waits for its LSN.
const DefaultWait = 30 * time.Second

// Provider is a running mirror as the socket's server sees it.
type Provider interface {
	// Pin makes a state. The caller releases it.
	Pin(ctx context.Context, req PinRequest) (*State, error)
	// SearchPath is the source database's, for unqualified names.
	SearchPath() []string
	// Status returns the JSON document of `status --json`.
	Status(ctx context.Context) ([]byte, error)
	// Call runs one named command (checkpoint, verify, inspect, …) with JSON arguments and a JSON answer. progress, if not
	// nil, receives lines for people.
	Call(ctx context.Context, command string, args []byte, progress func(line string)) ([]byte, error)
}
