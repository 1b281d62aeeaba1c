package pgcdc

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// CopySample is Copy of those rows whose key belongs to the sample, where the source can choose them; of others it may send all.
// A row belongs to the sample when the first eight bytes of the SHA-256 of its key's text, as a big-endian number, are
// below limit. The text is that of the key's columns, joined by U+001F: for each what SampleText says of its Kind.
//
// key lists columns of the table by index; they are never NULL.
func (s *Source) CopySample(ctx context.Context, snapshot ExportedSnapshot, table *Table, key []int, limit uint64, row func(Tuple) error) error {
	if err := s.copyTable(ctx, snapshot, table, sampleCondition(table, key, limit), row); err != nil {
		return fmt.Errorf("copy a sample of %s: %w", qualified(table.Schema, table.Name), err)
	}
	return nil
}

// SampleForm says how a key column's value becomes part of a sample's text.
type SampleForm uint8

const (
	SampleNone   SampleForm = iota // not at all: the source cannot choose by it
	SampleOutput                   // the text of the type's output function
	SampleSent                     // in hex, what the type's send function writes
	SampleHex                      // a bytea's bytes in hex
)

// SampleForm is the form of this type. Types whose text or bytes the mirror would have to imitate have none.
func (t *Type) SampleForm() SampleForm {
	switch t.Kind {
	case KindBool, KindInt2, KindInt4, KindInt8, KindOID, KindText, KindUUID:
		return SampleOutput
	case KindDate, KindTime, KindTimestamp, KindTimestampTZ:
		return SampleSent
	case KindBytea:
		return SampleHex
	}
	return SampleNone
}

// Sampled says whether the source can choose a sample by these columns.
func (t *Table) Sampled(key []int) bool {
	for _, k := range key {
		if t.Columns[k].Type.SampleForm() == SampleNone {
			return false
		}
	}
	return len(key) > 0
}

// sampleCondition is the SQL condition that chooses a sample; empty when SQL cannot.
func sampleCondition(table *Table, key []int, limit uint64) string {
	if !table.Sampled(key) {
		return ""
	}
	parts := make([]string, len(key))
	for i, k := range key {
		c := table.Columns[k]
		name := quoteIdent(c.Name)
		switch c.Type.SampleForm() {
		case SampleOutput:
			parts[i] = "format('%s', " + name + ")"
		case SampleSent:
			parts[i] = "encode(" + sendFunctions[c.Type.Kind] + "(" + name + "), 'hex')"
		default:
			parts[i] = "encode(" + name + ", 'hex')"
		}
	}
	below := hex.EncodeToString(binary.BigEndian.AppendUint64(nil, limit))
	return `substr(sha256(convert_to(` + strings.Join(parts, " || chr(31) || ") + `, 'UTF8')), 1, 8) < '\x` + below + `'::bytea`
}

var sendFunctions = map[Kind]string{KindDate: "date_send", KindTime: "time_send", KindTimestamp: "timestamp_send", KindTimestampTZ: "timestamptz_send"}
