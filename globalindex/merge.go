package globalindex

import (
	"bufio"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"slices"
)

// MergeSource is one of the indexes that Merge combines.
type MergeSource struct {
	Index *FileIndex
	// Move tells where the row at a location of Index is among the files of the merged header; false, if it is gone. nil: every
	// file of Index is found by its path in the merged header, and its rows stay where they are. Merge calls Move several times for each
	// row, by one goroutine, and must get the same answers.
	Move func(FileLocation) (FileLocation, bool)
}

// Merge writes one index of the rows of several, with the bytes that WriteFileIndex writes for the same header and entries.
// h.Files are the files it covers, h.Entries is ignored; key kind, hash and columns must be those of every source.
//
// Nothing is kept in memory but a buffer for each section, and, where rows move or files change their order, the entries of one hash at a
// time (16 bytes each). For that the entries are gone through four times, five with a Move: to count them, for the checksums in the header,
// and for each section. The sources are only read, so lookups may go on.
//
// A source that lost entries or their order is ErrCorrupt; what dst returns is wrapped. dst then holds part of an index.
func Merge(dst io.Writer, h Header, sources []MergeSource) error {
	if err := merge(dst, h, sources); err != nil {
		return fmt.Errorf("merge file indexes: %w", err)
	}
	return nil
}

func merge(dst io.Writer, h Header, sources []MergeSource) error {
	m, err := newMerging(h, sources)
	if err != nil {
		return err
	}
	if h.Entries, err = m.count(); err != nil {
		return err
	}
	if err := h.check(); err != nil {
		return err
	}
	l := h.layout()

	var sums [sections]hash.Hash32
	var writers [sections]sectionWriter
	for i := range writers {
		sums[i] = crc32.New(castagnoli)
		writers[i] = newSection(i, l, sums[i])
	}
	if err := m.each(inOrder(func(e FileEntry) error {
		for _, w := range writers {
			w.add(e)
		}
		return nil
	})); err != nil {
		return err
	}
	var values [sections]uint32
	for i, w := range writers {
		if err := w.finish(); err != nil {
			return err
		}
		values[i] = sums[i].Sum32()
	}

	out := bufio.NewWriterSize(dst, bitBuffer)
	if _, err := out.Write(h.encode(values)); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	for i := range sections {
		w := newSection(i, l, out)
		if err := m.each(func(e FileEntry) error { w.add(e); return nil }); err != nil {
			return err
		}
		if err := w.finish(); err != nil {
			return fmt.Errorf("write section %d: %w", i, err)
		}
	}
	return out.Flush()
}

// inOrder passes entries on that ascend, and refuses others.
func inOrder(each func(FileEntry) error) func(FileEntry) error {
	var previous FileEntry
	first := true
	return func(e FileEntry) error {
		if !first && compareEntries(previous, e) >= 0 {
			if previous.File == e.File && previous.Row == e.Row {
				return fmt.Errorf("row %d of file %d has two entries", e.Row, e.File)
			}
			return fmt.Errorf("%w: entries out of order", ErrCorrupt)
		}
		previous, first = e, false
		return each(e)
	}
}

// merging goes through the entries of several indexes in the order of the merged one.
type merging struct {
	header  Header
	sources []mergeSource
	moves   bool // some source has a Move
	reorder bool // entries of one hash may come out of order
}

// mergeSource is a source and its place among them.
type mergeSource struct {
	MergeSource
	files  []uint32 // without Move: the merged position of each file
	number int
	cursor cursor
}

func newMerging(h Header, sources []MergeSource) (*merging, error) {
	positions := make(map[string]uint32, len(h.Files))
	for i, f := range h.Files {
		if _, twice := positions[f.Path]; twice {
			return nil, fmt.Errorf("file %s comes twice", f.Path)
		}
		positions[f.Path] = uint32(i)
	}
	m := &merging{header: h}
	last := -1
	for i, s := range sources {
		own := s.Index.header
		if own.KeyKind != h.KeyKind || own.HashID != h.HashID || !slices.Equal(own.Columns, h.Columns) {
			return nil, fmt.Errorf("source %d has key kind %d of columns %v, not %d of %v", i, own.KeyKind, own.Columns, h.KeyKind, h.Columns)
		}
		source := mergeSource{MergeSource: s, number: i}
		if s.Move != nil {
			m.moves, m.reorder = true, true
			m.sources = append(m.sources, source)
			continue
		}
		for _, f := range own.Files {
			at, ok := positions[f.Path]
			if !ok || h.Files[at].Rows != f.Rows {
				return nil, fmt.Errorf("file %s of source %d is not in the header with its %d rows", f.Path, i, f.Rows)
			}
			source.files = append(source.files, at)
			m.reorder = m.reorder || int(at) <= last
			last = int(at)
		}
		m.sources = append(m.sources, source)
	}
	return m, nil
}

// count is the number of entries of the merged index.
func (m *merging) count() (uint64, error) {
	total := uint64(0)
	if m.moves {
		err := m.byHash(func(FileEntry) error { total++; return nil })
		return total, err
	}
	for _, s := range m.sources {
		total += s.Index.header.Entries
	}
	return total, nil
}

// each calls f with every entry by hash, file and row, until f returns an error.
func (m *merging) each(f func(FileEntry) error) error {
	if !m.reorder {
		return m.byHash(f)
	}
	var equal []FileEntry // of one hash
	pass := func() error {
		slices.SortFunc(equal, compareEntries)
		for _, e := range equal {
			if err := f(e); err != nil {
				return err
			}
		}
		equal = equal[:0]
		return nil
	}
	if err := m.byHash(func(e FileEntry) error {
		if len(equal) > 0 && equal[0].Hash != e.Hash {
			if err := pass(); err != nil {
				return err
			}
		}
		equal = append(equal, e)
		return nil
	}); err != nil {
		return err
	}
	return pass()
}

// byHash calls f with every entry by hash and then as the sources come. The sources form a heap, the next entry on top.
func (m *merging) byHash(f func(FileEntry) error) error {
	heap := make([]*mergeSource, 0, len(m.sources))
	for i := range m.sources {
		s := m.sources[i]
		s.cursor = cursor{index: s.Index}
		switch err := s.next(&m.header); {
		case err == nil:
			heap = append(heap, &s)
		case !errors.Is(err, io.EOF):
			return err
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		siftDown(heap, i)
	}
	for len(heap) > 0 {
		top := heap[0]
		if err := f(top.cursor.entry); err != nil {
			return err
		}
		switch err := top.next(&m.header); {
		case errors.Is(err, io.EOF):
			last := len(heap) - 1
			heap[0], heap = heap[last], heap[:last]
		case err != nil:
			return err
		}
		siftDown(heap, 0)
	}
	return nil
}

func siftDown(heap []*mergeSource, i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(heap); child++ {
			if heap[child].before(heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}

func (s *mergeSource) before(other *mergeSource) bool {
	a, b := s.cursor.entry.Hash, other.cursor.entry.Hash
	return a < b || a == b && s.number < other.number
}

// next moves the cursor to the source's next entry that is kept, and gives that entry its new place; io.EOF after the last.
func (s *mergeSource) next(merged *Header) error {
	for s.cursor.next() {
		e := &s.cursor.entry
		if s.Move == nil {
			e.File = s.files[e.File]
			return nil
		}
		to, kept := s.Move(FileLocation{File: e.File, Row: e.Row})
		if !kept {
			continue
		}
		if uint64(to.File) >= uint64(len(merged.Files)) || uint64(to.Row) >= merged.Files[to.File].Rows {
			return fmt.Errorf("row %d of file %d of source %d moves past the end: row %d of file %d", e.Row, e.File, s.number, to.Row, to.File)
		}
		e.File, e.Row = to.File, to.Row
		return nil
	}
	if s.cursor.read != s.Index.header.Entries {
		return fmt.Errorf("source %d: %w: %d of %d entries name a row", s.number, ErrCorrupt, s.cursor.read, s.Index.header.Entries)
	}
	return io.EOF
}
