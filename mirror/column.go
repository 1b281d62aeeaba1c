package mirror

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/globalindex"
)

// column is one column of a memory batch: values in Arrow's physical layout, appended in place. It takes decoded values as
// a pgcdc.Sink. Booleans and validity take a byte a row, so that a reader of the first rows never shares a byte with the
// writer of the next; they are packed into bits when an Arrow array is made.
type column struct {
	typ   arrow.DataType
	width int // bytes of a value; 0 when the length varies or the value is a list

	rows  int
	valid vec[byte]  // exists from the first NULL on
	nulls bool       // the writer's: valid exists
	ends  vec[int32] // where a variable-length value or list ends; where it starts is the end before it
	data  vec[byte]
	child *column // a list's elements
	list  bool    // between BeginList and EndList: values go to child
	limit int     // bytes that data may have; only when the length varies
	over  bool    // a value did not fit; its row must be taken back
}

func newColumn(typ arrow.DataType) *column {
	c := &column{typ: typ, limit: math.MaxInt32}
	switch t := typ.(type) {
	case *arrow.ListType:
		c.child = newColumn(t.Elem())
	case *arrow.BooleanType:
		c.width = 1
	case arrow.ExtensionType:
		c.width = t.StorageType().(arrow.FixedWidthDataType).Bytes()
	case arrow.FixedWidthDataType:
		c.width = t.Bytes()
	}
	return c
}

// finish counts the value that was just written.
func (c *column) finish() {
	c.rows++
	if c.nulls {
		c.valid.push(1)
	}
}

func (c *column) Null() {
	if c.list {
		c.child.Null()
		return
	}
	if !c.nulls {
		ones := make([]byte, c.rows, max(2*c.rows, 16))
		for i := range ones {
			ones[i] = 1
		}
		c.valid.adopt(ones)
		c.nulls = true
	}
	c.valid.push(0)
	c.rows++
	switch {
	case c.child != nil:
		c.ends.push(int32(c.child.rows))
	case c.width == 0:
		c.ends.push(int32(c.data.len()))
	default:
		c.data.extend(c.width)
	}
}

func (c *column) Bool(v bool) {
	if c.list {
		c.child.Bool(v)
		return
	}
	b := byte(0)
	if v {
		b = 1
	}
	c.data.push(b)
	c.finish()
}

func (c *column) Int32(v int32) {
	if c.list {
		c.child.Int32(v)
		return
	}
	c.data.reserve(4)
	c.data.own = binary.LittleEndian.AppendUint32(c.data.own, uint32(v))
	c.finish()
}

func (c *column) Int64(v int64) {
	if c.list {
		c.child.Int64(v)
		return
	}
	c.data.reserve(8)
	c.data.own = binary.LittleEndian.AppendUint64(c.data.own, uint64(v))
	c.finish()
}

func (c *column) Float32(v float32)      { c.Int32(int32(math.Float32bits(v))) }
func (c *column) Float64(v float64)      { c.Int64(int64(math.Float64bits(v))) }
func (c *column) Date(days int32)        { c.Int32(days) }
func (c *column) Time(micros int64)      { c.Int64(micros) }
func (c *column) Timestamp(micros int64) { c.Int64(micros) }

func (c *column) Decimal(hi int64, lo uint64) {
	if c.list {
		c.child.Decimal(hi, lo)
		return
	}
	c.data.reserve(16)
	c.data.own = binary.LittleEndian.AppendUint64(c.data.own, lo)
	c.data.own = binary.LittleEndian.AppendUint64(c.data.own, uint64(hi))
	c.finish()
}

func (c *column) UUID(v *[16]byte) {
	if c.list {
		c.child.UUID(v)
		return
	}
	c.data.pushAll(v[:])
	c.finish()
}

func (c *column) String(v []byte) { c.Binary(v) }

func (c *column) Binary(v []byte) {
	if c.list {
		c.child.Binary(v)
		return
	}
	if len(v) > c.limit-c.data.len() {
		c.over, v = true, nil
	}
	c.data.pushAll(v)
	c.ends.push(int32(c.data.len()))
	c.finish()
}

// full says whether a value did not fit.
func (c *column) full() bool { return c.over || c.child != nil && c.child.over }

// rowBytes is the size of the value in row, in bytes; the writer's.
func (c *column) rowBytes(row int) int64 {
	if c.child == nil && c.width > 0 {
		return int64(c.width)
	}
	from, to := c.span(row)
	if c.child == nil {
		return int64(to - from)
	}
	if c.child.width > 0 {
		return int64(c.child.width) * int64(to-from)
	}
	return int64(c.child.ownEnd(to) - c.child.ownEnd(from))
}

func (c *column) BeginList(int) { c.list = true }

func (c *column) EndList() {
	c.list = false
	c.ends.push(int32(c.child.rows))
	c.finish()
}

// truncate takes back rows that no reader has been told of, a half-written list included.
func (c *column) truncate(rows int) {
	c.list, c.over = false, false
	c.rows = rows
	if c.nulls {
		c.valid.truncate(rows)
	}
	switch {
	case c.child != nil:
		c.ends.truncate(rows)
		c.child.truncate(c.ownEnd(rows))
	case c.width == 0:
		c.ends.truncate(rows)
		c.data.truncate(c.ownEnd(rows))
	default:
		c.data.truncate(rows * c.width)
	}
}

// ownEnd is where the first rows values end; the writer's.
func (c *column) ownEnd(rows int) int {
	if rows == 0 {
		return 0
	}
	return int(c.ends.own[rows-1])
}

// span is where value row lies, in bytes of data or rows of child; the writer's.
func (c *column) span(row int) (from, to int) { return c.ownEnd(row), int(c.ends.own[row]) }

// isNull is the writer's.
func (c *column) isNull(row int) bool { return c.nulls && c.valid.own[row] == 0 }

// bytes is the memory taken, in bytes.
func (c *column) bytes() int64 {
	n := int64(cap(c.valid.own)) + 4*int64(cap(c.ends.own)) + int64(cap(c.data.own))
	if c.child != nil {
		n += c.child.bytes()
	}
	return n
}

// appendKey appends the canonical encoding of a value (docs/formats/keys.md); the writer's.
func (c *column) appendKey(dst []byte, row int) []byte {
	if c.isNull(row) {
		return globalindex.AppendNull(dst)
	}
	switch {
	case c.child != nil:
		from, to := c.span(row)
		dst = globalindex.AppendList(dst, to-from)
		for i := from; i < to; i++ {
			dst = c.child.appendKey(dst, i)
		}
		return dst
	case c.width == 0:
		from, to := c.span(row)
		return globalindex.AppendBytes(dst, c.data.own[from:to])
	default:
		return globalindex.AppendFixed(dst, c.data.own[row*c.width:(row+1)*c.width])
	}
}

// integer is the value of a fixed-width column of at most 8 bytes; the writer's.
func (c *column) integer(row int) int64 {
	switch c.width {
	case 1:
		return int64(c.data.own[row])
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(c.data.own[row*4:])))
	default:
		return int64(binary.LittleEndian.Uint64(c.data.own[row*8:]))
	}
}

// appendFrom appends value row of a column of the same type; both are the writer's.
func (c *column) appendFrom(src *column, row int) {
	if src.isNull(row) {
		c.Null()
		return
	}
	switch {
	case c.child != nil:
		from, to := src.span(row)
		for i := from; i < to; i++ {
			c.child.appendFrom(src.child, i)
		}
		c.EndList()
	case c.width == 0:
		from, to := src.span(row)
		c.Binary(src.data.own[from:to])
	default:
		c.data.pushAll(src.data.own[row*c.width : (row+1)*c.width])
		c.finish()
	}
}

// appendArray appends value i of an Arrow array of the same type, as read back from a file.
func (c *column) appendArray(a arrow.Array, i int) error {
	if a.IsNull(i) {
		c.Null()
		return nil
	}
	switch a := a.(type) {
	case *array.Boolean:
		c.Bool(a.Value(i))
	case *array.Int32:
		c.Int32(a.Value(i))
	case *array.Int64:
		c.Int64(a.Value(i))
	case *array.Float32:
		c.Float32(a.Value(i))
	case *array.Float64:
		c.Float64(a.Value(i))
	case *array.Date32:
		c.Date(int32(a.Value(i)))
	case *array.Time64:
		c.Time(int64(a.Value(i)))
	case *array.Timestamp:
		c.Timestamp(int64(a.Value(i)))
	case *array.Decimal128:
		v := a.Value(i)
		c.Decimal(v.HighBits(), v.LowBits())
	case *array.String:
		c.Binary([]byte(a.Value(i)))
	case *array.Binary:
		c.Binary(a.Value(i))
	case *array.LargeString:
		c.Binary([]byte(a.Value(i)))
	case *array.FixedSizeBinary:
		c.data.pushAll(a.Value(i))
		c.finish()
	case array.ExtensionArray:
		return c.appendArray(a.Storage(), i)
	case array.ListLike:
		if c.child == nil {
			return fmt.Errorf("column holds %s, file holds %s", c.typ, a.DataType())
		}
		from, to := a.ValueOffsets(i)
		for j := from; j < to; j++ {
			if err := c.child.appendArray(a.ListValues(), int(j)); err != nil {
				return err
			}
		}
		c.EndList()
	default:
		return fmt.Errorf("column holds %s, file holds %s", c.typ, a.DataType())
	}
	return nil
}

// array makes an Arrow array of rows [from, to), which lie below a published count. It shares the column's memory but for
// validity and booleans. Any goroutine may call it.
func (c *column) array(from, to int) arrow.Array {
	n := to - from
	var validity *memory.Buffer
	nulls := 0
	if n > 0 && c.valid.present() {
		validity, nulls = packBits(c.valid.read(to)[from:])
		nulls = n - nulls
		if nulls == 0 {
			validity = nil
		}
	}
	var buffers []*memory.Buffer
	var children []arrow.ArrayData
	switch {
	case c.child != nil:
		offsets, end := c.offsets(from, to)
		child := c.child.array(0, end)
		children = []arrow.ArrayData{child.Data()}
		buffers = []*memory.Buffer{validity, offsets}
	case c.width == 0:
		offsets, end := c.offsets(from, to)
		buffers = []*memory.Buffer{validity, offsets, memory.NewBufferBytes(c.data.read(end))}
	case c.typ.ID() == arrow.BOOL:
		bits, _ := packBits(c.data.read(to)[min(from, len(c.data.read(to))):])
		buffers = []*memory.Buffer{validity, bits}
	default:
		data := c.data.read(to * c.width)
		if n > 0 {
			data = data[from*c.width:]
		}
		buffers = []*memory.Buffer{validity, memory.NewBufferBytes(data)}
	}
	return array.MakeFromData(array.NewData(c.typ, n, buffers, children, nulls, 0))
}

// offsets makes the offset buffer of rows [from, to) and says where the last value ends.
func (c *column) offsets(from, to int) (*memory.Buffer, int) {
	ends := c.ends.read(to)
	if to == 0 {
		return memory.NewBufferBytes(make([]byte, 4)), 0
	}
	if from > 0 {
		return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends[from-1 : to])), int(ends[to-1])
	}
	offsets := make([]int32, to+1)
	copy(offsets[1:], ends)
	return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), int(ends[to-1])
}

// packBits turns one byte a row into one bit a row and counts the ones.
func packBits(bytes []byte) (*memory.Buffer, int) {
	bits := make([]byte, bitutil.BytesForBits(int64(len(bytes))))
	ones := 0
	for i, b := range bytes {
		bits[i>>3] |= b << (i & 7)
		ones += int(b)
	}
	return memory.NewBufferBytes(bits), ones
}

// lsnArray makes the hidden column of rows whose create LSNs are given.
func lsnArray(lsns []uint64) arrow.Array {
	b := arrow.Uint64Traits.CastToBytes(lsns)
	return array.NewInt64Data(array.NewData(arrow.PrimitiveTypes.Int64, len(lsns), []*memory.Buffer{nil, memory.NewBufferBytes(b)}, nil, 0, 0))
}

// sliceArray is rows [from, to) of an array, sharing its memory.
func sliceArray(data arrow.ArrayData, from, to int) arrow.Array {
	return array.MakeFromData(array.NewSliceData(data, int64(from), int64(to)))
}

// ownArray is everything the writer has written; the writer's.
func (c *column) ownArray() arrow.Array { return c.array(0, c.rows) }
