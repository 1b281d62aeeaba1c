package mirror

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/iceberg"
)

// position is where a shape has the column with a field id; −1 where it does not.
func (s *shape) position(fieldID int) int {
	return slices.IndexFunc(s.columns, func(c shapeColumn) bool { return c.fieldID == fieldID })
}

// fields lists the Arrow fields and field ids of some of a shape's columns.
func (s *shape) fields(columns []int) (fields []arrow.Field, ids []int32) {
	for _, c := range columns {
		fields, ids = append(fields, s.arrow.Field(c)), append(ids, int32(s.columns[c].fieldID))
	}
	return fields, ids
}

// younger reads some columns of a data file that may be older than they are.
type younger struct {
	fields []arrow.Field // as wanted
	ids    []int32       // those that the file has
	at     []int         // of each field, its place in ids; −1 for none
}

// newYounger finds out which columns a file has. One that it lacks must be one that can have been added.
func newYounger(r DataReader, path string, fields []arrow.Field, ids []int32) (*younger, error) {
	y := &younger{fields: fields}
	for i, id := range ids {
		if r.Has(id) {
			y.at = append(y.at, len(y.ids))
			y.ids = append(y.ids, id)
			continue
		}
		if !fields[i].Nullable {
			return nil, fmt.Errorf("%w: %s: it has no column with field id %d", iceberg.ErrCorrupt, path, id)
		}
		y.at = append(y.at, -1)
	}
	return y, nil
}

// columns are all wanted ones of a batch that was read.
func (y *younger) columns(rec arrow.RecordBatch) (columns []arrow.Array, err error) {
	columns = make([]arrow.Array, len(y.at))
	for i, at := range y.at {
		if at >= 0 {
			columns[i] = rec.Column(at)
		} else if columns[i], err = iceberg.Missing(y.fields[i], int(rec.NumRows())); err != nil {
			return nil, err
		}
	}
	return columns, nil
}
