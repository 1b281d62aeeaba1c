package duckdb

/*
#include <stdint.h>

// The part of DuckDB's C API that fills strings; the library itself is linked by the driver.
extern void duckdb_unsafe_vector_assign_string_element_len(void *vector, uint64_t index, const char *str, uint64_t len);

// One crossing for a whole vector: the Go memory behind offsets and data is only read during the call.
static void pgmirror_fill_strings(void *vector, const int32_t *offsets, const char *data, uint64_t n) {
	for (uint64_t i = 0; i < n; i++) {
		int32_t from = offsets[i];
		duckdb_unsafe_vector_assign_string_element_len(vector, i, data + from, (uint64_t)(offsets[i + 1] - from));
	}
}
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/duckdb/duckdb-go/v2/mapping"
)

// filler copies the whole array into a vector of at least as many rows and returns the bytes copied. Validity is not its
// business. The array's type is the one that typeOf mapped to t.
type filler func(vec mapping.Vector, t columnType, arr arrow.Array) (int64, error)

// fillVector copies an array and its NULLs into a new vector.
func fillVector(vec mapping.Vector, t columnType, arr arrow.Array) (int64, error) {
	if ext, ok := arr.(array.ExtensionArray); ok {
		arr = ext.Storage()
	}
	if !t.matches(arr.DataType()) {
		return 0, fmt.Errorf("an arrow array of %s where %s was announced", arr.DataType(), t.sql)
	}
	if arr.Len() == 0 {
		return 0, nil
	}
	n, err := t.fill(vec, t, arr)
	if err != nil || arr.NullN() == 0 {
		return n, err
	}
	mapping.VectorEnsureValidityWritable(vec)
	words := unsafe.Slice((*uint64)(mapping.VectorGetValidity(vec)), (arr.Len()+63)/64)
	copyBits(words, arr.NullBitmapBytes(), arr.Data().Offset(), arr.Len())
	return n, nil
}

// copyBits copies n bits of an Arrow bitmap from bit offset on; both are little-endian.
func copyBits(words []uint64, src []byte, offset, n int) {
	for w := range words {
		words[w] = 0
		for b := 0; b < 8 && w*64+b*8 < n; b++ {
			bit := offset + w*64 + b*8
			v := uint16(src[bit/8])
			if bit/8+1 < len(src) {
				v |= uint16(src[bit/8+1]) << 8
			}
			words[w] |= uint64(byte(v>>(bit%8))) << (8 * b)
		}
	}
	if rest := n % 64; rest != 0 {
		words[len(words)-1] &= 1<<rest - 1
	}
}

// vectorBytes is a vector's memory for n values.
func vectorBytes(vec mapping.Vector, t columnType, n int) []byte {
	return unsafe.Slice((*byte)(mapping.VectorGetData(vec)), n*t.stride)
}

// fillFixed copies values whose bytes are the same in Arrow and DuckDB.
func fillFixed(vec mapping.Vector, t columnType, arr arrow.Array) (int64, error) {
	src, err := buffer(arr, 1, (arr.Data().Offset()+arr.Len())*t.stride)
	if err != nil {
		return 0, err
	}
	return int64(copy(vectorBytes(vec, t, arr.Len()), src[arr.Data().Offset()*t.stride:])), nil
}

// fillBool widens bits to bytes.
func fillBool(vec mapping.Vector, t columnType, arr arrow.Array) (int64, error) {
	a := arr.(*array.Boolean)
	out := vectorBytes(vec, t, a.Len())
	for i := range out {
		out[i] = 0
		if a.IsValid(i) && a.Value(i) {
			out[i] = 1
		}
	}
	return int64(len(out)), nil
}

// fillUUID copies big-endian UUIDs; DuckDB keeps one as a 128-bit integer with the top bit flipped, so that signed order
// is UUID order.
func fillUUID(vec mapping.Vector, t columnType, arr arrow.Array) (int64, error) {
	src, err := buffer(arr, 1, (arr.Data().Offset()+arr.Len())*16)
	if err != nil {
		return 0, err
	}
	src = src[arr.Data().Offset()*16:]
	out := vectorBytes(vec, t, arr.Len())
	for i := 0; i < len(out); i += 16 {
		binary.LittleEndian.PutUint64(out[i:], binary.BigEndian.Uint64(src[i+8:]))
		binary.LittleEndian.PutUint64(out[i+8:], binary.BigEndian.Uint64(src[i:])^1<<63)
	}
	return int64(len(out)), nil
}

// fillDecimal narrows 128-bit values to the integer DuckDB uses for the precision.
func fillDecimal(vec mapping.Vector, t columnType, arr arrow.Array) (int64, error) {
	src, err := buffer(arr, 1, (arr.Data().Offset()+arr.Len())*16)
	if err != nil {
		return 0, err
	}
	src = src[arr.Data().Offset()*16:]
	out := vectorBytes(vec, t, arr.Len())
	if t.stride == 16 {
		return int64(copy(out, src)), nil
	}
	shift := 64 - 8*t.stride
	for i := range arr.Len() {
		lo := int64(binary.LittleEndian.Uint64(src[i*16:]))
		hi := int64(binary.LittleEndian.Uint64(src[i*16+8:]))
		if arr.IsValid(i) && (hi != lo>>63 || lo<<shift>>shift != lo) {
			return 0, fmt.Errorf("a decimal does not fit %s", t.sql)
		}
		for b := range t.stride {
			out[i*t.stride+b] = byte(lo >> (8 * b))
		}
	}
	return int64(len(out)), nil
}

// fillText copies strings. DuckDB trusts that they are UTF-8, so they are checked here.
func fillText(vec mapping.Vector, t columnType, arr arrow.Array) (int64, error) {
	offsets, data, err := variable(arr)
	if err != nil {
		return 0, err
	}
	if !utf8.Valid(data[offsets[0]:offsets[len(offsets)-1]]) {
		return 0, fmt.Errorf("a text is not UTF-8")
	}
	for _, o := range offsets {
		if int(o) < len(data) && !utf8.RuneStart(data[o]) {
			return 0, fmt.Errorf("a text is not UTF-8")
		}
	}
	return fillStrings(vec, offsets, data), nil
}

// fillBytes copies byte strings.
func fillBytes(vec mapping.Vector, t columnType, arr arrow.Array) (int64, error) {
	offsets, data, err := variable(arr)
	if err != nil {
		return 0, err
	}
	return fillStrings(vec, offsets, data), nil
}

func fillStrings(vec mapping.Vector, offsets []int32, data []byte) int64 {
	var first *C.char
	if len(data) > 0 {
		first = (*C.char)(unsafe.Pointer(&data[0]))
	}
	n := len(offsets) - 1
	C.pgmirror_fill_strings(vec.Ptr, (*C.int32_t)(unsafe.Pointer(&offsets[0])), first, C.uint64_t(n))
	return int64(offsets[n]-offsets[0]) + int64(n)*16
}

// fillList copies offsets as DuckDB's (offset, length) pairs and the elements into the child vector.
func fillList(vec mapping.Vector, t columnType, arr arrow.Array) (int64, error) {
	a := arr.(*array.List)
	offsets, err := offsetsOf(arr, a.ListValues().Len())
	if err != nil {
		return 0, err
	}
	first, n := int64(offsets[0]), len(offsets)-1
	count := int64(offsets[n]) - first
	out := vectorBytes(vec, t, n)
	for i := range n {
		binary.LittleEndian.PutUint64(out[i*16:], uint64(int64(offsets[i])-first))
		binary.LittleEndian.PutUint64(out[i*16+8:], uint64(offsets[i+1]-offsets[i]))
	}
	if mapping.ListVectorReserve(vec, mapping.IdxT(count)) == mapping.StateError ||
		mapping.ListVectorSetSize(vec, mapping.IdxT(count)) == mapping.StateError {
		return 0, fmt.Errorf("reserve %d list elements", count)
	}
	elems := array.NewSlice(a.ListValues(), first, first+count)
	defer elems.Release()
	size, err := fillVector(mapping.ListVectorGetChild(vec), *t.elem, elems)
	return size + int64(len(out)), err
}

// buffer returns a fixed-width array's values after checking that there are enough.
func buffer(arr arrow.Array, i, need int) ([]byte, error) {
	bufs := arr.Data().Buffers()
	if len(bufs) <= i || bufs[i] == nil || bufs[i].Len() < need {
		return nil, fmt.Errorf("an arrow array of %s is shorter than its length says", arr.DataType())
	}
	return bufs[i].Bytes(), nil
}

// variable returns the offsets (one more than values) and the data of a string or binary array.
func variable(arr arrow.Array) ([]int32, []byte, error) {
	var data []byte
	if bufs := arr.Data().Buffers(); len(bufs) > 2 && bufs[2] != nil {
		data = bufs[2].Bytes()
	}
	offsets, err := offsetsOf(arr, len(data))
	return offsets, data, err
}

// offsetsOf returns an array's offsets, checked to be in order and at most limit.
func offsetsOf(arr arrow.Array, limit int) ([]int32, error) {
	from := arr.Data().Offset()
	raw, err := buffer(arr, 1, (from+arr.Len()+1)*4)
	if err != nil {
		return nil, err
	}
	offsets := unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(raw))), len(raw)/4)[from : from+arr.Len()+1]
	last := int32(0)
	for _, o := range offsets {
		if o < last || int(o) > limit {
			return nil, fmt.Errorf("the offsets of an arrow array of %s are out of order", arr.DataType())
		}
		last = o
	}
	return offsets, nil
}

// liveRows fills sel with the positions of [from, from+n) that are not set in dead, counted from `from`.
func liveRows(sel []uint32, dead []uint64, from, n int) int {
	live := 0
	for i := 0; i < n; {
		row := from + i
		word := ^dead[row>>6] >> (row & 63)
		span := min(64-row&63, n-i)
		if span < 64 {
			word &= 1<<span - 1
		}
		for ; word != 0; word &= word - 1 {
			sel[live] = uint32(i + bits.TrailingZeros64(word))
			live++
		}
		i += span
	}
	return live
}
