package pgcdc

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// extensionCatalog knows the types of extensions that have a form of their own, under OIDs that some database gave them.
func extensionCatalog() *typeCatalog {
	return newTypeCatalog([]typeRow{
		{OID: 30001, Name: "vector", Extension: "vector", Kind: 'b', HasSend: true},
		{OID: 30002, Name: "halfvec", Extension: "vector", Kind: 'b', HasSend: true},
		{OID: 30003, Name: "hstore", Extension: "hstore", Kind: 'b', HasSend: true},
	})
}

const (
	aVector  = 30001
	aHalfvec = 30002
	anHstore = 30003
)

// vectorForms are vectors with the text and the bytes that pgvector's functions make of them, worked out by hand from
// vector_out, vector_send, halfvec_out and halfvec_send.
var vectorForms = []struct {
	oid    uint32
	text   string
	hex    string
	values []float32
}{
	{aVector, "[1,2,3]", "00030000" + "3f800000" + "40000000" + "40400000", []float32{1, 2, 3}},
	{aVector, "[-0.5]", "00010000" + "bf000000", []float32{-0.5}},
	{aVector, "[0.1,-0,1e-45,3.4028235e+38]", "00040000" + "3dcccccd" + "80000000" + "00000001" + "7f7fffff", []float32{0.1, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, math.MaxFloat32}},
	{aVector, "[]", "00000000", nil},
	{aHalfvec, "[1,-2,65504]", "00030000" + "3c00" + "c000" + "7bff", []float32{1, -2, 65504}},
	{aHalfvec, "[0.33325195,-0,0]", "00030000" + "3555" + "8000" + "0000", []float32{0.33325195, float32(math.Copysign(0, -1)), 0}},
	{aHalfvec, "[5.9604645e-08,6.1035156e-05,-6.097555e-05]", "00030000" + "0001" + "0400" + "83ff", []float32{0x1p-24, 0x1p-14, -0x1.ff8p-15}},
}

// TestVectors holds that both forms of a vector are the list of its elements, and that no part of the binary one is.
func TestVectors(t *testing.T) {
	catalog := extensionCatalog()
	for _, c := range vectorForms {
		typ := catalog.resolve(c.oid, -1, "vector")
		want := []call{{"BeginList", len(c.values)}}
		for _, v := range c.values {
			want = append(want, call{"Float32", math.Float32bits(v)})
		}
		want = append(want, call{"EndList", nil})
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if calls, err := decodeCalls(typ, FormatText, []byte(c.text)); err != nil || !reflect.DeepEqual(calls, want) {
			t.Errorf("text %s: %v, %v", c.text, calls, err)
		}
		if calls, err := decodeCalls(typ, FormatBinary, data); err != nil || !reflect.DeepEqual(calls, want) {
			t.Errorf("binary %s: %v, %v", c.hex, calls, err)
		}
		for n := range data {
			if calls, err := decodeCalls(typ, FormatBinary, data[:n]); !errors.Is(err, ErrProtocol) {
				t.Errorf("the first %d of %d bytes: %v, %v", n, len(data), calls, err)
			}
		}
	}
}

// TestVectorsAlike holds that any vector comes out the same in text and in binary.
func TestVectorsAlike(t *testing.T) {
	typ := extensionCatalog().resolve(aVector, -1, "vector")
	rapid.Check(t, func(rt *rapid.T) {
		values := rapid.SliceOfN(rapid.Float32(), 0, 40).Draw(rt, "values")
		bin := []byte{byte(len(values) >> 8), byte(len(values)), 0, 0}
		texts := make([]string, len(values))
		for i, v := range values {
			bits := math.Float32bits(v)
			bin = append(bin, byte(bits>>24), byte(bits>>16), byte(bits>>8), byte(bits))
			texts[i] = strings.Replace(strconv.FormatFloat(float64(v), 'g', -1, 32), "Inf", "Infinity", 1)
			texts[i] = strings.TrimPrefix(texts[i], "+")
		}
		fromBinary, err := decodeCalls(typ, FormatBinary, bin)
		fromText, textErr := decodeCalls(typ, FormatText, []byte("["+strings.Join(texts, ",")+"]"))
		if err != nil || textErr != nil || !reflect.DeepEqual(fromBinary, fromText) {
			rt.Fatalf("binary %v (%v), text %v (%v)", fromBinary, err, fromText, textErr)
		}
	})
}

// TestMalformedExtensionValues holds that what the extensions' functions never write is a protocol error.
func TestMalformedExtensionValues(t *testing.T) {
	catalog := extensionCatalog()
	const pair = "00000001" + "61" // a length and a key
	for oid, bad := range map[uint32]struct{ text, hex []string }{
		aVector: {[]string{"", "[", "]", "1,2", "[1,]", "[,]", "[1,x]", "[1 ,2]", "{1}", "[NULL]", "[[1]]"},
			[]string{"", "0001", "00010000", "0001000100000000", "000100003f80000000", "ffff0000" + "3f800000"}},
		aHalfvec: {[]string{"[", "[1;2]"}, []string{"000100003f800000", "000100003c", "ffff00003c00"}},
		anHstore: {[]string{"\xff"}, []string{"", "000000", "ffffffff", "00000001", "00000001" + pair, "00000001" + pair + "00000002" + "31", "00000001" + "ffffffff" + "ffffffff",
			"00000001" + pair + "ffffffff" + "00", "00000002" + pair + "ffffffff", "00000001" + pair + "00000001" + "ff", "00000001" + "7fffffff" + "61" + "ffffffff", "00000001" + pair + "80000000"}},
	} {
		typ := catalog.resolve(oid, -1, fmt.Sprint(oid))
		for _, text := range bad.text {
			if calls, err := decodeCalls(typ, FormatText, []byte(text)); !errors.Is(err, ErrProtocol) {
				t.Errorf("type %d text %q: %v, error %v", oid, text, calls, err)
			}
		}
		for _, digits := range bad.hex {
			data, err := hex.DecodeString(digits)
			if err != nil {
				t.Fatal(err)
			}
			if calls, err := decodeCalls(typ, FormatBinary, data); !errors.Is(err, ErrProtocol) {
				t.Errorf("type %d binary %s: %v, error %v", oid, digits, calls, err)
			}
		}
	}
}

// TestHstore holds what hstore_send's bytes print as.
func TestHstore(t *testing.T) {
	typ := extensionCatalog().resolve(anHstore, -1, "hstore")
	for text, digits := range map[string]string{
		"":                          "00000000",
		`"a"=>"1"`:                  "00000001" + "00000001" + "61" + "00000001" + "31",
		`"a"=>NULL, "bb"=>""`:       "00000002" + "00000001" + "61" + "ffffffff" + "00000002" + "6262" + "00000000",
		`""=>"\"\\", "k"=>"ü"`:      "00000002" + "00000000" + "00000002" + "225c" + "00000001" + "6b" + "00000002" + "c3bc",
		"\"NULL\"=>\"NULL, a=>\n\"": "00000001" + "00000004" + "4e554c4c" + "0000000a" + "4e554c4c2c20613d3e" + "0a",
	} {
		data, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		if calls, err := decodeCalls(typ, FormatBinary, data); err != nil || !reflect.DeepEqual(calls, []call{{"String", text}}) {
			t.Errorf("%s: %v, %v", text, calls, err)
		}
	}
}
