package iceberg

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/big"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"
	icelib "github.com/apache/iceberg-go"
)

// boundedColumns is how many of a table's columns have counts and bounds in the manifest, as in Iceberg's own writers
// (write.metadata.metrics.max-inferred-column-defaults); the primary key's and the hidden one always have.
const boundedColumns = 100

// boundLength is how many characters or bytes of a long value a bound keeps (write.metadata.metrics.default, truncate(16)).
const boundLength = 16

// entry builds the manifest entry of the finished file.
func (x *Writer) entry(meta *metadata.FileMetaData) (icelib.DataFile, error) {
	if meta.NumRows != x.rows {
		return nil, fmt.Errorf("footer says %d rows where %d were written", meta.NumRows, x.rows)
	}
	builder, err := icelib.NewDataFileBuilder(*icelib.UnpartitionedSpec, icelib.EntryContentData, toURI(x.path), icelib.ParquetFile,
		nil, nil, nil, x.rows, x.sink.n)
	if err != nil {
		return nil, err
	}
	sizes, values, nulls, nans := map[int]int64{}, map[int]int64{}, map[int]int64{}, map[int]int64{}
	lower, upper := map[int][]byte{}, map[int][]byte{}
	for leaf := range meta.Schema.NumColumns() {
		root := rootIndex(meta.Schema, leaf)
		if root >= boundedColumns && root < x.source.NumFields() && x.source.Field(root).Nullable {
			continue
		}
		node := meta.Schema.Column(leaf).SchemaNode()
		id := int(node.FieldID())
		if id == RowIDFieldID || id == SequenceFieldID {
			continue // columns of no schema
		}
		for g := range meta.NumRowGroups() {
			chunk, err := meta.RowGroup(g).ColumnChunk(leaf)
			if err != nil {
				return nil, err
			}
			sizes[id] += chunk.TotalCompressedSize()
		}
		if meta.Schema.Column(leaf).MaxRepetitionLevel() > 0 {
			continue // Iceberg keeps no counts and bounds of list elements
		}
		values[id], nulls[id] = x.rows, 0
		if root < x.source.NumFields() {
			nulls[id] = x.nulls[root]
			if typ := x.source.Field(root).Type.ID(); typ == arrow.FLOAT32 || typ == arrow.FLOAT64 {
				nans[id] = x.floats[root].nans
				if min, max, ok := x.floats[root].bounds(typ); ok {
					lower[id], upper[id] = min, max
				}
				continue
			}
		}
		min, max, ok, err := fileBounds(meta, leaf)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if min, ok := truncateLower(node, min); ok {
			lower[id] = min
		}
		if max, ok := truncateUpper(node, max); ok {
			upper[id] = max
		}
	}
	if lower[LSNFieldID] == nil || upper[LSNFieldID] == nil {
		return nil, fmt.Errorf("column %q has no bounds", LSNColumn)
	}
	var offsets []int64
	for g := range meta.NumRowGroups() {
		chunk, err := meta.RowGroup(g).ColumnChunk(0)
		if err != nil {
			return nil, err
		}
		start := chunk.DataPageOffset()
		if chunk.HasDictionaryPage() {
			start = min(start, chunk.DictionaryPageOffset())
		}
		offsets = append(offsets, start)
	}
	return builder.ColumnSizes(sizes).ValueCounts(values).NullValueCounts(nulls).NaNValueCounts(nans).
		LowerBoundValues(lower).UpperBoundValues(upper).SplitOffsets(offsets).Build(), nil
}

// rootIndex is the index of the top-level column that a leaf belongs to.
func rootIndex(s *schema.Schema, leaf int) int {
	return s.Root().FieldIndexByField(s.ColumnRoot(leaf))
}

// fileBounds merges a column's minimum and maximum over the row groups, in Iceberg's single-value form
// (https://iceberg.apache.org/spec/#binary-single-value-serialization). It is not ok when a row group with values says none.
func fileBounds(meta *metadata.FileMetaData, leaf int) (min, max []byte, ok bool, err error) {
	column := meta.Schema.Column(leaf)
	for g := range meta.NumRowGroups() {
		chunk, err := meta.RowGroup(g).ColumnChunk(leaf)
		if err != nil {
			return nil, nil, false, err
		}
		if set, err := chunk.StatsSet(); err != nil || !set {
			return nil, nil, false, err
		}
		stats, err := chunk.Statistics()
		if err != nil {
			return nil, nil, false, err
		}
		if !stats.HasMinMax() {
			if stats.NullCount() == chunk.NumValues() {
				continue
			}
			return nil, nil, false, nil
		}
		lo, hi := singleValue(column, stats.EncodeMin()), singleValue(column, stats.EncodeMax())
		if min == nil || compareValues(column, lo, min) < 0 {
			min = lo
		}
		if max == nil || compareValues(column, hi, max) > 0 {
			max = hi
		}
	}
	return min, max, min != nil, nil
}

func isDecimal(column *schema.Column) bool {
	_, ok := column.LogicalType().(schema.DecimalLogicalType)
	return ok
}

// singleValue turns a Parquet statistic (plain encoding) into Iceberg's form. They differ for decimals only: those are
// big-endian two's complement in as few bytes as possible.
func singleValue(column *schema.Column, plain []byte) []byte {
	v := bytes.Clone(plain)
	if v == nil {
		v = []byte{}
	}
	if !isDecimal(column) {
		return v
	}
	switch column.PhysicalType() {
	case parquet.Types.Int32:
		v = binary.BigEndian.AppendUint32(nil, binary.LittleEndian.Uint32(v))
	case parquet.Types.Int64:
		v = binary.BigEndian.AppendUint64(nil, binary.LittleEndian.Uint64(v))
	}
	for len(v) > 1 && (v[0] == 0 && v[1] < 0x80 || v[0] == 0xff && v[1] >= 0x80) {
		v = v[1:]
	}
	return v
}

// compareValues orders two values in Iceberg's single-value form.
func compareValues(column *schema.Column, a, b []byte) int {
	if isDecimal(column) {
		return bigEndian(a).Cmp(bigEndian(b))
	}
	switch column.PhysicalType() {
	case parquet.Types.Int32:
		return cmp.Compare(int32(binary.LittleEndian.Uint32(a)), int32(binary.LittleEndian.Uint32(b)))
	case parquet.Types.Int64:
		return cmp.Compare(int64(binary.LittleEndian.Uint64(a)), int64(binary.LittleEndian.Uint64(b)))
	}
	return bytes.Compare(a, b)
}

// bigEndian reads a two's complement number.
func bigEndian(b []byte) *big.Int {
	n := new(big.Int).SetBytes(b)
	if b[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}

func isText(node schema.Node) bool {
	_, ok := node.LogicalType().(schema.StringLogicalType)
	return ok
}

func isBytes(node schema.Node) bool {
	p, ok := node.(*schema.PrimitiveNode)
	return ok && p.PhysicalType() == parquet.Types.ByteArray
}

// truncateLower shortens a lower bound: a prefix is never above the value.
func truncateLower(node schema.Node, v []byte) ([]byte, bool) {
	if !isBytes(node) {
		return v, true
	}
	if !isText(node) {
		return v[:min(len(v), boundLength)], true
	}
	if !utf8.Valid(v) {
		return nil, false
	}
	return v[:prefixLength(v)], true
}

// truncateUpper shortens an upper bound and raises its last character, so that it stays above the value. It is not ok when no
// character can be raised.
func truncateUpper(node schema.Node, v []byte) ([]byte, bool) {
	if !isBytes(node) {
		return v, true
	}
	if isText(node) {
		if !utf8.Valid(v) {
			return nil, false
		}
		n := prefixLength(v)
		if n == len(v) {
			return v, true
		}
		return raiseText(v[:n])
	}
	if len(v) <= boundLength {
		return v, true
	}
	v = bytes.Clone(v[:boundLength])
	for i := len(v) - 1; i >= 0; i-- {
		if v[i] < 0xff {
			v[i]++
			return v[:i+1], true
		}
	}
	return nil, false
}

// prefixLength is how many bytes the first boundLength characters take.
func prefixLength(text []byte) (n int) {
	for range boundLength {
		_, size := utf8.DecodeRune(text[n:])
		n += size
	}
	return n
}

// raiseText is the smallest text above everything that starts with prefix.
func raiseText(prefix []byte) ([]byte, bool) {
	for n := len(prefix); n > 0; {
		r, size := utf8.DecodeLastRune(prefix[:n])
		n -= size
		switch {
		case r == utf8.MaxRune:
			continue
		case r == 0xd7ff: // the surrogates follow and are no characters
			r = 0xe000
		default:
			r++
		}
		return utf8.AppendRune(bytes.Clone(prefix[:n]), r), true
	}
	return nil, false
}
