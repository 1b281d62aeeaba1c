package pgcdc

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// CopySample is Copy of those rows whose key belongs to the sample, where the source can choose them; else it may send all. A row
// belongs to the sample when InSample holds of its key's text: that of the key's columns, joined by '|', each as its type's
// SampleForm says. The text is ASCII, so that it does not depend on the server's encoding.
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
	SampleOutput                   // the text of the type's output function, which is ASCII
	SampleSent                     // in hex, what the type's send function writes
	SampleHex                      // a bytea's bytes in hex
	SampleText                     // in hex, the text of the type's output function in UTF-8
)

// SampleForm is the form of this type. Types whose text or bytes the mirror would have to imitate have none.
func (t *Type) SampleForm() SampleForm {
	switch t.Kind {
	case KindDecimal:
		if _, scale, ok := numericTypmod(t.Mod); ok && scale == t.Scale {
			return SampleOutput
		}
	case KindBool, KindInt2, KindInt4, KindInt8, KindOID, KindUUID:
		return SampleOutput
	case KindText:
		return SampleText
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

// sampleCondition is the SQL condition that chooses a sample; empty when SQL cannot. A server whose hash function is not the one that
// we know (one with big-endian numbers, say) sends all rows.
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
		case SampleHex:
			parts[i] = "encode(" + name + ", 'hex')"
		default:
			parts[i] = "encode(convert_to(format('%s', " + name + "), 'UTF8'), 'hex')"
		}
	}
	const known = "a text of more than twelve bytes"
	return "(" + sampleHashSQL(strings.Join(parts, " || '|' || ")) + " < '" + strconv.FormatInt(signedLimit(limit), 10) + "'::int8 OR " +
		sampleHashSQL(quoteLiteral(known)) + " <> '" + strconv.FormatInt(int64(sampleHash([]byte(known))), 10) + "'::int8)"
}

func sampleHashSQL(text string) string { return `hashtextextended((` + text + `) COLLATE "C", 0)` }

// signedLimit is a limit of hashes as SQL compares them, by size from the least bigint up.
func signedLimit(limit uint64) int64 { return int64(limit ^ 1<<63) }

// InSample says whether a key with this text belongs to the sample of all keys that limit stands for: limit/2^64 of them.
func InSample(text []byte, limit uint64) bool { return int64(sampleHash(text)) < signedLimit(limit) }

var sendFunctions = map[Kind]string{KindDate: "date_send", KindTime: "time_send", KindTimestamp: "timestamp_send", KindTimestampTZ: "timestamptz_send"}
