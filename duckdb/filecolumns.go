package duckdb

import (
	"fmt"

	"github.com/duckdb/duckdb-go/v2/mapping"
)

// fileColumns is pgmirror_columns(handle): what read_parquet's parameter schema wants to know of a table, by field id the
// column's name inside the union read, its type, and the value in files from before the column. It could be written into the text,
// but parsing and binding that took a third of a short query's time.
func (db *DB) fileColumns(in mapping.DataChunk, out mapping.Vector) error {
	id := vectorSlice[int64](mapping.DataChunkGetVector(in, 0), 1)[0]
	h, ok := db.handles.retain(id)
	if !ok {
		return fmt.Errorf("pgmirror_columns: there is no read handle %d", id)
	}
	defer db.handles.release(h)
	t := newFileColumnsType()
	defer t.destroy()
	var keys, columns []mapping.Value
	defer func() {
		destroyValues(keys)
		destroyValues(columns)
	}()
	for _, c := range h.table.cols {
		keys = append(keys, mapping.CreateInt32(int32(c.field)))
		missing := mapping.CreateNullValue()
		if c.missing != nil {
			mapping.DestroyValue(&missing)
			missing = mapping.CreateVarcharLength(*c.missing, mapping.IdxT(len(*c.missing)))
		}
		parts := []mapping.Value{mapping.CreateVarchar(c.inner()), mapping.CreateVarchar(c.typ.sql), missing}
		columns = append(columns, mapping.CreateStructValue(t.column, parts))
		destroyValues(parts)
	}
	all := mapping.CreateMapValue(t.all, keys, columns)
	defer mapping.DestroyValue(&all)
	mapping.VectorReferenceValue(out, all)
	return nil
}

// fileColumnsType is MAP(INTEGER, STRUCT(name VARCHAR, type VARCHAR, default_value VARCHAR)).
type fileColumnsType struct{ text, key, column, all mapping.LogicalType }

func newFileColumnsType() fileColumnsType {
	t := fileColumnsType{text: mapping.CreateLogicalType(mapping.TypeVarchar), key: mapping.CreateLogicalType(mapping.TypeInteger)}
	t.column = mapping.CreateStructType([]mapping.LogicalType{t.text, t.text, t.text}, []string{"name", "type", "default_value"})
	t.all = mapping.CreateMapType(t.key, t.column)
	return t
}

func (t *fileColumnsType) destroy() {
	for _, l := range []*mapping.LogicalType{&t.text, &t.key, &t.column, &t.all} {
		mapping.DestroyLogicalType(l)
	}
}

func destroyValues(values []mapping.Value) {
	for i := range values {
		mapping.DestroyValue(&values[i])
	}
}
