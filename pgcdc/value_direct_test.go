package pgcdc

import (
	"bytes"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// oneValue is a Sink that keeps the one value it is given.
type oneValue struct {
	calls int
	bits  uint64
	bytes []byte
	word  bool
}

func (s *oneValue) number(bits uint64)     { s.calls, s.bits, s.word = s.calls+1, bits, true }
func (s *oneValue) Null()                  { s.calls++ }
func (s *oneValue) Bool(bool)              { s.calls++ }
func (s *oneValue) Int32(v int32)          { s.number(uint64(uint32(v))) }
func (s *oneValue) Int64(v int64)          { s.number(uint64(v)) }
func (s *oneValue) Float32(v float32)      { s.number(uint64(math.Float32bits(v))) }
func (s *oneValue) Float64(v float64)      { s.number(math.Float64bits(v)) }
func (s *oneValue) Decimal(int64, uint64)  { s.calls++ }
func (s *oneValue) String(v []byte)        { s.calls, s.bytes = s.calls+1, bytes.Clone(v) }
func (s *oneValue) Binary(v []byte)        { s.String(v) }
func (s *oneValue) UUID(*[16]byte)         { s.calls++ }
func (s *oneValue) Date(int32)             { s.calls++ }
func (s *oneValue) Time(int64)             { s.calls++ }
func (s *oneValue) Timestamp(micros int64) { s.number(uint64(micros)) }
func (s *oneValue) BeginList(int)          { s.calls++ }
func (s *oneValue) EndList()               { s.calls++ }

// What Word and Verbatim take is what Decode hands over, for every type and any bytes; they take what is ordinary.
func TestDirectIsDecode(t *testing.T) {
	kinds := []Kind{KindBool, KindInt2, KindInt4, KindInt8, KindOID, KindFloat4, KindFloat8, KindDecimal, KindText, KindJSON, KindBytea, KindUUID, KindDate,
		KindTime, KindTimestamp, KindTimestampTZ, KindList}
	forms := []binaryForm{formVerbatim, formJSONB, formChar, formNone, formNumeric, formInterval}
	rapid.Check(t, func(rt *rapid.T) {
		typ := &Type{Name: "t", Kind: rapid.SampledFrom(kinds).Draw(rt, "kind"), form: rapid.SampledFrom(forms).Draw(rt, "form"), BinaryOK: true}
		if typ.Kind == KindList {
			typ.Elem = &Type{Name: "e", Kind: KindInt4}
		}
		size := rapid.SampledFrom([]int{0, 1, 2, 4, 8, 16, 19}).Draw(rt, "size")
		data := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0x3f, 0x40, 0x7f, 0x80, 0xbf, 0xc0, 0xff}), size, size).Draw(rt, "data")
		sink := &oneValue{}
		err := typ.Decode(FormatBinary, data, sink)
		if bits, ok := typ.Word(data); ok && (err != nil || sink.calls != 1 || !sink.word || bits != sink.bits) {
			rt.Fatalf("Word of %x: %x; Decode: %x, %v", data, bits, sink.bits, err)
		}
		if typ.Verbatim(data) && (err != nil || sink.calls != 1 || sink.word || !bytes.Equal(sink.bytes, data)) {
			rt.Fatalf("%x is said to be verbatim; Decode: %x, %v", data, sink.bytes, err)
		}
	})
	for _, typ := range []*Type{{Kind: KindInt4}, {Kind: KindFloat4}} {
		if bits, ok := typ.Word([]byte{1, 2, 3, 4}); !ok || bits != 0x01020304 {
			t.Errorf("kind %d: %x, %v", typ.Kind, bits, ok)
		}
	}
	for _, typ := range []*Type{{Kind: KindInt8}, {Kind: KindFloat8}} {
		if bits, ok := typ.Word([]byte{1, 2, 3, 4, 5, 6, 7, 8}); !ok || bits != 0x0102030405060708 {
			t.Errorf("kind %d: %x, %v", typ.Kind, bits, ok)
		}
	}
	// 2000-01-01, which PostgreSQL counts from, in microseconds since 1970.
	if bits, ok := (&Type{Kind: KindTimestamp}).Word(make([]byte, 8)); !ok || bits != 946_684_800_000_000 {
		t.Errorf("the timestamp is %d, %v", bits, ok)
	}
	if !(&Type{Kind: KindText, form: formVerbatim}).Verbatim([]byte("ä")) {
		t.Error("text is not verbatim")
	}
}
