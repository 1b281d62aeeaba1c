package pgcdc

import (
	"encoding/hex"
	"math"
	"strconv"
)

// textInteger reads int2, int4, int8 and oid.
func (t *Type) textInteger(data []byte, s Sink) error {
	value, ok := parseInteger(data)
	switch {
	case !ok:
	case t.Kind == KindInt8:
		s.Int64(value)
		return nil
	case t.Kind == KindOID && value >= 0 && value <= math.MaxUint32:
		s.Int64(value)
		return nil
	case t.Kind == KindInt4 && value == int64(int32(value)), t.Kind == KindInt2 && value == int64(int16(value)):
		s.Int32(int32(value))
		return nil
	}
	return t.malformed(FormatText)
}

// parseInteger reads an optional minus and decimal digits that fit an int64.
func parseInteger(data []byte) (value int64, ok bool) {
	digits := data
	negative := len(data) > 0 && data[0] == '-'
	if negative {
		digits = data[1:]
	}
	if len(digits) == 0 || len(digits) > 19 {
		return 0, false
	}
	var magnitude uint64 // 19 digits cannot overflow it
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		magnitude = magnitude*10 + uint64(c-'0')
	}
	if negative {
		return -int64(magnitude), magnitude <= 1<<63
	}
	return int64(magnitude), magnitude <= math.MaxInt64
}

// The bits of the NaN that the server's input functions make. All NaNs are equal to PostgreSQL and the same in text, so they are one here.
const (
	nanFloat4 = 0x7fc00000
	nanFloat8 = 0x7ff8000000000000
)

func isNaN4(bits uint32) bool { return bits<<1 > 0x7f800000<<1 }
func isNaN8(bits uint64) bool { return bits<<1 > 0x7ff0000000000000<<1 }

// textFloat reads float4 and float8, which the server prints so that the nearest number is the value.
func (t *Type) textFloat(data []byte, s Sink) error {
	var value float64
	switch string(data) {
	case "NaN":
		if t.Kind == KindFloat4 {
			s.Float32(math.Float32frombits(nanFloat4))
		} else {
			s.Float64(math.Float64frombits(nanFloat8))
		}
		return nil
	case "Infinity":
		value = math.Inf(1)
	case "-Infinity":
		value = math.Inf(-1)
	default:
		for _, c := range data { // ParseFloat also reads hexadecimal, underscores and names
			if (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' {
				return t.malformed(FormatText)
			}
		}
		size := 64
		if t.Kind == KindFloat4 {
			size = 32
		}
		var err error
		if value, err = strconv.ParseFloat(string(data), size); err != nil {
			return t.malformed(FormatText)
		}
	}
	if t.Kind == KindFloat4 {
		s.Float32(float32(value))
	} else {
		s.Float64(value)
	}
	return nil
}

// textBytea reads bytea_output hex.
func (t *Type) textBytea(data []byte, s Sink) error {
	if len(data) < 2 || data[0] != '\\' || data[1] != 'x' {
		return t.malformed(FormatText)
	}
	b := takeScratch()
	defer b.release()
	var err error
	if b.buf, err = hex.AppendDecode(b.buf[:0], data[2:]); err != nil {
		return t.malformed(FormatText)
	}
	s.Binary(b.buf)
	return nil
}

// textUUID reads 8-4-4-4-12 hexadecimal digits.
func (t *Type) textUUID(data []byte, s Sink) error {
	if len(data) != 36 || data[8] != '-' || data[13] != '-' || data[18] != '-' || data[23] != '-' {
		return t.malformed(FormatText)
	}
	b := takeScratch()
	defer b.release()
	b.buf = b.buf[:0]
	for _, group := range [][]byte{data[:8], data[9:13], data[14:18], data[19:23], data[24:]} {
		b.buf = append(b.buf, group...)
	}
	if _, err := hex.Decode(b.uuid[:], b.buf); err != nil {
		return t.malformed(FormatText)
	}
	s.UUID(&b.uuid)
	return nil
}
