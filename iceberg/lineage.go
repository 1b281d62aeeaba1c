package iceberg

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Row lineage: every row has a number, and the sequence number of the commit that wrote it last. Both are a matter of the row's first file, by its place
// there; a row that is moved to another file takes them along in two columns, which are in no schema (https://iceberg.apache.org/spec/#row-lineage).
const (
	RowIDColumn    = "_row_id"
	RowIDFieldID   = 2147483540
	SequenceColumn = "_last_updated_sequence_number"
	// SequenceFieldID is the field id of the sequence numbers; both are the specification's
	// (https://iceberg.apache.org/spec/#reserved-field-ids).
	SequenceFieldID = 2147483539
)

// LineageFields are the Arrow fields of both columns. NULL in one means what a row has by its place.
func LineageFields() []arrow.Field {
	return []arrow.Field{
		fieldWithID(RowIDColumn, arrow.PrimitiveTypes.Int64, true, RowIDFieldID),
		fieldWithID(SequenceColumn, arrow.PrimitiveTypes.Int64, true, SequenceFieldID),
	}
}

// Lineage is what the rows of a data file in a table's current snapshot have by their place: the first one's number, the others follow, and the
// sequence number. ok is false when the file is not there. Any goroutine may call it.
func (w *Warehouse) Lineage(uuid, path string) (firstRowID, sequence int64, ok bool) {
	w.current.RLock()
	defer w.current.RUnlock()
	if t := w.tables[uuid]; t != nil {
		if f := t.files[path]; f != nil {
			return f.firstRowID, f.sequence, true
		}
	}
	return 0, 0, false
}

// checkLineage looks at the two last columns of moved rows.
func checkLineage(columns []arrow.Array) error {
	for i, column := range columns {
		numbers, ok := column.(*array.Int64)
		if !ok {
			return fmt.Errorf("column %q: %s where int64 is due", LineageFields()[i].Name, column.DataType())
		}
		for row := range numbers.Len() {
			if numbers.IsValid(row) && numbers.Value(row) < 0 {
				return fmt.Errorf("column %q: %d", LineageFields()[i].Name, numbers.Value(row))
			}
		}
	}
	return nil
}
