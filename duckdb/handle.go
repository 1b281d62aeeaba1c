package duckdb

import (
	"sync"
	"sync/atomic"

	"pgmirror/readstate"
)

// pinned is a read state with a count of who still reads it: the session's scope and the handles bound against it.
type pinned struct {
	state *readstate.State
	byKey map[string]*shownTable
	refs  atomic.Int32
}

func (p *pinned) retain() *pinned { p.refs.Add(1); return p }

func (p *pinned) release() {
	if p.refs.Add(-1) == 0 {
		p.state.Release()
	}
}

// handle is one table of one pinned state, as one bound reference to it reads it. Its number is in the SQL text.
type handle struct {
	id      int64
	table   *shownTable
	state   *pinned
	files   []readstate.File    // those with a visible row, in the order of the list given to read_parquet
	dead    [][]uint64          // by file: its deleted rows as a bitmap, nil when every row is visible
	batches []*readstate.Batch  // those with a visible row
	gone    map[uint64][]uint64 // by batch ID: its deleted rows as a bitmap
	rows    int64               // visible in batches
	refs    atomic.Int32
}

// handles finds handles by number. Numbers are not used again.
type handles struct {
	mu   sync.RWMutex
	next int64
	open map[int64]*handle
}

// add registers a handle with one reference, which the caller owns.
func (hs *handles) add(h *handle) {
	h.refs.Store(1)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.open == nil {
		hs.open = make(map[int64]*handle)
	}
	hs.next++
	h.id = hs.next
	hs.open[h.id] = h
}

// get finds a handle whose lifetime somebody else guarantees.
func (hs *handles) get(id int64) (*handle, bool) {
	hs.mu.RLock()
	defer hs.mu.RUnlock()
	h, ok := hs.open[id]
	return h, ok
}

// retain finds a handle and takes a reference.
func (hs *handles) retain(id int64) (*handle, bool) {
	hs.mu.RLock()
	defer hs.mu.RUnlock()
	h, ok := hs.open[id]
	if ok {
		h.refs.Add(1)
	}
	return h, ok
}

// release gives a reference up; the last one closes the handle. References are only taken under the lock, so a handle
// that has none is not found again.
func (hs *handles) release(h *handle) {
	hs.mu.Lock()
	last := h.refs.Add(-1) == 0
	if last {
		delete(hs.open, h.id)
	}
	hs.mu.Unlock()
	if last {
		h.state.release()
	}
}

// newHandle prepares a table's read: which files and batches have a visible row, and their deleted rows as bitmaps.
func newHandle(p *pinned, t *shownTable, bitmaps *bitmapCache) *handle {
	h := &handle{table: t, state: p.retain()}
	for _, f := range t.table.Files {
		if f.Deleted != nil && int64(f.Deleted.Cardinality()) >= f.Rows {
			continue
		}
		h.files = append(h.files, f)
		h.dead = append(h.dead, bitmaps.get(f.Deleted, int(f.Rows)))
	}
	for i := range t.table.Batches {
		b := &t.table.Batches[i]
		live := int64(b.Rows)
		if b.Deleted != nil {
			live -= int64(b.Deleted.Cardinality())
		}
		if live <= 0 {
			continue
		}
		h.batches = append(h.batches, b)
		h.rows += live
		if bits := bitmaps.get(b.Deleted, b.Rows); bits != nil {
			if h.gone == nil {
				h.gone = make(map[uint64][]uint64)
			}
			h.gone[b.ID] = bits
		}
	}
	return h
}

// filters says whether any file needs pgmirror_live.
func (h *handle) filters() bool {
	for _, d := range h.dead {
		if d != nil {
			return true
		}
	}
	return false
}
