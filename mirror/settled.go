package mirror

import (
	"sync"

	"pgmirror/deletion"
	"pgmirror/readstate"
)

// settledFiles are the data files that settled read states, and holds of older checkpoints, name. Such a state holds no LSN: what it sees of deletions and memory rows is
// elsewhere, and these files are all that it needs of the mirror. The zero value is ready for use.
type settledFiles struct {
	mu    sync.Mutex
	named map[string]int      // states that name the file
	kept  map[string]struct{} // of these, the files that are there for such states alone
}

// add names files, before the state that sees them lets its LSN go.
func (s *settledFiles) add(files []readstate.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.named == nil {
		s.named, s.kept = map[string]int{}, map[string]struct{}{}
	}
	for _, f := range files {
		s.named[f.Path]++
	}
}

// drop takes back what add named.
func (s *settledFiles) drop(files []readstate.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range files {
		if s.named[f.Path]--; s.named[f.Path] == 0 {
			delete(s.named, f.Path)
			delete(s.kept, f.Path)
		}
	}
}

// split says which of some files, which nobody else needs, can be deleted, and which are named and must stay for now. It is called after the readers
// were counted: whoever settled before that is seen here, and whoever settles later was counted.
func (s *settledFiles) split(paths []string) (gone, stay []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range paths {
		if s.named[path] == 0 {
			gone = append(gone, path)
			continue
		}
		s.kept[path] = struct{}{}
		stay = append(stay, path)
	}
	return gone, stay
}

// of lists those of some files that are there for settled states alone, with their sizes.
func (s *settledFiles) of(files []readstate.File) map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := map[string]int64{}
	for _, f := range files {
		if _, ok := s.kept[f.Path]; ok {
			kept[f.Path] = f.Bytes
		}
	}
	return kept
}

// hold is what an open read state keeps from being folded, rewritten or deleted: everything from its LSN on, and once it has settled the files
// that it names.
type hold struct {
	m     *Mirror
	state *readstate.State

	mu    sync.Mutex
	unpin func()             // gives up the LSN; nil when that was done
	files []readstate.File   // of a settled state
	seen  []*batch           // pinned, until then
	rows  []*deletion.Vector // of what it sees, held until then
	ended bool
}

// settle is readstate.State's Settle.
func (h *hold) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unpin == nil {
		return
	}
	for _, t := range h.state.Tables {
		h.files = append(h.files, t.Files...)
	}
	for i := range h.files {
		h.files[i].Deleted = nil // its owner has a copy
	}
	h.m.settled.add(h.files)
	h.unpin()
	h.unpin = nil
	h.unpinMemory()
}

// pin notes the memory batches and the deletion vectors of a table that the state sees. Before the state is anybody's.
func (h *hold) pin(t *readstate.Table) {
	for _, f := range t.Files {
		h.see(f.Deleted)
	}
	for _, b := range t.Batches {
		h.see(b.Deleted)
		var seen *batch
		switch r := b.Columns.(type) {
		case columnReader:
			seen = r.batch
		case *changeReader:
			seen = r.segment.batch // nil for a file's
		}
		if seen != nil {
			seen.pin(h.m)
			h.seen = append(h.seen, seen)
		}
	}
}

func (h *hold) see(v *deletion.Vector) {
	if v != nil {
		h.m.pinned.Add(v.Hold())
		h.rows = append(h.rows, v)
	}
}

// unpinMemory lets the memory batches and the vectors go that the state sees.
func (h *hold) unpinMemory() {
	for _, v := range h.rows {
		h.m.pinned.Add(-v.LetGo())
	}
	h.rows = nil
	for _, b := range h.seen {
		b.unpin(h.m)
	}
	h.seen = nil
}

// release is readstate.State's Release.
func (h *hold) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	h.ended = true
	if h.unpin != nil {
		h.unpin()
		h.unpin = nil
	}
	h.unpinMemory()
	h.m.settled.drop(h.files)
	h.m.readers.closed()
}

// kept is readstate.State's Kept.
func (h *hold) kept() map[string]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.m.settled.of(h.files)
}
