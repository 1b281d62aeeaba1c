package duckdb

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/duckdb/duckdb-go/v2/mapping"
)

// convert copies an Arrow array into DuckDB vectors of vectorRows rows (the last may have fewer). The caller releases
// them.
func convert(t columnType, arr arrow.Array) ([]*cachedVector, error) {
	logical := t.logical()
	defer mapping.DestroyLogicalType(&logical)
	var out []*cachedVector
	for from := 0; from < arr.Len(); from += vectorRows {
		rows := min(vectorRows, arr.Len()-from)
		v := &cachedVector{vec: mapping.CreateVector(logical, vectorRows), rows: rows}
		out = append(out, v.retain())
		part := array.NewSlice(arr, int64(from), int64(from+rows))
		n, err := fillVector(v.vec, t, part)
		part.Release()
		if err != nil {
			releaseAll(out)
			return nil, err
		}
		v.bytes = n
	}
	return out, nil
}
