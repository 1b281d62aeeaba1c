package mirror

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/uuid"
	"github.com/zeebo/xxh3"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// sample chooses rows by their key alone, alike on both sides and in every run. Where the key's types allow it, the source
// chooses (pgcdc.CopySample has the rule) and sends nothing else; otherwise it sends all rows, and a hash of the key's encoding
// chooses here; without a key, a hash of the whole row.
type sample struct {
	percent float64
	limit   uint64 // a key is in the sample when its hash is below
	key     []int
	types   []*pgcdc.Type // of the key's columns
	remote  bool          // the source chooses
}

func newSample(t *pgcdc.Table, key []int, percent float64) *sample {
	s := &sample{percent: percent, limit: uint64(percent / 100 * math.MaxUint64), key: key, remote: t.Sampled(key)}
	for _, k := range key {
		s.types = append(s.types, t.Columns[k].Type)
	}
	return s
}

// has says whether a row is in the sample.
func (s *sample) has(e *rowEncoder) bool { return s.chooses(e.value, e.buf) }

// chooses judges a row by its columns' encodings; row is all of it. Both sides may ask at once.
func (s *sample) chooses(value func(column int) []byte, row []byte) bool {
	if !s.remote {
		if len(s.key) == 0 {
			return xxh3.Hash(row) < s.limit
		}
		var local []byte
		for _, k := range s.key {
			local = append(local, value(k)...)
		}
		return xxh3.Hash(local) < s.limit
	}
	text := make([]byte, 0, 64)
	for i, k := range s.key {
		if i > 0 {
			text = append(text, '|')
		}
		text = appendSampleText(text, s.types[i], value(k))
	}
	return pgcdc.InSample(text, s.limit)
}

// appendSampleText appends what pgcdc.SampleForm says of a value, from its canonical encoding, which is that of a value that is not
// NULL: a tag, then the bytes, with their length before them where the width varies.
func appendSampleText(dst []byte, t *pgcdc.Type, encoded []byte) []byte {
	raw := encoded[1:]
	switch t.Kind {
	case pgcdc.KindBool:
		if raw[0] == 0 {
			return append(dst, 'f')
		}
		return append(dst, 't')
	case pgcdc.KindInt2, pgcdc.KindInt4:
		return strconv.AppendInt(dst, int64(int32(binary.LittleEndian.Uint32(raw))), 10)
	case pgcdc.KindInt8, pgcdc.KindOID:
		return strconv.AppendInt(dst, int64(binary.LittleEndian.Uint64(raw)), 10)
	case pgcdc.KindDecimal:
		return append(dst, decimalText(t, raw)...)
	case pgcdc.KindUUID:
		return append(dst, uuid.UUID(raw).String()...)
	case pgcdc.KindDate:
		return hex.AppendEncode(dst, binary.BigEndian.AppendUint32(nil, uint32(sentDate(int32(binary.LittleEndian.Uint32(raw))))))
	case pgcdc.KindTime:
		return hex.AppendEncode(dst, binary.BigEndian.AppendUint64(nil, binary.LittleEndian.Uint64(raw)))
	case pgcdc.KindTimestamp, pgcdc.KindTimestampTZ:
		return hex.AppendEncode(dst, binary.BigEndian.AppendUint64(nil, uint64(sentTimestamp(int64(binary.LittleEndian.Uint64(raw))))))
	}
	_, n := binary.Uvarint(raw)
	return hex.AppendEncode(dst, raw[n:]) // bytea, and text in UTF-8
}

// PostgreSQL counts from 2000-01-01, and its infinities are the extreme values of the type.
const (
	daysTo2000   = 10957
	microsTo2000 = daysTo2000 * 24 * 60 * 60 * 1_000_000
)

func sentDate(days int32) int32 {
	switch days {
	case pgcdc.DateInfinity:
		return math.MaxInt32
	case pgcdc.DateMinusInfinity:
		return math.MinInt32
	}
	return days - daysTo2000
}

func sentTimestamp(micros int64) int64 {
	switch micros {
	case pgcdc.TimestampInfinity:
		return math.MaxInt64
	case pgcdc.TimestampNegInfinity:
		return math.MinInt64
	}
	return micros - microsTo2000
}

// judge gives a function that says whether a row of arrays of the key's columns, in key order, is in the sample. Without a key it
// cannot be told from these, and every row may be.
func (c *comparison) judge(key []arrow.Array) (func(row int) bool, error) {
	if len(c.key) == 0 {
		return func(int) bool { return true }, nil
	}
	values := make([]valueAppender, len(c.key))
	position := make([]int, len(c.columns))
	for i, k := range c.key {
		var err error
		if values[i], err = appenderOf(key[i], true); err != nil {
			return nil, fmt.Errorf("column %q: %w", c.columns[k].name, err)
		}
		position[k] = i
	}
	e := &rowEncoder{}
	value := func(k int) []byte { return e.value(position[k]) }
	return func(row int) bool {
		e.begin()
		for _, value := range values {
			e.buf = value(e.buf, row)
			e.end()
		}
		return c.sample.chooses(value, e.buf)
	}, nil
}

// fewRows is how many rows of a sample a file may be expected to hold for its key to be read first: then it may hold none.
const fewRows = 8

// skips says whether a file has no visible row of the sample. It does not look when there is likely to be one.
func (c *comparison) skips(ctx context.Context, r DataReader, f *readstate.File) (bool, error) {
	if len(c.key) == 0 || float64(f.Rows)*c.sample.percent/100 > fewRows {
		return false, nil
	}
	ids := make([]int32, len(c.key))
	for i, k := range c.key {
		ids[i] = c.columns[k].fieldID
	}
	found := false
	err := r.Columns(ctx, ids, func(rec arrow.RecordBatch, first int64) error {
		chosen, err := c.judge(rec.Columns())
		if err != nil {
			return err
		}
		for row := range int(rec.NumRows()) {
			found = found || !f.Deleted.Contains(uint32(first)+uint32(row)) && chosen(row)
		}
		return nil
	})
	return !found, err
}
