package mirror

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/jackc/pglogrepl"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
)

// LSN is a byte position in PostgreSQL's write-ahead log.
type LSN = pglogrepl.LSN

// Source is the PostgreSQL database that is mirrored. *pgcdc.Source satisfies it.
// Errors for which pgcdc.IsRetryable holds are worth another try; all others need a person.
type Source interface {
	Identify(ctx context.Context) (pgcdc.Identification, error)
	// Slot looks the configured slot up.
	Slot(ctx context.Context) (info pgcdc.SlotInfo, found bool, err error)
	// CreateSlot makes the configured slot and exports its snapshot, which lives until CloseSnapshot or the connection's end.
	CreateSlot(ctx context.Context) (pgcdc.ExportedSnapshot, error)
	CloseSnapshot()
	// Waiting says, while CreateSlot runs, which transactions of the source it waits for; else it is empty.
	Waiting() string
	// DropSlot removes the configured slot, waiting for a dying owner to leave it; an absent slot is no error.
	DropSlot(ctx context.Context) error
	// Look reads the catalogue.
	Look(ctx context.Context) (*pgcdc.Catalog, error)
	// RowsKept says what is certain of the rows of a table, which now has other storage: whether they changed by nothing but what the stream
	// tells since a look with that horizon.
	RowsKept(ctx context.Context, table *pgcdc.Table, since uint64) (pgcdc.Kept, error)
	// LeafKept says the same of a leaf of a partitioned table, which now has other storage, or has arrived since.
	LeafKept(ctx context.Context, leaf *pgcdc.Leaf, arrived bool, since uint64) (pgcdc.Kept, error)
	// Copy sends every row of a table that the exported snapshot sees, in binary where the type allows it. The tuple is
	// lent until row returns. It ends with pgcdc.ErrRewritten when the relation's storage or columns are no longer the
	// snapshot's.
	Copy(ctx context.Context, snapshot pgcdc.ExportedSnapshot, table *pgcdc.Table, row func(pgcdc.Tuple) error) error
	// CopySample is Copy of the rows whose key falls into a sample, where the source can choose by it; else of all.
	CopySample(ctx context.Context, snapshot pgcdc.ExportedSnapshot, table *pgcdc.Table, key []int, limit uint64, row func(pgcdc.Tuple) error) error
	// CopyRange is Copy of the rows in some blocks of the table. Ranges that follow each other hold each row once.
	CopyRange(ctx context.Context, snapshot pgcdc.ExportedSnapshot, table *pgcdc.Table, blocks pgcdc.Range, row func(pgcdc.Tuple) error) error
	// Extents says about how large tables are now, in their order.
	Extents(ctx context.Context, tables []*pgcdc.Table) ([]pgcdc.Extent, error)
	// Snapshot exports a snapshot that sees exactly the commits that end at or below its ConsistentPoint, which lies above
	// everything sent so far. It gives up with pgcdc.ErrHeldBack when transactions hold it back for longer than patience, and
	// tells waiting, on another goroutine, whom it waits for.
	Snapshot(ctx context.Context, patience time.Duration, waiting func(whom string)) (snapshot pgcdc.ExportedSnapshot, release func(), err error)
	// Stream sends every commit above from in order, and keepalives between them, until ctx ends or the connection is
	// lost. Its first event is a keepalive: the stream has begun. It blocks while out is full; the server is answered meanwhile. Nothing is sent on out after it returned.
	Stream(ctx context.Context, from LSN, binary bool, out chan<- pgcdc.Event) error
	// Acknowledge tells the server, with the next status, that everything up to lsn is durable here. It never goes back.
	Acknowledge(lsn LSN)
	// Received is the end of the WAL that has arrived.
	Received() LSN
	// WaitPoint returns an LSN at or above the end of every commit that returned to its client before the call, and sees
	// to it that the stream passes that LSN soon.
	WaitPoint(ctx context.Context) (LSN, error)
}

// Warehouse is where tables become durable. Over returns one that satisfies it.
type Warehouse interface {
	// Load returns what the last commit left.
	Load(ctx context.Context) (*iceberg.State, error)
	// RemoveOrphans deletes files that no retained snapshot names, while nobody else works on the warehouse.
	RemoveOrphans(ctx context.Context) (removed []string, err error)
	// NewWriter begins a data file of a table.
	NewWriter(ctx context.Context, loc iceberg.TableLocation) (DataWriter, error)
	// OpenData opens a data file for reading.
	OpenData(path string) (DataReader, error)
	// Commit makes a checkpoint durable, whole or not at all; not when another writer has changed a table of it (iceberg.MovedError).
	Commit(ctx context.Context, c iceberg.Commit) (*iceberg.Result, error)
	// Moved lists the tables that another writer has changed, but for those that were refused.
	Moved(ctx context.Context) ([]iceberg.MovedTable, error)
	// Examine says what another writer made of a table, Adopt lets commits go on from that, Refuse ends commits to the table.
	Examine(ctx context.Context, moved iceberg.MovedTable) (*iceberg.Foreign, error)
	Adopt(f *iceberg.Foreign)
	Refuse(uuid string)
	// Held is a table as the last commit made it.
	Held(uuid string) (t iceberg.TableState, ok bool)
	// Discard deletes a data file that was written and never committed.
	Discard(ctx context.Context, path string) error
	// Expire takes snapshots that nothing needs any more out of at most so many tables; a dry run says which there are in all.
	Expire(ctx context.Context, most int, dryRun bool) (*iceberg.Expiry, error)
	// Hold keeps, until release, the snapshots that show an LSN, as far as they have not expired yet and while their tables are there. files are the
	// data files that they name.
	Hold(at LSN) (files []iceberg.DataFile, release func(), err error)
	// Retained lists a table's snapshots with what holds each.
	Retained(uuid string) []iceberg.SnapshotInfo
	// Lineage is what the rows of a data file of the current snapshot have by their place: the first one's number and the sequence number.
	Lineage(uuid, path string) (firstRowID, sequence int64, ok bool)
	// Written is how many bytes of deletion vectors and of metadata were written since the start.
	Written() (vectors, metadata int64)
	// Orphans deletes files that nothing names and that did not change since a time; a dry run only lists them.
	Orphans(ctx context.Context, before time.Time, dryRun bool) ([]string, error)
	// DeleteUnreachable deletes files that a commit or Expire reported; absent ones are no error.
	DeleteUnreachable(ctx context.Context, paths []string) error
}

// DataWriter writes one data file. Exactly one of Close and Abort ends it.
type DataWriter interface {
	// Write appends rows: the table's columns, the create LSN and, with TableLocation.Moved, iceberg.LineageFields. It keeps nothing of rec.
	Write(rec arrow.RecordBatch) error
	Close() (iceberg.DataFile, error)
	Abort() error
}

// DataReader reads one data file.
type DataReader interface {
	// Has says whether the file has a column with a field id.
	Has(fieldID int32) bool
	// Columns hands out some columns of all rows, in order.
	Columns(ctx context.Context, fieldIDs []int32, each func(rec arrow.RecordBatch, firstRow int64) error) error
	// Row returns some columns of one row.
	Row(row int64, fieldIDs []int32) (arrow.RecordBatch, error)
	Close() error
}

// Over makes a Warehouse of an Iceberg one.
func Over(w *iceberg.Warehouse) Warehouse { return warehouse{w} }

type warehouse struct{ *iceberg.Warehouse }

func (w warehouse) NewWriter(ctx context.Context, loc iceberg.TableLocation) (DataWriter, error) {
	out, err := w.Warehouse.NewWriter(ctx, loc)
	if err != nil {
		return nil, err // not a nil pointer in a DataWriter, which is not nil
	}
	return out, nil
}

func (w warehouse) OpenData(path string) (DataReader, error) {
	in, err := w.Warehouse.OpenData(path)
	if err != nil {
		return nil, err
	}
	return in, nil
}

// Files keeps the small local files that can be rebuilt: FileIndexes.
type Files interface {
	// WriteFile writes, fsyncs and renames into place, then fsyncs the directory.
	WriteFile(path string, data []byte) error
	// Map maps a file read-only; unmap releases it.
	Map(path string) (data []byte, unmap func() error, err error)
	// List names the files of a directory, sorted; an absent directory is empty.
	List(dir string) ([]string, error)
	// Remove deletes a file; an absent one is no error.
	Remove(path string) error
}

// Clock tells the time.
type Clock interface {
	Now() time.Time
	// After is time.After.
	After(d time.Duration) <-chan time.Time
}
