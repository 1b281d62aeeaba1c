package mirror

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"pgmirror/globalindex"
	"pgmirror/pgcdc"
)

// columnTypes are the Arrow types that columns have, lists of each but lists included.
func columnTypes() (types []arrow.DataType) {
	for _, oid := range []uint32{oidBool, oidInt4, oidInt8, 700, oidFloat8, oidNumeric, oidText, oidBytea, oidUID, oidDate, 1083, 1114, oidTimestampTZ} {
		typ, err := arrowType(typeOf(oid))
		if err != nil {
			panic(err)
		}
		types = append(types, typ, arrow.ListOfField(arrow.Field{Name: "element", Type: typ, Nullable: true}))
	}
	return types
}

// both gives a random value to a column and to an Arrow builder of the same type, each through its own interface.
func both(rng *rand.Rand, typ arrow.DataType, c pgcdc.Sink, b array.Builder) {
	if rng.IntN(5) == 0 {
		c.Null()
		b.AppendNull()
		return
	}
	n := int64(rng.Uint64())
	switch b := b.(type) {
	case *array.BooleanBuilder:
		c.Bool(n < 0)
		b.Append(n < 0)
	case *array.Int32Builder:
		c.Int32(int32(n))
		b.Append(int32(n))
	case *array.Int64Builder:
		c.Int64(n)
		b.Append(n)
	case *array.Float32Builder:
		c.Float32(float32(n))
		b.Append(float32(n))
	case *array.Float64Builder:
		c.Float64(float64(n))
		b.Append(float64(n))
	case *array.Date32Builder:
		c.Date(int32(n))
		b.Append(arrow.Date32(int32(n)))
	case *array.Time64Builder:
		c.Time(n & 0xffff)
		b.Append(arrow.Time64(n & 0xffff))
	case *array.TimestampBuilder:
		c.Timestamp(n)
		b.Append(arrow.Timestamp(n))
	case *array.Decimal128Builder:
		c.Decimal(n>>20, uint64(n))
		b.Append(decimal128.New(n>>20, uint64(n)))
	case *array.StringBuilder:
		text := fmt.Sprint(n)[:rng.IntN(4)%len(fmt.Sprint(n))]
		c.String([]byte(text))
		b.Append(text)
	case *array.BinaryBuilder:
		bytes := []byte(fmt.Sprint(n))[:rng.IntN(2)]
		c.Binary(bytes)
		b.Append(bytes)
	case *array.FixedSizeBinaryBuilder:
		var v [16]byte
		for i := range v {
			v[i] = byte(rng.Uint32())
		}
		c.UUID(&v)
		b.Append(v[:])
	case *array.ListBuilder:
		elements := rng.IntN(4)
		c.BeginList(elements)
		b.Append(true)
		for range elements {
			both(rng, typ.(*arrow.ListType).Elem(), c, b.ValueBuilder())
		}
		c.EndList()
	default:
		panic(fmt.Sprintf("no builder for %s", typ))
	}
}

// TestColumnIsArrow: whatever is appended, taken back and appended again, every slice of a column is the array that Arrow's own
// builder makes of the same values.
func TestColumnIsArrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom(columnTypes()).Draw(t, "type")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "values"), 1))
		c := newColumn(typ)
		want := array.NewBuilder(memory.DefaultAllocator, typ)
		for range rapid.IntRange(0, 40).Draw(t, "rows") {
			// Rows that are taken back leave no trace, half-written lists included.
			scrap := array.NewBuilder(memory.DefaultAllocator, typ)
			for range rng.IntN(3) {
				both(rng, typ, c, scrap)
			}
			if list, ok := typ.(*arrow.ListType); ok && rng.IntN(2) == 0 {
				c.BeginList(9)
				both(rng, list.Elem(), c, array.NewBuilder(memory.DefaultAllocator, list.Elem()))
			}
			c.truncate(want.Len())
			both(rng, typ, c, want)
		}
		whole := want.NewArray()
		if c.rows != whole.Len() {
			t.Fatalf("%d rows, want %d", c.rows, whole.Len())
		}
		from := rapid.IntRange(0, c.rows).Draw(t, "from")
		to := rapid.IntRange(from, c.rows).Draw(t, "to")
		for _, r := range [][2]int{{from, to}, {0, c.rows}} {
			got, want := c.array(r[0], r[1]), array.NewSlice(whole, int64(r[0]), int64(r[1]))
			if !array.Equal(got, want) || got.NullN() != want.NullN() {
				t.Fatalf("rows %v: %s, want %s", r, got, want)
			}
		}
		// A copy by rows and one through Arrow are the same column, and so are the keys.
		byRow, byArray := newColumn(typ), newColumn(typ)
		for i := range c.rows {
			byRow.appendFrom(c, i)
			if err := byArray.appendArray(whole, i); err != nil {
				t.Fatal(err)
			}
			if c.isNull(i) != whole.IsNull(i) {
				t.Fatalf("row %d: NULL is %v", i, c.isNull(i))
			}
			k := string(c.appendKey(nil, i))
			if string(byRow.appendKey(nil, i)) != k || string(byArray.appendKey(nil, i)) != k {
				t.Fatalf("row %d has another key after a copy", i)
			}
		}
		if !array.Equal(byRow.ownArray(), whole) || !array.Equal(byArray.ownArray(), whole) {
			t.Fatalf("copies are %s and %s, want %s", byRow.ownArray(), byArray.ownArray(), whole)
		}
	})
}

// TestColumnRefusesOtherArrays: an array that does not fit the column is an error.
func TestColumnRefusesOtherArrays(t *testing.T) {
	list := array.NewListBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Int32)
	list.Append(true)
	struc := array.NewStructBuilder(memory.DefaultAllocator, arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32}))
	struc.Append(true)
	struc.FieldBuilder(0).AppendNull()
	c := newColumn(arrow.PrimitiveTypes.Int32)
	for _, a := range []arrow.Array{list.NewArray(), struc.NewArray()} {
		if err := c.appendArray(a, 0); err == nil {
			t.Errorf("%s went into a column of integers", a.DataType())
		}
	}
}

// TestColumnKey: the canonical encoding of docs/formats/keys.md, byte by byte.
func TestColumnKey(t *testing.T) {
	text := newColumn(arrow.BinaryTypes.String)
	text.String([]byte("ab"))
	text.Null()
	number := newColumn(arrow.PrimitiveTypes.Int32)
	number.Int32(-2)
	number.Int32(1)
	list := newColumn(arrow.ListOf(arrow.PrimitiveTypes.Int32))
	list.BeginList(2)
	list.Int32(5)
	list.Null()
	list.EndList()
	list.Null()
	key := []*column{text, number, list}
	for row, want := range []string{
		"\x01\x02ab" + "\x01\xfe\xff\xff\xff" + "\x01\x02\x01\x05\x00\x00\x00\x00",
		"\x00" + "\x01\x01\x00\x00\x00" + "\x00",
	} {
		if got := encodeKey(nil, key, row); string(got) != want {
			t.Errorf("row %d: %x, want %x", row, got, want)
		}
	}
	if number.integer(0) != -2 || globalindex.HashInt(number.integer(1)) != globalindex.HashInt(1) {
		t.Error("integers lose their sign or value")
	}
}

// TestColumnReadWhileWritten: readers of published rows are not disturbed by the writer, which appends, takes back and has the
// column's memory move.
func TestColumnReadWhileWritten(t *testing.T) {
	s := testShape(t, tableDef(1, "t", 'd', []int{0}, []int{0}, oidInt4, oidText, oidBool, oidInt4List))
	b := newBatch(s)
	const rows = 3000
	write := func(row int) {
		b.cols[0].Int32(int32(row))
		if row%7 == 6 { // the first NULL comes when readers are at work
			b.cols[1].Null()
		} else {
			b.cols[1].String([]byte(fmt.Sprint("row ", row)))
		}
		b.cols[2].Bool(row%3 == 0)
		b.cols[3].BeginList(row % 3)
		for i := range row % 3 {
			b.cols[3].Int32(int32(row + i))
		}
		b.cols[3].EndList()
		b.lsns.push(uint64(100 + row))
		b.rows++
	}
	var g sync.WaitGroup
	for reader := range 3 {
		g.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(reader), 5))
			for {
				n := b.visible(LSN(100 + rng.IntN(rows)))
				all := n == rows-1 || int(b.published.Load()) == rows
				n = int(b.published.Load())
				from := rng.IntN(n + 1)
				arrays, err := b.read(b.shape, []int{0, 1, 2, 3}, from, n)
				if err != nil {
					t.Error(err)
					return
				}
				for i := range n - from {
					row := from + i
					ok := arrays[0].(*array.Int32).Value(i) == int32(row) && arrays[1].IsNull(i) == (row%7 == 6) && arrays[2].(*array.Boolean).Value(i) == (row%3 == 0)
					if ok && !arrays[1].IsNull(i) {
						ok = arrays[1].(*array.String).Value(i) == fmt.Sprint("row ", row)
					}
					start, end := arrays[3].(*array.List).ValueOffsets(i)
					ok = ok && end-start == int64(row%3)
					if ok && end > start {
						ok = arrays[3].(*array.List).ListValues().(*array.Int32).Value(int(start)) == int32(row)
					}
					if !ok {
						t.Errorf("row %d of %d reads wrong", row, n)
						return
					}
				}
				if all {
					return
				}
			}
		})
	}
	for row := range rows {
		write(row)
		if row%5 == 0 { // a row that is taken back before anybody is told of it
			write(row + 1)
			b.truncate(row + 1)
		}
		b.publish()
	}
	b.seal()
	g.Wait()
	if got := b.visible(100 + 41); got != 42 {
		t.Errorf("%d rows are visible at the 42nd's LSN", got)
	}
	if got := b.visible(99); got != 0 {
		t.Errorf("%d rows are visible before the first", got)
	}
	if _, err := b.read(b.shape, []int{0}, 0, rows+1); err == nil {
		t.Error("rows past the end can be read")
	}
	if _, err := b.read(b.shape, []int{4}, 0, 1); err == nil {
		t.Error("a column that is not there can be read")
	}
}

// TestVec: a vec holds what was put in, and truncated elements make room for others.
func TestVec(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	var v vec[int32]
	var want []int32
	if v.present() || v.len() != 0 || v.read(0) != nil {
		t.Error("an empty vec has something")
	}
	for i := range int32(2000) {
		switch rng.IntN(5) {
		case 0:
			n := rng.IntN(len(want) + 1)
			v.truncate(n)
			want = want[:n]
		case 1:
			xs := []int32{i, i + 1, i + 2}
			v.pushAll(xs)
			want = append(want, xs...)
		case 2:
			copy(v.extend(2), []int32{i})
			want = append(want, i, 0)
		default:
			v.push(i)
			want = append(want, i)
		}
		got := v.read(len(want))
		if v.len() != len(want) {
			t.Fatalf("%d elements, want %d", v.len(), len(want))
		}
		for j := range want {
			if got[j] != want[j] {
				t.Fatalf("element %d is %d, want %d", j, got[j], want[j])
			}
		}
	}
}
