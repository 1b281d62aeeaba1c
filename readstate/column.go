package readstate

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// A column travels as nodes: one for the column, and one for each level of its lists. A node is a block of nodeHeader
// bytes (u64 NULLs; u64 bytes of text or rows of the element's node; zeros) and then its Arrow buffers, each padded with
// zeros to a multiple of bodyAlign: the validity bitmap if there are NULLs, then values, or offsets and text, or offsets.
// All other lengths follow from the row count and the type (docs/formats/readstate.md).
const nodeHeader = 64

var padding [bodyAlign]byte

// layout says how a type's values are stored.
type layout int

const (
	layoutFixed layout = iota // width bytes a value
	layoutBits                // one bit a value
	layoutText                // 32-bit offsets and bytes
	layoutList                // 32-bit offsets and an element node
)

func layoutOf(dt arrow.DataType) (kind layout, width int, err error) {
	switch typ := dt.(type) {
	case *arrow.BooleanType:
		return layoutBits, 0, nil
	case *arrow.StringType, *arrow.BinaryType:
		return layoutText, 0, nil
	case *arrow.ListType:
		return layoutList, 0, nil
	case *arrow.Int32Type, *arrow.Int64Type, *arrow.Float32Type, *arrow.Float64Type, *arrow.Date32Type, *arrow.Time64Type,
		*arrow.TimestampType, *arrow.Decimal128Type, *arrow.FixedSizeBinaryType:
		return layoutFixed, typ.(arrow.FixedWidthDataType).BitWidth() / 8, nil
	}
	return 0, 0, fmt.Errorf("%s has no form on the socket", dt)
}

// encodedColumn is a column's bytes in pieces; most are the array's own buffers, lent until it is written.
type encodedColumn struct {
	pieces [][]byte
	size   int64
}

func (e *encodedColumn) add(b []byte) {
	if len(b) == 0 {
		return
	}
	e.pieces = append(e.pieces, b)
	if rest := len(b) % bodyAlign; rest != 0 {
		e.pieces = append(e.pieces, padding[rest:])
	}
	e.size += int64(len(b)+bodyAlign-1) / bodyAlign * bodyAlign
}

// encodeColumn lays out a column of the given type. The array may be a slice of a larger one.
func encodeColumn(dt arrow.DataType, column arrow.Array) (encodedColumn, error) {
	var out encodedColumn
	err := out.node(dt, column.Data(), 0, column.Len())
	return out, err
}

// node adds rows [from, from+rows) of data.
func (e *encodedColumn) node(dt arrow.DataType, data arrow.ArrayData, from, rows int) error {
	kind, width, err := layoutOf(dt)
	if err != nil {
		return err
	}
	if data.DataType().ID() != dt.ID() || kind != layoutList && !arrow.TypeEqual(data.DataType(), dt) {
		return fmt.Errorf("column is %s, the table's schema says %s", data.DataType(), dt)
	}
	buffers := data.Buffers()
	from += data.Offset()
	head := make([]byte, nodeHeader)
	e.add(head)
	if valid := bufferBytes(buffers, 0); len(valid) > 0 && rows > 0 {
		if nulls := rows - bitutil.CountSetBits(valid, from, rows); nulls > 0 {
			binary.LittleEndian.PutUint64(head, uint64(nulls))
			e.add(copyBits(valid, from, rows))
		}
	}
	switch kind {
	case layoutFixed:
		if rows > 0 {
			e.add(bufferBytes(buffers, 1)[from*width : (from+rows)*width])
		}
	case layoutBits:
		if rows > 0 {
			e.add(copyBits(bufferBytes(buffers, 1), from, rows))
		}
	case layoutText:
		offsets, first, last := rebasedOffsets(bufferBytes(buffers, 1), from, rows)
		binary.LittleEndian.PutUint64(head[8:], uint64(last-first))
		e.add(offsets)
		if last > first {
			e.add(bufferBytes(buffers, 2)[first:last])
		}
	case layoutList:
		offsets, first, last := rebasedOffsets(bufferBytes(buffers, 1), from, rows)
		binary.LittleEndian.PutUint64(head[8:], uint64(last-first))
		e.add(offsets)
		return e.node(dt.(*arrow.ListType).Elem(), data.Children()[0], int(first), int(last-first))
	}
	return nil
}

func bufferBytes(buffers []*memory.Buffer, i int) []byte {
	if i >= len(buffers) || buffers[i] == nil {
		return nil
	}
	return buffers[i].Bytes()
}

// copyBits returns count bits from position from on, moved to position 0; the bits after them are zero.
func copyBits(bits []byte, from, count int) []byte {
	out := make([]byte, bitutil.BytesForBits(int64(count)))
	bitutil.CopyBitmap(bits, from, count, out, 0)
	return out
}

// rebasedOffsets returns rows+1 offsets that start at 0, and the range of what they point into.
func rebasedOffsets(offsets []byte, from, rows int) (out []byte, first, last int32) {
	if rows == 0 {
		return make([]byte, 4), 0, 0
	}
	offsets = offsets[4*from : 4*(from+rows+1)]
	first = int32(binary.LittleEndian.Uint32(offsets))
	last = int32(binary.LittleEndian.Uint32(offsets[4*rows:]))
	if first == 0 {
		return offsets, first, last
	}
	out = make([]byte, len(offsets))
	for i := 0; i < len(out); i += 4 {
		binary.LittleEndian.PutUint32(out[i:], binary.LittleEndian.Uint32(offsets[i:])-uint32(first))
	}
	return out, first, last
}

// decodeColumn returns the array whose buffers are slices of body. The body is not trusted; decoding allocates nothing
// that grows with it.
func decodeColumn(dt arrow.DataType, rows int, body []byte) (arrow.Array, error) {
	in := bodyReader{rest: body}
	data, err := in.node(dt, rows)
	if err != nil {
		return nil, err
	}
	if len(in.rest) != 0 {
		return nil, protocolErrorf("%d bytes after a column of %s", len(in.rest), dt)
	}
	return array.MakeFromData(data), nil
}

type bodyReader struct{ rest []byte }

// take cuts the next n bytes and their padding off.
func (r *bodyReader) take(n int64) ([]byte, error) {
	if n > int64(len(r.rest)) {
		return nil, protocolErrorf("column ends after %d of a buffer's %d bytes", len(r.rest), n)
	}
	padded := (n + bodyAlign - 1) / bodyAlign * bodyAlign
	if padded > int64(len(r.rest)) {
		return nil, protocolErrorf("column ends inside a buffer's padding")
	}
	out := r.rest[:n:n]
	r.rest = r.rest[padded:]
	return out, nil
}

func (r *bodyReader) node(dt arrow.DataType, rows int) (arrow.ArrayData, error) {
	kind, width, err := layoutOf(dt)
	if err != nil {
		return nil, err
	}
	head, err := r.take(nodeHeader)
	if err != nil {
		return nil, err
	}
	nulls, extra := binary.LittleEndian.Uint64(head), binary.LittleEndian.Uint64(head[8:])
	if nulls > uint64(rows) || extra > math.MaxInt32 {
		return nil, protocolErrorf("node of %d rows with %d NULLs and a length of %d", rows, nulls, extra)
	}
	var valid *memory.Buffer
	if nulls > 0 {
		bits, err := r.take(bitutil.BytesForBits(int64(rows)))
		if err != nil {
			return nil, err
		}
		if marked := rows - bitutil.CountSetBits(bits, 0, rows); uint64(marked) != nulls {
			return nil, protocolErrorf("node says %d NULLs and marks %d", nulls, marked)
		}
		valid = memory.NewBufferBytes(bits)
	}
	switch kind {
	case layoutFixed, layoutBits:
		size := int64(rows) * int64(width)
		if kind == layoutBits {
			size = bitutil.BytesForBits(int64(rows))
		}
		values, err := r.take(size)
		if err != nil {
			return nil, err
		}
		return array.NewData(dt, rows, []*memory.Buffer{valid, memory.NewBufferBytes(values)}, nil, int(nulls), 0), nil
	}
	offsets, err := r.offsets(rows, extra)
	if err != nil {
		return nil, err
	}
	if kind == layoutList {
		element, err := r.node(dt.(*arrow.ListType).Elem(), int(extra))
		if err != nil {
			return nil, err
		}
		return array.NewData(dt, rows, []*memory.Buffer{valid, offsets}, []arrow.ArrayData{element}, int(nulls), 0), nil
	}
	text, err := r.take(int64(extra))
	if err != nil {
		return nil, err
	}
	return array.NewData(dt, rows, []*memory.Buffer{valid, offsets, memory.NewBufferBytes(text)}, nil, int(nulls), 0), nil
}

// offsets takes rows+1 offsets that rise from 0 to end.
func (r *bodyReader) offsets(rows int, end uint64) (*memory.Buffer, error) {
	raw, err := r.take(4 * (int64(rows) + 1))
	if err != nil {
		return nil, err
	}
	buffer := memory.NewBufferBytes(raw)
	offsets := arrow.Int32Traits.CastFromBytes(raw)
	last := int32(0)
	for i, offset := range offsets {
		if offset < last || i == 0 && offset != 0 {
			return nil, protocolErrorf("offsets do not rise from 0")
		}
		last = offset
	}
	if uint64(last) != end {
		return nil, protocolErrorf("offsets end at %d, the node says %d", last, end)
	}
	return buffer, nil
}
