package readstate

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"
)

func joined(e encodedColumn) []byte {
	body := alignedBytes(int(e.size))[:0]
	for _, piece := range e.pieces {
		body = append(body, piece...)
	}
	return body
}

// What is decoded equals what was encoded, for every type, with and without NULLs, and for slices of a larger array.
func TestColumnRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dt := rapid.SampledFrom(testTypes).Draw(rt, "type")
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		whole := randomArray(rnd, dt, rapid.IntRange(0, 300).Draw(rt, "rows"), rapid.Bool().Draw(rt, "nulls"))
		from := rapid.IntRange(0, whole.Len()).Draw(rt, "from")
		to := rapid.IntRange(from, whole.Len()).Draw(rt, "to")
		want := array.NewSlice(whole, int64(from), int64(to))
		encoded, err := encodeColumn(dt, want)
		if err != nil {
			rt.Fatal(err)
		}
		body := joined(encoded)
		if int64(len(body)) != encoded.size {
			rt.Fatalf("%d bytes, said were %d", len(body), encoded.size)
		}
		got, err := decodeColumn(dt, want.Len(), body)
		if err != nil {
			rt.Fatal(err)
		}
		if !array.Equal(got, want) || got.NullN() != want.NullN() {
			rt.Fatalf("got %v, want %v", got, want)
		}
		if len(body) > 0 {
			if _, err := decodeColumn(dt, want.Len(), body[:len(body)-1]); err == nil {
				rt.Fatal("a torn column was taken")
			}
		}
		if _, err := decodeColumn(dt, want.Len(), append(body, 0)); err == nil {
			rt.Fatal("a byte after the column was taken")
		}
	})
}

// NaNs with their payload and both zeros keep their bits.
func TestFloatBitsSurvive(t *testing.T) {
	b := array.NewFloat64Builder(memory.NewGoAllocator())
	want := []uint64{math.Float64bits(math.NaN()), 0x7ff0000000000abc, 1 << 63, 0, math.Float64bits(math.Inf(-1))}
	for _, bits := range want {
		b.Append(math.Float64frombits(bits))
	}
	encoded, err := encodeColumn(arrow.PrimitiveTypes.Float64, b.NewArray())
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeColumn(arrow.PrimitiveTypes.Float64, len(want), joined(encoded))
	if err != nil {
		t.Fatal(err)
	}
	for i, bits := range want {
		if g := math.Float64bits(got.(*array.Float64).Value(i)); g != bits {
			t.Errorf("value %d is %x, want %x", i, g, bits)
		}
	}
}

// The bytes of the example in docs/formats/readstate.md.
func TestColumnBytes(t *testing.T) {
	b := array.NewBuilder(memory.NewGoAllocator(), listOf(arrow.BinaryTypes.String)).(*array.ListBuilder)
	text := b.ValueBuilder().(*array.StringBuilder)
	b.Append(true)
	text.Append("no")
	text.AppendNull()
	b.AppendNull()
	b.Append(true)
	text.Append("yes")
	encoded, err := encodeColumn(listOf(arrow.BinaryTypes.String), b.NewArray())
	if err != nil {
		t.Fatal(err)
	}
	block := func(start string) string { return start + strings.Repeat("00", 64-len(start)/2) }
	want := block("0100000000000000"+"0300000000000000") + // 1 NULL, 3 elements
		block("05") + // rows 0 and 2 are there
		block("00000000"+"02000000"+"02000000"+"03000000") +
		block("0100000000000000"+"0500000000000000") + // 1 NULL, 5 bytes of text
		block("05") +
		block("00000000"+"02000000"+"02000000"+"05000000") +
		block(hex.EncodeToString([]byte("noyes")))
	if got := hex.EncodeToString(joined(encoded)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A growing column always equals the whole it was cut from, and arrays of its earlier rows stay as they were and may be read
// while it grows.
func TestGrowingColumn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dt := rapid.SampledFrom(testTypes).Draw(rt, "type")
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		rows := rapid.IntRange(0, 200).Draw(rt, "rows")
		whole := randomArray(rnd, dt, rows, rapid.Bool().Draw(rt, "nulls"))
		grown := newGrowing(dt)
		var kept []arrow.Array
		for at := 0; at < rows; {
			to := rapid.IntRange(at+1, rows).Draw(rt, "to")
			encoded, err := encodeColumn(dt, array.NewSlice(whole, int64(at), int64(to)))
			if err != nil {
				rt.Fatal(err)
			}
			piece, err := decodeColumn(dt, to-at, joined(encoded))
			if err != nil {
				rt.Fatal(err)
			}
			read := make(chan string, 1)
			go func() { // the race detector sees a byte that both touch
				if len(kept) > 0 {
					read <- kept[len(kept)-1].String()
				} else {
					read <- ""
				}
			}()
			err = grown.add(piece.Data())
			<-read
			if err != nil {
				rt.Fatal(err)
			}
			kept = append(kept, array.MakeFromData(grown.data()))
			at = to
		}
		for _, got := range kept {
			if want := array.NewSlice(whole, 0, int64(got.Len())); !array.Equal(got, want) || got.NullN() != want.NullN() {
				rt.Fatalf("got %v, want %v", got, want)
			}
		}
	})
}

// A column that is not what its schema says, and a type that has no form, are errors.
func TestWrongColumns(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for name, c := range map[string]struct{ schema, array arrow.DataType }{
		"other type":          {arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32},
		"other precision":     {&arrow.Decimal128Type{Precision: 9, Scale: 2}, &arrow.Decimal128Type{Precision: 9, Scale: 3}},
		"other zone":          {&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, &arrow.TimestampType{Unit: arrow.Microsecond}},
		"other element":       {listOf(arrow.PrimitiveTypes.Int64), listOf(arrow.PrimitiveTypes.Int32)},
		"type without a form": {arrow.BinaryTypes.LargeString, arrow.BinaryTypes.LargeString},
	} {
		t.Run(name, func(t *testing.T) {
			var column arrow.Array = array.NewLargeStringBuilder(memory.NewGoAllocator()).NewArray()
			if c.array.ID() != arrow.LARGE_STRING {
				column = randomArray(rnd, c.array, 3, false)
			}
			if _, err := encodeColumn(c.schema, column); err == nil {
				t.Errorf("%s passed for %s", c.array, c.schema)
			}
		})
	}
}

// Schemas survive the wire with every type and all metadata; what has no form or no field id is an error.
func TestSchemaErrors(t *testing.T) {
	field := arrow.Field{Name: "c", Type: arrow.PrimitiveTypes.Int64, Metadata: idMeta(1)}
	deep := field
	for range maxNesting + 1 {
		deep.Type = arrow.ListOf(deep.Type)
	}
	second := arrow.Field{Name: "c", Type: &arrow.TimestampType{Unit: arrow.Second}, Metadata: idMeta(1)}
	for name, f := range map[string]arrow.Field{
		"no field id": {Name: "c", Type: field.Type},
		"seconds":     second,
		"too deep":    deep,
		"no form":     {Name: "c", Type: arrow.BinaryTypes.LargeString, Metadata: idMeta(1)},
		"not UTF-8":   {Name: "\xff", Type: field.Type, Metadata: idMeta(1)},
	} {
		if _, err := schemaToWire(arrow.NewSchema([]arrow.Field{f}, nil)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, text := range []string{
		`{`, `[{"name":"c","type":"int64"}]`, `[{"name":"c","type":"int65","meta_keys":["PARQUET:field_id"],"meta_values":["1"]}]`,
		`[{"name":"c","type":"int64","meta_keys":["PARQUET:field_id"]}]`, `[{"name":"c","type":"list","meta_keys":["PARQUET:field_id"],"meta_values":["1"]}]`,
		`[{"name":"c","type":"fixed","meta_keys":["PARQUET:field_id"],"meta_values":["1"]}]`,
		`[{"name":"c","type":"decimal","decimal":[39,0],"meta_keys":["PARQUET:field_id"],"meta_values":["1"]}]`,
		`[{"name":"c","meta_keys":["PARQUET:field_id"],"meta_values":["1"],` + strings.Repeat(`"type":"list","element":{`, 20) + `"type":"int64"` + strings.Repeat("}", 20) + `}]`,
	} {
		if _, err := schemaFromWire([]byte(text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

// A body larger than what is allocated at once arrives whole.
func TestLargeBody(t *testing.T) {
	want := make([]byte, 3*trustedBody+5)
	for i := range want {
		want[i] = byte(i * i >> 7)
	}
	got, err := readBody(bytes.NewReader(want), len(want))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came for %d, %v", len(got), len(want), err)
	}
	if _, err := readBody(bytes.NewReader(want), len(want)+1); err == nil {
		t.Error("a torn body was taken")
	}
}

// Bytes that contradict each other or the row count are an error.
func TestHostileColumns(t *testing.T) {
	text, numbers := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32
	block := func(start string) string { return start + strings.Repeat("00", 64-len(start)/2) }
	number := func(n uint64) string { return hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, n)) }
	offsets := func(values ...uint32) string {
		var out []byte
		for _, v := range values {
			out = binary.LittleEndian.AppendUint32(out, v)
		}
		return block(hex.EncodeToString(out))
	}
	three, bytes := number(0)+number(3), block("616263")
	for name, c := range map[string]struct {
		dt   arrow.DataType
		body string
		good bool
	}{
		"good text":            {text, block(three) + offsets(0, 1, 3) + bytes, true},
		"falling offsets":      {text, block(three) + offsets(0, 4, 3) + bytes, false},
		"negative offset":      {text, block(three) + offsets(0, 1<<31, 3) + bytes, false},
		"offsets not from 0":   {text, block(three) + offsets(1, 1, 3) + bytes, false},
		"offsets end early":    {text, block(three) + offsets(0, 1, 2) + bytes, false},
		"offsets end late":     {text, block(three) + offsets(0, 1, 4) + bytes, false},
		"text is missing":      {text, block(three) + offsets(0, 1, 3), false},
		"length past 31 bits":  {text, block(number(0)+number(1<<31)) + offsets(0, 1, 1<<31) + bytes, false},
		"good numbers":         {numbers, block(number(1)) + block("01") + block(""), true},
		"NULLs not marked":     {numbers, block(number(1)) + block("03") + block(""), false},
		"more NULLs than rows": {numbers, block(number(3)) + block("") + block(""), false},
		"bitmap is missing":    {numbers, block(number(1)) + block("01"), false},
		"padding is missing":   {numbers, block(number(0)) + "0000000000000000", false},
		"bytes left over":      {numbers, block(number(0)) + block("") + "00", false},
		"nothing":              {numbers, "", false},
	} {
		raw, err := hex.DecodeString(c.body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeColumn(c.dt, 2, raw); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
