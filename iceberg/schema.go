package iceberg

import (
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	icelib "github.com/apache/iceberg-go"

	"pgmirror/readstate"
)

// LSNColumn is the hidden column: the create LSN of each row, a required long, last in every table's Iceberg schema.
const LSNColumn = "_pgmirror_lsn"

// LSNFieldID is the hidden column's field id. It is the same in every table, so that a file can be written and read before
// the table exists; the source's columns are numbered from LSNFieldID+1.
const LSNFieldID = 1

// maxFieldID keeps clear of the ids that Iceberg reserves (https://iceberg.apache.org/spec/#reserved-field-ids).
const maxFieldID = 2147483446

// AssignFieldIDs gives every field that has no field id the next one after last, list elements included, and returns the
// last id given. last is TableState.LastColumnID, or 0 for a new table.
func AssignFieldIDs(schema *arrow.Schema, last int) (*arrow.Schema, int) {
	last = max(last, LSNFieldID)
	fields := make([]arrow.Field, schema.NumFields())
	for i, f := range schema.Fields() {
		fields[i] = assignFieldID(f, &last)
	}
	// Elements come after all columns, as Iceberg numbers a schema level by level.
	for i, f := range fields {
		if list, ok := f.Type.(*arrow.ListType); ok {
			fields[i].Type = arrow.ListOfField(assignFieldID(list.ElemField(), &last))
		}
	}
	meta := schema.Metadata()
	return arrow.NewSchema(fields, &meta), last
}

func assignFieldID(f arrow.Field, last *int) arrow.Field {
	if _, ok := f.Metadata.GetValue(readstate.FieldIDKey); ok {
		return f
	}
	*last++
	keys := append(append([]string{}, f.Metadata.Keys()...), readstate.FieldIDKey)
	values := append(append([]string{}, f.Metadata.Values()...), strconv.Itoa(*last))
	f.Metadata = arrow.NewMetadata(keys, values)
	return f
}

func fieldIDOf(f arrow.Field) (int, error) {
	text, ok := f.Metadata.GetValue(readstate.FieldIDKey)
	if !ok {
		return 0, fmt.Errorf("column %q has no field id", f.Name)
	}
	id, err := strconv.Atoi(text)
	if err != nil || id < 1 || id > maxFieldID {
		return 0, fmt.Errorf("column %q has field id %q", f.Name, text)
	}
	return id, nil
}

func fieldWithID(name string, typ arrow.DataType, nullable bool, id int) arrow.Field {
	return arrow.Field{Name: name, Type: typ, Nullable: nullable,
		Metadata: arrow.NewMetadata([]string{readstate.FieldIDKey}, []string{strconv.Itoa(id)})}
}

// icebergSchema turns a table's Arrow schema into its Iceberg schema: the source's columns, then the hidden one.
func icebergSchema(schema *arrow.Schema) (*icelib.Schema, error) {
	fields := make([]icelib.NestedField, 0, schema.NumFields()+1)
	ids, names := map[int]string{LSNFieldID: LSNColumn}, map[string]bool{LSNColumn: true}
	claim := func(f arrow.Field) (int, error) {
		id, err := fieldIDOf(f)
		if err != nil {
			return 0, err
		}
		if other, taken := ids[id]; taken {
			return 0, fmt.Errorf("columns %q and %q have the same field id %d", other, f.Name, id)
		}
		ids[id] = f.Name
		return id, nil
	}
	for _, f := range schema.Fields() {
		id, err := claim(f)
		if err != nil {
			return nil, err
		}
		if names[f.Name] {
			return nil, fmt.Errorf("two columns are named %q", f.Name)
		}
		names[f.Name] = true
		var typ icelib.Type
		if list, ok := f.Type.(*arrow.ListType); ok {
			elem := list.ElemField()
			elemID, err := claim(elem)
			if err != nil {
				return nil, fmt.Errorf("column %q: %w", f.Name, err)
			}
			elemType, err := primitiveToIceberg(elem.Type)
			if err != nil {
				return nil, fmt.Errorf("column %q: %w", f.Name, err)
			}
			typ = &icelib.ListType{ElementID: elemID, Element: elemType, ElementRequired: !elem.Nullable}
		} else if typ, err = primitiveToIceberg(f.Type); err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		missing, err := icebergDefault(f)
		if err != nil {
			return nil, fmt.Errorf("column %q: initial default: %w", f.Name, err)
		}
		fields = append(fields, icelib.NestedField{ID: id, Name: f.Name, Type: typ, Required: !f.Nullable, InitialDefault: missing})
	}
	fields = append(fields, icelib.NestedField{ID: LSNFieldID, Name: LSNColumn, Type: icelib.PrimitiveTypes.Int64, Required: true,
		Doc: "end LSN of the PostgreSQL commit that wrote this row"})
	return icelib.NewSchema(0, fields...), nil
}

// arrowSchema is icebergSchema's inverse.
func arrowSchema(schema *icelib.Schema) (*arrow.Schema, error) {
	fields := schema.Fields()
	if len(fields) == 0 || fields[len(fields)-1].ID != LSNFieldID || fields[len(fields)-1].Name != LSNColumn {
		return nil, fmt.Errorf("the last column is not %s with field id %d", LSNColumn, LSNFieldID)
	}
	out := make([]arrow.Field, 0, len(fields)-1)
	for _, f := range fields[:len(fields)-1] {
		var typ arrow.DataType
		var err error
		if list, ok := f.Type.(*icelib.ListType); ok {
			var elem arrow.DataType
			if elem, err = primitiveToArrow(list.Element); err == nil {
				typ = arrow.ListOfField(fieldWithID("element", elem, !list.ElementRequired, list.ElementID))
			}
		} else {
			typ, err = primitiveToArrow(f.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		field, err := arrowDefault(fieldWithID(f.Name, typ, !f.Required, f.ID), f.InitialDefault)
		if err != nil {
			return nil, err
		}
		out = append(out, field)
	}
	return arrow.NewSchema(out, nil), nil
}

func primitiveToIceberg(typ arrow.DataType) (icelib.Type, error) {
	switch t := typ.(type) {
	case *arrow.BooleanType:
		return icelib.PrimitiveTypes.Bool, nil
	case *arrow.Int32Type:
		return icelib.PrimitiveTypes.Int32, nil
	case *arrow.Int64Type:
		return icelib.PrimitiveTypes.Int64, nil
	case *arrow.Float32Type:
		return icelib.PrimitiveTypes.Float32, nil
	case *arrow.Float64Type:
		return icelib.PrimitiveTypes.Float64, nil
	case *arrow.Decimal128Type:
		if t.Precision < 1 || t.Precision > 38 || t.Scale < 0 || t.Scale > t.Precision {
			return nil, fmt.Errorf("%s is no Iceberg decimal", t)
		}
		return icelib.DecimalTypeOf(int(t.Precision), int(t.Scale)), nil
	case *arrow.StringType:
		return icelib.PrimitiveTypes.String, nil
	case *arrow.BinaryType:
		return icelib.PrimitiveTypes.Binary, nil
	case *arrow.FixedSizeBinaryType:
		if t.ByteWidth == 16 {
			return icelib.PrimitiveTypes.UUID, nil
		}
	case *arrow.Date32Type:
		return icelib.PrimitiveTypes.Date, nil
	case *arrow.Time64Type:
		if t.Unit == arrow.Microsecond {
			return icelib.PrimitiveTypes.Time, nil
		}
	case *arrow.TimestampType:
		if t.Unit == arrow.Microsecond && t.TimeZone == "" {
			return icelib.PrimitiveTypes.Timestamp, nil
		}
		if t.Unit == arrow.Microsecond && t.TimeZone == "UTC" {
			return icelib.PrimitiveTypes.TimestampTz, nil
		}
	}
	return nil, fmt.Errorf("arrow type %s has no place in our tables", typ)
}

func primitiveToArrow(typ icelib.Type) (arrow.DataType, error) {
	switch t := typ.(type) {
	case icelib.BooleanType:
		return arrow.FixedWidthTypes.Boolean, nil
	case icelib.Int32Type:
		return arrow.PrimitiveTypes.Int32, nil
	case icelib.Int64Type:
		return arrow.PrimitiveTypes.Int64, nil
	case icelib.Float32Type:
		return arrow.PrimitiveTypes.Float32, nil
	case icelib.Float64Type:
		return arrow.PrimitiveTypes.Float64, nil
	case icelib.DecimalType:
		return &arrow.Decimal128Type{Precision: int32(t.Precision()), Scale: int32(t.Scale())}, nil
	case icelib.StringType:
		return arrow.BinaryTypes.String, nil
	case icelib.BinaryType:
		return arrow.BinaryTypes.Binary, nil
	case icelib.UUIDType:
		return &arrow.FixedSizeBinaryType{ByteWidth: 16}, nil
	case icelib.DateType:
		return arrow.FixedWidthTypes.Date32, nil
	case icelib.TimeType:
		return arrow.FixedWidthTypes.Time64us, nil
	case icelib.TimestampType:
		return &arrow.TimestampType{Unit: arrow.Microsecond}, nil
	case icelib.TimestampTzType:
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, nil
	}
	return nil, fmt.Errorf("iceberg type %s is not one of ours", typ)
}

// parquetSchema is the Arrow schema that is handed to the Parquet writer: like schema with the hidden column, list elements
// named as the Parquet format asks, and uuid as the extension type that carries the UUID logical type.
func parquetSchema(schema *arrow.Schema) (*arrow.Schema, error) {
	fields := make([]arrow.Field, 0, schema.NumFields()+1)
	for _, f := range schema.Fields() {
		if list, ok := f.Type.(*arrow.ListType); ok {
			elem := list.ElemField()
			elem.Name, elem.Type = "element", parquetType(elem.Type)
			f.Type = arrow.ListOfField(elem)
		} else {
			f.Type = parquetType(f.Type)
		}
		id, err := fieldIDOf(f)
		if err != nil {
			return nil, err
		}
		fields = append(fields, fieldWithID(f.Name, f.Type, f.Nullable, id))
	}
	fields = append(fields, fieldWithID(LSNColumn, arrow.PrimitiveTypes.Int64, false, LSNFieldID))
	return arrow.NewSchema(fields, nil), nil
}

func parquetType(typ arrow.DataType) arrow.DataType {
	if t, ok := typ.(*arrow.FixedSizeBinaryType); ok && t.ByteWidth == 16 {
		return extensions.NewUUIDType()
	}
	return typ
}
