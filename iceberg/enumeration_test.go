package iceberg

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// A file written in whole row groups, where columns of few values go as dictionaries, has what the same rows written in small
// batches have: values, counts of NULL, bounds of files and row groups, and dictionaries where they help.
func TestWholeGroups(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	w, _ := openLoaded(t, Config{Dir: t.TempDir()})
	var fields []arrow.Field
	distinct := []int{1, 4, enumerationMax, enumerationMax + 1, 5000, 3, 2}
	for i := range distinct {
		fields = append(fields, arrow.Field{Name: fmt.Sprintf("c%d", i), Type: arrow.BinaryTypes.String, Nullable: true})
	}
	fields[1].Type = arrow.BinaryTypes.Binary
	const rows = 2*RowGroupRows + 777
	loc := newLocation(t, "a")
	loc.Schema, _ = AssignFieldIDs(arrow.NewSchema(fields, nil), 0)
	value := func(column, row int) (string, bool) {
		// Strings that differ only at their end, the empty one among them, in runs and mixed.
		n := (row/(column+1) + row*row) % distinct[column]
		if n == 0 && column > 4 {
			return "", true
		}
		return fmt.Sprintf("%s%d", "value number "[:column*2], n), column%2 == 0 || (row+n)%5 != 0
	}
	batch := func(from, to int) arrow.RecordBatch {
		b := array.NewRecordBuilder(mem, arrow.NewSchema(append(fields[:len(fields):len(fields)], arrow.Field{Name: LSNColumn, Type: arrow.PrimitiveTypes.Int64}), nil))
		defer b.Release()
		for row := from; row < to; row++ {
			for i := range fields {
				v, ok := value(i, row)
				switch f := b.Field(i).(type) {
				case *array.StringBuilder:
					if ok {
						f.Append(v)
					} else {
						f.AppendNull()
					}
				case *array.BinaryBuilder:
					if ok {
						f.Append([]byte(v))
					} else {
						f.AppendNull()
					}
				}
			}
			b.Field(len(fields)).(*array.Int64Builder).Append(int64(7 + row/1000))
		}
		return b.NewRecordBatch()
	}
	write := func(size int) (string, DataFile) {
		x, err := w.NewWriter(t.Context(), loc)
		if err != nil {
			t.Fatal(err)
		}
		for from := 0; from < rows; from += size {
			rec := batch(from, min(rows, from+size))
			err := x.Write(rec)
			rec.Release()
			if err != nil {
				t.Fatal(err)
			}
		}
		file, err := x.Close()
		if err != nil {
			t.Fatal(err)
		}
		return describeFile(t, file.Path), file
	}
	whole, wholeFile := write(RowGroupRows)
	small, smallFile := write(RowGroupRows / 8)
	if whole != small {
		t.Errorf("written in whole groups:\n%s\nin small batches:\n%s", whole, small)
	}
	if wholeFile.Rows != smallFile.Rows || wholeFile.MinLSN != smallFile.MinLSN || wholeFile.MaxLSN != smallFile.MaxLSN {
		t.Errorf("%+v and %+v", wholeFile, smallFile)
	}
	if wholeFile.Bytes > smallFile.Bytes*11/10 {
		t.Errorf("%d bytes in whole groups, %d in small batches", wholeFile.Bytes, smallFile.Bytes)
	}
	r, err := w.OpenData(wholeFile.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ids := make([]int32, len(fields))
	for i := range ids {
		id, err := fieldIDOf(loc.Schema.Field(i))
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = int32(id)
	}
	next := 0
	err = r.Columns(t.Context(), ids, func(rec arrow.RecordBatch, first int64) error {
		for i := range int(rec.NumRows()) {
			for c := range fields {
				want, ok := value(c, next)
				a := rec.Column(c)
				got := ""
				if !a.IsNull(i) {
					got = string(cell(a, i))
				}
				if a.IsNull(i) == ok || ok && got != want {
					return fmt.Errorf("row %d, column %d: %q, want %q, %v", next, c, got, want, ok)
				}
			}
			next++
		}
		return nil
	})
	if err != nil || next != rows {
		t.Fatalf("%d rows: %v", next, err)
	}
}

func cell(a arrow.Array, i int) []byte {
	if s, ok := a.(*array.String); ok {
		return []byte(s.Value(i))
	}
	return a.(*array.Binary).Value(i)
}

// describeFile lists each column chunk's statistics and whether it has a dictionary.
func describeFile(t *testing.T, path string) string {
	r, err := openData(OS, path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	pq := r.pq.ParquetReader()
	for g := range pq.NumRowGroups() {
		for c := range pq.MetaData().RowGroup(g).NumColumns() {
			chunk, err := pq.MetaData().RowGroup(g).ColumnChunk(c)
			if err != nil {
				t.Fatal(err)
			}
			stats, err := chunk.Statistics()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "group %d column %d: %d values, %d NULL, %q to %q, %v\n", g, c, chunk.NumValues(), stats.NullCount(), stats.EncodeMin(), stats.EncodeMax(), chunk.HasDictionaryPage())
		}
	}
	return out.String()
}
