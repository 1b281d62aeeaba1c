package globalindex

import (
	"encoding/binary"
	"io"
)

// Packed numbers lie one after the other without gaps: number i of width n is bits [i·n, i·n+n) of the bytes, the lowest bit of
// byte 0 first. The bytes are whole little-endian 64-bit words, so that no read passes their end.

// readBits returns the n bits from bit at on; n is at most 64.
func readBits(data []byte, at uint64, n uint) uint64 {
	if n == 0 {
		return 0
	}
	word, shift := at/64*8, uint(at%64)
	value := binary.LittleEndian.Uint64(data[word:]) >> shift
	if shift+n > 64 {
		value |= binary.LittleEndian.Uint64(data[word+8:]) << (64 - shift)
	}
	return value & (1<<n - 1)
}

// bitWriter packs numbers and writes the words through a buffer. The first error ends the writing and is kept.
type bitWriter struct {
	out    io.Writer
	buffer []byte
	word   uint64
	used   uint // bits of word, below 64
	err    error
}

// bitBuffer is how many bytes go out at once.
const bitBuffer = 32 << 10

// put appends the low n bits of value; n is at most 64.
func (w *bitWriter) put(value uint64, n uint) {
	value &= 1<<n - 1
	w.word |= value << w.used
	if w.used+n < 64 {
		w.used += n
		return
	}
	w.putWord(w.word)
	w.word = value >> (64 - w.used)
	w.used = w.used + n - 64
}

func (w *bitWriter) putWord(word uint64) {
	w.buffer = binary.LittleEndian.AppendUint64(w.buffer, word)
	if len(w.buffer) >= bitBuffer {
		w.flush()
	}
}

func (w *bitWriter) flush() {
	if w.err == nil && len(w.buffer) > 0 {
		_, w.err = w.out.Write(w.buffer)
	}
	w.buffer = w.buffer[:0]
}

// finish fills the last word up with zero bits and writes what is left.
func (w *bitWriter) finish() error {
	if w.used > 0 {
		w.putWord(w.word)
		w.word, w.used = 0, 0
	}
	w.flush()
	return w.err
}
