package iceberg

import (
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	icetable "github.com/apache/iceberg-go/table"
)

// Rows that move to another file keep their row ids and sequence numbers: iceberg-go, which works them out by itself, says the same of each row before and after;
// columns that are read as a table's are those of its schema alone.
func TestMovedRowsKeepTheirLineage(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir()})
	loc := newLocation(t, "t")
	one, two := writeRows(t, w, loc, 100, 1, 2, 3), writeRows(t, w, loc, 101, 4, 5)
	table := func(c TableCommit) TableCommit { c.Name, c.UUID = loc.Name, loc.UUID; return c }
	commit(t, w, 101, table(TableCommit{Create: true, Schema: loc.Schema, Add: []DataFile{one}}))
	commit(t, w, 102, table(TableCommit{Add: []DataFile{two}, Vectors: vectors(one.Path, vectorOf(3, 1))}))
	read := func() []string {
		rows := scan(t, openIceberg(t, metadataPath(w, loc.Name)), icetable.WithRowLineage())
		slices.Sort(rows)
		return rows
	}
	before := read()
	if want := []string{"1|row 1|100|0|1|", "3|row 3|100|2|1|", "4|row 4|101|3|2|", "5|row 5|101|4|2|"}; !slices.Equal(before, want) {
		t.Fatalf("before: %v, want %v", before, want)
	}

	moved := loc
	moved.Moved = true
	x, err := w.NewWriter(t.Context(), moved)
	if err != nil {
		t.Fatal(err)
	}
	rec := testRecord(loc.Schema, []int64{1, 3, 4, 5}, []int64{100, 100, 101, 101})
	var rowIDs, sequences []int64
	for _, file := range []struct {
		path string
		rows []int64
	}{{one.Path, []int64{0, 2}}, {two.Path, []int64{0, 1}}} {
		first, sequence, ok := w.Lineage(loc.UUID, file.path)
		if !ok {
			t.Fatalf("no lineage of %s", file.path)
		}
		for _, row := range file.rows {
			rowIDs, sequences = append(rowIDs, first+row), append(sequences, sequence)
		}
	}
	schema := arrow.NewSchema(append(rec.Schema().Fields(), LineageFields()...), nil)
	if err := x.Write(array.NewRecordBatch(schema, append(rec.Columns(), int64s(rowIDs), int64s(sequences)), 4)); err != nil {
		t.Fatal(err)
	}
	file, err := x.Close()
	if err != nil {
		t.Fatal(err)
	}
	commit(t, w, 103, table(TableCommit{Remove: []string{one.Path, two.Path}, Add: []DataFile{file}}))
	commit(t, w, 104, table(TableCommit{Add: []DataFile{writeRows(t, w, loc, 104, 6)}}))
	want := append(before, "6|row 6|104|9|4|") // 5 to 8 are what the moved rows would have by their place
	if after := read(); !slices.Equal(after, want) {
		t.Errorf("after: %v, want %v", after, want)
	}
	rows := scan(t, openIceberg(t, metadataPath(w, loc.Name)))
	slices.Sort(rows)
	if want := []string{"1|row 1|100|", "3|row 3|100|", "4|row 4|101|", "5|row 5|101|", "6|row 6|104|"}; !slices.Equal(rows, want) {
		t.Errorf("without lineage: %v, want %v", rows, want)
	}
	if _, _, ok := w.Lineage(loc.UUID, one.Path); ok {
		t.Error("a file that was taken out has a lineage")
	}
}

func int64s(values []int64) arrow.Array {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	b.AppendValues(values, nil)
	return b.NewArray()
}

// Written counts what lies on the disk: Puffin files, and all that is no data file.
func TestWritten(t *testing.T) {
	dir := t.TempDir()
	w, _ := openLoaded(t, Config{Dir: dir})
	loc := newLocation(t, "t")
	one := writeRows(t, w, loc, 100, 1, 2, 3)
	commit(t, w, 101, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: []DataFile{one}})
	commit(t, w, 102, TableCommit{Name: loc.Name, UUID: loc.UUID, Vectors: vectors(one.Path, vectorOf(3, 1))})
	var vectors, metadata int64
	err := filepath.WalkDir(filepath.Join(dir, "warehouse"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		switch filepath.Ext(path) {
		case ".puffin":
			vectors += info.Size()
		case ".avro", ".json":
			metadata += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	gotVectors, gotMetadata := w.Written()
	if gotVectors != vectors || vectors == 0 || gotMetadata < metadata || gotMetadata > metadata+100 || metadata == 0 { // and two hints of some bytes
		t.Errorf("%d and %d bytes, on the disk are %d and %d", gotVectors, gotMetadata, vectors, metadata)
	}
}
