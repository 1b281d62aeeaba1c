package duckdb

import (
	"sync/atomic"
	"unsafe"

	"github.com/duckdb/duckdb-go/v2/mapping"

	"pgmirror/readstate"
)

// memoryScan is one run of pgmirror_memory: threads take batches from it one by one.
type memoryScan struct {
	h    *handle
	proj []int // columns of the output; projConstant for k, projNothing for what is not a column
	want []int // the columns among proj
	next atomic.Int64
}

const (
	projConstant = -1
	projNothing  = -2
)

// memoryThread is one thread's place in a memoryScan.
type memoryThread struct {
	batch *readstate.Batch // nil before the first and after the last
	dead  []uint64
	cols  [][]*cachedVector // by position in want
	row   int               // the next row of batch
}

func (db *DB) memoryBind(info mapping.BindInfo, id int64) (*handle, bool) {
	h, ok := db.handles.retain(id)
	if !ok {
		return nil, false
	}
	// k comes first: for count(*) DuckDB projects the first column, which must not cost a column of the source.
	logical := mapping.CreateLogicalType(mapping.TypeBoolean)
	mapping.BindAddResultColumn(info, "k", logical)
	mapping.DestroyLogicalType(&logical)
	for _, c := range h.table.cols {
		logical := c.typ.logical()
		mapping.BindAddResultColumn(info, c.inner(), logical)
		mapping.DestroyLogicalType(&logical)
	}
	// Never an exact 0, which would allow the optimizer to drop the scan, and with it the plan's hold on the state.
	mapping.BindSetCardinality(info, mapping.IdxT(max(h.rows, 1)), false)
	return h, true
}

func newMemoryScan(info mapping.InitInfo, h *handle) *memoryScan {
	s := &memoryScan{h: h}
	for i := range mapping.InitGetColumnCount(info) {
		at := projNothing
		switch c := uint64(mapping.InitGetColumnIndex(info, i)); {
		case c == 0:
			at = projConstant
		case c <= uint64(len(h.table.cols)):
			at = int(c) - 1
			s.want = append(s.want, at)
		}
		s.proj = append(s.proj, at)
	}
	mapping.InitSetMaxThreads(info, mapping.IdxT(max(1, len(h.batches))))
	return s
}

// fill emits the next vector with a visible row; an empty one ends this thread's part.
func (db *DB) fill(s *memoryScan, t *memoryThread, out mapping.DataChunk) error {
	for {
		if t.batch == nil || t.row >= t.batch.Rows {
			t.close()
			i := int(s.next.Add(1) - 1)
			if i >= len(s.h.batches) {
				mapping.DataChunkSetSize(out, 0)
				return nil
			}
			b := s.h.batches[i]
			cols, err := db.chunks.columns(b, s.h.table.cols, s.want)
			if err != nil {
				return err
			}
			t.batch, t.dead, t.cols, t.row = b, s.h.gone[b.ID], cols, 0
		}
		if t.emit(s, out) {
			return nil
		}
	}
}

// emit puts rows [t.row, t.row+vectorRows) of the batch into out by reference, and says whether one was visible.
func (t *memoryThread) emit(s *memoryScan, out mapping.DataChunk) bool {
	chunk := t.row / vectorRows
	n := min(vectorRows, t.batch.Rows-t.row)
	live := n
	var sel mapping.SelectionVector
	if t.dead != nil {
		sel = mapping.CreateSelectionVector(mapping.IdxT(n))
		defer mapping.DestroySelectionVector(&sel)
		live = liveRows(selection(sel, n), t.dead, t.row, n)
	}
	t.row += vectorRows
	if live == 0 {
		return false
	}
	k := 0
	for j, p := range s.proj {
		vec := mapping.DataChunkGetVector(out, mapping.IdxT(j))
		if p == projConstant {
			yes := mapping.CreateBool(true)
			mapping.VectorReferenceValue(vec, yes)
			mapping.DestroyValue(&yes)
		}
		if p < 0 {
			continue
		}
		mapping.VectorReferenceVector(vec, t.cols[k][chunk].vec)
		if live < n {
			mapping.SliceVector(vec, sel, mapping.IdxT(live))
		}
		k++
	}
	mapping.DataChunkSetSize(out, mapping.IdxT(live))
	return true
}

// close gives the batch's columns back.
func (t *memoryThread) close() {
	for _, c := range t.cols {
		releaseAll(c)
	}
	t.batch, t.cols = nil, nil
}

// selection is a selection vector's memory.
func selection(sel mapping.SelectionVector, n int) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(mapping.SelectionVectorGetDataPtr(sel))), n)
}
