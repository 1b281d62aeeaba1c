package readstate

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
)

// maxNesting bounds lists of lists; PostgreSQL's arrays need one level.
const maxNesting = 8

// maxColumns is above PostgreSQL's own limit of 1,600 columns a table.
const maxColumns = 4096

// wireField is a column's description on the wire.
type wireField struct {
	Name     string     `json:"name"`
	Type     string     `json:"type"`
	Width    int        `json:"width,omitempty"`     // fixed: bytes a value
	Decimal  *[2]int32  `json:"decimal,omitempty"`   // precision, scale
	Zone     string     `json:"zone,omitempty"`      // timestamp: "" has none
	Nullable bool       `json:"nullable,omitempty"`  // also on a list's element
	Keys     []string   `json:"meta_keys,omitempty"` // field metadata, PARQUET:field_id among it
	Values   []string   `json:"meta_values,omitempty"`
	Element  *wireField `json:"element,omitempty"` // list
}

// plainTypes are the types without parameters, by their name on the wire.
var plainTypes = map[string]arrow.DataType{
	"bool":    arrow.FixedWidthTypes.Boolean,
	"int32":   arrow.PrimitiveTypes.Int32,
	"int64":   arrow.PrimitiveTypes.Int64,
	"float32": arrow.PrimitiveTypes.Float32,
	"float64": arrow.PrimitiveTypes.Float64,
	"date32":  arrow.FixedWidthTypes.Date32,
	"time64":  arrow.FixedWidthTypes.Time64us,
	"string":  arrow.BinaryTypes.String,
	"binary":  arrow.BinaryTypes.Binary,
}

// schemaToWire describes a schema. A type without a form on the wire is an error.
func schemaToWire(schema *arrow.Schema) ([]wireField, error) {
	out := make([]wireField, schema.NumFields())
	for i, field := range schema.Fields() {
		wire, err := fieldToWire(field, 0)
		if err != nil {
			return nil, err
		}
		if _, ok := fieldID(field); !ok {
			return nil, fmt.Errorf("column %q has no %s", field.Name, FieldIDKey)
		}
		out[i] = wire
	}
	return out, nil
}

func fieldToWire(field arrow.Field, depth int) (wireField, error) {
	if depth > maxNesting {
		return wireField{}, fmt.Errorf("column %q nests deeper than %d", field.Name, maxNesting)
	}
	if !utf8.ValidString(field.Name) {
		return wireField{}, fmt.Errorf("column %q is not UTF-8", field.Name)
	}
	out := wireField{Name: field.Name, Nullable: field.Nullable, Keys: field.Metadata.Keys(), Values: field.Metadata.Values()}
	for name, plain := range plainTypes {
		if arrow.TypeEqual(field.Type, plain) {
			out.Type = name
			return out, nil
		}
	}
	switch typ := field.Type.(type) {
	case *arrow.FixedSizeBinaryType:
		out.Type, out.Width = "fixed", typ.ByteWidth
	case *arrow.Decimal128Type:
		out.Type, out.Decimal = "decimal", &[2]int32{typ.Precision, typ.Scale}
	case *arrow.TimestampType:
		if typ.Unit != arrow.Microsecond {
			return wireField{}, fmt.Errorf("column %q: %s has no form on the socket", field.Name, typ)
		}
		out.Type, out.Zone = "timestamp", typ.TimeZone
	case *arrow.ListType:
		element, err := fieldToWire(typ.ElemField(), depth+1)
		if err != nil {
			return wireField{}, err
		}
		out.Type, out.Element = "list", &element
	default:
		return wireField{}, fmt.Errorf("column %q: %s has no form on the socket", field.Name, field.Type)
	}
	return out, nil
}

// schemaFromWire is schemaToWire's inverse over bytes that are not trusted.
func schemaFromWire(text []byte) (*arrow.Schema, error) {
	var columns []wireField
	if err := json.Unmarshal(text, &columns); err != nil {
		return nil, protocolErrorf("schema is no JSON: %v", err)
	}
	if len(columns) > maxColumns {
		return nil, protocolErrorf("%d columns, allowed are %d", len(columns), maxColumns)
	}
	fields := make([]arrow.Field, len(columns))
	for i, column := range columns {
		field, err := fieldFromWire(column, 0)
		if err != nil {
			return nil, err
		}
		if _, ok := fieldID(field); !ok {
			return nil, protocolErrorf("column %q has no %s", field.Name, FieldIDKey)
		}
		fields[i] = field
	}
	return arrow.NewSchema(fields, nil), nil
}

func fieldFromWire(wire wireField, depth int) (arrow.Field, error) {
	if depth > maxNesting {
		return arrow.Field{}, protocolErrorf("column %q nests deeper than %d", wire.Name, maxNesting)
	}
	if len(wire.Keys) != len(wire.Values) {
		return arrow.Field{}, protocolErrorf("column %q has %d metadata keys for %d values", wire.Name, len(wire.Keys), len(wire.Values))
	}
	out := arrow.Field{Name: wire.Name, Nullable: wire.Nullable}
	if len(wire.Keys) > 0 {
		out.Metadata = arrow.NewMetadata(wire.Keys, wire.Values)
	}
	if plain, ok := plainTypes[wire.Type]; ok {
		out.Type = plain
		return out, nil
	}
	switch {
	case wire.Type == "fixed" && wire.Width > 0 && wire.Width <= 1<<16:
		out.Type = &arrow.FixedSizeBinaryType{ByteWidth: wire.Width}
	case wire.Type == "decimal" && wire.Decimal != nil && wire.Decimal[0] >= 1 && wire.Decimal[0] <= 38:
		out.Type = &arrow.Decimal128Type{Precision: wire.Decimal[0], Scale: wire.Decimal[1]}
	case wire.Type == "timestamp":
		out.Type = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: wire.Zone}
	case wire.Type == "list" && wire.Element != nil:
		element, err := fieldFromWire(*wire.Element, depth+1)
		if err != nil {
			return arrow.Field{}, err
		}
		out.Type = arrow.ListOfField(element)
	default:
		return arrow.Field{}, protocolErrorf("column %q has the unknown type %q", wire.Name, wire.Type)
	}
	return out, nil
}

// fieldID is a column's Iceberg field id as it stands in the metadata.
func fieldID(field arrow.Field) (string, bool) {
	id, ok := field.Metadata.GetValue(FieldIDKey)
	return id, ok && id != ""
}
