package iceberg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// RowGroupRows is the most rows of a row group, DuckDB's own row group size: one of its scan tasks. Writing exactly as many at
// once, at the beginning of a file or after a full group, is the fastest: they go to the file column by column.
const RowGroupRows = 122_880

// rowGroupBytes is the size of uncompressed values at which a row group ends before it has its rows: it is kept in memory until
// then, and readers hold a column of it in arrays with 32-bit offsets.
const rowGroupBytes = 256 << 20

// dictionaryBytes bounds a column chunk's dictionary; a column with more distinct bytes in a row group goes on without one.
// Measured over 500k strings: 8 values 0.09 bytes a row instead of 0.34, 1,000 values 1.29 instead of 2.28, and above this
// bound a dictionary (of 128 KB) makes files larger; the attempt costs no time that can be seen.
const dictionaryBytes = 64 << 10

// dataPageBytes is the size of an uncompressed page. A point read decodes one.
const dataPageBytes = 128 << 10

// TableLocation names the table a Writer writes for, also before the table is created.
type TableLocation struct {
	Name   TableName
	UUID   string
	Schema *arrow.Schema // as in TableState.Schema
	// Moved: the rows were in other files of the table before, and bring their lineage.
	Moved bool
}

// Writer writes one Parquet file into a table's data directory. One goroutine uses it. The file belongs to no snapshot until
// a Commit adds it; without one it is an orphan.
type Writer struct {
	w      *Warehouse
	path   string
	source *arrow.Schema
	schema *arrow.Schema // what the Parquet writer sees
	file   WriteFile
	sink   *countingWriter
	pq     *pqarrow.FileWriter

	rows           int64
	minLSN, maxLSN LSN
	group          int64        // bytes of values in the open row group
	groupLimit     int64        // rowGroupBytes but in tests
	nulls          []int64      // by source column
	floats         []floatRange // by source column; of float columns
	err            error        // of a failed Write: the file is useless
	closed         bool
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// NewWriter creates a file with a name of its own.
func (w *Warehouse) NewWriter(ctx context.Context, loc TableLocation) (*Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !uuidForm.MatchString(loc.UUID) {
		return nil, fmt.Errorf("table %s.%s: %q is not a uuid", loc.Name.Schema, loc.Name.Name, loc.UUID)
	}
	if _, err := icebergSchema(loc.Schema); err != nil {
		return nil, fmt.Errorf("table %s.%s: %w", loc.Name.Schema, loc.Name.Name, err)
	}
	schema, err := parquetSchema(loc.Schema)
	if err != nil {
		return nil, err
	}
	if loc.Moved {
		schema = arrow.NewSchema(append(schema.Fields(), LineageFields()...), nil)
	}
	dir := filepath.Join(w.tableDir(loc.Name, loc.UUID), "data")
	if err := w.ensureDir(dir); err != nil {
		return nil, err
	}
	x := &Writer{w: w, path: filepath.Join(dir, newID()+".parquet"), source: loc.Schema, schema: schema, minLSN: math.MaxUint64, groupLimit: w.config.RowGroupBytes,
		nulls: make([]int64, loc.Schema.NumFields()), floats: make([]floatRange, loc.Schema.NumFields())}
	w.pending.Store(x.path, true)
	if x.file, err = w.files.Create(x.path); err != nil {
		w.pending.Delete(x.path)
		return nil, fmt.Errorf("create %s: %w", x.path, err)
	}
	x.sink = &countingWriter{w: x.file}
	props, err := writerProperties(schema)
	if err == nil {
		x.pq, err = pqarrow.NewFileWriter(schema, x.sink, props, pqarrow.DefaultWriterProps())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", x.path, err), x.Abort())
	}
	return x, nil
}

// writerProperties chooses each column's encoding by its physical type.
func writerProperties(schema *arrow.Schema) (*parquet.WriterProperties, error) {
	options := []parquet.WriterProperty{
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(1),
		parquet.WithMaxRowGroupLength(RowGroupRows), parquet.WithDataPageSize(dataPageBytes),
		parquet.WithDictionaryDefault(false), parquet.WithDictionaryPageSizeLimit(dictionaryBytes),
		parquet.WithStoreDecimalAsInteger(true), parquet.WithVersion(parquet.V2_6), parquet.WithDataPageVersion(parquet.DataPageV1),
		parquet.WithCreatedBy("pgmirror"),
	}
	pq, err := pqarrow.ToParquet(schema, parquet.NewWriterProperties(options...), pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, err
	}
	for i := range pq.NumColumns() {
		column := pq.Column(i)
		path := column.ColumnPath()
		switch column.PhysicalType() {
		case parquet.Types.Int32, parquet.Types.Int64:
			options = append(options, parquet.WithEncodingPath(path, parquet.Encodings.DeltaBinaryPacked))
		case parquet.Types.ByteArray:
			// Values that PostgreSQL may leave out as unchanged TOAST are read back one by one: pages are found by row.
			options = append(options, parquet.WithDictionaryPath(path, true), parquet.WithPageIndexEnabledPath(path, true))
		case parquet.Types.Float, parquet.Types.Double:
			// Parquet statistics leave NaN out, but PostgreSQL and DuckDB order it above all numbers: DuckDB would skip the
			// row group of a NaN for f > x.
			options = append(options, parquet.WithStatsPath(path, false))
		case parquet.Types.FixedLenByteArray:
			if column.TypeLength() == 16 && isUUID(schema.Field(rootIndex(pq, i)).Type) {
				// Java compares uuids as signed numbers, all others as bytes: no order, no bounds.
				options = append(options, parquet.WithStatsPath(path, false))
			}
		}
		if column.MaxRepetitionLevel() > 0 {
			options = append(options, parquet.WithPageIndexEnabledPath(path, true))
		}
	}
	return parquet.NewWriterProperties(options...), nil
}

func isUUID(typ arrow.DataType) bool {
	if list, ok := typ.(*arrow.ListType); ok {
		typ = list.Elem()
	}
	_, ok := typ.(*extensions.UUIDType)
	return ok
}

// Write appends a record batch: the table's columns, the create LSNs as int64 and, of moved rows, LineageFields. Rows come in create order. It
// keeps nothing of rec.
func (x *Writer) Write(rec arrow.RecordBatch) error {
	if x.closed || x.err != nil {
		return fmt.Errorf("write %s: the writer is closed: %w", x.path, errors.Join(x.err))
	}
	if rec.NumRows() == 0 {
		return nil
	}
	if err := x.write(rec); err != nil {
		x.err = err
		return fmt.Errorf("write %s: %w", x.path, err)
	}
	return nil
}

func (x *Writer) write(rec arrow.RecordBatch) error {
	if int(rec.NumCols()) != x.schema.NumFields() {
		return fmt.Errorf("%d columns where %d are due", rec.NumCols(), x.schema.NumFields())
	}
	if x.rows+rec.NumRows() > math.MaxUint32 {
		return fmt.Errorf("a file holds at most %d rows", uint32(math.MaxUint32))
	}
	columns := make([]arrow.Array, rec.NumCols())
	for i := range x.source.NumFields() {
		field, column := x.source.Field(i), rec.Column(i)
		if !sameLayout(field.Type, column.DataType()) {
			return fmt.Errorf("column %q: %s where %s is due", field.Name, column.DataType(), field.Type)
		}
		if !field.Nullable && column.NullN() > 0 {
			return fmt.Errorf("column %q: NULL in a required column", field.Name)
		}
		x.nulls[i] += int64(column.NullN())
		x.floats[i].add(column)
		columns[i] = retype(column, x.schema.Field(i).Type)
		defer columns[i].Release()
	}
	lsns, ok := rec.Column(x.source.NumFields()).(*array.Int64)
	if !ok || lsns.NullN() > 0 {
		return fmt.Errorf("column %q: not an int64 column without NULL", LSNColumn)
	}
	for _, v := range lsns.Int64Values() {
		if v < 0 {
			return fmt.Errorf("column %q: lsn above the range of a long", LSNColumn)
		}
		x.minLSN, x.maxLSN = min(x.minLSN, LSN(v)), max(x.maxLSN, LSN(v))
	}
	columns[x.source.NumFields()] = lsns
	lineage := columns[x.source.NumFields()+1:]
	copy(lineage, rec.Columns()[x.source.NumFields()+1:])
	if err := checkLineage(lineage); err != nil {
		return err
	}
	batch := array.NewRecordBatch(x.schema, columns, rec.NumRows())
	defer batch.Release()
	size := valueBytes(batch)
	if batch.NumRows() == RowGroupRows && size <= x.groupLimit {
		x.rows += batch.NumRows()
		x.group = x.groupLimit // nothing is to be added to the group
		return x.writeGroup(columns)
	}
	if x.group > 0 && x.group+size > x.groupLimit {
		if err := x.pq.NewBufferedRowGroupChecked(); err != nil {
			return err
		}
		x.group = 0
	}
	if err := x.pq.WriteBuffered(batch); err != nil {
		return err
	}
	x.group += size
	if rows, err := x.pq.RowGroupNumRows(); err == nil && int64(rows) < batch.NumRows() {
		x.group = size // a group was full and another one begun
	}
	x.rows += rec.NumRows()
	return nil
}

// writeGroup writes a whole row group, after closing the one before it.
func (x *Writer) writeGroup(columns []arrow.Array) error {
	if err := x.pq.NewRowGroupChecked(); err != nil {
		return err
	}
	for _, column := range columns {
		if coded, ok := enumeration(column); ok {
			defer coded.Release()
			column = coded
		}
		chunks := arrow.NewChunked(column.DataType(), []arrow.Array{column})
		err := x.pq.WriteColumnChunked(chunks, 0, int64(column.Len()))
		chunks.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// valueBytes is about the size of a batch's values.
func valueBytes(rec arrow.RecordBatch) (n int64) {
	for _, column := range rec.Columns() {
		n += arrayBytes(column.Data())
	}
	return n
}

func arrayBytes(d arrow.ArrayData) (n int64) {
	if d.Len() == 0 {
		return 0
	}
	switch typ := d.DataType().(type) {
	case *arrow.ListType:
		list := array.NewListData(d)
		defer list.Release()
		from, _ := list.ValueOffsets(0)
		_, to := list.ValueOffsets(d.Len() - 1)
		elements := array.NewSliceData(d.Children()[0], from, to)
		defer elements.Release()
		return arrayBytes(elements)
	case arrow.BinaryDataType:
		offsets := arrow.Int32Traits.CastFromBytes(d.Buffers()[1].Bytes())[d.Offset() : d.Offset()+d.Len()+1]
		return int64(offsets[d.Len()] - offsets[0])
	case arrow.FixedWidthDataType:
		return int64(d.Len()) * int64(typ.BitWidth()) / 8
	}
	return 0
}

// sameLayout says whether values of type got can stand in a column of type want: list elements may be named otherwise.
func sameLayout(want, got arrow.DataType) bool {
	wantList, ok := want.(*arrow.ListType)
	if !ok {
		return arrow.TypeEqual(want, got)
	}
	gotList, ok := got.(*arrow.ListType)
	return ok && arrow.TypeEqual(wantList.Elem(), gotList.Elem())
}

// retype gives an array of the same buffers under another type of the same layout. The caller releases it.
func retype(a arrow.Array, typ arrow.DataType) arrow.Array {
	data := retypeData(a.Data(), typ)
	defer data.Release()
	return array.MakeFromData(data)
}

func retypeData(d arrow.ArrayData, typ arrow.DataType) arrow.ArrayData {
	children := d.Children()
	if list, ok := typ.(*arrow.ListType); ok {
		elem := retypeData(children[0], list.Elem())
		defer elem.Release()
		children = []arrow.ArrayData{elem}
	}
	return array.NewData(typ, d.Len(), d.Buffers(), children, d.NullN(), d.Offset())
}

// Path is where the file is being written.
func (x *Writer) Path() string { return x.path }

// Rows is the number of rows written so far.
func (x *Writer) Rows() int64 { return x.rows }

// Bytes is about the file's size if it were closed now.
func (x *Writer) Bytes() int64 {
	if x.closed {
		return x.sink.n
	}
	return x.sink.n + x.pq.RowGroupTotalBytesWritten()
}

// Close finishes the file, makes it and its directory entry durable, and describes it for TableCommit.Add. After an error the
// file is gone or an orphan. A file without rows is an error: Abort it instead.
func (x *Writer) Close() (DataFile, error) {
	if x.closed {
		return DataFile{}, fmt.Errorf("close %s: already closed", x.path)
	}
	file, err := x.finish()
	if err != nil {
		err = fmt.Errorf("finish %s: %w", x.path, err)
		if !isEffect(err) {
			err = errors.Join(err, x.Abort())
		}
		return DataFile{}, err
	}
	return file, nil
}

func (x *Writer) finish() (DataFile, error) {
	if x.err != nil {
		return DataFile{}, x.err
	}
	if x.rows == 0 {
		return DataFile{}, errors.New("it has no rows")
	}
	if err := x.w.effect("parquet written"); err != nil {
		return DataFile{}, err
	}
	if err := x.pq.Close(); err != nil {
		return DataFile{}, err
	}
	if err := x.w.effect("parquet synced"); err != nil {
		return DataFile{}, err
	}
	if err := x.file.Sync(); err != nil {
		return DataFile{}, err
	}
	x.closed = true
	if err := x.file.Close(); err != nil {
		return DataFile{}, err
	}
	if err := x.w.syncDir(filepath.Dir(x.path)); err != nil {
		return DataFile{}, err
	}
	meta, err := x.pq.FileMetadata()
	if err != nil {
		return DataFile{}, err
	}
	entry, err := x.entry(meta)
	if err != nil {
		return DataFile{}, err
	}
	return DataFile{Path: x.path, Rows: x.rows, Bytes: x.sink.n, MinLSN: x.minLSN, MaxLSN: x.maxLSN, entry: entry}, nil
}

// Abort gives the file up and removes it. After Close it removes a file that no Commit took.
func (x *Writer) Abort() error {
	if !x.closed {
		x.closed = true
		x.file.Close()
	}
	if err := x.w.files.Remove(x.path); err != nil {
		return fmt.Errorf("remove %s: %w", x.path, err)
	}
	x.w.pending.Delete(x.path)
	return nil
}
