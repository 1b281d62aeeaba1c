package pgcdc

import (
	"encoding/binary"
	"unicode/utf8"
)

// Word is Decode for what most of a copy consists of, without the detour over a Sink: binary values that are one number of
// 4 or 8 bytes. It returns the bits of what Decode hands to Int32, Int64, Float32, Float64 or Timestamp. When ok is
// false, Decode has to look at the value, which may be malformed or of any other type.
func (t *Type) Word(data []byte) (bits uint64, ok bool) {
	switch t.Kind {
	case KindInt4:
		if len(data) == 4 {
			return uint64(binary.BigEndian.Uint32(data)), true
		}
	case KindFloat4:
		if len(data) == 4 {
			bits := binary.BigEndian.Uint32(data)
			return uint64(bits), !isNaN4(bits)
		}
	case KindInt8:
		if len(data) == 8 {
			return binary.BigEndian.Uint64(data), true
		}
	case KindFloat8:
		if len(data) == 8 && t.form == formUnset {
			bits := binary.BigEndian.Uint64(data)
			return bits, !isNaN8(bits)
		}
	case KindTimestamp, KindTimestampTZ:
		if len(data) == 8 {
			micros := int64(binary.BigEndian.Uint64(data))
			return uint64(micros + postgresMicros), micros > -plainMicros && micros < plainMicros
		}
	}
	return 0, false
}

// plainMicros is far from the timestamps that mean infinity and from those that no Timestamp can hold: 142,000 years.
const plainMicros = 1 << 62

// Verbatim says whether data is the binary form of a value that Decode hands to String or Binary as it is.
func (t *Type) Verbatim(data []byte) bool {
	switch t.Kind {
	case KindBytea:
		return true
	case KindText, KindJSON:
		return t.binaryForm() == formVerbatim && utf8.Valid(data)
	}
	return false
}
