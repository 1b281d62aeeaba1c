package iceberg

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// floatRange is the range of a float column without its NaNs, and how many those are. values is 0 until there is a number.
type floatRange struct {
	nans, values int64
	min, max     float64
}

func (r *floatRange) add(a arrow.Array) {
	switch a := a.(type) {
	case *array.Float32:
		for i, v := range a.Float32Values() {
			if a.IsValid(i) {
				r.value(float64(v))
			}
		}
	case *array.Float64:
		for i, v := range a.Float64Values() {
			if a.IsValid(i) {
				r.value(v)
			}
		}
	}
}

func (r *floatRange) value(v float64) {
	switch {
	case v != v:
		r.nans++
	case r.values == 0:
		r.min, r.max, r.values = v, v, 1
	default:
		r.min, r.max = min(r.min, v), max(r.max, v)
	}
}

// bounds are in Iceberg's single-value form. With a NaN there are none: a reader that orders NaN above all numbers, as
// PostgreSQL and DuckDB do, would skip the file. A zero bound covers both zeros.
func (r *floatRange) bounds(typ arrow.Type) (lower, upper []byte, ok bool) {
	if r.nans > 0 || r.values == 0 {
		return nil, nil, false
	}
	lo, hi := r.min, r.max
	if lo == 0 {
		lo = math.Copysign(0, -1)
	}
	if hi == 0 {
		hi = math.Copysign(0, 1)
	}
	if typ == arrow.FLOAT32 {
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(lo))), binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(hi))), true
	}
	return binary.LittleEndian.AppendUint64(nil, math.Float64bits(lo)), binary.LittleEndian.AppendUint64(nil, math.Float64bits(hi)), true
}
