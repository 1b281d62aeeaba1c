package iceberg

import (
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	icelib "github.com/apache/iceberg-go"
	"github.com/jackc/pglogrepl"

	"pgmirror/deletion"
	"pgmirror/readstate"
)

// LSN is a byte position in PostgreSQL's write-ahead log.
type LSN = pglogrepl.LSN

// TableName names a mirrored table as the source does. Schema is the Iceberg namespace, Name the table in it.
type TableName = readstate.TableName

// State is what the last Iceberg commit left behind.
type State struct {
	// Mirror is the document stored with the last commit, byte for byte; nil in a new warehouse.
	Mirror []byte
	// LSN is the cut of the last commit; 0 in a new warehouse.
	LSN    LSN
	Tables []TableState // sorted by schema and name
	// Faults are the tables that cannot be loaded, sorted alike.
	Faults []TableFault
	// Unreachable are the files that no retained snapshot names and that were not deleted yet, as Result.Unreachable had them in an earlier life.
	Unreachable []UnreachableFile
}

// UnreachableFile is a file that no retained snapshot names any more. Readers that opened an older one may still read it.
type UnreachableFile struct {
	Path  string
	Since time.Time
}

// TableFault is a table whose files are damaged (ErrCorrupt) or were changed by another writer (ErrForeignSnapshot).
type TableFault struct {
	Name TableName
	UUID string
	Err  error // names the file
}

// TableState is one table as its current snapshot shows it. It is immutable; its slices and vectors are shared.
type TableState struct {
	Name     TableName
	UUID     string
	Location string // absolute local directory; data/ and metadata/ are below it
	// Schema holds the source's columns with their field ids (readstate.FieldIDKey); Nullable is false for columns of the
	// primary key only. The hidden column is not in it. Its types are bool, int32, int64, float32, float64, decimal128,
	// string, binary, fixed_size_binary(16) for uuid, date32, time64[us], timestamp[us] with no zone or UTC, and lists of these.
	Schema     *arrow.Schema
	SnapshotID int64
	// LSN is pgmirror.lsn of the current snapshot. A table that had nothing to commit since is exact at every later cut too.
	LSN   LSN
	Files []DataFile // oldest first
	// LastColumnID is the highest field id ever given in this table: the `last` of AssignFieldIDs.
	LastColumnID int
	Snapshots    []SnapshotInfo // retained ones, oldest first
}

// Rows is the number of rows in the table's files, deleted ones included.
func (t *TableState) Rows() (rows int64) {
	for _, f := range t.Files {
		rows += f.Rows
	}
	return rows
}

// SnapshotInfo describes a retained snapshot for people.
type SnapshotInfo struct {
	ID          int64
	LSN         LSN
	TimestampMs int64
	Operation   string
	// HeldBy says what keeps it: "current", "checkpoint", "read state", "tag NAME", "branch NAME". Only Retained fills it in.
	HeldBy []string
}

// DataFile is one immutable Parquet file of a table.
type DataFile struct {
	Path           string // absolute and local
	Rows, Bytes    int64
	MinLSN, MaxLSN LSN // smallest and largest create LSN of its rows
	// Deleted is the file's live deletion vector, frozen; nil when there is none.
	Deleted *deletion.Vector

	entry icelib.DataFile // what its manifest entry says
}

// Commit is one cut of the whole mirror: everything in it becomes visible, or nothing.
type Commit struct {
	// Mirror is stored as it is and given back by Load. Nil keeps the stored one.
	Mirror []byte
	// LSN is the cut; it is pgmirror.lsn of every snapshot of this commit.
	LSN LSN
	// Summary is copied into every snapshot's summary: pgmirror.slot, pgmirror.checkpoint, pgmirror.version.
	Summary map[string]string
	// Tables lists the tables that changed. All others stay as they are and cost nothing.
	Tables []TableCommit
}

// TableCommit is what one table adds to a Commit. It makes exactly one snapshot, also when it only changes the schema.
type TableCommit struct {
	Name TableName
	UUID string // canonical form (8-4-4-4-12, lower case)
	// Create makes the table; Schema must be set. A commit may drop a table and create another of the same name.
	Create bool
	// Drop takes the table out of the catalog, also one of State.Faults. Nothing else may be set.
	Drop bool
	// At is the LSN at which the snapshot is consistent, when it is not Commit.LSN: a table that failed stays where it was good.
	At LSN
	// Schema is the new schema; nil keeps the current one.
	Schema *arrow.Schema
	// Add lists files that Writer.Close returned and that no earlier commit took, in the order in which rows get their ids.
	Add []DataFile
	// Remove lists files (DataFile.Path) that leave the table; their vectors leave with them.
	Remove []string
	// Vectors holds, for each file whose deletions changed, all of its deleted positions. It replaces the file's vector and
	// must hold every position that one held.
	Vectors map[string]*deletion.Vector
}

// Result is what a Commit made.
type Result struct {
	// Tables holds the new state of every table the commit created or changed.
	Tables map[TableName]TableState
	// Unreachable lists files that no retained snapshot names any more since this commit. They are for DeleteUnreachable
	// once no reader uses them.
	Unreachable []string
}

// lsn is the LSN at which the table's snapshot of a commit is consistent.
func (t *TableCommit) lsn(c *Commit) LSN {
	if t.At != 0 {
		return t.At
	}
	return c.LSN
}
