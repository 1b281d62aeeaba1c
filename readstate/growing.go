package readstate

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// growing is a column to which rows are added while arrays of its first rows are in use. Values, offsets and text are
// appended behind what those arrays cover; bitmaps, a sixty-fourth of the size at most, are copied, because two rows share
// a byte. One goroutine at a time may use it.
type growing struct {
	dt      arrow.DataType
	rows    int
	nulls   int
	valid   []byte // nil while there are no NULLs
	values  []byte // fixed width or text
	bits    []byte
	offsets []byte
	element *growing
}

func newGrowing(dt arrow.DataType) *growing {
	g := &growing{dt: dt}
	switch kind, _, _ := layoutOf(dt); kind {
	case layoutText:
		g.offsets = make([]byte, 4)
	case layoutList:
		g.offsets = make([]byte, 4)
		g.element = newGrowing(dt.(*arrow.ListType).Elem())
	}
	return g
}

// add appends the rows of a decoded column: its type is g's and its offset is 0. It fails only where text or elements
// would pass what 32-bit offsets reach.
func (g *growing) add(data arrow.ArrayData) error {
	rows, nulls := data.Len(), data.NullN()
	if g.nulls+nulls > 0 {
		valid := make([]byte, bitutil.BytesForBits(int64(g.rows+rows)))
		appendBits(valid, g.valid, 0, g.rows)
		var more []byte
		if nulls > 0 {
			more = bufferBytes(data.Buffers(), 0)
		}
		appendBits(valid, more, g.rows, rows)
		g.valid = valid
	}
	switch kind, _, _ := layoutOf(g.dt); kind {
	case layoutFixed:
		g.values = append(g.values, bufferBytes(data.Buffers(), 1)...)
	case layoutBits:
		bits := make([]byte, bitutil.BytesForBits(int64(g.rows+rows)))
		appendBits(bits, g.bits, 0, g.rows)
		appendBits(bits, bufferBytes(data.Buffers(), 1), g.rows, rows)
		g.bits = bits
	case layoutText:
		text := bufferBytes(data.Buffers(), 2)
		if err := g.addOffsets(bufferBytes(data.Buffers(), 1), len(g.values), len(text)); err != nil {
			return err
		}
		g.values = append(g.values, text...)
	case layoutList:
		element := data.Children()[0]
		if err := g.addOffsets(bufferBytes(data.Buffers(), 1), g.element.rows, element.Len()); err != nil {
			return err
		}
		if err := g.element.add(element); err != nil {
			return err
		}
	}
	g.rows += rows
	g.nulls += nulls
	return nil
}

// appendBits sets count bits of dst from position at on to those of bits; nil stands for ones.
func appendBits(dst, bits []byte, at, count int) {
	if bits == nil {
		bitutil.SetBitsTo(dst, int64(at), int64(count), true)
		return
	}
	bitutil.CopyBitmap(bits, 0, count, dst, at)
}

// addOffsets appends offsets that rise from 0 to more, moved by base.
func (g *growing) addOffsets(offsets []byte, base, more int) error {
	if base+more > math.MaxInt32 {
		return protocolErrorf("a batch's column passes %d bytes", math.MaxInt32)
	}
	for i := 4; i < len(offsets); i += 4 {
		g.offsets = binary.LittleEndian.AppendUint32(g.offsets, binary.LittleEndian.Uint32(offsets[i:])+uint32(base))
	}
	return nil
}

// data is the column as it is now. It stays as it is whatever is added later.
func (g *growing) data() arrow.ArrayData {
	var valid *memory.Buffer
	if g.nulls > 0 {
		valid = memory.NewBufferBytes(g.valid)
	}
	buffers := []*memory.Buffer{valid}
	var children []arrow.ArrayData
	switch kind, _, _ := layoutOf(g.dt); kind {
	case layoutFixed:
		buffers = append(buffers, memory.NewBufferBytes(g.values))
	case layoutBits:
		buffers = append(buffers, memory.NewBufferBytes(g.bits))
	case layoutText:
		buffers = append(buffers, memory.NewBufferBytes(g.offsets), memory.NewBufferBytes(g.values))
	case layoutList:
		buffers = append(buffers, memory.NewBufferBytes(g.offsets))
		children = []arrow.ArrayData{g.element.data()}
	}
	return array.NewData(g.dt, g.rows, buffers, children, g.nulls, 0)
}

// bytes is the memory it holds.
func (g *growing) bytes() int64 {
	size := int64(cap(g.valid) + cap(g.values) + cap(g.bits) + cap(g.offsets))
	if g.element != nil {
		size += g.element.bytes()
	}
	return size
}
