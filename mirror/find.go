package mirror

import (
	"fmt"
	"sync/atomic"
)

// lookupCounts count how rows are found.
type lookupCounts struct {
	lookups    atomic.Int64
	probed     atomic.Int64 // lookups that used what a pass over many keys had found
	candidates atomic.Int64 // rows looked at that have the hash sought, the deleted ones too
}

// find locates the row whose key lies in t.seeking.
//
// A row in memory is compared with the key at once. In files the one live candidate with the key's hash is the row; only
// when there are several are their keys read and compared, one after the other until one is the key.
func (t *table) find(m *Mirror) (location, bool, error) {
	hash := t.hash(t.seeking, 0)
	if !t.shape.integer {
		t.compared = append(t.compared[:0], t.encoded...)
	}
	s := search{m: m, t: t, hash: hash}
	defer s.count()
	if s.inBatch(t.open) {
		return s.found, true, nil
	}
	for i := len(t.sealed) - 1; i >= 0; i-- {
		if s.inBatch(t.sealed[i]) {
			return s.found, true, nil
		}
	}
	if p := m.probed; p.usable(t) {
		m.lookups.probed.Add(1)
		for _, c := range p.at[:p.n] {
			s.seen++
			if seg := c.index.segments[c.File]; seg != nil && !seg.vis.Deleted(c.Row) {
				if done, err := s.candidate(location{seg, c.Row}); done || err != nil {
					return s.found, done, err
				}
			}
		}
		return s.found, s.sole, nil
	}
	for i := len(t.indexes) - 1; i >= 0; i-- {
		if done, err := s.inFiles(t.indexes[i]); done || err != nil {
			return s.found, done, err
		}
	}
	return s.found, s.sole, nil
}

// search is one lookup.
type search struct {
	m     *Mirror
	t     *table
	hash  uint64
	seen  int64
	found location
	sole  bool // found is the only live candidate so far; its key was not compared
	many  bool // there was more than one
}

func (s *search) count() {
	s.m.lookups.lookups.Add(1)
	s.m.lookups.candidates.Add(s.seen)
}

// inBatch looks at the rows of a memory batch, the newest first.
func (s *search) inBatch(seg *segment) bool {
	if seg == nil || seg.batch.index == nil {
		return false
	}
	t := s.t
	for row := range seg.batch.index.Rows(s.hash) {
		s.seen++
		if !t.shape.integer {
			t.encoded = encodeKey(t.encoded[:0], seg.batch.keys, int(row))
			if string(t.encoded) != string(t.compared) {
				continue
			}
		}
		s.found = location{seg, row}
		return true
	}
	return false
}

// Candidates are asked for a few at a time: most hashes have one, but of equal rows without a key there may be millions. From
// spentLeast deleted ones on it is noted where to begin the next time, for at most spentMost hashes.
const (
	candidatesAtOnce = 16
	spentLeast       = 16
	spentMost        = 1024
)

// inFiles looks at the rows of an index's files. Every row of a hash is passed over as deleted at most spentLeast times or once more:
// nothing revives a deleted row, so lookups begin after the first ones that are.
func (s *search) inFiles(x *fileIndex) (done bool, err error) {
	begin := x.spent[s.hash]
	dead, alive := 0, false
	defer func() {
		if dead >= spentLeast {
			x.note(s.hash, begin+dead)
		}
	}()
	for skip := begin; ; skip += candidatesAtOnce {
		s.t.fileBuf = x.index.CandidatesFrom(s.hash, skip, candidatesAtOnce, s.t.fileBuf[:0])
		for _, c := range s.t.fileBuf {
			s.seen++
			seg := x.segments[c.File]
			if seg == nil || seg.vis.Deleted(c.Row) { // nil: the row went to another file
				if !alive {
					dead++
				}
				continue
			}
			alive = true
			if done, err := s.candidate(location{seg, c.Row}); done || err != nil {
				return done, err
			}
		}
		if len(s.t.fileBuf) < candidatesAtOnce {
			return false, nil
		}
	}
}

// note remembers how many of a hash's first rows are deleted.
func (x *fileIndex) note(hash uint64, dead int) {
	if x.spent == nil || len(x.spent) >= spentMost {
		x.spent = map[uint64]int{}
	}
	x.spent[hash] = dead
}

// candidate takes a live row with the hash; done says that it, or the one before it, is the row sought.
func (s *search) candidate(loc location) (done bool, err error) {
	if s.t.shape.integer {
		s.found = loc
		return true, nil
	}
	if !s.sole && !s.many {
		s.found, s.sole = loc, true
		return false, nil
	}
	if s.sole {
		s.sole, s.many = false, true
		if same, err := s.t.sameKey(s.m, s.found); same || err != nil {
			return same, err
		}
	}
	same, err := s.t.sameKey(s.m, loc)
	if same {
		s.found = loc
	}
	return same, err
}

// sameKey reads the key of a row in a file and compares it with the one sought.
func (t *table) sameKey(m *Mirror, loc location) (bool, error) {
	values, err := m.readRow(loc, t.shape, t.shape.key)
	if err != nil {
		return false, err
	}
	for i, c := range t.reading {
		c.truncate(0)
		if err := c.appendArray(values[i], 0); err != nil {
			return false, fmt.Errorf("read the key of row %d of %s: %w", loc.row, loc.segment.file.data.Path, err)
		}
	}
	t.encoded = encodeKey(t.encoded[:0], t.reading, 0)
	return string(t.encoded) == string(t.compared), nil
}
