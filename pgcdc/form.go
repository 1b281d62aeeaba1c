package pgcdc

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Form is what a column is mirrored as because the configuration says so, instead of what its type is by itself. Its zero value is none.
type Form struct {
	kind             Kind // KindText, KindDecimal or KindFloat8
	precision, scale int
}

// ColumnName names a column as the catalogue has it.
type ColumnName struct{ Schema, Table, Column string }

// String is how the configuration and messages write the name: parts that are more than lower case letters, digits and _ in double quotes.
func (c ColumnName) String() string {
	parts := []string{c.Schema, c.Table, c.Column}
	for i, part := range parts {
		if !plainPart.MatchString(part) {
			parts[i] = quoteIdent(part)
		}
	}
	return strings.Join(parts, ".")
}

var plainPart = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

var decimalForm = regexp.MustCompile(`^decimal\(\s*([0-9]{1,2})\s*,\s*([0-9]{1,2})\s*\)$`)

// ParseForm reads text, double or decimal(precision,scale) with a precision of 1 to 38 and a scale of 0 to the precision.
func ParseForm(text string) (Form, error) {
	switch text {
	case "text":
		return Form{kind: KindText}, nil
	case "double":
		return Form{kind: KindFloat8}, nil
	}
	parts := decimalForm.FindStringSubmatch(text)
	if parts == nil {
		return Form{}, fmt.Errorf("%q is not one of text, double, decimal(precision,scale)", text)
	}
	f := Form{kind: KindDecimal}
	f.precision, _ = strconv.Atoi(parts[1]) // two digits
	f.scale, _ = strconv.Atoi(parts[2])
	if f.precision < 1 || f.precision > decimalMax || f.scale > f.precision {
		return Form{}, fmt.Errorf("%q: the precision is 1 to %d, the scale 0 to the precision", text, decimalMax)
	}
	return f, nil
}

func (f Form) String() string {
	switch f.kind {
	case KindText:
		return "text"
	case KindFloat8:
		return "double"
	case KindDecimal:
		return fmt.Sprintf("decimal(%d,%d)", f.precision, f.scale)
	}
	return ""
}

// as is the type of a column in another form. It is t itself where that is its form anyway; a type for which the form is not made comes back with
// the reason in Unsupported.
//
// As text a value is what its output function prints. Of types that have another form by themselves we print numeric alone, so any other such column, and
// with it the stream, comes in text.
func (t *Type) as(f Form) *Type {
	other := *t
	other.Elem, other.delim, other.Precision, other.Scale, other.Unsupported = nil, 0, 0, 0, ""
	switch {
	case f.kind == KindText && (t.Kind == KindText || t.Kind == KindJSON):
		return t
	case f.kind == KindText && t.base == oidNumeric:
		other.Kind, other.form = KindText, formNumeric
	case f.kind == KindText:
		other.Kind, other.form, other.BinaryOK = KindText, formNone, false
	case t.base != oidNumeric:
		other.Kind, other.form, other.BinaryOK = KindInvalid, formUnset, false
		other.Unsupported = fmt.Sprintf("the setting types makes it %s, which only a numeric can be; it is %s", f, t.Name)
	case f.kind == KindDecimal && t.Kind == KindDecimal && t.Precision == f.precision && t.Scale == f.scale:
		return t
	case f.kind == KindDecimal:
		other.Kind, other.form, other.Precision, other.Scale = KindDecimal, formUnset, f.precision, f.scale
	default:
		other.Kind, other.form = KindFloat8, formNumeric
	}
	return &other
}

const reasonDouble = "it is too large or too small for a double"

// numericDouble hands over the double that is nearest to a numeric's text: what a cast to float8 gives on the source, which refuses the same ones.
func (t *Type) numericDouble(text []byte, format Format, s Sink) error {
	var value float64
	switch string(text) {
	case "NaN":
		value = math.Float64frombits(nanFloat8)
	case "Infinity":
		value = math.Inf(1)
	case "-Infinity":
		value = math.Inf(-1)
	default:
		zero, ok := plainNumber(text)
		if !ok {
			return t.malformed(format)
		}
		var err error
		if value, err = strconv.ParseFloat(string(text), 64); err != nil || value == 0 && !zero {
			return t.unrepresentable(reasonDouble)
		}
	}
	s.Float64(value)
	return nil
}

// plainNumber says whether text is an optional minus and digits with at most one point between them, and whether all digits are 0.
func plainNumber(text []byte) (zero, ok bool) {
	digits := strings.TrimPrefix(string(text), "-")
	point, zero := false, true
	for i, c := range []byte(digits) {
		switch {
		case c == '.' && !point && i > 0 && i < len(digits)-1:
			point = true
		case c < '0' || c > '9':
			return false, false
		default:
			zero = zero && c == '0'
		}
	}
	return zero, len(digits) > 0
}

func (t *Type) binaryNumericDouble(data []byte, s Sink) error {
	n, ok := parseNumeric(data)
	if !ok {
		return t.malformed(FormatBinary)
	}
	b := takeScratch()
	defer b.release()
	if b.buf, ok = n.appendText(b.buf[:0]); !ok {
		return t.malformed(FormatBinary)
	}
	return t.numericDouble(b.buf, FormatBinary, s)
}
