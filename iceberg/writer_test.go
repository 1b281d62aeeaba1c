package iceberg

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"pgregory.net/rapid"
)

// A batch that does not fit the table is refused, the file becomes useless, and nothing stays on disk after Close.
func TestWriterRefuses(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir()})
	loc := newLocation(t, "a")
	lsnField := arrow.Field{Name: LSNColumn, Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	fromJSON := func(rows string, fields ...arrow.Field) arrow.RecordBatch {
		rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrow.NewSchema(fields, nil), strings.NewReader(rows))
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	id, name := arrow.Field{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, arrow.Field{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true}
	wrong := name
	wrong.Type = arrow.PrimitiveTypes.Int32
	for what, rec := range map[string]arrow.RecordBatch{
		"no hidden column":       fromJSON(`[{"id": 1, "name": "x"}]`, id, name),
		"wrong type":             fromJSON(`[{"id": 1, "name": 2, "_pgmirror_lsn": 1}]`, id, wrong, lsnField),
		"NULL in a required":     fromJSON(`[{"id": null, "name": "x", "_pgmirror_lsn": 1}]`, id, name, lsnField),
		"NULL lsn":               fromJSON(`[{"id": 1, "name": "x", "_pgmirror_lsn": null}]`, id, name, lsnField),
		"lsn above the range":    fromJSON(`[{"id": 1, "name": "x", "_pgmirror_lsn": -1}]`, id, name, lsnField),
		"nothing written at all": nil,
	} {
		x, err := w.NewWriter(t.Context(), loc)
		if err != nil {
			t.Fatal(err)
		}
		if rec != nil {
			if err := x.Write(testRecord(loc.Schema, []int64{1}, []int64{1})); err != nil {
				t.Fatal(err)
			}
			if err := x.Write(rec); err == nil || !strings.Contains(err.Error(), x.Path()) {
				t.Errorf("%s: error %v", what, err)
			}
		}
		if _, err := x.Close(); err == nil {
			t.Errorf("%s: the file was finished", what)
		}
		if _, err := os.Stat(x.Path()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file stays: %v", what, err)
		}
		if err := x.Write(testRecord(loc.Schema, []int64{1}, []int64{1})); err == nil {
			t.Errorf("%s: written after Close", what)
		}
	}
	bad := loc
	bad.UUID = "../../etc"
	if _, err := w.NewWriter(t.Context(), bad); err == nil {
		t.Error("a uuid with slashes was taken")
	}
}

// Field ids: existing ones stay, new ones follow the last, the hidden column's is never given.
func TestAssignFieldIDs(t *testing.T) {
	list := arrow.ListOfField(arrow.Field{Name: "element", Type: arrow.PrimitiveTypes.Int32, Nullable: true})
	first, last := AssignFieldIDs(arrow.NewSchema([]arrow.Field{{Name: "a", Type: list}, {Name: "b", Type: arrow.PrimitiveTypes.Int64}}, nil), 0)
	if got := fieldIDs(first); !slices.Equal(got, []int{2, 4, 3}) || last != 4 {
		t.Errorf("ids %v, last %d", got, last)
	}
	again, last := AssignFieldIDs(arrow.NewSchema(append(first.Fields(), arrow.Field{Name: "c", Type: list}), nil), 7)
	if got := fieldIDs(again); !slices.Equal(got, []int{2, 4, 3, 8, 9}) || last != 9 {
		t.Errorf("ids %v, last %d", got, last)
	}
}

func fieldIDs(s *arrow.Schema) (ids []int) {
	for _, f := range s.Fields() {
		id, _ := fieldIDOf(f)
		ids = append(ids, id)
		if list, ok := f.Type.(*arrow.ListType); ok {
			id, _ := fieldIDOf(list.ElemField())
			ids = append(ids, id)
		}
	}
	return ids
}

// A truncated bound is short and still on its side of the value.
func TestTruncatedBounds(t *testing.T) {
	node := func(logical schema.LogicalType) schema.Node {
		return schema.MustPrimitive(schema.NewPrimitiveNodeLogical("x", parquet.Repetitions.Optional, logical, parquet.Types.ByteArray, -1, 1))
	}
	text, binary := node(schema.StringLogicalType{}), node(schema.NoLogicalType{})
	check := func(t *rapid.T, n schema.Node, v []byte, length func([]byte) int) {
		lower, ok := truncateLower(n, v)
		if !ok || bytes.Compare(lower, v) > 0 || length(lower) > boundLength {
			t.Fatalf("lower bound of %x: %x, %v", v, lower, ok)
		}
		if upper, ok := truncateUpper(n, v); ok && (bytes.Compare(upper, v) < 0 || length(upper) > boundLength) {
			t.Fatalf("upper bound of %x: %x", v, upper)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		runes := rapid.SliceOfN(rapid.SampledFrom([]rune{'a', 0x7f, 0xd7ff, 0xe000, 0xffff, 0x10ffff}), 0, 20).Draw(t, "text")
		check(t, text, []byte(string(runes)), func(b []byte) int { return len([]rune(string(b))) })
		b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x7f, 0xfe, 0xff}), 0, 20).Draw(t, "bytes")
		check(t, binary, b, func(b []byte) int { return len(b) })
	})
	if upper, ok := truncateUpper(text, []byte(strings.Repeat("\U0010ffff", 17))); ok {
		t.Errorf("no text is above the highest: %x", upper)
	}
	if upper, ok := truncateUpper(text, []byte("aaaaaaaaaaaaaaa\U0010ffffz")); !ok || string(upper) != "aaaaaaaaaaaaaab" {
		t.Errorf("upper bound %q, %v", upper, ok)
	}
}
