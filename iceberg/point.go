package iceberg

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
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
	records  pqarrow.RecordReader
	window   arrow.RecordBatch // rows [first, first+window.NumRows())
	first    int64
}

func (p *pointReader) close() {
	if p.window != nil {
		p.window.Release()
	}
	p.window = nil
	p.records.Release()
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
	if p.window == nil || row < p.first || row >= p.first+p.window.NumRows() {
		if err := r.seek(p, row); err != nil {
			return nil, err
		}
	}
	return p.window.NewSlice(row-p.first, row-p.first+1), nil
}

func (r *Reader) seek(p *pointReader, row int64) (err error) {
	if p.window != nil {
		p.window.Release()
		p.window = nil
	}
	if err := r.seekRecords(p, row); err != nil {
		return fmt.Errorf("%w: read %s: row %d: %w", ErrCorrupt, r.path, row, err)
	}
	rec, err := r.next(p.records, p.fieldIDs)
	if err != nil {
		return err
	}
	if rec == nil || rec.NumRows() == 0 {
		return fmt.Errorf("%w: read %s: row %d is missing", ErrCorrupt, r.path, row)
	}
	p.window, p.first = rec, row
	return nil
}

func (r *Reader) seekRecords(p *pointReader, row int64) (err error) {
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
	records, err := r.records(context.Background(), fieldIDs, r.windowRows(fieldIDs))
	if err != nil {
		return nil, err
	}
	if len(r.point) == pointReaders {
		r.point[pointReaders-1].close()
		r.point = r.point[:pointReaders-1]
	}
	p := &pointReader{fieldIDs: slices.Clone(fieldIDs), records: records}
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
