package pgcdc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// writeCopy makes a binary copy as https://www.postgresql.org/docs/current/sql-copy.html describes it.
func writeCopy(extension []byte, rows [][][]byte) []byte {
	out := append([]byte("PGCOPY\n\xff\r\n\x00"), 0, 0, 0, 0)
	out = binary.BigEndian.AppendUint32(out, uint32(len(extension)))
	out = append(out, extension...)
	for _, row := range rows {
		out = binary.BigEndian.AppendUint16(out, uint16(len(row)))
		for _, value := range row {
			if value == nil {
				out = binary.BigEndian.AppendUint32(out, 0xffffffff)
				continue
			}
			out = binary.BigEndian.AppendUint32(out, uint32(len(value)))
			out = append(out, value...)
		}
	}
	return append(out, 0xff, 0xff)
}

// Rows come out as they went in, wherever the pieces are cut.
func TestCopyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(0, 4).Draw(t, "columns")
		value := rapid.OneOf(rapid.Just[[]byte](nil), rapid.SliceOfN(rapid.Byte(), 0, 20))
		rows := rapid.SliceOf(rapid.SliceOfN(value, columns, columns)).Draw(t, "rows")
		data := writeCopy(rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "extension"), rows)
		formats := make([]Format, columns)
		for i := range formats {
			formats[i] = rapid.SampledFrom([]Format{FormatText, FormatBinary}).Draw(t, "format")
		}
		at := 0
		parser := newCopyParser(formats, func(tuple Tuple) error {
			if at == len(rows) || len(tuple) != columns {
				return fmt.Errorf("row %d of %d columns", at, len(tuple))
			}
			for i, want := range rows[at] {
				got := tuple[i]
				switch {
				case want == nil && (got.Format != FormatNull || got.Data != nil),
					want != nil && (got.Format != formats[i] || string(got.Data) != string(want)):
					return fmt.Errorf("row %d column %d is %q %v", at, i, got.Format, got.Data)
				}
			}
			at++
			return nil
		})
		for len(data) > 0 {
			n := rapid.IntRange(1, len(data)).Draw(t, "piece")
			piece := append([]byte(nil), data[:n]...)
			if wrote, err := parser.Write(piece); err != nil || wrote != n {
				t.Fatal(wrote, err)
			}
			for i := range piece {
				piece[i] = 0xee // what is kept must have been copied
			}
			data = data[n:]
			if len(data) > 0 && parser.finish() == nil {
				t.Fatal("complete before its end")
			}
		}
		if err := parser.finish(); err != nil || at != len(rows) {
			t.Fatalf("%d of %d rows, %v", at, len(rows), err)
		}
	})
}

// What is no binary copy of the columns asked for is an ErrProtocol; an error of the receiver comes back and ends it.
func TestCopyFaults(t *testing.T) {
	good := writeCopy(nil, [][][]byte{{{1}, nil}})
	flags := append([]byte(nil), good...)
	flags[12] = 1 // bit 16: OIDs
	negative := append([]byte(nil), good...)
	copy(negative[21:], []byte{0xff, 0xff, 0xff, 0xfe})
	huge := append([]byte(nil), good...)
	copy(huge[21:], []byte{0x40, 0, 0, 0})
	for name, data := range map[string][]byte{
		"signature": append([]byte("X"), good[1:]...), "flags": flags, "negative size": negative, "huge size": huge,
		"columns": writeCopy(nil, [][][]byte{{{1}}}), "data after the trailer": append(append([]byte(nil), good...), 0),
	} {
		parser := newCopyParser(make([]Format, 2), func(Tuple) error { return nil })
		if _, err := parser.Write(data); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	parser := newCopyParser(make([]Format, 2), func(Tuple) error { return nil })
	if _, err := parser.Write(good[:len(good)-2]); err != nil || !errors.Is(parser.finish(), ErrProtocol) {
		t.Errorf("cut off: %v", err)
	}
	stop := errors.New("stop")
	parser = newCopyParser(make([]Format, 2), func(Tuple) error { return stop })
	if _, err := parser.Write(good); !errors.Is(err, stop) {
		t.Errorf("receiver's error: %v", err)
	}
}

// Any bytes give rows or an error, and never more memory than they are long.
func FuzzCopy(f *testing.F) {
	f.Add(writeCopy(nil, [][][]byte{{{1}, nil}, {{}, {2, 3}}}), 7)
	f.Add(writeCopy([]byte("ext"), nil), 1)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		total := 0
		parser := newCopyParser([]Format{FormatBinary, FormatText}, func(tuple Tuple) error {
			for _, value := range tuple {
				total += len(value.Data)
			}
			return nil
		})
		cut = max(1, cut)
		for at := 0; at < len(data); at += cut {
			if at+cut < at {
				break
			}
			if _, err := parser.Write(data[at:min(len(data), at+cut)]); err != nil {
				break
			}
		}
		if total > len(data) || len(parser.pending) > len(data) {
			t.Fatalf("%d bytes of values from %d", total, len(data))
		}
	})
}
