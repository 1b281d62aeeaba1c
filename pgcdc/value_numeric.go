package pgcdc

import (
	"encoding/binary"
	"math/bits"
)

// numericGroup is how many decimal digits one binary digit of a numeric holds (DEC_DIGITS in numeric.c).
const numericGroup = 4

// numericWire is what numeric_send writes: digits of base 10,000, the first of which counts 10,000^weight.
type numericWire struct {
	weight   int
	scale    int    // decimal digits after the point (dscale)
	digits   []byte // two bytes each
	negative bool
	special  string // NaN, Infinity, -Infinity
}

// parseNumeric reads a numeric and drops leading zero digits.
func parseNumeric(data []byte) (n numericWire, ok bool) {
	const (
		head       = 8
		signPlus   = 0x0000
		signMinus  = 0x4000
		signNaN    = 0xc000
		signPosInf = 0xd000
		signNegInf = 0xf000
		scaleMax   = 0x3fff // NUMERIC_DSCALE_MASK
	)
	if len(data) < head || len(data) != head+2*int(binary.BigEndian.Uint16(data)) {
		return n, false
	}
	n.weight = int(int16(binary.BigEndian.Uint16(data[2:])))
	n.scale = int(binary.BigEndian.Uint16(data[6:]))
	n.digits = data[head:]
	switch binary.BigEndian.Uint16(data[4:]) {
	case signPlus:
	case signMinus:
		n.negative = true
	case signNaN:
		n.special = "NaN"
	case signPosInf:
		n.special = "Infinity"
	case signNegInf:
		n.special = "-Infinity"
	default:
		return n, false
	}
	if n.special != "" {
		return n, len(n.digits) == 0
	}
	for i := 0; i < len(n.digits); i += 2 {
		if binary.BigEndian.Uint16(n.digits[i:]) > 9999 {
			return n, false
		}
	}
	for len(n.digits) > 0 && n.digits[0] == 0 && n.digits[1] == 0 {
		n.digits, n.weight = n.digits[2:], n.weight-1
	}
	return n, n.scale <= scaleMax
}

// digit is the binary digit that counts 10,000^(weight-i).
func (n *numericWire) digit(i int) int {
	if i < 0 || 2*i >= len(n.digits) {
		return 0
	}
	return int(binary.BigEndian.Uint16(n.digits[2*i:]))
}

// appendText appends what numeric_out prints, and reports whether the scale covers all digits. A weight and a scale of
// two bytes each bound the text to 148 kB, however few the digits.
func (n *numericWire) appendText(to []byte) ([]byte, bool) {
	if n.special != "" {
		return append(to, n.special...), true
	}
	if n.negative {
		to = append(to, '-')
	}
	if n.weight < 0 || len(n.digits) == 0 {
		to = append(to, '0')
	} else {
		start := len(to)
		for i := 0; i <= n.weight; i++ {
			to = appendGroup(to, n.digit(i))
		}
		zeros := start
		for to[zeros] == '0' { // parseNumeric saw to it that the first group is not zero
			zeros++
		}
		to = append(to[:start], to[zeros:]...)
	}
	next := n.weight + 1
	if len(n.digits) == 0 {
		next = 0
	}
	if n.scale > 0 {
		to = append(to, '.')
		end := len(to) + n.scale
		for ; len(to) < end; next++ {
			to = appendGroup(to, n.digit(next))
		}
		for ; len(to) > end; to = to[:len(to)-1] {
			if to[len(to)-1] != '0' {
				return to, false
			}
		}
	}
	for i := max(next, 0); 2*i < len(n.digits); i++ {
		if n.digit(i) != 0 {
			return to, false
		}
	}
	return to, true
}

func appendGroup(to []byte, d int) []byte {
	return append(to, byte('0'+d/1000), byte('0'+d/100%10), byte('0'+d/10%10), byte('0'+d%10))
}

// uint128 is an unscaled decimal's magnitude.
type uint128 struct{ hi, lo uint64 }

// mulAdd is u·m + a, and whether that fits.
func (u uint128) mulAdd(m, a uint64) (uint128, bool) {
	if u.hi == 0 {
		hi, lo := bits.Mul64(u.lo, m)
		lo, carry := bits.Add64(lo, a, 0)
		return uint128{hi + carry, lo}, true // at most (2^64−1)²+2^64−1
	}
	over, hi := bits.Mul64(u.hi, m)
	carry1, lo := bits.Mul64(u.lo, m)
	lo, c := bits.Add64(lo, a, 0)
	hi, overflow := bits.Add64(hi, carry1, c)
	return uint128{hi, lo}, over == 0 && overflow == 0
}

// scaled is u·10^n, and whether that fits.
func (u uint128) scaled(n int) (uint128, bool) {
	ok := true
	for ; n > 0 && u != (uint128{}) && ok; n-- {
		u, ok = u.mulAdd(10, 0)
	}
	return u, ok
}

func (u uint128) below(v uint128) bool { return u.hi < v.hi || u.hi == v.hi && u.lo < v.lo }

// pow10 holds 10^0 to 10^38.
var pow10 = func() (powers [decimalMax + 1]uint128) {
	powers[0].lo = 1
	for i := 1; i < len(powers); i++ {
		powers[i], _ = powers[i-1].mulAdd(10, 0)
	}
	return powers
}()

const (
	reasonNotFinite = "NaN and infinity have no decimal form"
	reasonDigits    = "it has more digits than the column's precision and scale"
)

// sinkDecimal hands over ±u, an unscaled decimal of t's scale.
func (t *Type) sinkDecimal(u uint128, negative bool, s Sink) error {
	if !u.below(pow10[t.Precision]) {
		return t.unrepresentable(reasonDigits)
	}
	if negative {
		lo, borrow := bits.Sub64(0, u.lo, 0)
		hi, _ := bits.Sub64(0, u.hi, borrow)
		u = uint128{hi, lo}
	}
	s.Decimal(int64(u.hi), u.lo)
	return nil
}

func (t *Type) binaryDecimal(data []byte, s Sink) error {
	n, ok := parseNumeric(data)
	if !ok {
		return t.malformed(FormatBinary)
	}
	if n.special != "" {
		return t.unrepresentable(reasonNotFinite)
	}
	var u uint128
	exponent := 0 // of ten, for the unit of the last digit taken, counted from the column's scale
	for i := 0; 2*i < len(n.digits) && ok; i++ {
		d := uint64(n.digit(i))
		exponent = (n.weight-i)*numericGroup + t.Scale
		switch {
		case exponent >= 0:
			u, ok = u.mulAdd(10_000, d)
		case exponent > -numericGroup: // the column's last digit lies inside this group
			unit := pow10[-exponent].lo
			if d%unit != 0 {
				return t.unrepresentable(reasonDigits)
			}
			u, ok = u.mulAdd(10_000/unit, d/unit)
		case d != 0:
			return t.unrepresentable(reasonDigits)
		}
	}
	if ok {
		u, ok = u.scaled(exponent)
	}
	if !ok {
		return t.unrepresentable(reasonDigits)
	}
	return t.sinkDecimal(u, n.negative, s)
}

func (t *Type) textDecimal(data []byte, s Sink) error {
	switch string(data) {
	case "NaN", "Infinity", "-Infinity":
		return t.unrepresentable(reasonNotFinite)
	}
	digits := data
	negative := len(data) > 0 && data[0] == '-'
	if negative {
		digits = data[1:]
	}
	var u uint128
	point := -1 // the index of the decimal point
	fits := true
	for i, c := range digits {
		switch {
		case c == '.' && point < 0 && i > 0 && i < len(digits)-1:
			point = i
		case c < '0' || c > '9':
			return t.malformed(FormatText)
		case point >= 0 && i-point > t.Scale:
			fits = fits && c == '0'
		case fits:
			u, fits = u.mulAdd(10, uint64(c-'0'))
		}
	}
	if len(digits) == 0 {
		return t.malformed(FormatText)
	}
	missing := t.Scale // digits that the text leaves out after its last one
	if point >= 0 {
		missing -= len(digits) - 1 - point
	}
	if fits {
		u, fits = u.scaled(missing)
	}
	if !fits {
		return t.unrepresentable(reasonDigits)
	}
	return t.sinkDecimal(u, negative, s)
}
