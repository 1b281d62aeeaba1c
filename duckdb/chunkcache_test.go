package duckdb

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"pgmirror/readstate"
)

func recordBuilder(s *arrow.Schema) *array.RecordBuilder {
	return array.NewRecordBuilder(memory.DefaultAllocator, s)
}

func appendInt32(b *array.RecordBuilder, field int, vals ...int32) {
	b.Field(field).(*array.Int32Builder).AppendValues(vals, nil)
}

// A repeated scan moves no bytes, and each column crosses once and only when a query names it.
func TestRepeatScanMovesNothing(t *testing.T) {
	rec := itemRows(0, 5000)
	src := &recordColumns{rec: rec}
	b := readstate.Batch{ID: batchIDs.Add(1), Sealed: true, Rows: 5000, Columns: src}
	db := openTest(t, fixed(table("items", itemSchema, nil, []readstate.Batch{b})))
	query(t, db, "SELECT count(*) FROM items")
	if n := src.cells.Load(); n != 0 {
		t.Errorf("count(*) read %d values", n)
	}
	query(t, db, "SELECT sum(a), sum(b) FROM items")
	if reads, cells := src.reads.Load(), src.cells.Load(); reads != 1 || cells != 10_000 {
		t.Errorf("two columns came in %d reads of %d values", reads, cells)
	}
	copied := db.chunks.bytesCopied.Load()
	if copied < 5000*12 {
		t.Errorf("%d bytes counted for 5000 rows of 12 bytes", copied)
	}
	for range 3 {
		query(t, db, "SELECT max(a), avg(b), count(*) FROM items where b > 10")
		query(t, db, "SELECT count(*) FROM items x JOIN items y ON x.a = y.a")
	}
	if n := db.chunks.bytesCopied.Load(); n != copied || src.reads.Load() != 1 {
		t.Errorf("repeated scans copied %d bytes in %d reads", n-copied, src.reads.Load()-1)
	}
	query(t, db, "SELECT max(s), max(a) FROM items")
	if reads, cells := src.reads.Load(), src.cells.Load(); reads != 2 || cells != 15_000 {
		t.Errorf("a third column came in %d reads of %d values in all", reads, cells)
	}
}

// Of an open batch that grows only the rows behind the last whole vector are read again, and an older state still reads
// its shorter prefix from the same vectors.
func TestOpenBatchGrows(t *testing.T) {
	src := &recordColumns{rec: itemRows(0, 8000)}
	id := batchIDs.Add(1)
	rows := 0
	p := &fakePinner{make: func(int) (*readstate.State, error) {
		return &readstate.State{LSN: 9, Tables: []*readstate.Table{table("items", itemSchema, nil, []readstate.Batch{{ID: id, Rows: rows, Columns: src}})}}, nil
	}}
	db := openTest(t, p)
	cells := int64(0)
	for _, step := range []struct {
		rows int
		read int64
	}{{1, 1}, {2047, 2047}, {2048, 2048}, {2049, 1}, {2500, 452}, {8000, 8000 - 2048}, {100, 0}, {2048, 0}, {8000, 0}} {
		rows = step.rows
		want := fmt.Sprintf("[[%d %d]]", rows, rows*(rows-1)/2)
		if got := query(t, db, "SELECT count(id), sum(id) FROM items"); fmt.Sprint(got) != want {
			t.Errorf("at %d rows: %v, want %s", rows, got, want)
		}
		if n := src.cells.Load() - cells; n != step.read {
			t.Errorf("at %d rows %d values were read, want %d", rows, n, step.read)
		}
		cells = src.cells.Load()
	}
}

// The cache stays within its bound, and what it had to evict is read again, rightly.
func TestCacheIsBounded(t *testing.T) {
	var batches []readstate.Batch
	for i := range 10 {
		batches = append(batches, batchOf(itemRows(i*3000, (i+1)*3000), nil))
	}
	db := openTest(t, fixed(table("items", itemSchema, nil, batches)))
	db.chunks.limit = 400_000
	for range 2 {
		if got := query(t, db, "SELECT count(s), sum(id), sum(b) FROM items"); fmt.Sprint(got) != "[[28235 449985000 112496250.0]]" {
			t.Errorf("got %v", got)
		}
		if db.chunks.used > db.chunks.limit || db.chunks.recent.Len() == 0 {
			t.Errorf("%d bytes cached in %d entries", db.chunks.used, db.chunks.recent.Len())
		}
	}
}

// brokenColumns answers with what a test says.
type brokenColumns struct{ arrays []arrow.Array }

func (b brokenColumns) Read([]int, int, int) ([]arrow.Array, error) { return b.arrays, nil }

// Columns that are not what the schema announces are an error, not a crash and not wrong rows.
func TestBrokenColumns(t *testing.T) {
	str := func(offsets []int32, data string) arrow.Array {
		return array.NewStringData(array.NewData(arrow.BinaryTypes.String, len(offsets)-1,
			[]*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), memory.NewBufferBytes([]byte(data))}, nil, 0, 0))
	}
	text := arrow.NewSchema([]arrow.Field{col("s", 1, arrow.BinaryTypes.String)}, nil)
	good := record(t, text, `[{"s":"x"},{"s":"y"}]`)
	for name, arrays := range map[string][]arrow.Array{
		"no columns":                  {},
		"0 rows of column \"s\"":      {array.NewSlice(good.Column(0), 0, 0)},
		"out of order":                {str([]int32{0, 5, 3}, "abcdef")},
		"not UTF-8":                   {str([]int32{0, 1, 2}, "a\xff")},
		"not UTF-8 ":                  {str([]int32{0, 1, 2}, "é")},
		"where VARCHAR was announced": {record(t, oneInt, `[{"v":1},{"v":2}]`).Column(0)},
	} {
		b := readstate.Batch{ID: batchIDs.Add(1), Rows: 2, Columns: brokenColumns{arrays}}
		db := openTest(t, fixed(table("x", text, nil, []readstate.Batch{b})))
		want := map[string]string{"no columns": "0 columns came for 1", "not UTF-8 ": "not UTF-8"}[name]
		if want == "" {
			want = name
		}
		mustFail(t, db, "SELECT max(s) FROM x", want)
	}
}

// Bits copied from any offset are the bits that were there.
func TestCopyBits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, offset := rapid.IntRange(1, 300).Draw(t, "n"), rapid.IntRange(0, 70).Draw(t, "offset")
		src := rapid.SliceOfN(rapid.Byte(), (n+offset+7)/8, (n+offset+7)/8).Draw(t, "src")
		words := make([]uint64, (n+63)/64)
		copyBits(words, src, offset, n)
		for i := range len(words) * 64 {
			want := i < n && src[(offset+i)/8]>>((offset+i)%8)&1 == 1
			if got := words[i/64]>>(i%64)&1 == 1; got != want {
				t.Fatalf("bit %d is %v", i, got)
			}
		}
	})
}

// liveRows lists exactly the rows that are not deleted, for any window of a bitmap.
func TestLiveRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dead := rapid.SliceOfN(rapid.Uint64(), 4, 4).Draw(t, "dead")
		from := rapid.IntRange(0, 255).Draw(t, "from")
		n := rapid.IntRange(0, 256-from).Draw(t, "n")
		var want []uint32
		for i := range n {
			if dead[(from+i)/64]>>((from+i)%64)&1 == 0 {
				want = append(want, uint32(i))
			}
		}
		sel := make([]uint32, n)
		if got := sel[:liveRows(sel, dead, from, n)]; !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// pgmirror_live answers by value, whatever form its arguments come in: constants, flat or dictionary vectors; a row or
// file that does not exist is an error.
func TestLiveArguments(t *testing.T) {
	f := fileOf(t, itemRows(0, 200), []uint32{0, 63, 64, 150}, 100)
	g := fileOf(t, itemRows(200, 400), nil, 100)
	p := fixed(table("items", itemSchema, []readstate.File{f, g}, nil))
	db := openTest(t, p)
	query(t, db, "BEGIN; SELECT max(id) FROM items")
	var id int64
	for id = range db.handles.open {
	}
	for sql, want := range map[string]string{
		"SELECT pgmirror_live(H, 0, 63), pgmirror_live(H, 0, 65), pgmirror_live(H, 1, 63)":                                  "[[false true true]]",
		"SELECT sum(r) FROM range(200) t(r) where NOT pgmirror_live(H, 0, r)":                                               "[[277]]",
		"SELECT sum(r) FROM range(200) t(r) where NOT pgmirror_live(H, (r % 2)::UINTEGER, r // 2 * 2)":                      "[[214]]",
		"SELECT count(*) FROM (SELECT r FROM range(200) t(r) where r % 3 = 0 order by r desc) where pgmirror_live(H, 0, r)": "[[64]]",
		"SELECT pgmirror_live(H, 0, NULL)": "[[<NULL>]]",
	} {
		if got := query(t, db, strings.ReplaceAll(sql, "H", fmt.Sprint(id))); fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", sql, got, want)
		}
	}
	query(t, db, "COMMIT; SELECT 1")
	for _, args := range []string{"0, 200", "0, 256", "0, -1", "1, 200", "2, 0"} {
		query(t, db, "BEGIN; SELECT max(id) FROM items")
		for id = range db.handles.open {
		}
		mustFail(t, db, fmt.Sprintf("SELECT pgmirror_live(%d, %s)", id, args), "pgmirror_live")
		query(t, db, "ROLLBACK")
	}
}
