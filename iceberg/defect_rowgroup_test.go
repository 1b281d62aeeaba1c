package iceberg

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// TestRowGroupsEndByBytes: a row group of large values ends before it has its rows, since it is kept in memory until then; what
// was written is read back in batches that are bounded too.
func TestRowGroupsEndByBytes(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir()})
	schema, _ := AssignFieldIDs(arrow.NewSchema([]arrow.Field{{Name: "doc", Type: arrow.BinaryTypes.String}}, nil), 0)
	loc := newLocation(t, "docs")
	loc.Schema = schema
	x, err := w.NewWriter(t.Context(), loc)
	if err != nil {
		t.Fatal(err)
	}
	x.groupLimit = 1 << 20
	fields := append(append([]arrow.Field{}, schema.Fields()...), arrow.Field{Name: LSNColumn, Type: arrow.PrimitiveTypes.Int64})
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	want := 0
	for range 20 {
		for range 50 {
			b.Field(0).(*array.StringBuilder).Append(strings.Repeat("x", 8192+want%7))
			b.Field(1).(*array.Int64Builder).Append(7)
			want++
		}
		if err := x.Write(b.NewRecordBatch()); err != nil {
			t.Fatal(err)
		}
	}
	file, err := x.Close()
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.OpenData(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if groups := r.pq.ParquetReader().NumRowGroups(); groups < 8 {
		t.Errorf("8 MB in row groups of at most 1 MB are %d", groups)
	}
	id, err := fieldIDOf(schema.Field(0))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	err = r.Columns(t.Context(), []int32{int32(id)}, func(rec arrow.RecordBatch, first int64) error {
		docs := rec.Column(0).(*array.String)
		for i := range docs.Len() {
			if len(docs.Value(i)) != 8192+rows%7 {
				t.Fatalf("row %d has %d bytes", rows, len(docs.Value(i)))
			}
			rows++
		}
		return nil
	})
	if err != nil || rows != want {
		t.Errorf("%d of %d rows, %v", rows, want, err)
	}
}
