package mirror

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// identityMode says how a table's old rows are found.
type identityMode uint8

const (
	keyed      identityMode = iota // by the columns of the primary key or of the identity's index
	wholeRow                       // by all columns: REPLICA IDENTITY FULL without a primary key that always names one row; equal rows are interchangeable
	insertOnly                     // not at all: updates and deletes cannot occur
)

// shape is what the engine knows of a table's columns. It never changes.
type shape struct {
	columns []shapeColumn
	arrow   *arrow.Schema // the source's columns in the source's order, with field ids
	mode    identityMode
	key     []int // indexes into columns, in key order; all of them for wholeRow
	// resolved says that the PostgreSQL types are known; after a restart the catalogue must first be asked.
	resolved bool
	integer  bool // the key is one integer-like column of at most 8 bytes: its hash is a bijection
}

type shapeColumn struct {
	name    string
	attNum  int16
	pg      *pgcdc.Type
	typ     arrow.DataType
	fieldID int
	key     bool // part of the primary key: never NULL
	// fingerprint is pgcdc.Column.Fingerprint.
	fingerprint string
}

// newShape derives the shape of a table seen in the catalogue. assign gives each column its field ids.
func newShape(t *pgcdc.Table, assign func(*arrow.Schema) *arrow.Schema) (*shape, error) {
	if t.Unsupported != "" {
		return nil, fmt.Errorf("%s", t.Unsupported)
	}
	s := &shape{resolved: true}
	primary := map[int]bool{}
	for _, i := range t.Key {
		primary[i] = true
	}
	fields := make([]arrow.Field, len(t.Columns))
	for i, c := range t.Columns {
		typ, err := arrowType(c.Type)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", c.Name, err)
		}
		fields[i] = arrow.Field{Name: c.Name, Type: typ, Nullable: !primary[i]}
		s.columns = append(s.columns, shapeColumn{name: c.Name, attNum: c.AttNum, pg: c.Type, typ: typ, key: primary[i], fingerprint: c.Fingerprint})
	}
	s.arrow = assign(arrow.NewSchema(fields, nil))
	for i := range s.columns {
		s.columns[i].typ = s.arrow.Field(i).Type
		id, err := fieldID(s.arrow.Field(i))
		if err != nil {
			return nil, err
		}
		s.columns[i].fieldID = id
	}
	key, whole := t.RowKey()
	switch {
	case whole:
		s.mode, s.key = wholeRow, key
	case len(key) > 0:
		s.mode, s.key = keyed, key
	default:
		s.mode = insertOnly
	}
	s.integer = s.mode == keyed && len(s.key) == 1 && integerLike(s.columns[s.key[0]].typ)
	return s, nil
}

// recoveredShape is the shape of a table as the warehouse has it. Changes cannot be decoded before resolve.
func recoveredShape(schema *arrow.Schema, mode identityMode, key []int) (*shape, error) {
	s := &shape{arrow: schema, mode: mode, key: key}
	for _, f := range schema.Fields() {
		id, err := fieldID(f)
		if err != nil {
			return nil, err
		}
		s.columns = append(s.columns, shapeColumn{name: f.Name, typ: f.Type, fieldID: id, key: !f.Nullable})
	}
	for _, k := range key {
		if k < 0 || k >= len(s.columns) {
			return nil, fmt.Errorf("the stored identity names column %d of %d", k, len(s.columns))
		}
	}
	s.integer = mode == keyed && len(key) == 1 && integerLike(s.columns[key[0]].typ)
	return s, nil
}

// resolve takes the PostgreSQL types of a recovered shape from the catalogue. The applier's turn. Files may be compacted by the shape meanwhile: other
// goroutines look at none of what is set here, and so copy no shapeColumn.
func (s *shape) resolve(t *pgcdc.Table) error {
	now, err := newShape(t, func(a *arrow.Schema) *arrow.Schema { return s.arrow })
	if err != nil {
		return err
	}
	if len(t.Columns) != len(s.columns) || now.mode != s.mode || !slices.Equal(now.key, s.key) {
		return fmt.Errorf("the table's definition changed while the mirror was stopped")
	}
	for i, c := range t.Columns {
		typ, err := arrowType(c.Type)
		if err != nil {
			return err
		}
		if c.Name != s.columns[i].name || !sameType(typ, s.columns[i].typ) {
			return fmt.Errorf("column %q changed while the mirror was stopped", c.Name)
		}
		s.columns[i].pg, s.columns[i].attNum, s.columns[i].fingerprint = c.Type, c.AttNum, c.Fingerprint
	}
	s.resolved = true
	return nil
}

// sameType compares types without the names and ids of list elements.
func sameType(a, b arrow.DataType) bool {
	la, ok := a.(*arrow.ListType)
	if !ok {
		return arrow.TypeEqual(storage(a), storage(b))
	}
	lb, ok := b.(*arrow.ListType)
	return ok && sameType(la.Elem(), lb.Elem())
}

func storage(t arrow.DataType) arrow.DataType {
	if e, ok := t.(arrow.ExtensionType); ok {
		return e.StorageType()
	}
	return t
}

// fieldIDs lists the field ids of the columns.
func (s *shape) fieldIDs() []int32 {
	ids := make([]int32, len(s.columns))
	for i := range s.columns {
		ids[i] = int32(s.columns[i].fieldID)
	}
	return ids
}

// keyFieldIDs lists the field ids of the columns that are hashed, in key order.
func (s *shape) keyFieldIDs() []int32 {
	ids := make([]int32, len(s.key))
	for i, k := range s.key {
		ids[i] = int32(s.columns[k].fieldID)
	}
	return ids
}

// newColumns makes empty columns of the shape.
func (s *shape) newColumns() []*column {
	cols := make([]*column, len(s.columns))
	for i := range s.columns {
		cols[i] = newColumn(s.columns[i].typ)
	}
	return cols
}

// integerLike says whether a type's values are integers of at most 8 bytes.
func integerLike(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.INT32, arrow.INT64, arrow.DATE32, arrow.TIME64, arrow.TIMESTAMP, arrow.BOOL:
		return true
	}
	return false
}

// arrowType maps a PostgreSQL type to the Arrow type that Iceberg and DuckDB read alike (DESIGN, Types).
func arrowType(t *pgcdc.Type) (arrow.DataType, error) {
	if t.Unsupported != "" {
		return nil, fmt.Errorf("%s", t.Unsupported)
	}
	switch t.Kind {
	case pgcdc.KindBool:
		return arrow.FixedWidthTypes.Boolean, nil
	case pgcdc.KindInt2, pgcdc.KindInt4:
		return arrow.PrimitiveTypes.Int32, nil
	case pgcdc.KindInt8, pgcdc.KindOID:
		return arrow.PrimitiveTypes.Int64, nil
	case pgcdc.KindFloat4:
		return arrow.PrimitiveTypes.Float32, nil
	case pgcdc.KindFloat8:
		return arrow.PrimitiveTypes.Float64, nil
	case pgcdc.KindDecimal:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}, nil
	case pgcdc.KindText, pgcdc.KindJSON:
		return arrow.BinaryTypes.String, nil
	case pgcdc.KindBytea:
		return arrow.BinaryTypes.Binary, nil
	case pgcdc.KindUUID:
		return &arrow.FixedSizeBinaryType{ByteWidth: 16}, nil
	case pgcdc.KindDate:
		return arrow.FixedWidthTypes.Date32, nil
	case pgcdc.KindTime:
		return arrow.FixedWidthTypes.Time64us, nil
	case pgcdc.KindTimestamp:
		return &arrow.TimestampType{Unit: arrow.Microsecond}, nil
	case pgcdc.KindTimestampTZ:
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, nil
	case pgcdc.KindList:
		elem, err := arrowType(t.Elem)
		if err != nil {
			return nil, err
		}
		return arrow.ListOfField(arrow.Field{Name: "element", Type: elem, Nullable: true}), nil
	}
	return nil, fmt.Errorf("type %s is not supported yet", t.Name)
}

func fieldID(f arrow.Field) (int, error) {
	text, ok := f.Metadata.GetValue(readstate.FieldIDKey)
	if !ok {
		return 0, fmt.Errorf("column %q has no field id", f.Name)
	}
	var id int
	if _, err := fmt.Sscanf(text, "%d", &id); err != nil {
		return 0, fmt.Errorf("column %q has field id %q: %w", f.Name, text, err)
	}
	return id, nil
}
