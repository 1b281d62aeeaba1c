package mirror

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/google/uuid"
	"github.com/zeebo/xxh3"

	"pgmirror/pgcdc"
)

// maxDifferences is how many keys of a table are named.
const maxDifferences = 10

// remembered is a row of a bucket that differs.
type remembered struct {
	key          string   // the encodings of the key's columns
	columns      []uint64 // a hash of each column
	theirs, mine int
}

// errTooMany: the buckets that differ hold more rows than are remembered.
var errTooMany = errors.New("too many rows")

// name reads both sides again and names up to maxDifferences keys of the rows in the wanted buckets that are not on both sides
// alike. It needs memory for the rows of those buckets, not for the table. more says that there are other keys among them.
func (c *comparison) name(ctx context.Context, wanted map[int]bool, buckets int) (found []VerifyDifference, more bool, err error) {
	rows := map[[16]byte]*remembered{}
	step := "name differing keys of " + c.ours.Name.Schema + "." + c.ours.Name.Name
	read := int64(0)
	remember := func(count func(*remembered)) rowFunc {
		return func(e *rowEncoder) error {
			if read++; read%tellEvery == 0 {
				c.tell.at(step, read, 2*c.visibleRows(), "rows")
			}
			hash := xxh3.Hash128(e.buf)
			if !wanted[c.bucket(e, hash, buckets)] {
				return nil
			}
			r := rows[hash.Bytes()]
			if r == nil {
				if len(rows) == 4*maxRemembered {
					return errTooMany
				}
				r = c.remembered(e)
				rows[hash.Bytes()] = r
			}
			count(r)
			return nil
		}
	}
	if err := c.readSource(ctx, remember(func(r *remembered) { r.theirs++ })); err != nil {
		return nil, false, err
	}
	if err := c.readMirror(ctx, remember(func(r *remembered) { r.mine++ })); err != nil {
		return nil, false, err
	}
	found = c.differences(rows)
	if len(found) > maxDifferences {
		return found[:maxDifferences], true, nil
	}
	return found, false, nil
}

func (c *comparison) remembered(e *rowEncoder) *remembered {
	r := &remembered{columns: make([]uint64, len(c.columns))}
	for i := range c.columns {
		r.columns[i] = xxh3.Hash(e.value(i))
	}
	var key []byte
	for _, k := range c.key {
		key = append(key, e.value(k)...)
	}
	r.key = string(key)
	return r
}

// differences groups rows by key and lists the keys whose rows differ, in an order that does not depend on chance.
func (c *comparison) differences(rows map[[16]byte]*remembered) []VerifyDifference {
	byKey := map[string][]*remembered{}
	for _, r := range rows {
		byKey[r.key] = append(byKey[r.key], r)
	}
	var found []VerifyDifference
	for key, group := range byKey {
		if !slices.ContainsFunc(group, func(r *remembered) bool { return r.theirs != r.mine }) {
			continue
		}
		d := VerifyDifference{Key: c.keyText(key)}
		for _, r := range group {
			d.SourceRows += r.theirs
			d.MirrorRows += r.mine
		}
		if d.SourceRows == 1 && d.MirrorRows == 1 && len(group) == 2 {
			for i := range c.columns {
				if group[0].columns[i] != group[1].columns[i] {
					d.Columns = append(d.Columns, c.columns[i].name)
				}
			}
		}
		found = append(found, d)
	}
	slices.SortFunc(found, func(a, b VerifyDifference) int {
		return cmp.Or(cmp.Compare(len(a.Key), len(b.Key)), strings.Compare(a.Key, b.Key)) // numbers by size
	})
	return found
}

// maxKeyText is how much of a key's value is shown, in bytes.
const maxKeyText = 200

// keyText prints a key from the encodings of its columns.
func (c *comparison) keyText(encoded string) string {
	data := []byte(encoded)
	var parts []string
	for _, k := range c.key {
		var text string
		text, data = cutText(c.columns[k].pg, data)
		if len(text) > maxKeyText {
			text = strings.ToValidUTF8(text[:maxKeyText], "") + "…"
		}
		parts = append(parts, c.columns[k].name+"="+text)
	}
	return strings.Join(parts, ", ")
}

// cutText cuts one value off canonical encodings made by a rowEncoder and prints it as PostgreSQL would.
func cutText(t *pgcdc.Type, data []byte) (text string, rest []byte) {
	if data[0] == 0 {
		return "NULL", data[1:]
	}
	data = data[1:]
	switch t.Kind {
	case pgcdc.KindBool:
		return strconv.FormatBool(data[0] != 0), data[1:]
	case pgcdc.KindInt2, pgcdc.KindInt4:
		return strconv.FormatInt(int64(int32(binary.LittleEndian.Uint32(data))), 10), data[4:]
	case pgcdc.KindInt8, pgcdc.KindOID:
		return strconv.FormatInt(int64(binary.LittleEndian.Uint64(data)), 10), data[8:]
	case pgcdc.KindFloat4:
		return strconv.FormatFloat(float64(math.Float32frombits(binary.LittleEndian.Uint32(data))), 'g', -1, 32), data[4:]
	case pgcdc.KindFloat8:
		return strconv.FormatFloat(math.Float64frombits(binary.LittleEndian.Uint64(data)), 'g', -1, 64), data[8:]
	case pgcdc.KindDecimal:
		return decimalText(t, data), data[16:]
	case pgcdc.KindUUID:
		return uuid.UUID(data[:16]).String(), data[16:]
	case pgcdc.KindDate:
		days := int32(binary.LittleEndian.Uint32(data))
		switch days {
		case pgcdc.DateInfinity:
			return "infinity", data[4:]
		case pgcdc.DateMinusInfinity:
			return "-infinity", data[4:]
		}
		return time.Unix(int64(days)*24*60*60, 0).UTC().Format(time.DateOnly), data[4:]
	case pgcdc.KindTime:
		return time.UnixMicro(int64(binary.LittleEndian.Uint64(data))).UTC().Format("15:04:05.999999"), data[8:]
	case pgcdc.KindTimestamp, pgcdc.KindTimestampTZ:
		return timestampText(int64(binary.LittleEndian.Uint64(data)), t.Kind == pgcdc.KindTimestampTZ), data[8:]
	case pgcdc.KindList:
		elements, n := binary.Uvarint(data)
		data = data[n:]
		parts := make([]string, elements)
		for i := range parts {
			parts[i], data = cutText(t.Elem, data)
		}
		return "{" + strings.Join(parts, ",") + "}", data
	}
	length, n := binary.Uvarint(data)
	data = data[n:]
	if t.Kind == pgcdc.KindBytea {
		return `\x` + hex.EncodeToString(data[:min(length, maxKeyText)]), data[length:]
	}
	return string(data[:length]), data[length:]
}

// decimalText prints a numeric(p, s), which has s digits after the point.
func decimalText(t *pgcdc.Type, raw []byte) string {
	n := decimal128.New(int64(binary.LittleEndian.Uint64(raw[8:])), binary.LittleEndian.Uint64(raw))
	return n.ToString(int32(t.Scale))
}

func timestampText(micros int64, zone bool) string {
	switch micros {
	case pgcdc.TimestampInfinity:
		return "infinity"
	case pgcdc.TimestampNegInfinity:
		return "-infinity"
	}
	text := time.UnixMicro(micros).UTC().Format("2006-01-02 15:04:05.999999")
	if zone {
		text += "+00"
	}
	return text
}
