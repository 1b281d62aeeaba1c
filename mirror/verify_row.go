package mirror

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/zeebo/xxh3"

	"pgmirror/globalindex"
)

// rowEncoder makes one row's bytes at a time, in the canonical encoding of docs/formats/keys.md, from either side: as a
// pgcdc.Sink from what the source sends, and by valueAppenders from the mirror's Arrow arrays. Two rows have the same bytes
// when PostgreSQL would call every value of them identical, except that a long value stands for itself by its hash.
type rowEncoder struct {
	buf   []byte
	ends  []int // where each column's value ends
	whole bool  // the value that comes next is written out, however long it is
}

// longValue is the number of bytes from which a value is represented by its length and 128-bit hash, so that a row takes
// little memory however large its values are.
const longValue = 1 << 10

// keepBuffer is the largest buffer that is kept for the next row.
const keepBuffer = 1 << 20

func (e *rowEncoder) begin() {
	if cap(e.buf) > keepBuffer {
		e.buf = nil
	}
	e.buf, e.ends = e.buf[:0], e.ends[:0]
}

func (e *rowEncoder) end() { e.ends = append(e.ends, len(e.buf)) }

// from is where column i begins.
func (e *rowEncoder) from(i int) int {
	if i == 0 {
		return 0
	}
	return e.ends[i-1]
}

// value is the encoding of column i.
func (e *rowEncoder) value(i int) []byte { return e.buf[e.from(i):e.ends[i]] }

func (e *rowEncoder) Null() { e.buf = globalindex.AppendNull(e.buf) }

func (e *rowEncoder) Bool(v bool) {
	b := [1]byte{}
	if v {
		b[0] = 1
	}
	e.buf = globalindex.AppendFixed(e.buf, b[:])
}

func (e *rowEncoder) Int32(v int32) { e.buf = appendFixed32(e.buf, uint32(v)) }
func (e *rowEncoder) Int64(v int64) { e.buf = appendFixed64(e.buf, uint64(v)) }

func (e *rowEncoder) Float32(v float32)      { e.Int32(int32(math.Float32bits(v))) }
func (e *rowEncoder) Float64(v float64)      { e.Int64(int64(math.Float64bits(v))) }
func (e *rowEncoder) Date(days int32)        { e.Int32(days) }
func (e *rowEncoder) Time(micros int64)      { e.Int64(micros) }
func (e *rowEncoder) Timestamp(micros int64) { e.Int64(micros) }

func (e *rowEncoder) Decimal(hi int64, lo uint64) { e.buf = appendDecimal(e.buf, hi, lo) }

func (e *rowEncoder) UUID(v *[16]byte) { e.buf = globalindex.AppendFixed(e.buf, v[:]) }

func (e *rowEncoder) String(v []byte) { e.Binary(v) }

func (e *rowEncoder) Binary(v []byte) { e.buf = appendVariable(e.buf, v, e.whole) }

func (e *rowEncoder) BeginList(elements int) { e.buf = globalindex.AppendList(e.buf, elements) }

func (e *rowEncoder) EndList() {}

func appendFixed32(dst []byte, v uint32) []byte {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	return globalindex.AppendFixed(dst, b[:])
}

func appendFixed64(dst []byte, v uint64) []byte {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	return globalindex.AppendFixed(dst, b[:])
}

func appendDecimal(dst []byte, hi int64, lo uint64) []byte {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], lo)
	binary.LittleEndian.PutUint64(b[8:], uint64(hi))
	return globalindex.AppendFixed(dst, b[:])
}

// appendVariable appends a value of a type with a variable width; a long one, unless it is wanted whole, as its length and hash.
func appendVariable(dst, v []byte, whole bool) []byte {
	if whole || len(v) < longValue {
		return globalindex.AppendBytes(dst, v)
	}
	h := xxh3.Hash128(v).Bytes()
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(v)))
	return append(globalindex.AppendFixed(dst, length[:]), h[:]...)
}

// valueAppender appends the encoding of one value of an array.
type valueAppender func(dst []byte, row int) []byte

// appenderOf gives an array's valueAppender. whole is as in rowEncoder.
func appenderOf(a arrow.Array, whole bool) (valueAppender, error) {
	value, err := plainAppender(a, whole)
	if err != nil || a.NullN() == 0 {
		return value, err
	}
	return func(dst []byte, row int) []byte {
		if a.IsNull(row) {
			return globalindex.AppendNull(dst)
		}
		return value(dst, row)
	}, nil
}

// plainAppender is the valueAppender of values that are not NULL.
func plainAppender(a arrow.Array, whole bool) (valueAppender, error) {
	switch a := a.(type) {
	case *array.Boolean:
		return func(dst []byte, row int) []byte {
			b := [1]byte{}
			if a.Value(row) {
				b[0] = 1
			}
			return globalindex.AppendFixed(dst, b[:])
		}, nil
	case *array.Int32:
		return func(dst []byte, row int) []byte { return appendFixed32(dst, uint32(a.Value(row))) }, nil
	case *array.Date32:
		return func(dst []byte, row int) []byte { return appendFixed32(dst, uint32(a.Value(row))) }, nil
	case *array.Float32:
		return func(dst []byte, row int) []byte { return appendFixed32(dst, math.Float32bits(a.Value(row))) }, nil
	case *array.Int64:
		return func(dst []byte, row int) []byte { return appendFixed64(dst, uint64(a.Value(row))) }, nil
	case *array.Time64:
		return func(dst []byte, row int) []byte { return appendFixed64(dst, uint64(a.Value(row))) }, nil
	case *array.Timestamp:
		return func(dst []byte, row int) []byte { return appendFixed64(dst, uint64(a.Value(row))) }, nil
	case *array.Float64:
		return func(dst []byte, row int) []byte { return appendFixed64(dst, math.Float64bits(a.Value(row))) }, nil
	case *array.Decimal128:
		return func(dst []byte, row int) []byte {
			v := a.Value(row)
			return appendDecimal(dst, v.HighBits(), v.LowBits())
		}, nil
	case *array.FixedSizeBinary:
		return func(dst []byte, row int) []byte { return globalindex.AppendFixed(dst, a.Value(row)) }, nil
	case *array.String:
		bytes, first := a.ValueBytes(), 0
		if a.Len() > 0 {
			first = a.ValueOffset(0)
		}
		return func(dst []byte, row int) []byte {
			from := a.ValueOffset(row) - first
			return appendVariable(dst, bytes[from:from+a.ValueLen(row)], whole)
		}, nil
	case *array.Binary:
		return func(dst []byte, row int) []byte { return appendVariable(dst, a.Value(row), whole) }, nil
	case array.ExtensionArray:
		return plainAppender(a.Storage(), whole)
	case array.ListLike:
		element, err := appenderOf(a.ListValues(), whole)
		if err != nil {
			return nil, err
		}
		return func(dst []byte, row int) []byte {
			from, to := a.ValueOffsets(row)
			dst = globalindex.AppendList(dst, int(to-from))
			for i := from; i < to; i++ {
				dst = element(dst, int(i))
			}
			return dst
		}, nil
	}
	return nil, fmt.Errorf("values of type %s cannot be compared", a.DataType())
}
