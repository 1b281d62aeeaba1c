package duckdb

import (
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/duckdb/duckdb-go/v2/mapping"

	"pgmirror/readstate"
)

// column is one column of a mirrored table as DuckDB sees it.
type column struct {
	name  string // as shown: unique without regard to case
	field int64  // Iceberg field id
	typ   columnType
	// missing is what rows of files from before the column show, as text; nil for NULL.
	missing *string
}

// columnType is a DuckDB type and how an Arrow array becomes one of its vectors.
type columnType struct {
	sql    string // DuckDB's name of the type
	id     mapping.Type
	width  uint8 // decimal: digits
	scale  uint8
	elem   *columnType    // list
	arrow  arrow.DataType // storage type of the arrays that come
	fill   filler
	stride int // bytes of one value in the vector
}

// inner is the column's name inside the union read. Field ids never clash with the names of virtual columns.
func (c column) inner() string { return "f" + strconv.FormatInt(c.field, 10) }

// columnsOf maps a table's schema. Names that differ only by case are kept apart.
func columnsOf(schema *arrow.Schema) ([]column, error) {
	if schema == nil || schema.NumFields() == 0 {
		return nil, fmt.Errorf("the table has no columns")
	}
	names := make([]string, schema.NumFields())
	for i, f := range schema.Fields() {
		names[i] = f.Name
	}
	names = apart(names)
	seen := make(map[int64]bool, schema.NumFields())
	out := make([]column, 0, schema.NumFields())
	for i, f := range schema.Fields() {
		text, ok := f.Metadata.GetValue(readstate.FieldIDKey)
		id, err := strconv.ParseInt(text, 10, 32)
		if !ok || err != nil || id < 0 || seen[id] {
			return nil, fmt.Errorf("column %q has no field id of its own (%q)", f.Name, text)
		}
		seen[id] = true
		typ, err := typeOf(f.Type)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		c := column{name: names[i], field: id, typ: typ}
		if missing, ok := f.Metadata.GetValue(readstate.DefaultKey); ok {
			c.missing = &missing
		}
		out = append(out, c)
	}
	return out, nil
}

// typeOf maps an Arrow type of the read state to DuckDB's.
func typeOf(t arrow.DataType) (columnType, error) {
	if ext, ok := t.(arrow.ExtensionType); ok {
		t = ext.StorageType()
	}
	out, err := mapType(t)
	out.arrow = t
	return out, err
}

func mapType(t arrow.DataType) (columnType, error) {
	switch t := t.(type) {
	case *arrow.BooleanType:
		return columnType{sql: "BOOLEAN", id: mapping.TypeBoolean, fill: fillBool, stride: 1}, nil
	case *arrow.Int32Type:
		return columnType{sql: "INTEGER", id: mapping.TypeInteger, fill: fillFixed, stride: 4}, nil
	case *arrow.Int64Type:
		return columnType{sql: "BIGINT", id: mapping.TypeBigInt, fill: fillFixed, stride: 8}, nil
	case *arrow.Float32Type:
		return columnType{sql: "FLOAT", id: mapping.TypeFloat, fill: fillFixed, stride: 4}, nil
	case *arrow.Float64Type:
		return columnType{sql: "DOUBLE", id: mapping.TypeDouble, fill: fillFixed, stride: 8}, nil
	case *arrow.Decimal128Type:
		return decimalType(t)
	case *arrow.StringType:
		return columnType{sql: "VARCHAR", id: mapping.TypeVarchar, fill: fillText, stride: 16}, nil
	case *arrow.BinaryType:
		return columnType{sql: "BLOB", id: mapping.TypeBlob, fill: fillBytes, stride: 16}, nil
	case *arrow.FixedSizeBinaryType:
		if t.ByteWidth == 16 {
			return columnType{sql: "UUID", id: mapping.TypeUUID, fill: fillUUID, stride: 16}, nil
		}
	case *arrow.Date32Type:
		return columnType{sql: "DATE", id: mapping.TypeDate, fill: fillFixed, stride: 4}, nil
	case *arrow.Time64Type:
		if t.Unit == arrow.Microsecond {
			return columnType{sql: "TIME", id: mapping.TypeTime, fill: fillFixed, stride: 8}, nil
		}
	case *arrow.TimestampType:
		if t.Unit == arrow.Microsecond && t.TimeZone == "" {
			return columnType{sql: "TIMESTAMP", id: mapping.TypeTimestamp, fill: fillFixed, stride: 8}, nil
		}
		if t.Unit == arrow.Microsecond {
			return columnType{sql: "TIMESTAMPTZ", id: mapping.TypeTimestampTZ, fill: fillFixed, stride: 8}, nil
		}
	case *arrow.ListType:
		elem, err := typeOf(t.Elem())
		if err != nil {
			return columnType{}, err
		}
		return columnType{sql: elem.sql + "[]", id: mapping.TypeList, elem: &elem, fill: fillList, stride: 16}, nil
	}
	return columnType{}, fmt.Errorf("arrow type %s is not one that read states use", t)
}

// decimalType picks the integer that DuckDB keeps a decimal of this precision in.
func decimalType(t *arrow.Decimal128Type) (columnType, error) {
	if t.Precision < 1 || t.Precision > 38 || t.Scale < 0 || t.Scale > t.Precision {
		return columnType{}, fmt.Errorf("decimal(%d,%d) is out of range", t.Precision, t.Scale)
	}
	out := columnType{
		sql: fmt.Sprintf("DECIMAL(%d,%d)", t.Precision, t.Scale), id: mapping.TypeDecimal,
		width: uint8(t.Precision), scale: uint8(t.Scale), fill: fillDecimal,
	}
	switch {
	case t.Precision <= 4:
		out.stride = 2
	case t.Precision <= 9:
		out.stride = 4
	case t.Precision <= 18:
		out.stride = 8
	default:
		out.stride = 16
	}
	return out, nil
}

// matches says whether an array is of the announced type. A list's elements are checked when they are filled.
func (t columnType) matches(arr arrow.DataType) bool {
	if t.id == mapping.TypeList {
		return arr.ID() == t.arrow.ID()
	}
	return arrow.TypeEqual(arr, t.arrow)
}

// logical makes the type's DuckDB object. The caller destroys it.
func (t columnType) logical() mapping.LogicalType {
	switch t.id {
	case mapping.TypeDecimal:
		return mapping.CreateDecimalType(t.width, t.scale)
	case mapping.TypeList:
		elem := t.elem.logical()
		defer mapping.DestroyLogicalType(&elem)
		return mapping.CreateListType(elem)
	default:
		return mapping.CreateLogicalType(t.id)
	}
}
