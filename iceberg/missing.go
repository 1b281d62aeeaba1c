package iceberg

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"

	"pgmirror/readstate"
)

// A column that was added to a table is missing in the files from before. Readers then take its initial-default, or NULL
// (https://iceberg.apache.org/spec/#default-values). In an Arrow field it is text under readstate.DefaultKey: what the spec's JSON form of a
// single value (https://iceberg.apache.org/spec/#json-single-value-serialization) has between its quotes, if it has any.

// maxExactInt is the largest integer up to which JSON readers agree (RFC 8259, section 6).
const maxExactInt = 1 << 53

// WithDefault gives a field the first value of an array of its type as initial-default; NULL gives it none. ok is false for values whose form
// readers do not agree on: those of lists and bytes, of dates and times (iceberg-go 0.7 takes no text for them), infinities, large integers.
func WithDefault(f arrow.Field, value arrow.Array) (with arrow.Field, ok bool) {
	if value.IsNull(0) {
		return f, true
	}
	text, ok := defaultText(value)
	if !ok {
		return f, false
	}
	keys := append(append([]string{}, f.Metadata.Keys()...), readstate.DefaultKey)
	values := append(append([]string{}, f.Metadata.Values()...), text)
	f.Metadata = arrow.NewMetadata(keys, values)
	return f, true
}

func defaultText(value arrow.Array) (text string, ok bool) {
	switch a := value.(type) {
	case *array.Boolean:
		return strconv.FormatBool(a.Value(0)), true
	case *array.Int32:
		return strconv.FormatInt(int64(a.Value(0)), 10), true
	case *array.Int64:
		v := a.Value(0)
		return strconv.FormatInt(v, 10), -maxExactInt <= v && v <= maxExactInt
	case *array.Float32:
		v := float64(a.Value(0))
		return strconv.FormatFloat(v, 'g', -1, 32), !math.IsNaN(v) && !math.IsInf(v, 0)
	case *array.Float64:
		v := a.Value(0)
		return strconv.FormatFloat(v, 'g', -1, 64), !math.IsNaN(v) && !math.IsInf(v, 0)
	case *array.Decimal128:
		return a.Value(0).ToString(a.DataType().(*arrow.Decimal128Type).Scale), true
	case *array.String:
		return a.Value(0), true
	case *array.FixedSizeBinary:
		id, err := uuid.FromBytes(a.Value(0))
		return id.String(), err == nil
	}
	return "", false
}

// Missing is what n rows have in a column that is younger than they.
func Missing(f arrow.Field, n int) (arrow.Array, error) {
	b := array.NewBuilder(memory.DefaultAllocator, f.Type)
	defer b.Release()
	text, ok := f.Metadata.GetValue(readstate.DefaultKey)
	if !ok {
		b.AppendNulls(n)
		return b.NewArray(), nil
	}
	put, err := putDefault(b, text)
	if err != nil {
		return nil, fmt.Errorf("%w: column %q: initial default %q: %w", ErrCorrupt, f.Name, text, err)
	}
	b.Reserve(n)
	for range n {
		put()
	}
	return b.NewArray(), nil
}

// putDefault is defaultText's inverse: put appends the value to b.
func putDefault(b array.Builder, text string) (put func(), err error) {
	switch b := b.(type) {
	case *array.BooleanBuilder:
		v, err := strconv.ParseBool(text)
		return func() { b.Append(v) }, err
	case *array.Int32Builder:
		v, err := strconv.ParseInt(text, 10, 32)
		return func() { b.Append(int32(v)) }, err
	case *array.Int64Builder:
		v, err := strconv.ParseInt(text, 10, 64)
		return func() { b.Append(v) }, err
	case *array.Float32Builder:
		v, err := strconv.ParseFloat(text, 32)
		return func() { b.Append(float32(v)) }, err
	case *array.Float64Builder:
		v, err := strconv.ParseFloat(text, 64)
		return func() { b.Append(v) }, err
	case *array.Decimal128Builder:
		t := b.Type().(*arrow.Decimal128Type)
		v, err := decimal128.FromString(text, t.Precision, t.Scale)
		return func() { b.Append(v) }, err
	case *array.StringBuilder:
		return func() { b.Append(text) }, nil
	case *array.FixedSizeBinaryBuilder:
		v, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
		if err == nil && len(v) != b.Type().(*arrow.FixedSizeBinaryType).ByteWidth {
			err = fmt.Errorf("%d bytes", len(v))
		}
		return func() { b.Append(v) }, err
	}
	return nil, fmt.Errorf("%s has no defaults", b.Type())
}

// icebergDefault is a field's initial-default as iceberg-go keeps it; nil when it has none.
func icebergDefault(f arrow.Field) (any, error) {
	text, ok := f.Metadata.GetValue(readstate.DefaultKey)
	if !ok {
		return nil, nil
	}
	switch f.Type.ID() {
	case arrow.BOOL:
		return strconv.ParseBool(text)
	case arrow.INT32, arrow.INT64:
		return strconv.ParseInt(text, 10, 64)
	case arrow.FLOAT32, arrow.FLOAT64:
		return strconv.ParseFloat(text, 64)
	}
	return text, nil
}

// arrowDefault is icebergDefault's inverse; numbers come as JSON has them.
func arrowDefault(f arrow.Field, value any) (arrow.Field, error) {
	var text string
	switch v := value.(type) {
	case nil:
		return f, nil
	case bool:
		text = strconv.FormatBool(v)
	case int64:
		text = strconv.FormatInt(v, 10)
	case float64:
		if f.Type.ID() == arrow.INT32 || f.Type.ID() == arrow.INT64 {
			text = strconv.FormatFloat(v, 'f', -1, 64)
		} else {
			text = strconv.FormatFloat(v, 'g', -1, 64)
		}
	case string:
		text = v
	default:
		return f, fmt.Errorf("column %q has the initial default %v, which is not one of ours", f.Name, value)
	}
	f.Metadata = arrow.NewMetadata(append(append([]string{}, f.Metadata.Keys()...), readstate.DefaultKey),
		append(append([]string{}, f.Metadata.Values()...), text))
	_, err := Missing(f, 1)
	return f, err
}
