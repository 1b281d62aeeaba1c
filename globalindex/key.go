package globalindex

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// KeyKind says how a relation's key is hashed. The numbers are stored in file indexes.
type KeyKind uint8

const (
	// KeyInt: the key is one integer-like column of at most 8 bytes that is never NULL, hashed with HashInt.
	KeyInt KeyKind = 1
	// KeyBytes: any other key, hashed with HashBytes over its canonical encoding.
	KeyBytes KeyKind = 2
)

// HashID names a hash function. The numbers are stored in file indexes.
type HashID uint8

const (
	SplitMix64 HashID = 1 // HashInt
	XXHash64   HashID = 2 // HashBytes
)

// Hash is the function that hashes keys of this kind; 0 for an unknown kind.
func (k KeyKind) Hash() HashID {
	switch k {
	case KeyInt:
		return SplitMix64
	case KeyBytes:
		return XXHash64
	}
	return 0
}

// HashInt hashes an integer-like key, sign-extended to 64 bits. It is a bijection, so two keys never share a hash:
// the output function of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
func HashInt(v int64) uint64 {
	z := uint64(v) + 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// HashBytes hashes a canonical encoding: xxHash64 with seed 0.
func HashBytes(canonical []byte) uint64 { return xxhash.Sum64(canonical) }

// The canonical encoding of a key is that of its columns, one after the other in key order. Each value starts with a tag, so
// that for one list of column types no two keys share an encoding.
const (
	tagNull  = 0
	tagValue = 1
)

// AppendNull appends a NULL of any type.
func AppendNull(dst []byte) []byte { return append(dst, tagNull) }

// AppendFixed appends a value of a type with a fixed width: its physical bytes, little endian.
func AppendFixed(dst, raw []byte) []byte {
	return append(append(dst, tagValue), raw...)
}

// AppendBytes appends a value of a type with a variable width: the number of its bytes and the bytes.
func AppendBytes(dst, raw []byte) []byte {
	dst = binary.AppendUvarint(append(dst, tagValue), uint64(len(raw)))
	return append(dst, raw...)
}

// AppendList begins a list, which is not NULL; its elements are appended next, each by one of these functions. elements is not
// negative.
func AppendList(dst []byte, elements int) []byte {
	return binary.AppendUvarint(append(dst, tagValue), uint64(elements))
}
