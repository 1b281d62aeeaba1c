package iceberg

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// A point read decodes a window of rows and keeps it, because rows that are updated together often lie together. The window
// is as many rows as make about windowBytes.
const (
	windowBytes   = 256 << 10
	maxWindowRows = 1_024
	// pointReaders is how many column sets one Reader keeps open.
	pointReaders = 4
)

// pointReader serves single rows of one set of columns.
type pointReader struct {
	fieldIDs []int32
	parts    []*pointPart
}

// pointPart is some of the columns, which keep one window: all that are no lists together, and each list alone, since a window of a list begins with
// a page of its own.
type pointPart struct {
	fieldIDs []int32
	leaf     int // of a list; -1
	records  pqarrow.RecordReader
	window   arrow.RecordBatch // rows [first, first+window.NumRows())
	first    int64
}

func (p *pointReader) close() {
	for _, part := range p.parts {
		part.drop()
		part.records.Release()
	}
}

func (p *pointPart) drop() {
	if p.window != nil {
		p.window.Release()
	}
	p.window = nil
}

// Row returns one row of the wanted columns, in the wanted order; row counts from 0 in file order. The caller releases it.
func (r *Reader) Row(row int64, fieldIDs []int32) (arrow.RecordBatch, error) {
	if row < 0 || row >= r.Rows() {
		return nil, fmt.Errorf("read %s: row %d of %d", r.path, row, r.Rows())
	}
	p, err := r.pointReader(fieldIDs)
	if err != nil {
		return nil, err
	}
	fields, columns := make([]arrow.Field, len(fieldIDs)), make([]arrow.Array, len(fieldIDs))
	for _, part := range p.parts {
		if part.window == nil || row < part.first || row >= part.first+part.window.NumRows() {
			if err := r.seek(part, row); err != nil {
				return nil, err
			}
		}
		for i, id := range part.fieldIDs {
			slice := array.NewSlice(part.window.Column(i), row-part.first, row-part.first+1)
			defer slice.Release()
			for at, wanted := range fieldIDs {
				if wanted == id {
					fields[at], columns[at] = part.window.Schema().Field(i), slice
				}
			}
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 1), nil
}

// seek moves the part's window to the row. A list is read from the beginning of the row's page on: arrow-go 18.8 forgets to drop the repetition levels
// of a page that it entered in the middle when it goes on to the next one (columnChunkReader.skipRows), whose lists then have the wrong elements.
func (r *Reader) seek(p *pointPart, row int64) (err error) {
	start := row
	if p.leaf >= 0 {
		if start, err = r.pageStart(p.leaf, row); err != nil {
			return fmt.Errorf("%w: read %s: row %d: %w", ErrCorrupt, r.path, row, err)
		}
	}
	if p.window != nil && start <= p.first+p.window.NumRows() && row >= p.first+p.window.NumRows() && p.leaf >= 0 {
		start = p.first + p.window.NumRows() // it is in what comes next
		p.drop()
	} else {
		p.drop()
		if err := r.seekRecords(p, start); err != nil {
			return fmt.Errorf("%w: read %s: row %d: %w", ErrCorrupt, r.path, row, err)
		}
	}
	for {
		rec, err := r.next(p.records, p.fieldIDs)
		if err != nil {
			return err
		}
		if rec == nil || rec.NumRows() == 0 {
			return fmt.Errorf("%w: read %s: row %d is missing", ErrCorrupt, r.path, row)
		}
		if row < start+rec.NumRows() {
			p.window, p.first = rec, start
			return nil
		}
		start += rec.NumRows()
		rec.Release()
	}
}

// pageStart is the first row of the page of a column that a row lies in, or of its row group if the file does not say where pages begin.
func (r *Reader) pageStart(leaf int, row int64) (int64, error) {
	starts, ok := r.pages[leaf]
	if !ok {
		var err error
		if starts, err = r.pageStarts(leaf); err != nil {
			return 0, err
		}
		r.pages[leaf] = starts
	}
	i, found := slices.BinarySearch(starts, row)
	if !found {
		i--
	}
	return starts[i], nil
}

// pageStarts are the first rows of all pages of a column, ascending; the first is 0.
func (r *Reader) pageStarts(leaf int) (starts []int64, err error) {
	defer recoverInto(&err)
	pq := r.pq.ParquetReader()
	first := int64(0)
	for group := range pq.NumRowGroups() {
		starts = append(starts, first)
		index, err := pq.GetPageIndexReader().RowGroup(group)
		if err != nil {
			return nil, err
		}
		if index != nil {
			offsets, err := index.GetOffsetIndex(leaf)
			if err != nil {
				return nil, err
			}
			if offsets != nil {
				for _, page := range offsets.GetPageLocations() {
					if at := first + page.GetFirstRowIndex(); at > starts[len(starts)-1] {
						starts = append(starts, at)
					}
				}
			}
		}
		first += pq.MetaData().RowGroup(group).NumRows()
	}
	return starts, nil
}

func (r *Reader) seekRecords(p *pointPart, row int64) (err error) {
	defer recoverInto(&err)
	return p.records.SeekToRow(row)
}

// pointReader finds or makes the reader of a set of columns; the one used last stands first.
func (r *Reader) pointReader(fieldIDs []int32) (*pointReader, error) {
	for i, p := range r.point {
		if slices.Equal(p.fieldIDs, fieldIDs) {
			copy(r.point[1:i+1], r.point[:i])
			r.point[0] = p
			return p, nil
		}
	}
	p := &pointReader{fieldIDs: slices.Clone(fieldIDs)}
	var flat []int32
	parts := map[int32]int{} // leaf by field id, of lists
	schema := r.pq.ParquetReader().MetaData().Schema
	for _, id := range fieldIDs {
		leaf := -1
		for i := range schema.NumColumns() {
			if root, ok := r.roots[id]; ok && rootIndex(schema, i) == root && schema.Column(i).MaxRepetitionLevel() > 0 {
				leaf = i
			}
		}
		if leaf < 0 {
			flat = append(flat, id)
		} else {
			parts[id] = leaf
		}
	}
	add := func(leaf int, ids ...int32) error {
		records, err := r.records(context.Background(), ids, r.windowRows(ids))
		if err == nil {
			p.parts = append(p.parts, &pointPart{fieldIDs: ids, leaf: leaf, records: records})
		}
		return err
	}
	var err error
	if len(flat) > 0 {
		err = add(-1, flat...)
	}
	for _, id := range slices.Sorted(maps.Keys(parts)) {
		if err == nil {
			err = add(parts[id], id)
		}
	}
	if err != nil {
		p.close()
		return nil, err
	}
	if len(r.point) == pointReaders {
		r.point[pointReaders-1].close()
		r.point = r.point[:pointReaders-1]
	}
	r.point = slices.Insert(r.point, 0, p)
	return p, nil
}

func (r *Reader) windowRows(fieldIDs []int32) int64 {
	meta := r.pq.ParquetReader().MetaData()
	var bytes int64
	for g := range meta.NumRowGroups() {
		for leaf := range meta.Schema.NumColumns() {
			if root := rootIndex(meta.Schema, leaf); slices.ContainsFunc(fieldIDs, func(id int32) bool { return r.roots[id] == root }) {
				if chunk, err := meta.RowGroup(g).ColumnChunk(leaf); err == nil {
					bytes += chunk.TotalUncompressedSize()
				}
			}
		}
	}
	return max(1, min(maxWindowRows, windowBytes*meta.NumRows/max(bytes, 1)))
}
