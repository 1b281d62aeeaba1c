package duckdb

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"go.uber.org/goleak"

	"pgmirror/deletion"
	"pgmirror/readstate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePinner serves states that a test builds, and counts pins that are not released.
type fakePinner struct {
	mu   sync.Mutex
	make func(pin int) (*readstate.State, error)
	pins int
	path []string
	open atomic.Int64
	reqs []readstate.PinRequest
}

func (p *fakePinner) SearchPath() []string { return p.path }

func (p *fakePinner) Pin(_ context.Context, req readstate.PinRequest) (*readstate.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pins++
	p.reqs = append(p.reqs, req)
	s, err := p.make(p.pins)
	if err != nil {
		return nil, err
	}
	p.open.Add(1)
	var once sync.Once
	s.Release = func() { once.Do(func() { p.open.Add(-1) }) }
	return s, nil
}

// fixed serves the same tables again and again.
func fixed(tables ...*readstate.Table) *fakePinner {
	return &fakePinner{make: func(int) (*readstate.State, error) { return &readstate.State{LSN: 100, Tables: tables}, nil }}
}

// recordColumns serves a batch's columns from a record and counts what is asked.
type recordColumns struct {
	rec   arrow.RecordBatch
	reads atomic.Int64
	cells atomic.Int64
	err   error
}

func (r *recordColumns) Read(columns []int, from, to int) ([]arrow.Array, error) {
	if r.err != nil {
		return nil, r.err
	}
	r.reads.Add(1)
	out := make([]arrow.Array, len(columns))
	for i, c := range columns {
		out[i] = array.NewSlice(r.rec.Column(c), int64(from), int64(to))
		r.cells.Add(int64(to - from))
	}
	return out, nil
}

var batchIDs atomic.Uint64

// batchOf is a memory batch over a record without the rows in dead.
func batchOf(rec arrow.RecordBatch, dead []uint32) readstate.Batch {
	return readstate.Batch{ID: batchIDs.Add(1), Sealed: true, Rows: int(rec.NumRows()), Deleted: vectorOf(int(rec.NumRows()), dead), Columns: &recordColumns{rec: rec}}
}

func vectorOf(rows int, dead []uint32) *deletion.Vector {
	if len(dead) == 0 {
		return nil
	}
	v := deletion.NewVector(uint32(rows))
	for _, p := range dead {
		v.Set(p)
	}
	return v.Freeze()
}

// fileOf writes a record as the Iceberg writer would: field ids, the hidden column last.
func fileOf(t testing.TB, rec arrow.RecordBatch, dead []uint32, rowGroup int64) readstate.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), fmt.Sprintf("data-%d.parquet", batchIDs.Add(1)))
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	fields := append(append([]arrow.Field{}, rec.Schema().Fields()...),
		arrow.Field{Name: "_pgmirror_lsn", Type: arrow.PrimitiveTypes.Int64, Metadata: fieldID(2147480000)})
	lsns := array.NewInt64Builder(memory.DefaultAllocator)
	for range rec.NumRows() {
		lsns.Append(7)
	}
	cols := append(append([]arrow.Array{}, rec.Columns()...), lsns.NewArray())
	full := array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, rec.NumRows())
	w, err := pqarrow.NewFileWriter(full.Schema(), f, parquet.NewWriterProperties(parquet.WithMaxRowGroupLength(rowGroup)), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(full); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return readstate.File{Path: path, Rows: rec.NumRows(), Bytes: info.Size(), Deleted: vectorOf(int(rec.NumRows()), dead)}
}

func fieldID(id int) arrow.Metadata {
	return arrow.MetadataFrom(map[string]string{readstate.FieldIDKey: strconv.Itoa(id)})
}

// col is a field with an id.
func col(name string, id int, typ arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: typ, Nullable: true, Metadata: fieldID(id)}
}

func listOf(id int, elem arrow.DataType) arrow.DataType {
	return arrow.ListOfField(arrow.Field{Name: "element", Type: elem, Nullable: true, Metadata: fieldID(id)})
}

// record builds a record from JSON rows, which Arrow's own reader turns into values.
func record(t testing.TB, schema *arrow.Schema, rows string) arrow.RecordBatch {
	t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func table(name string, schema *arrow.Schema, files []readstate.File, batches []readstate.Batch) *readstate.Table {
	return &readstate.Table{Name: readstate.TableName{Schema: "public", Name: name}, Schema: schema, Files: files, Batches: batches}
}

// openTest opens a DB that must give every pin back.
func openTest(t testing.TB, p *fakePinner) *DB {
	t.Helper()
	db, err := Open(context.Background(), Config{Source: p, ScratchDir: t.TempDir(), Threads: 2, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if n := p.open.Load(); n != 0 {
			t.Errorf("%d states are still pinned after Close", n)
		}
		if n := len(db.handles.open); n != 0 {
			t.Errorf("%d handles are still open after Close", n)
		}
	})
	return db
}

// query returns a script's last result as rows of text, NULL as a word of its own.
func query(t testing.TB, db *DB, script string) [][]string {
	t.Helper()
	rows, err := db.Query(context.Background(), script)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	var out [][]string
	for _, row := range rows.All() {
		line := make([]string, len(row))
		for i, v := range row {
			line[i] = v.Value
			if v.Null {
				line[i] = "<NULL>"
			}
		}
		out = append(out, line)
	}
	return out
}
