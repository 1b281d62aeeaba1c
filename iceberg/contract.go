package iceberg

/*
Contract sketch; the package's author replaces this file. LSN = pglogrepl.LSN; TableName = readstate.TableName.

// FileSystem is where the warehouse keeps its files. OS is the real one: Close of a written file fsyncs it; SyncDir fsyncs a directory.
type FileSystem interface {
	Create(path string) (WriteFile, error)   // fails if the file exists
	Open(path string) (ReadFile, error)      // io.ReaderAt + io.Seeker + io.Reader + Size + Close
	Rename(from, to string) error ; Remove(path string) error (absent is no error) ; MkdirAll(path string) error ; SyncDir(path string) error
	ReadDir(path string) ([]string, error)
}
type WriteFile interface { io.Writer; Sync() error; Close() error }
var OS FileSystem

type Config struct { Dir string /* data directory: catalog.db and warehouse/ below it */; Files FileSystem; Log *slog.Logger
	Effect func(name string) error  // test hook, called before each named effect ("parquet written", "parquet synced", "puffin written", "metadata written", "sqlite commit", ...); its error ends the work there
	KeepSnapshots int // default 100 ... }

func Open(ctx, Config) (*Warehouse, error) ; Close
func (w *Warehouse) Load(ctx) (*State, error)
type State struct { Mirror []byte // the opaque JSON document stored with the last commit; nil on a new warehouse
	Tables []TableState }
type TableState struct { Name TableName; UUID string; Location string; Schema *arrow.Schema // source columns with field ids + PK required flags (Nullable=false)
	SnapshotID int64; LSN LSN /* pgmirror.lsn of its current snapshot */; Files []DataFile; LastColumnID int }
type DataFile struct { Path string /* absolute local */; Rows, Bytes int64; MinLSN, MaxLSN LSN; Deleted *deletion.Vector /* live vector, nil none */ ; (unexported manifest entry data) }

// NewWriter opens a Parquet file in the table's data directory. Schema = source columns; Write takes record batches of those columns plus the LSN array as last column.
func (w *Warehouse) NewWriter(ctx, loc TableLocation /* name, uuid, schema */) (*Writer, error)
func (x *Writer) Write(rec arrow.RecordBatch) error    // schema: Schema columns + _pgmirror_lsn int64 last; any number of calls; rows in create order
func (x *Writer) Close() (DataFile, error)             // flush, fsync file and directory; Abort() removes
func (x *Writer) Rows() int64 ; Bytes written so far

// Reading back, for recovery and TOAST: 
func (w *Warehouse) OpenData(path string) (*Reader, error)
func (r *Reader) Columns(ctx, fieldIDs []int32, each func(rec arrow.RecordBatch, firstRow int64) error) error   // sequential scan of some columns
func (r *Reader) Row(row int64, fieldIDs []int32) (arrow.RecordBatch (1 row), error)    // point read; row groups and pages cached for repeated nearby reads
func (r *Reader) Close()

// Commit: everything or nothing, all tables and the mirror document in ONE SQLite transaction.
type Commit struct { Mirror []byte; LSN LSN; Summary map[string]string /* pgmirror.slot, .checkpoint, .version */; Tables []TableCommit }
type TableCommit struct { Name; UUID; Create bool; Schema *arrow.Schema /* new schema or nil = unchanged */
	Add []DataFile; Remove []string /* paths */; Vectors map[string]*deletion.Vector /* path → new cumulative vector; replaces the old one */ ; Drop bool }
func (w *Warehouse) Commit(ctx, Commit) (map[TableName]TableState, error)
var ErrForeignSnapshot (current snapshot is not the one we wrote)
*/
