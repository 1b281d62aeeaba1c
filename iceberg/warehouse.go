package iceberg

import (
	"context"
	"errors"
	"log/slog"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/readstate"
)

// Config says where a warehouse is and how it is kept.
type Config struct {
	// Dir is the data directory: catalog.db and warehouse/ are in it.
	Dir string
	// Files is the file system of warehouse/; nil is OS. catalog.db is SQLite's own business.
	Files FileSystem
	Log   *slog.Logger // nil is silent
	// Effect, for tests, is called before each named effect (EffectNames); its error ends the work there as a crash would.
	Effect func(name string) error
	// KeepSnapshots is how many snapshots a table retains; 0 is 100.
	KeepSnapshots int
	// TableErr, used by OpenReadOnly, says why a table must not be read, or "".
	TableErr func(mirror []byte, name TableName) string
}

// EffectNames are the steps that Config.Effect may see.
var EffectNames = []string{"parquet written", "parquet synced", "puffin written", "metadata written", "sqlite commit", "sqlite committed", "version hint", "file deleted"}

// Warehouse is an open warehouse with one writer.
type Warehouse struct{}

// TableLocation names the table a Writer writes for, also before it is created.
type TableLocation struct {
	Name   TableName
	UUID   string
	Schema *arrow.Schema
}

var errUnbuilt = errors.New("being built")

func Open(ctx context.Context, config Config) (*Warehouse, error) { return nil, errUnbuilt }
func (w *Warehouse) Close() error                                 { return nil }
func (w *Warehouse) Load(ctx context.Context) (*State, error)     { return nil, errUnbuilt }
func (w *Warehouse) NewWriter(ctx context.Context, loc TableLocation) (*Writer, error) {
	return nil, errUnbuilt
}
func (w *Warehouse) OpenData(path string) (*Reader, error)                       { return nil, errUnbuilt }
func (w *Warehouse) Commit(ctx context.Context, c Commit) (*Result, error)       { return nil, errUnbuilt }
func (w *Warehouse) DeleteUnreachable(ctx context.Context, paths []string) error { return errUnbuilt }
func (w *Warehouse) RemoveOrphans(ctx context.Context) (removed []string, err error) {
	return nil, errUnbuilt
}

type Writer struct{}

func (x *Writer) Write(rec arrow.RecordBatch) error { return errUnbuilt }
func (x *Writer) Rows() int64                       { return 0 }
func (x *Writer) Bytes() int64                      { return 0 }
func (x *Writer) Close() (DataFile, error)          { return DataFile{}, errUnbuilt }
func (x *Writer) Abort() error                      { return errUnbuilt }

type Reader struct{}

func (r *Reader) Columns(ctx context.Context, fieldIDs []int32, each func(rec arrow.RecordBatch, firstRow int64) error) error {
	return errUnbuilt
}
func (r *Reader) Row(row int64, fieldIDs []int32) (arrow.RecordBatch, error) { return nil, errUnbuilt }
func (r *Reader) Rows() int64                                                { return 0 }
func (r *Reader) Close() error                                               { return nil }

type Committed struct{}

func OpenReadOnly(ctx context.Context, config Config) (*Committed, error) { return nil, errUnbuilt }
func (c *Committed) Pin(ctx context.Context, req readstate.PinRequest) (*readstate.State, error) {
	return nil, errUnbuilt
}
func (c *Committed) SearchPath() []string { return nil }
func (c *Committed) Close() error         { return nil }
