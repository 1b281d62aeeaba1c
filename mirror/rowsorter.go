package mirror

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"
)

// rowSorter orders places of rows by a 128-bit key, in memory that has a bound: what does not fit goes to files in the index directory, which are mapped and
// merged.
//
//	add ─▶ list ─full─▶ sorted ─▶ a run in a file ┐
//	end ─▶ sorted ─▶ the last run, in memory      ┴─▶ merge: in order · finder: by ascending keys
//
// Few rows need no file. A file has sortedBytes for each row: the key's high and low half, the place of the row's file and the row there, little endian. It is
// of no use after a crash, and the next start removes it.
type rowSorter struct {
	m    *Mirror
	most int // rows in memory
	list []sortedRow
	out  []byte // scratch: a run as it is written; nil before the first and after the last
	runs []*rowRun
	err  error // of the disk; nothing counts after it
}

// sortedRow is where a row is, by its key.
type sortedRow struct {
	key xxh3.Uint128
	at  place
}

func (r sortedRow) compare(s sortedRow) int {
	return cmp.Or(cmp.Compare(r.key.Hi, s.key.Hi), cmp.Compare(r.key.Lo, s.key.Lo), cmp.Compare(r.at.file, s.at.file), cmp.Compare(r.at.row, s.at.row))
}

// key orders places by file and row.
func (p place) key() xxh3.Uint128 { return xxh3.Uint128{Hi: uint64(p.file), Lo: uint64(p.row)} }

// sortedBytes is the size of a sortedRow, in memory and in a file.
const sortedBytes = 24

// sortLeast is how many rows are sorted in memory at the least, at 6 MiB for all: a file is mapped for each so many.
const sortLeast = 1 << 16

// sortRows is how many rows a rowSorter keeps in memory. A rewrite has three; of these two are full, and one is full and writes what it has.
// All that together takes an eighth of the bound of memory.
func sortRows(memory int64) int { return int(max(sortLeast, memory/8/(4*sortedBytes))) }

// runPrefix begins the name of every such file.
const runPrefix = "sorted-"

// newRowSorter makes one for about so many rows. Its owner closes it.
func (m *Mirror) newRowSorter(rows int64) *rowSorter {
	return &rowSorter{m: m, most: m.sortRows, list: make([]sortedRow, 0, min(int64(m.sortRows), rows))}
}

// add takes a row in.
func (s *rowSorter) add(r sortedRow) error {
	if s.err == nil && len(s.list) >= s.most {
		s.err = s.spill()
	}
	if s.err == nil {
		s.list = append(s.list, r)
	}
	return s.err
}

// spill moves the rows in memory to a file.
func (s *rowSorter) spill() error {
	slices.SortFunc(s.list, sortedRow.compare)
	le := binary.LittleEndian
	if s.out == nil {
		s.out = make([]byte, 0, sortedBytes*len(s.list))
	}
	s.out = s.out[:0]
	for _, r := range s.list {
		s.out = le.AppendUint64(le.AppendUint64(s.out, r.key.Hi), r.key.Lo)
		s.out = le.AppendUint32(le.AppendUint32(s.out, r.at.file), r.at.row)
	}
	s.list = s.list[:0]
	path := filepath.Join(s.m.cfg.IndexDir, runPrefix+uuid.NewString())
	if err := s.m.files.WriteFile(path, s.out); err != nil {
		return fmt.Errorf("sort the rows of a rewrite in %s: %w", path, err)
	}
	run := &rowRun{path: path}
	s.runs = append(s.runs, run)
	var err error
	if run.data, run.unmap, err = s.m.files.Map(path); err != nil {
		return fmt.Errorf("sort the rows of a rewrite: %w", err)
	}
	if len(run.data) != len(s.out) {
		return fmt.Errorf("sort the rows of a rewrite: %s has %d bytes, %d were written", path, len(run.data), len(s.out))
	}
	return nil
}

// end says that all rows were added. merge and finder come after it.
func (s *rowSorter) end() {
	slices.SortFunc(s.list, sortedRow.compare)
	s.runs = append(s.runs, &rowRun{list: s.list})
	s.list, s.out = nil, nil
}

// close removes the files. It may be called twice, and of nil.
func (s *rowSorter) close() (err error) {
	if s == nil {
		return nil
	}
	for _, run := range s.runs {
		if run.unmap != nil {
			err = errors.Join(err, run.unmap())
		}
		if run.path != "" {
			err = errors.Join(err, s.m.files.Remove(run.path))
		}
	}
	s.list, s.out, s.runs = nil, nil, nil
	return err
}

// rowRun is a sorted list of rows, in memory or in a file.
type rowRun struct {
	list  []sortedRow
	data  []byte // mapped; nil in memory
	path  string
	unmap func() error
}

func (r *rowRun) rows() int { return len(r.list) + len(r.data)/sortedBytes }

func (r *rowRun) row(i int) sortedRow {
	if r.data == nil {
		return r.list[i]
	}
	b, le := r.data[i*sortedBytes:(i+1)*sortedBytes], binary.LittleEndian
	return sortedRow{xxh3.Uint128{Hi: le.Uint64(b), Lo: le.Uint64(b[8:])}, place{le.Uint32(b[16:]), le.Uint32(b[20:])}}
}

// rowMerge goes through the rows of all runs in order. heads is a heap of the runs that are not at their end, the lowest row first.
type rowMerge struct{ heads []runHead }

type runHead struct {
	row sortedRow // run.row(at)
	run *rowRun
	at  int
}

func (s *rowSorter) merge() *rowMerge {
	m := &rowMerge{}
	for _, run := range s.runs {
		if run.rows() > 0 {
			m.heads = append(m.heads, runHead{run.row(0), run, 0})
		}
	}
	for i := len(m.heads)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	return m
}

// next is the next row. The caller asks no more often than there are rows.
func (m *rowMerge) next() sortedRow {
	top := &m.heads[0]
	row := top.row
	if top.at++; top.at < top.run.rows() {
		top.row = top.run.row(top.at)
	} else {
		last := len(m.heads) - 1
		m.heads[0], m.heads = m.heads[last], m.heads[:last]
	}
	m.sink(0)
	return row
}

// sink moves a head down to where the heap is in order.
func (m *rowMerge) sink(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(m.heads); child++ {
			if m.heads[child].row.compare(m.heads[least].row) < 0 {
				least = child
			}
		}
		if least == i {
			return
		}
		m.heads[i], m.heads[least] = m.heads[least], m.heads[i]
		i = least
	}
}

// rowFinder finds rows by keys that ascend.
type rowFinder struct {
	runs []*rowRun
	at   []int // of each run, the first row that was not passed yet
}

func (s *rowSorter) finder() *rowFinder { return &rowFinder{s.runs, make([]int, len(s.runs))} }

// next is the place by a key, which is above those that were asked for before.
func (f *rowFinder) next(key xxh3.Uint128) (at place, ok bool) {
	want := sortedRow{key: key}
	for i, run := range f.runs {
		from, step := f.at[i], 1
		for from+step <= run.rows() && run.row(from+step-1).compare(want) < 0 { // the next one is near, when many are asked for
			from, step = from+step, 2*step
		}
		to := min(from+step, run.rows())
		for from < to {
			if middle := int(uint(from+to) >> 1); run.row(middle).compare(want) < 0 {
				from = middle + 1
			} else {
				to = middle
			}
		}
		if f.at[i] = from; from < run.rows() && run.row(from).key == key {
			return run.row(from).at, true
		}
	}
	return place{}, false
}
