package globalindex

import "encoding/binary"

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

// putBits stores the low n bits of value from bit at on, where all bits are zero so far.
func putBits(data []byte, at uint64, n uint, value uint64) {
	if n == 0 {
		return
	}
	value &= 1<<n - 1
	word, shift := at/64*8, uint(at%64)
	orWord(data[word:], value<<shift)
	if shift+n > 64 {
		orWord(data[word+8:], value>>(64-shift))
	}
}

func orWord(data []byte, value uint64) {
	binary.LittleEndian.PutUint64(data, binary.LittleEndian.Uint64(data)|value)
}
