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
	id       int64
	table    *shownTable
	state    *pinned
	files    []readstate.File    // those with a visible row
	filtered int                 // the first so many of files go through pgmirror_live, in this order
	dead     [][]uint64          // by file: its deleted rows as a bitmap, nil when every row is visible
	live     *liveFiles          // for pgmirror_live; nil when no file goes through it
	batches  []*readstate.Batch  // those with a visible row
	gone     map[uint64][]uint64 // by batch ID: its deleted rows as a bitmap
	rows     int64               // visible in batches
	refused  atomic.Bool         // pgmirror_rows was asked for a column
	refs     atomic.Int32
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

// again takes one more reference beside one that the caller has.
func (hs *handles) again(h *handle) { h.refs.Add(1) }

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
		if h.live != nil {
			h.live.close()
		}
		h.state.release()
	}
}

// newHandle prepares the read of a table, whose complete content is given: which files and batches have a visible row, and their deleted rows as bitmaps.
func newHandle(p *pinned, t *shownTable, content *readstate.Table, bitmaps *bitmapCache) *handle {
	h := &handle{table: t, state: p.retain()}
	h.addFiles(content.Files, bitmaps)
	h.addBatches(content.Batches, bitmaps)
	if h.filtered > 0 {
		h.live = newLiveFiles(h)
	}
	return h
}

// addFiles puts the files that pgmirror_live filters first. Those in which every row is visible are read apart from them, and
// without the filter, when they have enough rows.
func (h *handle) addFiles(files []readstate.File, bitmaps *bitmapCache) {
	var whole []readstate.File
	var wholeRows int64
	for _, f := range files {
		dead := bitmaps.get(f.Deleted, int(f.Rows))
		switch {
		case f.Deleted != nil && int64(f.Deleted.Cardinality()) >= f.Rows:
		case dead == nil:
			whole = append(whole, f)
			wholeRows += f.Rows
		default:
			h.files = append(h.files, f)
			h.dead = append(h.dead, dead)
		}
	}
	h.filtered = len(h.files)
	h.files = append(h.files, whole...)
	h.dead = append(h.dead, make([][]uint64, len(whole))...)
	if h.filtered > 0 && wholeRows < apartRows {
		h.filtered = len(h.files)
	}
}

// apartRows is when files without deleted rows are read by a read_parquet of their own. Planning it takes 0.2 ms (measured); the
// filter takes that long for so many rows on one core.
const apartRows = 150_000

func (h *handle) addBatches(batches []readstate.Batch, bitmaps *bitmapCache) {
	for i := range batches {
		b := &batches[i]
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
}
