package iceberg

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	iceio "github.com/apache/iceberg-go/io"
	icetable "github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"pgmirror/deletion"
)

// testSchema is a small table: an integer key and a text.
func testSchema(t testing.TB) *arrow.Schema {
	schema, last := AssignFieldIDs(arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil), 0)
	if last != 3 {
		t.Fatalf("last field id %d, want 3", last)
	}
	return schema
}

func openLoaded(t testing.TB, config Config) (*Warehouse, *State) {
	t.Helper()
	w, err := Open(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	state, err := w.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return w, state
}

// testRecord makes rows (id, "row <id>") of testSchema with one create LSN each.
func testRecord(schema *arrow.Schema, ids []int64, lsns []int64) arrow.RecordBatch {
	fields := append(append([]arrow.Field{}, schema.Fields()...), arrow.Field{Name: LSNColumn, Type: arrow.PrimitiveTypes.Int64})
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	for i, id := range ids {
		b.Field(0).(*array.Int64Builder).Append(id)
		b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("row %d", id))
		b.Field(2).(*array.Int64Builder).Append(lsns[i])
	}
	return b.NewRecordBatch()
}

// writeRows writes one file of testSchema, all rows created at lsn.
func writeRows(t testing.TB, w *Warehouse, loc TableLocation, lsn LSN, ids ...int64) DataFile {
	t.Helper()
	file, err := tryWriteRows(w, loc, lsn, ids...)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func tryWriteRows(w *Warehouse, loc TableLocation, lsn LSN, ids ...int64) (DataFile, error) {
	x, err := w.NewWriter(context.Background(), loc)
	if err != nil {
		return DataFile{}, err
	}
	lsns := make([]int64, len(ids))
	for i := range lsns {
		lsns[i] = int64(lsn)
	}
	if err := x.Write(testRecord(loc.Schema, ids, lsns)); err != nil {
		return DataFile{}, err
	}
	return x.Close()
}

func newLocation(t testing.TB, name string) TableLocation {
	return TableLocation{Name: TableName{Schema: "public", Name: name}, UUID: uuid.NewString(), Schema: testSchema(t)}
}

func commit(t testing.TB, w *Warehouse, lsn LSN, tables ...TableCommit) *Result {
	t.Helper()
	result, err := w.Commit(context.Background(), Commit{Mirror: []byte(fmt.Sprintf(`{"lsn":%d}`, lsn)), LSN: lsn,
		Summary: map[string]string{"pgmirror.slot": "s", "pgmirror.checkpoint": "1", "pgmirror.version": "test"}, Tables: tables})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func vectorOf(rows int64, positions ...uint32) *deletion.Vector {
	v := deletion.NewVector(uint32(rows))
	for _, p := range positions {
		v.Set(p)
	}
	return v.Freeze()
}

// openIceberg opens a table with iceberg-go's own reader, by its metadata file.
func openIceberg(t testing.TB, metadataPath string) *icetable.Table {
	t.Helper()
	tbl, err := icetable.NewFromLocation(context.Background(), icetable.Identifier{"x"}, toURI(metadataPath), iceio.LoadFSFunc(nil, toURI(metadataPath)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tbl
}

// scan reads one snapshot with iceberg-go's own scan; each row becomes text.
func scan(t testing.TB, tbl *icetable.Table, options ...icetable.ScanOption) []string {
	t.Helper()
	_, records, err := tbl.Scan(options...).ToArrowRecords(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for rec, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, rowTexts(rec)...)
		rec.Release()
	}
	return rows
}

func rowTexts(rec arrow.RecordBatch) []string {
	var rows []string
	for r := range int(rec.NumRows()) {
		text := ""
		for c := range int(rec.NumCols()) {
			text += rec.Column(c).ValueStr(r) + "|"
		}
		rows = append(rows, text)
	}
	return rows
}

// metadataPath is a table's current metadata file.
func metadataPath(w *Warehouse, name TableName) string { return w.names[name].path }

func vectors(path string, v *deletion.Vector) map[string]*deletion.Vector {
	return map[string]*deletion.Vector{path: v}
}
