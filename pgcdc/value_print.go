package pgcdc

import (
	"encoding/binary"
	"math"
	"strconv"
)

// binaryText hands over the text that the output function prints for what the send function wrote.
func (t *Type) binaryText(data []byte, s Sink) error {
	switch t.binaryForm() {
	case formVerbatim:
		return t.sinkString(data, s)
	case formJSONB:
		if len(data) == 0 || data[0] != 1 {
			return t.malformed(FormatBinary)
		}
		return t.sinkString(data[1:], s)
	case formChar:
		if len(data) != 1 {
			return t.malformed(FormatBinary)
		}
		return t.sinkChar(data[0], s)
	case formNone, formUnset:
		return malformedf("a %s value came in binary, although it was asked for in text", t.Name)
	}
	b := takeScratch()
	defer b.release()
	var ok bool
	if b.buf, ok = t.appendText(b.buf[:0], data); !ok {
		return t.malformed(FormatBinary)
	}
	return t.sinkString(b.buf, s)
}

// appendText appends the text of a form that is built rather than copied, and reports whether data has that form.
func (t *Type) appendText(to, data []byte) ([]byte, bool) {
	switch t.binaryForm() {
	case formNumeric:
		n, ok := parseNumeric(data)
		if !ok {
			return to, false
		}
		return n.appendText(to)
	case formInterval:
		return appendInterval(to, data)
	case formTimeTZ:
		return appendTimeTZ(to, data)
	case formInet:
		return appendInet(to, data)
	case formMACAddr:
		return appendMACAddr(to, data, 6)
	case formMACAddr8:
		return appendMACAddr(to, data, 8)
	case formBits:
		return appendBits(to, data)
	case formUint32:
		if len(data) != 4 {
			return to, false
		}
		return strconv.AppendUint(to, uint64(binary.BigEndian.Uint32(data)), 10), true
	case formUint64:
		if len(data) != 8 {
			return to, false
		}
		return strconv.AppendUint(to, binary.BigEndian.Uint64(data), 10), true
	case formTID:
		if len(data) != 6 {
			return to, false
		}
		to = strconv.AppendUint(append(to, '('), uint64(binary.BigEndian.Uint32(data)), 10)
		to = strconv.AppendUint(append(to, ','), uint64(binary.BigEndian.Uint16(data[4:])), 10)
		return append(to, ')'), true
	case formLSN:
		if len(data) != 8 {
			return to, false
		}
		return append(to, LSN(binary.BigEndian.Uint64(data)).String()...), true
	case formHstore:
		return appendHstore(to, data)
	}
	return to, false
}

// sinkChar hands over a "char". The zero byte is the empty string. Bytes that are not ASCII are printed in octal, as
// PostgreSQL 16 and later do; earlier ones print the bare byte.
func (t *Type) sinkChar(c byte, s Sink) error {
	b := takeScratch()
	defer b.release()
	switch {
	case c == 0:
		b.buf = b.buf[:0]
	case c < 0x80:
		b.buf = append(b.buf[:0], c)
	default:
		b.buf = append(b.buf[:0], '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
	}
	s.String(b.buf)
	return nil
}

// appendInterval prints an interval in IntervalStyle postgres: "1 year 2 mons -3 days +04:05:06.7". A part after a
// negative one has its sign written out. (EncodeInterval in datetime.c.)
func appendInterval(to, data []byte) ([]byte, bool) {
	if len(data) != 16 {
		return to, false
	}
	micros := int64(binary.BigEndian.Uint64(data))
	days := int64(int32(binary.BigEndian.Uint32(data[8:])))
	months := int64(int32(binary.BigEndian.Uint32(data[12:])))
	switch { // infinite since PostgreSQL 17; before, nobody's interval
	case micros == math.MaxInt64 && days == math.MaxInt32 && months == math.MaxInt32:
		return append(to, "infinity"...), true
	case micros == math.MinInt64 && days == math.MinInt32 && months == math.MinInt32:
		return append(to, "-infinity"...), true
	}
	start := len(to)
	afterNegative := false
	for _, part := range []struct {
		value int64
		unit  string
	}{{months / 12, " year"}, {months % 12, " mon"}, {days, " day"}} {
		if part.value == 0 {
			continue
		}
		if len(to) > start {
			to = append(to, ' ')
		}
		if afterNegative && part.value > 0 {
			to = append(to, '+')
		}
		to = append(strconv.AppendInt(to, part.value, 10), part.unit...)
		if part.value != 1 {
			to = append(to, 's')
		}
		afterNegative = part.value < 0
	}
	if len(to) > start && micros == 0 {
		return to, true
	}
	if len(to) > start {
		to = append(to, ' ')
	}
	switch {
	case micros < 0:
		to = append(to, '-')
	case afterNegative:
		to = append(to, '+')
	}
	magnitude := uint64(micros)
	if micros < 0 {
		magnitude = -magnitude
	}
	return appendClock(to, magnitude), true
}

// appendClock prints HH:MM:SS and, without trailing zeros, the microseconds.
func appendClock(to []byte, micros uint64) []byte {
	hours, seconds := micros/3_600_000_000, micros/1_000_000%3600
	if hours < 10 {
		to = append(to, '0')
	}
	to = strconv.AppendUint(to, hours, 10)
	to = appendTwo(append(to, ':'), seconds/60)
	to = appendTwo(append(to, ':'), seconds%60)
	fraction := micros % 1_000_000
	if fraction == 0 {
		return to
	}
	to = append(to, '.')
	for unit := uint64(100_000); fraction > 0; unit /= 10 {
		to = append(to, byte('0'+fraction/unit))
		fraction %= unit
	}
	return to
}

func appendTwo(to []byte, n uint64) []byte { return append(to, byte('0'+n/10), byte('0'+n%10)) }

// appendTimeTZ prints a timetz: the clock and the zone, which the server keeps in seconds west of Greenwich.
func appendTimeTZ(to, data []byte) ([]byte, bool) {
	const zoneMax = 16 * 3600 // TZDISP_LIMIT
	if len(data) != 12 {
		return to, false
	}
	micros, west := binary.BigEndian.Uint64(data), int64(int32(binary.BigEndian.Uint32(data[8:])))
	if micros > microsPerDay || west <= -zoneMax || west >= zoneMax {
		return to, false
	}
	to = appendClock(to, micros)
	sign := byte('+')
	if west > 0 {
		sign = '-'
	} else {
		west = -west
	}
	to = appendTwo(append(to, sign), uint64(west)/3600)
	if west%3600 != 0 {
		to = appendTwo(append(to, ':'), uint64(west)/60%60)
	}
	if west%60 != 0 {
		to = appendTwo(append(to, ':'), uint64(west)%60)
	}
	return to, true
}

// appendBits prints a bit string.
func appendBits(to, data []byte) ([]byte, bool) {
	if len(data) < 4 {
		return to, false
	}
	n := uint64(binary.BigEndian.Uint32(data))
	if data = data[4:]; uint64(len(data)) != (n+7)/8 {
		return to, false
	}
	for i := range n {
		to = append(to, '0'+data[i/8]>>(7-i%8)&1)
	}
	return to, true
}
