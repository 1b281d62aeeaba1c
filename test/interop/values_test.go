package interop

import (
	"math"
	"math/rand/v2"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/pgcdc"
)

// everyType has a column of each type that a mirrored table may have, and a list of each.
func everyType() *arrow.Schema {
	types := []struct {
		name string
		kind arrow.DataType
	}{
		{"truth", arrow.FixedWidthTypes.Boolean},
		{"small", arrow.PrimitiveTypes.Int32},
		{"large", arrow.PrimitiveTypes.Int64},
		{"single", arrow.PrimitiveTypes.Float32},
		{"Double", arrow.PrimitiveTypes.Float64},
		{"price", &arrow.Decimal128Type{Precision: 9, Scale: 2}},
		{"amount", &arrow.Decimal128Type{Precision: 18, Scale: 0}},
		{"huge", &arrow.Decimal128Type{Precision: 38, Scale: 10}},
		{"select", arrow.BinaryTypes.String},
		{"bytes", arrow.BinaryTypes.Binary},
		{"a uuid", &arrow.FixedSizeBinaryType{ByteWidth: 16}},
		{"day", arrow.FixedWidthTypes.Date32},
		{"clock", arrow.FixedWidthTypes.Time64us},
		{"moment", &arrow.TimestampType{Unit: arrow.Microsecond}},
		{"instant", &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}},
	}
	fields := []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}}
	for _, t := range types {
		fields = append(fields, arrow.Field{Name: t.name, Type: t.kind, Nullable: true})
	}
	for _, t := range types {
		fields = append(fields, arrow.Field{Name: t.name + "_list", Type: arrow.ListOf(t.kind), Nullable: true})
	}
	return arrow.NewSchema(fields, nil)
}

// values makes random rows, with the extremes of each type among them.
type values struct {
	*rand.Rand
	nextID int64
}

// batch makes a record batch of the schema's columns and, last, the given LSNs. The first column is a serial id.
func (v *values) batch(schema *arrow.Schema, lsns []LSN) arrow.RecordBatch {
	fields := append(schema.Fields(), arrow.Field{Name: "_pgmirror_lsn", Type: arrow.PrimitiveTypes.Int64})
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for _, lsn := range lsns {
		v.nextID++
		b.Field(0).(*array.Int64Builder).Append(v.nextID)
		for i := 1; i < len(fields)-1; i++ {
			v.add(b.Field(i))
		}
		b.Field(len(fields) - 1).(*array.Int64Builder).Append(int64(lsn))
	}
	return b.NewRecordBatch()
}

// pick takes one of the extremes, or any other value.
func pick[T any](v *values, other T, extremes ...T) T {
	if i := v.IntN(2 * len(extremes)); i < len(extremes) {
		return extremes[i]
	}
	return other
}

func (v *values) add(builder array.Builder) {
	if v.IntN(5) == 0 {
		builder.AppendNull()
		return
	}
	const day = 86_400_000_000
	switch b := builder.(type) {
	case *array.BooleanBuilder:
		b.Append(v.IntN(2) == 0)
	case *array.Int32Builder:
		b.Append(pick(v, int32(v.Uint32()), 0, math.MinInt32, math.MaxInt32))
	case *array.Int64Builder:
		b.Append(pick(v, int64(v.Uint64()), 0, math.MinInt64, math.MaxInt64))
	case *array.Float32Builder:
		b.Append(pick(v, v.Float32(), float32(math.Copysign(0, -1)), 0, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)),
			math.MaxFloat32, math.SmallestNonzeroFloat32))
	case *array.Float64Builder:
		b.Append(pick(v, v.NormFloat64(), math.Copysign(0, -1), 0, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64,
			math.SmallestNonzeroFloat64))
	case *array.Decimal128Builder:
		largest := decimal128.GetMaxValue(b.Type().(*arrow.Decimal128Type).Precision)
		b.Append(pick(v, decimal128.FromI64(v.Int64N(1_000_000_000)-500_000_000), decimal128.Num{}, largest, largest.Negate()))
	case *array.StringBuilder:
		b.Append(pick(v, string(rune('a'+v.IntN(26))), "", "it's", "null", "żółw 🐢", "line\nbreak\ttab\\", "\U0010ffff"))
	case *array.BinaryBuilder:
		b.Append(pick(v, []byte{byte(v.Uint32())}, []byte{}, []byte{0}, []byte{0xff, 0, 0x27}))
	case *array.FixedSizeBinaryBuilder:
		id := make([]byte, b.Type().(*arrow.FixedSizeBinaryType).ByteWidth)
		fill := pick(v, byte(v.Uint32()), 0, 0xff)
		for i := range id {
			id[i] = fill
		}
		b.Append(id)
	case *array.Date32Builder: // infinities, PostgreSQL's first and last day, around the year 1 and the epoch
		b.Append(arrow.Date32(pick(v, int32(v.IntN(30_000)), pgcdc.DateInfinity, pgcdc.DateMinusInfinity, -2_440_588, 2_147_483_493,
			-719_163, -719_162, -1, 0)))
	case *array.Time64Builder:
		b.Append(arrow.Time64(pick(v, v.Int64N(day), 0, day-1)))
	case *array.TimestampBuilder: // the same for timestamps, whose last year is 294276; ours ends before
		b.Append(arrow.Timestamp(pick(v, v.Int64N(20_000*day), pgcdc.TimestampInfinity, pgcdc.TimestampNegInfinity,
			-210_866_803_200_000_000, pgcdc.TimestampInfinity-1, -719_162*day, -719_162*day-1, -1, 0)))
	case *array.ListBuilder:
		b.Append(true)
		for range v.IntN(4) {
			v.add(b.ValueBuilder())
		}
	default:
		panic("no values for " + builder.Type().String())
	}
}
