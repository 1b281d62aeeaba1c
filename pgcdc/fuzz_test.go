package pgcdc

import (
	"errors"
	"os"
	"testing"
	"unicode/utf8"
)

// FuzzMessage holds that any sequence of messages ends in transactions whose count of rows is that of their changes, read
// twice, or in an error, with and without spilling.
func FuzzMessage(f *testing.F) {
	stream, err := os.ReadFile(capturedStream)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(stream, int64(1<<20))
	f.Add(stream, int64(100))
	// Each transaction after the relations it needs, so that mutations stay small.
	var relations []byte
	for _, message := range cutMessages(stream) {
		framed := append([]byte{0, 0, byte(len(message) >> 8), byte(len(message))}, message...)
		switch message[0] {
		case messageRelation:
			relations = append(relations, framed...)
		case messageInsert, messageUpdate, messageDelete, messageTruncate:
			if len(message) < 300 {
				f.Add(append(append(append([]byte{0, 0, 0, 21}, beginBytes(10, 0, 1)...), relations...), append(append(framed, 0, 0, 0, 26), commitBytes(10, 20, 0)...)...), int64(1<<20))
			}
		}
	}
	// What a server streamed, and small pieces of each kind.
	streamed, err := os.ReadFile(capturedStreamed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(streamed, int64(1<<20))
	f.Add(streamed, int64(5000))
	relation := relationBytes(7, "t", "a")
	for _, messages := range [][][]byte{
		{streamStartBytes(1, true), by(1, relation), by(2, insertBytes(7, "x")), by(1, truncateBytes(7)), streamStopBytes, streamCommitBytes(1, 10, 20, 0)},
		{streamStartBytes(1, true), by(2, relation), by(2, insertBytes(7, "x")), by(3, insertBytes(7, "y")), streamStopBytes, streamAbortBytes(1, 3), streamAbortBytes(1, 2), streamCommitBytes(1, 10, 20, 0)},
		{streamStartBytes(1, true), streamStopBytes, streamStartBytes(2, true), by(2, relation), by(2, insertBytes(7, "x")), streamStopBytes, streamStartBytes(1, false), by(1, relation), streamStopBytes,
			streamAbortBytes(1, 1), streamCommitBytes(2, 10, 20, 0), beginBytes(30, 0, 5), insertBytes(7, "y"), commitBytes(30, 40, 0)},
	} {
		var stream []byte
		for _, message := range messages {
			stream = append(append(stream, 0, 0, 0, byte(len(message))), message...)
		}
		f.Add(stream, int64(1<<20))
		f.Add(stream, int64(30))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, stream []byte, spillBytes int64) {
		a := newAssembler(dir, spillBytes)
		defer a.reset()
		for _, message := range cutMessages(stream) {
			tx, err := a.message(message)
			if err != nil {
				if !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrStreaming) {
					t.Fatal(err)
				}
				return
			}
			if tx == nil {
				continue
			}
			checkReading(t, tx)
			tx.Release()
		}
	})
}

func checkReading(t *testing.T, tx *Transaction) {
	var first int
	var firstErr error
	for pass := range 2 {
		var rows int64
		var steps int
		err := tx.Changes(func(c *Change) error {
			steps++
			switch c.Op {
			case OpTruncate:
				rows += int64(len(c.Truncated))
			case OpInsert, OpUpdate, OpDelete:
				rows++
				if c.New != nil && len(c.New) != len(c.Relation.Columns) || c.Old != nil && len(c.Old) != len(c.Relation.Columns) {
					t.Fatalf("a row of %d and %d columns in a relation of %d", len(c.Old), len(c.New), len(c.Relation.Columns))
				}
			}
			return nil
		})
		if err == nil && rows != tx.Rows || err != nil && !errors.Is(err, ErrProtocol) {
			t.Fatalf("%d rows staged, %d read, error %v", tx.Rows, rows, err)
		}
		if pass == 1 && (steps != first || (err == nil) != (firstErr == nil)) {
			t.Fatalf("first %d changes (%v), then %d (%v)", first, firstErr, steps, err)
		}
		first, firstErr = steps, err
	}
}

// fuzzTypes are one type of each kind and binary form, and lists of some.
func fuzzTypes(f *testing.F) ([]*Type, func(oid uint32, mod int32) byte) {
	catalog := builtinCatalog()
	var types []*Type
	index := map[[2]int64]byte{}
	for _, v := range capturedValues(f) {
		key := [2]int64{int64(v.typ.OID), int64(v.typ.Mod)}
		if _, ok := index[key]; !ok {
			index[key] = byte(len(types))
			types = append(types, catalog.resolve(v.typ.OID, v.typ.Mod, "type"))
		}
	}
	for _, oid := range []uint32{aVector, aHalfvec, anHstore} {
		index[[2]int64{int64(oid), -1}] = byte(len(types))
		types = append(types, extensionCatalog().resolve(oid, -1, "type"))
	}
	return types, func(oid uint32, mod int32) byte { return index[[2]int64{int64(oid), int64(mod)}] }
}

// FuzzBinaryValue holds that any bytes are a value of every type, or a protocol error, or cannot be represented.
func FuzzBinaryValue(f *testing.F) {
	types, index := fuzzTypes(f)
	for _, v := range capturedValues(f) {
		if v.typ.BinaryOK {
			f.Add(index(v.typ.OID, v.typ.Mod), v.binary)
		}
	}
	f.Add(index(aVector, -1), []byte("\x00\x01\x00\x00\x3f\x80\x00\x00"))
	f.Add(index(aHalfvec, -1), []byte("\x00\x01\x00\x00\x3c\x00"))
	f.Add(index(anHstore, -1), []byte("\x00\x00\x00\x01\x00\x00\x00\x01a\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, typ byte, data []byte) {
		checkValue(t, types[int(typ)%len(types)], FormatBinary, data)
	})
}

// FuzzTextValue is FuzzBinaryValue for text.
func FuzzTextValue(f *testing.F) {
	types, index := fuzzTypes(f)
	for _, v := range capturedValues(f) {
		f.Add(index(v.typ.OID, v.typ.Mod), v.text)
	}
	f.Add(index(aVector, -1), []byte("[1,-2.5e-05]"))
	f.Fuzz(func(t *testing.T, typ byte, data []byte) {
		checkValue(t, types[int(typ)%len(types)], FormatText, data)
	})
}

// checkValue decodes data and holds what Decode and Sink promise.
func checkValue(t *testing.T, typ *Type, format Format, data []byte) {
	calls, err := decodeCalls(typ, format, data)
	if err != nil {
		if errors.Is(err, ErrProtocol) == errors.Is(err, ErrUnrepresentable) {
			t.Fatalf("error %v is of no or of two kinds", err)
		}
		if typ.Kind != KindList && calls != nil {
			t.Fatalf("calls %v before error %v", calls, err)
		}
		return
	}
	scalars := calls
	if typ.Kind == KindList {
		if want := (call{"BeginList", len(calls) - 2}); len(calls) < 2 || calls[0] != want || calls[len(calls)-1] != (call{"EndList", nil}) {
			t.Fatalf("a list with calls %v", calls)
		}
		scalars = calls[1 : len(calls)-1]
		if len(scalars) > len(data) {
			t.Fatalf("%d elements from %d bytes", len(scalars), len(data))
		}
		typ = typ.Elem
	} else if len(calls) != 1 {
		t.Fatalf("a scalar with calls %v", calls)
	}
	for _, c := range scalars {
		switch v := c.value.(type) {
		case string:
			if c.method == "String" && !utf8.ValidString(v) {
				t.Fatalf("%q is not UTF-8", v)
			}
			if c.method == "Decimal" && len(v) > typ.Precision+1 {
				t.Fatalf("%s in numeric(%d,%d)", v, typ.Precision, typ.Scale)
			}
		case int64:
			if c.method == "Time" && (v < 0 || v >= 86_400_000_000) {
				t.Fatalf("time %d", v)
			}
		}
	}
}
