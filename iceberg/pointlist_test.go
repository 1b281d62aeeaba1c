package iceberg

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"
)

// listRow is what the file of TestListAnywhere has in a row, by its number alone.
func listRow(row int, text bool) (elements []string, null bool) {
	r := rand.New(rand.NewPCG(uint64(row), 9))
	if r.IntN(6) == 0 {
		return nil, true
	}
	for range r.IntN(6) {
		switch {
		case r.IntN(6) == 0:
			elements = append(elements, "")
		case text:
			elements = append(elements, fmt.Sprintf("%d %s", row, strings.Repeat("x", r.IntN(40))))
		default:
			elements = append(elements, fmt.Sprint(r.Int32()))
		}
	}
	return elements, false
}

// A point read of lists gives the row's own elements, wherever the pages of each column and the windows of the reader begin and end.
func TestListAnywhere(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir(), Files: newForgetful()})
	list := func(elem arrow.DataType) arrow.DataType {
		return arrow.ListOfField(arrow.Field{Name: "element", Type: elem, Nullable: true})
	}
	schema, _ := AssignFieldIDs(arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "texts", Type: list(arrow.BinaryTypes.String), Nullable: true},
		{Name: "numbers", Type: list(arrow.PrimitiveTypes.Int32), Nullable: true}}, nil), 0)
	x, err := w.NewWriter(t.Context(), TableLocation{Name: TableName{Schema: "public", Name: "lists"}, UUID: uuid.NewString(), Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	x.groupLimit = 2 << 20
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(append(schema.Fields(), arrow.Field{Name: LSNColumn, Type: arrow.PrimitiveTypes.Int64}), nil))
	const rows = 40_000
	for row := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(row))
		for i, text := range []bool{true, false} {
			lists := b.Field(1 + i).(*array.ListBuilder)
			elements, null := listRow(row, text)
			lists.Append(!null)
			for _, e := range elements {
				if e == "" {
					lists.ValueBuilder().AppendNull()
				} else if err := lists.ValueBuilder().AppendValueFromString(e); err != nil {
					t.Fatal(err)
				}
			}
		}
		b.Field(3).(*array.Int64Builder).Append(int64(row))
		if (row+1)%5_000 == 0 {
			if err := x.Write(b.NewRecordBatch()); err != nil {
				t.Fatal(err)
			}
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
	if groups := r.pq.ParquetReader().NumRowGroups(); groups < 2 {
		t.Fatalf("%d row groups", groups)
	}
	random := rand.New(rand.NewPCG(3, 3))
	row := 0
	for i := range 600 {
		if row = (row + random.IntN(1_500)) % rows; i%3 == 0 { // ahead, to what may be in the window, the page or the row group, or anywhere
			row = random.IntN(rows)
		}
		if i%50 == 0 {
			row = []int{0, rows - 1}[i/50%2]
		}
		rec, err := r.Row(int64(row), []int32{4, LSNFieldID, 3, 2})
		if err != nil {
			t.Fatalf("row %d: %v", row, err)
		}
		for j, text := range map[int]bool{2: true, 0: false} {
			lists := rec.Column(j).(array.ListLike)
			want, null := listRow(row, text)
			if lists.IsNull(0) != null {
				t.Fatalf("row %d, column %d: NULL %t", row, j, lists.IsNull(0))
			}
			if null {
				continue
			}
			from, to := lists.ValueOffsets(0)
			var got []string
			for k := from; k < to; k++ {
				if e := lists.ListValues(); e.IsNull(int(k)) {
					got = append(got, "")
				} else {
					got = append(got, e.ValueStr(int(k)))
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("row %d, column %d: %q, want %q", row, j, got, want)
			}
		}
		if id := rec.Column(3).(*array.Int64).Value(0); id != int64(row) || rec.Column(1).(*array.Int64).Value(0) != id {
			t.Fatalf("row %d is row %d", row, id)
		}
		rec.Release()
	}
}
