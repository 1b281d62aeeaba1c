package pgcdc

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
)

// capturedValuesFile is what a server printed and sent for values of built-in types, written by the server test under
// -capture: on each line OID, typmod, quoted text and, where we read it, the binary form in hexadecimal.
const capturedValuesFile = "testdata/values.txt"

type capturedValue struct {
	typ          *Type
	text, binary []byte
}

// builtinArrays maps the OIDs of array types to those of their elements, as pg_type.dat has them.
var builtinArrays = map[uint32]uint32{
	1000: 16, 1001: 17, 1002: 18, 1005: 21, 1007: 23, 1009: 25, 1014: 1042, 1015: 1043, 1016: 20, 1020: 603, 1021: 700,
	1022: 701, 1028: 26, 1041: 869, 1115: 1114, 1182: 1082, 1183: 1083, 1185: 1184, 1187: 1186, 1231: 1700, 199: 114,
	2951: 2950, 3807: 3802, 3905: 3904,
}

// builtinCatalog knows the built-in types that tests use without a server.
func builtinCatalog() *typeCatalog {
	var rows []typeRow
	for array, elem := range builtinArrays {
		rows = append(rows, typeRow{OID: array, Kind: 'b', Category: 'A', Elem: elem, HasSend: true})
	}
	for oid, name := range map[uint32]string{603: "box", 600: "point", 790: "money", 2205: "regclass", 3614: "tsvector", 4072: "jsonpath", 5038: "pg_snapshot"} {
		delim := byte(',')
		if name == "box" {
			delim = ';'
		}
		rows = append(rows, typeRow{OID: oid, Name: name, Kind: 'b', Delim: delim, HasSend: true})
	}
	for oid, name := range map[uint32]string{3904: "int4range", 4532: "nummultirange"} {
		rows = append(rows, typeRow{OID: oid, Name: name, Kind: 'r', HasSend: true})
	}
	return newTypeCatalog(rows)
}

func capturedValues(t testing.TB) (values []capturedValue) {
	t.Helper()
	file, err := os.Open(capturedValuesFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	catalog := builtinCatalog()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var oid uint32
		var mod int32
		var text, bin string
		if _, err := fmt.Sscanf(lines.Text()+" .", "%d %d %q %s", &oid, &mod, &text, &bin); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		value := capturedValue{typ: catalog.resolve(oid, mod, fmt.Sprintf("type %d", oid)), text: []byte(text)}
		if value.typ.BinaryOK {
			if value.binary, err = hex.DecodeString(strings.TrimSuffix(bin, ".")); err != nil {
				t.Fatal(err)
			}
		}
		values = append(values, value)
	}
	return values
}

// TestCapturedValues holds that the text and the binary form of a value a server sent make the same calls, and that every
// prefix of the binary form is refused or, for text, a value of its own.
func TestCapturedValues(t *testing.T) {
	values := capturedValues(t)
	if len(values) < 250 {
		t.Fatalf("only %d captured values", len(values))
	}
	for _, v := range values {
		if v.typ.Unsupported != "" {
			t.Fatalf("%s: %s", v.typ.Name, v.typ.Unsupported)
		}
		fromText, err := decodeCalls(v.typ, FormatText, v.text)
		if err != nil && !errors.Is(err, ErrUnrepresentable) {
			t.Errorf("%s %q: %v", v.typ.Name, v.text, err)
		}
		if !v.typ.BinaryOK {
			continue
		}
		fromBinary, binErr := decodeCalls(v.typ, FormatBinary, v.binary)
		if fmt.Sprint(err) != fmt.Sprint(binErr) || err == nil && !reflect.DeepEqual(fromText, fromBinary) {
			t.Errorf("%s %q: text %v (%v), binary %v (%v)", v.typ.Name, v.text, fromText, err, fromBinary, binErr)
		}
		if copied := v.typ.Kind == KindBytea || v.typ.binaryForm() == formVerbatim || v.typ.binaryForm() == formJSONB; copied {
			continue
		}
		for n := range v.binary {
			if _, err := decodeCalls(v.typ, FormatBinary, v.binary[:n]); err == nil {
				t.Errorf("%s %q: the first %d of %d bytes are a value", v.typ.Name, v.text, n, len(v.binary))
			}
		}
	}
}

// TestMalformedValues holds that what no server sends is an ErrProtocol.
func TestMalformedValues(t *testing.T) {
	catalog := builtinCatalog()
	numericMod := func(precision, scale int32) int32 { return precision<<16 | scale&0x7ff + 4 }
	for _, c := range []struct {
		oid  uint32
		mod  int32
		text []string
		hex  []string
	}{
		{16, -1, []string{"", "true", "x"}, []string{"02", "0001"}},
		{21, -1, []string{"", "-", "+1", "1 ", "32768", "-32769"}, []string{"000000"}},
		{23, -1, []string{"2147483648", "-2147483649", "0x1", "1_0"}, nil},
		{20, -1, []string{"9223372036854775808", "-9223372036854775809", "99999999999999999999"}, nil},
		{26, -1, []string{"-1", "4294967296"}, nil},
		{700, -1, []string{"", "1e39", "inf", "0x1p3", "1_0", "nan", "1e"}, nil},
		{701, -1, []string{"1e309", "Inf", "1,5"}, nil},
		{1700, numericMod(10, 2), []string{"", "-", ".5", "1.", "1.2.3", "1e5", "+1", " 1", "--1"},
			[]string{"0001000000000002", "0000000020000000", "00010000000000002710", "0001000000004000" + "0001", "0001000000000000" + "000100", "00010000c0000000" + "0001"}},
		{1700, -1, nil, []string{"0001ffff00000002" + "0001", "00020000000000000001" + "0001"}},
		{17, -1, []string{"", `\`, `\x0`, `\x0g`, `abc`, `\000`}, nil},
		{2950, -1, []string{"", "12345678-9abc-def0-1234-56789abcdef", "12345678-9abc-def0-1234-56789abcdefg", "123456789abcdef0123456789abcdef0", "{2345678-9abc-def0-1234-56789abcdef}"}, nil},
		{1082, -1, []string{"", "2020-1-01", "2020-13-01", "2020-00-01", "2021-02-29", "2020-04-31", "0000-01-01", "20-01-01", "2020-01-01 AD", "2020-01-01BC", "01.01.2020", "99999999-01-01", "2020-01-01 BC BC"}, nil},
		{1083, -1, []string{"", "1:00:00", "25:00:00", "24:00:01", "12:60:00", "12:00:60", "12:00:00.", "12:00:00.1234567", "12:00", "12:00:00+00", "-1:00:00"}, []string{"ffffffffffffffff", "000000141dd76001"}},
		{1114, -1, []string{"2020-01-01", "2020-01-01T00:00:00", "2020-01-01 24:00:00", "2020-01-01 00:00:00+00", "2020-01-01 00:00:00 IST"}, nil},
		{1184, -1, []string{"2020-01-01 00:00:00", "2020-01-01 00:00:00+01", "2020-01-01 00:00:00-00"}, nil},
		{1266, -1, nil, []string{"000000141dd7600100000000", "00000000000000000000e100", "0000000000000000ffff1f00", "ffffffffffffffff00000000"}},
		{869, -1, nil, []string{"02210004" + "01020304", "0221000401020304", "0220020401020304", "0320000401020304", "0220000501020304", "0420000401020304"}},
		{1560, -1, nil, []string{"0000000900", "00000000ff", "ffffffff00"}},
		{3802, -1, nil, []string{"", "0231"}},
		{25, -1, []string{"\xff", "a\xc3"}, []string{"ff"}},
		{114, -1, []string{"\"\xff\""}, nil},
		{600, -1, nil, []string{"00000000000000000000000000000000"}},
		{1007, -1, []string{"", "{", "}", "{1", "{1,}", "{,1}", "{,}", "{1}}", "{1}x", "{1,2}{", `{"1}`, `{"1"2}`, `{1"2"}`, `{1\}`, "[1:2]={1}", "[2:1]={}", "[1:2]{1,2}", "[a:b]={1}", "[1:2", "[]={}", "[0:9999999999]={1}", "{1 }", "{null}", `{"NULL"}`, `{1,2"}`},
			[]string{"00000000", "000000010000000000000017", "000000010000000200000017" + "0000000100000001" + "0000000400000001", "000000010000000000000019" + "0000000100000001" + "0000000400000001",
				"000000010000000000000017" + "7fffffff00000001", "000000010000000000000017" + "0000000100000001" + "0000000500000001", "000000010000000000000017" + "0000000100000001" + "000000040000000100", "000000000000000000000017" + "00"}},
		{1009, -1, []string{`{"a\`, `{"a\"}`, "{\xff}", "{\"\\\xff\"}"}, nil},
	} {
		typ := catalog.resolve(c.oid, c.mod, fmt.Sprint(c.oid))
		for _, text := range c.text {
			if calls, err := decodeCalls(typ, FormatText, []byte(text)); !errors.Is(err, ErrProtocol) {
				t.Errorf("type %d text %q: %v, error %v", c.oid, text, calls, err)
			}
		}
		for _, digits := range c.hex {
			data, err := hex.DecodeString(digits)
			if err != nil {
				t.Fatal(err)
			}
			if calls, err := decodeCalls(typ, FormatBinary, data); !errors.Is(err, ErrProtocol) {
				t.Errorf("type %d binary %s: %v, error %v", c.oid, digits, calls, err)
			}
		}
	}
}

// TestNullAndUnchanged holds that every type takes NULL and none a value that was not sent.
func TestNullAndUnchanged(t *testing.T) {
	for _, v := range capturedValues(t) {
		calls, err := decodeCalls(v.typ, FormatNull, nil)
		if err != nil || !reflect.DeepEqual(calls, []call{{"Null", nil}}) {
			t.Errorf("%s NULL: %v, %v", v.typ.Name, calls, err)
		}
		if calls, err := decodeCalls(v.typ, FormatUnchanged, nil); !errors.Is(err, ErrProtocol) || calls != nil {
			t.Errorf("%s unchanged: %v, %v", v.typ.Name, calls, err)
		}
	}
}

// TestUnrepresentableEdges holds where dates, timestamps and decimals end, in both formats.
func TestUnrepresentableEdges(t *testing.T) {
	catalog := builtinCatalog()
	for _, c := range []struct {
		name   string
		typ    *Type
		format Format
		data   []byte
		want   any // nil: unrepresentable
	}{
		{"last date", catalog.resolve(1082, -1, "date"), FormatBinary, binary.BigEndian.AppendUint32(nil, math.MaxInt32-10958), int32(math.MaxInt32 - 1)},
		{"date that would be infinity", catalog.resolve(1082, -1, "date"), FormatBinary, binary.BigEndian.AppendUint32(nil, math.MaxInt32-10957), nil},
		{"date that would wrap", catalog.resolve(1082, -1, "date"), FormatBinary, binary.BigEndian.AppendUint32(nil, math.MaxInt32-1), nil},
		{"date text", catalog.resolve(1082, -1, "date"), FormatText, []byte("9999999-01-01"), nil},
		{"date text BC", catalog.resolve(1082, -1, "date"), FormatText, []byte("9999999-01-01 BC"), nil},
		{"last timestamp", catalog.resolve(1114, -1, "timestamp"), FormatText, []byte("294247-01-10 04:00:54.775806"), int64(math.MaxInt64 - 1)},
		{"timestamp that would be infinity", catalog.resolve(1114, -1, "timestamp"), FormatText, []byte("294247-01-10 04:00:54.775807"), nil},
		{"timestamp that would wrap", catalog.resolve(1114, -1, "timestamp"), FormatText, []byte("294247-01-10 04:00:54.775808"), nil},
		{"timestamp BC", catalog.resolve(1114, -1, "timestamp"), FormatText, []byte("999999-01-01 00:00:00 BC"), nil},
		{"five digits in numeric(4,1)", catalog.resolve(1700, 4<<16+1+4, "numeric(4,1)"), FormatText, []byte("1000.0"), nil},
		{"scale two in numeric(4,1)", catalog.resolve(1700, 4<<16+1+4, "numeric(4,1)"), FormatText, []byte("1.01"), nil},
		{"trailing zero in numeric(4,1)", catalog.resolve(1700, 4<<16+1+4, "numeric(4,1)"), FormatText, []byte("1.00"), "10"},
		{"digits beyond 128 bits", catalog.resolve(1700, 38<<16+4, "numeric(38,0)"), FormatText, []byte(strings.Repeat("9", 400)), nil},
		{"weight beyond 128 bits", catalog.resolve(1700, 38<<16+4, "numeric(38,0)"), FormatBinary, []byte("\x00\x01\x7f\xff\x00\x00\x00\x00\x00\x01"), nil},
		{"weight of a zero", catalog.resolve(1700, 38<<16+4, "numeric(38,0)"), FormatBinary, []byte("\x00\x01\x7f\xff\x00\x00\x00\x00\x00\x00"), "0"},
		{"small weight", catalog.resolve(1700, 38<<16+4, "numeric(38,0)"), FormatBinary, []byte("\x00\x01\x80\x00\x00\x00\x00\x00\x00\x01"), nil},
	} {
		calls, err := decodeCalls(c.typ, c.format, c.data)
		switch {
		case c.want == nil && (!errors.Is(err, ErrUnrepresentable) || errors.Is(err, ErrProtocol) || calls != nil):
			t.Errorf("%s: %v, error %v, want it unrepresentable", c.name, calls, err)
		case c.want != nil && (err != nil || calls[0].value != c.want):
			t.Errorf("%s: %v, error %v, want %v", c.name, calls, err, c.want)
		}
	}
}

// TestCharAboveASCII holds that a "char" that is not ASCII is printed in octal: PostgreSQL 16 prints it so, 15 prints
// the bare byte, and both send that.
func TestCharAboveASCII(t *testing.T) {
	typ := builtinCatalog().resolve(18, -1, `"char"`)
	for _, c := range []struct {
		format Format
		data   string
	}{{FormatBinary, "\xe9"}, {FormatText, "\xe9"}, {FormatText, `\351`}} {
		calls, err := decodeCalls(typ, c.format, []byte(c.data))
		if err != nil || !reflect.DeepEqual(calls, []call{{"String", `\351`}}) {
			t.Errorf("%q: %v, %v", c.data, calls, err)
		}
	}
}

// TestFloatBits holds that binary keeps every bit pattern, but for NaNs, which are one, in lists and by Word too.
func TestFloatBits(t *testing.T) {
	catalog := builtinCatalog()
	for bits, want := range map[uint64]uint64{
		0x7ff8000000000001: nanFloat8, 0xfff8000000000000: nanFloat8, 0x7ff0000000000001: nanFloat8, nanFloat8: nanFloat8,
		0x8000000000000000: 0x8000000000000000, 1: 1, 0x7ff0000000000000: 0x7ff0000000000000, 0xfff0000000000000: 0xfff0000000000000,
	} {
		data := binary.BigEndian.AppendUint64(nil, bits)
		calls, err := decodeCalls(catalog.resolve(701, -1, "float8"), FormatBinary, data)
		if err != nil || calls[0].value != want {
			t.Errorf("%x: %v, %v", bits, calls, err)
		}
		if word, ok := catalog.resolve(701, -1, "float8").Word(data); ok && word != want {
			t.Errorf("%x: %x", bits, word)
		}
	}
	for bits, want := range map[uint32]uint32{0x7fc00001: nanFloat4, 0xffc00000: nanFloat4, 0x7f800001: nanFloat4, 0x80000000: 0x80000000, 0x7f800000: 0x7f800000, 0xff800000: 0xff800000} {
		data := binary.BigEndian.AppendUint32(nil, bits)
		calls, err := decodeCalls(catalog.resolve(700, -1, "float4"), FormatBinary, data)
		if err != nil || calls[0].value != want {
			t.Errorf("%x: %v, %v", bits, calls, err)
		}
		if word, ok := catalog.resolve(700, -1, "float4").Word(data); ok && uint32(word) != want {
			t.Errorf("%x: %x", bits, word)
		}
	}
}

// TestErrorsHoldNoValue holds that no error of a decoder contains the value.
func TestErrorsHoldNoValue(t *testing.T) {
	const secret = "5ECRET"
	for oid := range builtinTypes {
		typ := builtinCatalog().resolve(oid, 4<<16+1+4, "type")
		for _, data := range []string{secret, secret + "\xff", "{" + secret, secret + "0123456789"} {
			for _, format := range []Format{FormatText, FormatBinary} {
				if _, err := decodeCalls(typ, format, []byte(data)); err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("type %d: %v", oid, err)
				}
			}
		}
	}
}
