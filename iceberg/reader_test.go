package iceberg

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"
)

// wideFile writes rows of (id, low, big, list): a low-cardinality text, a text of its own in each row, a list.
func wideFile(t testing.TB, w *Warehouse, rows int) DataFile {
	t.Helper()
	schema, _ := AssignFieldIDs(arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "low", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "big", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "list", Type: arrow.ListOfField(arrow.Field{Name: "element", Type: arrow.PrimitiveTypes.Int32, Nullable: true}), Nullable: true},
	}, nil), 0)
	x, err := w.NewWriter(t.Context(), TableLocation{Name: TableName{Schema: "public", Name: "wide"}, UUID: uuid.NewString(), Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	fields := append(append([]arrow.Field{}, schema.Fields()...), arrow.Field{Name: LSNColumn, Type: arrow.PrimitiveTypes.Int64})
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	for row := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(row))
		b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("color %d", row%7))
		if row%10 == 3 {
			b.Field(2).AppendNull()
		} else {
			b.Field(2).(*array.StringBuilder).Append(bigText(row))
		}
		list := b.Field(3).(*array.ListBuilder)
		list.Append(true)
		for i := range row % 4 {
			list.ValueBuilder().(*array.Int32Builder).Append(int32(row + i))
		}
		b.Field(4).(*array.Int64Builder).Append(int64(row))
		if (row+1)%8192 == 0 || row == rows-1 {
			if err := x.Write(b.NewRecordBatch()); err != nil {
				t.Fatal(err)
			}
		}
	}
	file, err := x.Close()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func bigText(row int) string { return fmt.Sprintf("%d %s", row*7919, strings.Repeat("x", row%60)) }

func wideText(row int) string {
	big, list := bigText(row), []string{}
	if row%10 == 3 {
		big = array.NullValueStr
	}
	for i := range row % 4 {
		list = append(list, fmt.Sprint(row+i))
	}
	return fmt.Sprintf("[%s]|color %d|%s|%d|", strings.Join(list, ","), row%7, big, row)
}

// A point read gives the row at that position, whichever was read before, within and across pages and row groups; wanted
// columns come in the wanted order, the hidden one too.
func TestRowAnywhere(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir(), Files: newForgetful()})
	const rows = 2*RowGroupRows + 1000
	file := wideFile(t, w, rows)
	r, err := w.OpenData(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	random := rand.New(rand.NewPCG(1, 1))
	ids := []int32{5, 3, 4, LSNFieldID}
	for i := range 120 {
		row := random.IntN(rows)
		switch i % 6 {
		case 0:
			row = RowGroupRows - 1 + random.IntN(2)
		case 1:
			row = []int{0, rows - 1}[random.IntN(2)]
		}
		rec, err := r.Row(int64(row), ids)
		if err != nil {
			t.Fatal(err)
		}
		compareRows(t, fmt.Sprintf("row %d", row), rowTexts(rec), []string{wideText(row)})
		rec.Release()
	}
	for _, row := range []int64{-1, rows} {
		if _, err := r.Row(row, ids); err == nil {
			t.Errorf("row %d of %d was read", row, rows)
		}
	}
	if _, err := r.Row(0, []int32{99}); err == nil || !strings.Contains(err.Error(), "field id 99") {
		t.Errorf("unknown column: error %v", err)
	}
	for _, encoding := range encodingsOf(t, file.Path, 1) {
		if encoding != "RLE_DICTIONARY" && encoding != "PLAIN" && encoding != "RLE" {
			t.Errorf("low-cardinality column is encoded as %s", encoding)
		}
	}
}

func encodingsOf(t testing.TB, path string, leaf int) (names []string) {
	r, err := openData(OS, path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	chunk, err := r.pq.ParquetReader().MetaData().RowGroup(0).ColumnChunk(leaf)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range chunk.Encodings() {
		names = append(names, e.String())
	}
	return names
}

// A file that was cut gives an error; one with a wrong byte in its footer gives one too or reads through. Nothing panics.
func TestDamagedDataFile(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir(), Files: newForgetful()})
	file := wideFile(t, w, 3000)
	good, err := os.ReadFile(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(2, 2))
	path := t.TempDir() + "/damaged.parquet"
	for i := range 60 {
		bad, short := append([]byte{}, good...), i%2 == 0
		if short {
			bad = bad[:random.IntN(len(bad))]
		} else {
			// The footer's length and magic stay, so that the reader goes on.
			at := len(bad) - 8 - 1 - random.IntN(min(2000, len(bad)-8))
			bad[at] ^= byte(1 + random.IntN(255))
		}
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		err := readWhole(t, w, path)
		if err != nil && !errors.Is(err, ErrCorrupt) || err == nil && short {
			t.Errorf("damage %d (cut: %v): error %v, want ErrCorrupt", i, short, err)
		}
	}
}

func readWhole(t *testing.T, w *Warehouse, path string) error {
	r, err := w.OpenData(path)
	if err != nil {
		return err
	}
	defer r.Close()
	ids := []int32{5, 3, 4, LSNFieldID}
	for id := range r.roots {
		if !slices.Contains(ids, id) && id != 2 {
			return nil // the damage is in a field id: the engine asks by id and gets an error
		}
	}
	if err := r.Columns(t.Context(), ids, func(rec arrow.RecordBatch, first int64) error { return nil }); err != nil {
		return err
	}
	rec, err := r.Row(r.Rows()-1, ids)
	if err == nil {
		rec.Release()
	}
	return err
}

func BenchmarkRow(b *testing.B) {
	w, _ := openLoaded(b, Config{Dir: b.TempDir()})
	const rows = 1_000_000
	file := wideFile(b, w, rows)
	b.Logf("%.1f bytes/row", float64(file.Bytes)/rows)
	random := rand.New(rand.NewPCG(1, 1))
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			r, err := w.OpenData(file.Path)
			if err != nil {
				b.Fatal(err)
			}
			rec, err := r.Row(random.Int64N(rows), []int32{4})
			if err != nil {
				b.Fatal(err)
			}
			rec.Release()
			r.Close()
		}
	})
	r, err := w.OpenData(file.Path)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	b.Run("random", func(b *testing.B) {
		for b.Loop() {
			rec, err := r.Row(random.Int64N(rows), []int32{4})
			if err != nil {
				b.Fatal(err)
			}
			rec.Release()
		}
	})
	b.Run("near", func(b *testing.B) {
		var row int64
		for b.Loop() {
			row = (row + 3) % rows
			rec, err := r.Row(row, []int32{4})
			if err != nil {
				b.Fatal(err)
			}
			rec.Release()
		}
	})
}
