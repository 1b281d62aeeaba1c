package duckdb

import (
	"fmt"
	"unsafe"

	"github.com/duckdb/duckdb-go/v2/mapping"
)

// live is pgmirror_live(handle, file_index, file_row_number) over one chunk. DuckDB flattens the arguments of a C
// function, so each is a plain array. A row number beyond the bitmap, or a file that is not in the list, is an error:
// it would mean that the virtual columns are not what the self-test found.
func (db *DB) live(in mapping.DataChunk, out mapping.Vector) error {
	n := int(mapping.DataChunkGetSize(in))
	if n == 0 {
		return nil
	}
	ids := vectorSlice[int64](mapping.DataChunkGetVector(in, 0), n)
	files := vectorSlice[uint64](mapping.DataChunkGetVector(in, 1), n)
	rows := vectorSlice[int64](mapping.DataChunkGetVector(in, 2), n)
	alive := vectorSlice[bool](out, n)
	for i := 0; i < n; {
		j := i + 1
		for j < n && files[j] == files[i] && ids[j] == ids[i] {
			j++
		}
		h, ok := db.handles.get(ids[i])
		if !ok || files[i] >= uint64(len(h.dead)) {
			return fmt.Errorf("pgmirror_live: there is no file %d of read handle %d", files[i], ids[i])
		}
		if !liveRun(h.dead[files[i]], rows[i:j], alive[i:j], h.files[files[i]].Rows) {
			return fmt.Errorf("pgmirror_live: a row beyond the end of file %d", files[i])
		}
		i = j
	}
	return nil
}

// liveRun looks rows of one file up in its bitmap. It returns false for a row that the file does not have.
func liveRun(dead []uint64, rows []int64, alive []bool, total int64) bool {
	if dead == nil {
		for i := range alive {
			alive[i] = true
		}
		return true
	}
	if len(rows) == 0 || int64(len(dead))*64 < total {
		return len(rows) == 0
	}
	// The branch on the bound is never taken and costs nothing beside the load it guards.
	alive = alive[:len(rows)]
	for i, r := range rows {
		w := uint64(r) >> 6
		if w >= uint64(len(dead)) {
			return false
		}
		alive[i] = dead[w]>>(uint64(r)&63)&1 == 0
	}
	return true
}

// vectorSlice is a flat vector's values.
func vectorSlice[T any](vec mapping.Vector, n int) []T {
	return unsafe.Slice((*T)(mapping.VectorGetData(vec)), n)
}
