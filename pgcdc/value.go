package pgcdc

import (
	"encoding/binary"
	"math"
	"sync"
	"unicode/utf8"
)

// Decode hands one value to s; data is only read. It makes the same calls for a value whether it came in text or in
// binary, with one exception: text does not tell NaNs with different bits apart.
//
// The text must come from a session with client_encoding UTF8, DateStyle ISO, IntervalStyle postgres, TimeZone UTC,
// bytea_output hex and extra_float_digits of 1 or more. Binary is read for types with BinaryOK.
//
// The error is an ErrProtocol when data is not what the type's functions write, and for FormatUnchanged, which has no
// value; and an *UnrepresentableError when the mirror's type cannot hold the value. For a scalar s has not been called
// then. For a list it may have been: whoever owns s takes back what came since BeginList.
//
// A list drops its array's lower bound: '[2:3]={7,8}' is the list of 7 and 8.
func (t *Type) Decode(format Format, data []byte, s Sink) error {
	switch format {
	case FormatBinary:
		return t.decodeBinary(data, s)
	case FormatText:
		return t.decodeText(data, s)
	case FormatNull:
		s.Null()
		return nil
	}
	return malformedf("a %s value in format %q", t.Name, byte(format))
}

func (t *Type) decodeBinary(data []byte, s Sink) error {
	switch t.Kind {
	case KindBool:
		if len(data) != 1 || data[0] > 1 {
			return t.malformed(FormatBinary)
		}
		s.Bool(data[0] == 1)
	case KindInt2:
		if len(data) != 2 {
			return t.malformed(FormatBinary)
		}
		s.Int32(int32(int16(binary.BigEndian.Uint16(data))))
	case KindInt4:
		if len(data) != 4 {
			return t.malformed(FormatBinary)
		}
		s.Int32(int32(binary.BigEndian.Uint32(data)))
	case KindInt8:
		if len(data) != 8 {
			return t.malformed(FormatBinary)
		}
		s.Int64(int64(binary.BigEndian.Uint64(data)))
	case KindOID:
		if len(data) != 4 {
			return t.malformed(FormatBinary)
		}
		s.Int64(int64(binary.BigEndian.Uint32(data)))
	case KindFloat4:
		if len(data) != 4 {
			return t.malformed(FormatBinary)
		}
		bits := binary.BigEndian.Uint32(data)
		if isNaN4(bits) {
			bits = nanFloat4
		}
		s.Float32(math.Float32frombits(bits))
	case KindFloat8:
		if t.form == formNumeric {
			return t.binaryNumericDouble(data, s)
		}
		if len(data) != 8 {
			return t.malformed(FormatBinary)
		}
		bits := binary.BigEndian.Uint64(data)
		if isNaN8(bits) {
			bits = nanFloat8
		}
		s.Float64(math.Float64frombits(bits))
	case KindDecimal:
		return t.binaryDecimal(data, s)
	case KindText, KindJSON:
		return t.binaryText(data, s)
	case KindBytea:
		s.Binary(data)
	case KindUUID:
		if len(data) != 16 {
			return t.malformed(FormatBinary)
		}
		s.UUID((*[16]byte)(data))
	case KindDate:
		return t.binaryDate(data, s)
	case KindTime:
		if len(data) != 8 {
			return t.malformed(FormatBinary)
		}
		return t.sinkTime(int64(binary.BigEndian.Uint64(data)), FormatBinary, s)
	case KindTimestamp, KindTimestampTZ:
		return t.binaryTimestamp(data, s)
	case KindList:
		if t.form != formUnset {
			return t.binaryVector(data, s)
		}
		return t.binaryList(data, s)
	default:
		return malformedf("a value of the unsupported type %s", t.Name)
	}
	return nil
}

func (t *Type) decodeText(data []byte, s Sink) error {
	switch t.Kind {
	case KindBool:
		if len(data) != 1 || data[0] != 't' && data[0] != 'f' {
			return t.malformed(FormatText)
		}
		s.Bool(data[0] == 't')
	case KindInt2, KindInt4, KindInt8, KindOID:
		return t.textInteger(data, s)
	case KindFloat4, KindFloat8:
		if t.form == formNumeric {
			return t.numericDouble(data, FormatText, s)
		}
		return t.textFloat(data, s)
	case KindDecimal:
		return t.textDecimal(data, s)
	case KindText:
		if t.binaryForm() == formChar && len(data) == 1 {
			return t.sinkChar(data[0], s)
		}
		return t.sinkString(data, s)
	case KindJSON:
		return t.sinkString(data, s)
	case KindBytea:
		return t.textBytea(data, s)
	case KindUUID:
		return t.textUUID(data, s)
	case KindDate:
		return t.textDate(data, s)
	case KindTime:
		micros, rest, ok := parseClock(data)
		if !ok || len(rest) != 0 {
			return t.malformed(FormatText)
		}
		return t.sinkTime(micros, FormatText, s)
	case KindTimestamp, KindTimestampTZ:
		return t.textTimestamp(data, s)
	case KindList:
		if t.form != formUnset {
			return t.textVector(data, s)
		}
		return t.textList(data, s)
	default:
		return malformedf("a value of the unsupported type %s", t.Name)
	}
	return nil
}

// binaryForm is form, or for a Type that no catalogue made what its OID says.
func (t *Type) binaryForm() binaryForm {
	if t.form != formUnset {
		return t.form
	}
	return builtinTypes[t.OID].form
}

func (t *Type) sinkString(text []byte, s Sink) error {
	if !utf8.Valid(text) {
		return malformedf("a %s value is not UTF-8", t.Name)
	}
	s.String(text)
	return nil
}

func (t *Type) malformed(format Format) error {
	if format == FormatBinary {
		return malformedf("bytes that %s's send function does not write", t.Name)
	}
	return malformedf("text that %s's output function does not print", t.Name)
}

func (t *Type) unrepresentable(reason string) error {
	return &UnrepresentableError{Type: t.Name, Reason: reason}
}

// scratch is memory for a value that has to be built before it can be lent to a Sink.
type scratch struct {
	buf  []byte
	uuid [16]byte
}

// scratchKeep is the largest buffer that is kept for the next value.
const scratchKeep = 1 << 20

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func takeScratch() *scratch { return scratches.Get().(*scratch) }

func (b *scratch) release() {
	if cap(b.buf) > scratchKeep {
		b.buf = nil
	}
	scratches.Put(b)
}
