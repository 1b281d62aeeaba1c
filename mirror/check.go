package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"pgmirror/globalindex"
)

// Check examines the whole mirror and returns every broken invariant: each live row is indexed exactly once and found by its
// own hash, each index entry names a row that exists, no deletion lies past its segment's end, files that no commit has named yet
// are in create order, row counts are right, and the watermarks are in order. It reads every FileIndex whole; it is for tests.
func (m *Mirror) Check(ctx context.Context) error {
	return m.inTurn(ctx, func() error {
		var faults []error
		high, low := m.marks.high(), m.marks.low()
		if m.applied < high || high < m.durable || low > high {
			faults = append(faults, fmt.Errorf("watermarks: applied %s, visible %s, durable %s, low %s", m.applied, high, m.durable, low))
		}
		for _, t := range m.tables {
			if err := t.check(m); err != nil {
				faults = append(faults, fmt.Errorf("table %s: %w", t, err))
			}
		}
		return errors.Join(faults...)
	})
}

func (t *table) check(m *Mirror) error {
	if t.state != stateStreaming {
		return nil
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	covered := map[*segment]*fileIndex{}
	for _, x := range t.indexes {
		alive := uint64(0)
		for ordinal, s := range x.segments {
			if s == nil {
				continue
			}
			if covered[s] != nil {
				fault("segment %d is covered by two file indexes", s.id)
			}
			if !slices.Contains(t.files, s) {
				fault("segment %d is covered by file index %s, but not the table's any more", s.id, x.path)
			}
			covered[s] = x
			alive += uint64(s.file.data.Rows)
			if entries := x.index.Header().Files[ordinal].Rows; entries != uint64(s.file.data.Rows) {
				fault("segment %d has %d rows, its index %d", s.id, s.file.data.Rows, entries)
			}
		}
		if x.live != alive {
			fault("file index %s is said to have %d live entries, it has %d", x.path, x.live, alive)
		}
		if err := x.index.Verify(); err != nil {
			fault("file index %s: %w", x.path, err)
		}
	}
	var live int64
	version := t.version.Load()
	if n := len(version.segments); n == 0 || version.segments[n-1] != t.open {
		fault("the open batch is not the last segment of the version")
	}
	newestLSN := LSN(0) // of the files so far
	for _, s := range version.segments {
		if s.file != nil {
			// What was committed another writer may have put in another order.
			if data := s.file.data; data.MinLSN < newestLSN && s.file.cuts.Load() != nil && !s.file.committed && s.droppedAt.Load() == 0 {
				fault("segment %d (%s) has rows of %s after those of %s", s.id, data.Path, data.MinLSN, newestLSN)
			}
			newestLSN = max(newestLSN, s.file.data.MaxLSN)
		}
		if s.droppedAt.Load() != 0 {
			continue
		}
		rows := s.rows()
		alive := int64(rows - s.vis.Count())
		live += alive
		newest, err := s.vis.At(maxLSN, uint32(rows))
		if err != nil {
			fault("segment %d: %w", s.id, err)
			continue
		}
		if int(newest.Cardinality()) != s.vis.Count() {
			fault("segment %d of %d rows has deletions past its end", s.id, rows)
		}
		if s.file != nil {
			if t.shape.mode != insertOnly && covered[s] == nil {
				fault("segment %d (%s) is in no file index", s.id, s.file.data.Path)
			}
			continue
		}
		if err := s.batch.check(s, t); err != nil {
			fault("segment %d: %w", s.id, err)
		}
		if b := s.batch; b.index != nil && int64(b.index.Len()) != alive {
			fault("segment %d has %d live rows, its index %d", s.id, alive, b.index.Len())
		}
	}
	if live != t.rows {
		fault("%d live rows, counted %d", live, t.rows)
	}
	return errors.Join(faults...)
}

// check examines a memory batch's rows: create order, and each live row's place in the index.
func (b *batch) check(s *segment, t *table) error {
	var last uint64
	for row := range b.rows {
		if b.lsns.own[row] < last {
			return fmt.Errorf("row %d was created before the row above it", row)
		}
		last = b.lsns.own[row]
		if b.index == nil || s.vis.Deleted(uint32(row)) {
			continue
		}
		if t.shape.integer && b.hashes[row] != globalindex.HashInt(b.keys[0].integer(row)) {
			return fmt.Errorf("row %d is indexed under another key", row)
		}
		found := 0
		for _, r := range b.index.Candidates(b.hashes[row], nil) {
			if int(r) == row {
				found++
			}
		}
		if found != 1 {
			return fmt.Errorf("row %d is in the index %d times", row, found)
		}
	}
	return nil
}
