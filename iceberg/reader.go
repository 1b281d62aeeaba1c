package iceberg

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// scanRows is how many rows a batch of Reader.Columns holds, or fewer when they would make more than scanBytes.
const (
	scanRows  = 8_192
	scanBytes = 8 << 20 // of large values the reader holds several times this: it doubles buffers, and keeps whole pages
)

// Reader reads a data file back by field id. One goroutine uses it.
type Reader struct {
	path  string
	file  ReadFile
	pq    *pqarrow.FileReader
	roots map[int32]int // field id → top-level column
	point []*pointReader
	pages map[int][]int64 // where the pages of list columns begin, by leaf, as far as they were asked for
}

// OpenData opens a data file of this warehouse.
func (w *Warehouse) OpenData(path string) (*Reader, error) { return openData(w.files, path) }

func openData(files FileSystem, path string) (_ *Reader, err error) {
	f, err := files.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open data file: %w", damage(err))
	}
	defer func() {
		if err != nil {
			f.Close()
			err = fmt.Errorf("%w: open %s: %w", ErrCorrupt, path, err)
		}
	}()
	defer recoverInto(&err)
	pq, err := file.NewParquetReader(f)
	if err != nil {
		return nil, err
	}
	fr, err := pqarrow.NewFileReader(pq, pqarrow.ArrowReadProperties{BatchSize: scanRows}, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path, file: f, pq: fr, roots: map[int32]int{}, pages: map[int][]int64{}}
	root := pq.MetaData().Schema.Root()
	for i := range root.NumFields() {
		r.roots[root.Field(i).FieldID()] = i
	}
	return r, nil
}

// recoverInto turns a panic of the Parquet library, which damaged bytes may cause, into an error.
func recoverInto(err *error) {
	if p := recover(); p != nil {
		*err = errors.Join(*err, fmt.Errorf("parquet reader: %v", p))
	}
}

// Rows is the number of rows in the file, deleted ones included.
func (r *Reader) Rows() int64 { return r.pq.ParquetReader().NumRows() }

// Has says whether the file has a column with a field id. One that was added to the table later it has not.
func (r *Reader) Has(fieldID int32) bool { _, ok := r.roots[fieldID]; return ok }

// Close releases the file. It may be called twice.
func (r *Reader) Close() error {
	for _, p := range r.point {
		p.close()
	}
	r.point = nil
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	return f.Close()
}

// Columns reads the whole file in row order and calls each with batches of the wanted columns, in the wanted order;
// firstRow is the file position of a batch's first row. LSNFieldID names the hidden column. A batch is lent until each
// returns, unless it is retained.
func (r *Reader) Columns(ctx context.Context, fieldIDs []int32, each func(rec arrow.RecordBatch, firstRow int64) error) (err error) {
	if r.Rows() == 0 {
		return nil
	}
	records, err := r.records(ctx, fieldIDs, r.scanBatch(fieldIDs))
	if err != nil {
		return err
	}
	defer records.Release()
	var row int64
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		rec, err := r.next(records, fieldIDs)
		if err != nil {
			return err
		}
		if rec == nil {
			break
		}
		n := rec.NumRows()
		err = each(rec, row)
		rec.Release()
		if err != nil {
			return err
		}
		row += n
	}
	if row != r.Rows() {
		return fmt.Errorf("%w: %s: %d rows where its footer says %d", ErrCorrupt, r.path, row, r.Rows())
	}
	return nil
}

// scanBatch is how many rows a batch takes so that no column of it outgrows 32-bit offsets: by the row group with the largest
// rows, and one by one where a few could be huge.
func (r *Reader) scanBatch(fieldIDs []int32) int64 {
	meta := r.pq.ParquetReader().MetaData()
	batch := int64(scanRows)
	for g := range meta.NumRowGroups() {
		var bytes int64
		for leaf := range meta.Schema.NumColumns() {
			if root := rootIndex(meta.Schema, leaf); slices.ContainsFunc(fieldIDs, func(id int32) bool { return r.roots[id] == root }) {
				if chunk, err := meta.RowGroup(g).ColumnChunk(leaf); err == nil {
					bytes += chunk.TotalUncompressedSize()
				}
			}
		}
		if bytes > 2*rowGroupBytes {
			return 1
		}
		batch = min(batch, scanBytes*meta.RowGroup(g).NumRows()/max(bytes, 1))
	}
	return max(1, batch)
}

// records starts a batch reader over the wanted columns.
func (r *Reader) records(ctx context.Context, fieldIDs []int32, batch int64) (_ pqarrow.RecordReader, err error) {
	if r.file == nil {
		return nil, fmt.Errorf("read %s: the reader is closed", r.path)
	}
	defer recoverInto(&err)
	pq := r.pq.ParquetReader()
	var leaves []int
	for _, id := range fieldIDs {
		root, ok := r.roots[id]
		if !ok {
			return nil, fmt.Errorf("%w: read %s: it has no column with field id %d", ErrCorrupt, r.path, id)
		}
		for leaf := range pq.MetaData().Schema.NumColumns() {
			if rootIndex(pq.MetaData().Schema, leaf) == root && !slices.Contains(leaves, leaf) {
				leaves = append(leaves, leaf)
			}
		}
	}
	slices.Sort(leaves)
	fr, err := pqarrow.NewFileReader(pq, pqarrow.ArrowReadProperties{BatchSize: batch}, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	records, err := fr.GetRecordReader(ctx, leaves, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", ErrCorrupt, r.path, err)
	}
	return records, nil
}

// next takes the next batch, its columns in the wanted order and in the types of TableState.Schema; nil at the end.
func (r *Reader) next(records pqarrow.RecordReader, fieldIDs []int32) (rec arrow.RecordBatch, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: read %s: %w", ErrCorrupt, r.path, err)
		}
	}()
	defer recoverInto(&err)
	if !records.Next() {
		return nil, records.Err()
	}
	raw := records.RecordBatch()
	// The batch's columns stand in file order.
	order := make([]int, 0, len(fieldIDs))
	for _, id := range fieldIDs {
		order = append(order, r.roots[id])
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(order)))
	fields, columns := make([]arrow.Field, len(order)), make([]arrow.Array, len(order))
	for i, root := range order {
		at, _ := slices.BinarySearch(sorted, root)
		f := raw.Schema().Field(at)
		f.Type = plainType(f.Type)
		fields[i] = fieldWithID(f.Name, f.Type, f.Nullable, int(fieldIDs[i]))
		columns[i] = retype(raw.Column(at), f.Type)
		defer columns[i].Release()
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, raw.NumRows()), nil
}

// plainType is parquetType's inverse.
func plainType(typ arrow.DataType) arrow.DataType {
	switch t := typ.(type) {
	case *extensions.UUIDType:
		return t.StorageType()
	case *arrow.ListType:
		elem := t.ElemField()
		elem.Type = plainType(elem.Type)
		return arrow.ListOfField(elem)
	}
	return typ
}
