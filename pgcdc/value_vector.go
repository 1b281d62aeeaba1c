package pgcdc

import (
	"bytes"
	"encoding/binary"
	"math"
)

// binaryVector reads what vector_send and halfvec_send of pgvector write: the number of elements and a reserved zero, each
// in two bytes, then the elements, as float4 or as IEEE 754 half precision.
func (t *Type) binaryVector(data []byte, s Sink) error {
	const head = 4
	width := 4
	if t.form == formHalfvec {
		width = 2
	}
	if len(data) < head || binary.BigEndian.Uint16(data[2:]) != 0 {
		return t.malformed(FormatBinary)
	}
	elements := int(binary.BigEndian.Uint16(data))
	if data = data[head:]; len(data) != elements*width {
		return t.malformed(FormatBinary)
	}
	s.BeginList(elements)
	for ; len(data) > 0; data = data[width:] {
		if width == 2 {
			s.Float32(halfToFloat32(binary.BigEndian.Uint16(data)))
		} else {
			s.Float32(math.Float32frombits(binary.BigEndian.Uint32(data)))
		}
	}
	s.EndList()
	return nil
}

// textVector reads [1,2.5,-3e-05].
func (t *Type) textVector(data []byte, s Sink) error {
	if len(data) < 2 || data[0] != '[' || data[len(data)-1] != ']' {
		return t.malformed(FormatText)
	}
	data = data[1 : len(data)-1]
	if len(data) == 0 {
		s.BeginList(0)
		s.EndList()
		return nil
	}
	s.BeginList(bytes.Count(data, []byte{','}) + 1)
	for more := true; more; {
		var element []byte
		element, data, more = bytes.Cut(data, []byte{','})
		if err := t.Elem.decodeText(element, s); err != nil {
			return err
		}
	}
	s.EndList()
	return nil
}

// halfToFloat32 is exact: every half-precision number is a single-precision one.
func halfToFloat32(half uint16) float32 {
	sign, exponent, fraction := uint32(half>>15), uint32(half>>10&31), uint32(half&1023)
	switch exponent {
	case 0: // zero, or below 2^-14: a multiple of 2^-24
		value := float32(fraction) / (1 << 24)
		return math.Float32frombits(math.Float32bits(value) | sign<<31)
	case 31: // infinite, or NaN
		exponent = 255
	default:
		exponent += 127 - 15
	}
	return math.Float32frombits(sign<<31 | exponent<<23 | fraction<<13)
}
