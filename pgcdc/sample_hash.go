package pgcdc

import (
	"encoding/binary"
	"math/bits"
)

// sampleHash is PostgreSQL's hashtextextended(text, 0) on a little-endian server: Bob Jenkins' lookup3
// (https://burtleburtle.net/bob/c/lookup3.c) with PostgreSQL's start value, and with the lowest byte of the last word left
// out of the tail. Hash partitioning relies on it, so it is the same in every version.
func sampleHash(text []byte) uint64 {
	const start = 0x9e3779b9 + 3923095
	var s jenkins
	s.a = start + uint32(len(text))
	s.b, s.c = s.a, s.a
	for ; len(text) >= 12; text = text[12:] {
		s.a += binary.LittleEndian.Uint32(text)
		s.b += binary.LittleEndian.Uint32(text[4:])
		s.c += binary.LittleEndian.Uint32(text[8:])
		s.mix()
	}
	var tail [12]byte
	n := copy(tail[:], text)
	if n > 8 { // the lowest byte of c is left to the length
		copy(tail[9:], text[8:])
		tail[8] = 0
	}
	s.a += binary.LittleEndian.Uint32(tail[:])
	s.b += binary.LittleEndian.Uint32(tail[4:])
	s.c += binary.LittleEndian.Uint32(tail[8:])
	s.final()
	return uint64(s.b)<<32 | uint64(s.c)
}

// jenkins is the three words that lookup3 works on.
type jenkins struct{ a, b, c uint32 }

// mix is reversible: each bit of the state reaches many others.
func (s *jenkins) mix() {
	s.a, s.c = s.a-s.c^bits.RotateLeft32(s.c, 4), s.c+s.b
	s.b, s.a = s.b-s.a^bits.RotateLeft32(s.a, 6), s.a+s.c
	s.c, s.b = s.c-s.b^bits.RotateLeft32(s.b, 8), s.b+s.a
	s.a, s.c = s.a-s.c^bits.RotateLeft32(s.c, 16), s.c+s.b
	s.b, s.a = s.b-s.a^bits.RotateLeft32(s.a, 19), s.a+s.c
	s.c, s.b = s.c-s.b^bits.RotateLeft32(s.b, 4), s.b+s.a
}

// final lets every bit of the state reach b and c.
func (s *jenkins) final() {
	s.c = (s.c ^ s.b) - bits.RotateLeft32(s.b, 14)
	s.a = (s.a ^ s.c) - bits.RotateLeft32(s.c, 11)
	s.b = (s.b ^ s.a) - bits.RotateLeft32(s.a, 25)
	s.c = (s.c ^ s.b) - bits.RotateLeft32(s.b, 16)
	s.a = (s.a ^ s.c) - bits.RotateLeft32(s.c, 4)
	s.b = (s.b ^ s.a) - bits.RotateLeft32(s.a, 14)
	s.c = (s.c ^ s.b) - bits.RotateLeft32(s.b, 24)
}
