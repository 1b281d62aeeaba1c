package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// grow flushes the keyed table n times, a new row each time, and merges its indexes.
func (w *world) grow(from, n int) {
	w.t.Helper()
	for i := range n {
		w.flushRow(from + i)
		w.check(w.m.flusher.merge(context.Background()))
	}
}

// flushRow makes a file of the keyed table with one new row.
func (w *world) flushRow(n int) {
	w.t.Helper()
	w.flushRowOf(1, n)
}

// flushRowOf is flushRow for any table with a key of numbers and text.
func (w *world) flushRowOf(oid uint32, n int) {
	w.t.Helper()
	ctx := context.Background()
	t, mt := w.m.byOID[oid], w.table(oid)
	row := make([]cell, len(mt.def.Columns))
	for _, column := range mt.def.IdentityKey {
		row[column] = val(fmt.Sprint(1000 + n))
	}
	w.planned(oid, message{'I'}.u32(oid).u8('N').tuple(row), func(c LSN) {
		mt.versions = append(mt.versions, &version{cells: row, created: c})
	})
	w.check(w.m.inTurn(ctx, func() error { return w.m.sealOpen(t) }))
	w.check(w.m.flush(ctx, t, maxLSN))
}

// TestIndexesStayFew: however often a table is flushed, few FileIndexes cover its files, every row is found in them, and a restart uses
// the merged ones as they are.
func TestIndexesStayFew(t *testing.T) {
	w := newWorld(t, 1)
	w.faults, w.pressure = 0, false
	w.start()
	ctx := context.Background()
	w.grow(0, 1000)
	tab := w.m.byOID[1]
	if n := len(tab.indexes); n > 8 {
		t.Errorf("1,000 flushes leave %d file indexes", n)
	}
	if w.files.spare > 0 {
		t.Errorf("a merged index was assembled in memory of %d bytes more", w.files.spare)
	}
	w.check(w.m.Check(ctx))
	for i := range 50 { // rows that lie in merged indexes are found and deleted
		row := w.table(1).versions[len(w.table(1).versions)-1000+20*i]
		w.planned(1, message{'D'}.u32(1).old(&w.table(1).def, row.cells), func(c LSN) { row.deleted = c })
	}
	w.check(w.m.checkpoint(ctx))
	paths := map[string]bool{}
	for _, x := range tab.indexes {
		paths[x.path] = true
	}
	w.check(w.m.reap(ctx))
	w.stop()
	<-w.ended
	w.start()
	for _, x := range w.m.byOID[1].indexes {
		if !paths[x.path] {
			t.Errorf("after a restart %s is new", x.path)
		}
	}
	w.check(w.m.Check(ctx))
	w.end()
}

// TestTruncateDuringMerge: a TRUNCATE while FileIndexes are being merged takes them all; they are unmapped only when the merge has
// ended, and the merged one is thrown away.
func TestTruncateDuringMerge(t *testing.T) {
	w := newWorld(t, 1)
	w.faults, w.pressure = 0, false
	w.start()
	ctx := context.Background()
	tab := w.m.byOID[1]
	w.grow(0, 1)
	mapped := 0
	w.check(w.m.inTurn(ctx, func() error {
		for _, x := range tab.indexes {
			unmap := x.unmap
			mapped++
			x.unmap = func() error { mapped--; return unmap() }
		}
		return nil
	}))
	w.files.merging = func() {
		w.files.merging = nil
		w.planned(1, message{'T'}.u32(1).u8(0).u32(1), func(c LSN) {
			for _, v := range w.table(1).versions {
				if v.deleted == 0 {
					v.deleted = c
				}
			}
		})
		if mapped == 0 {
			t.Error("an index was unmapped while the merge reads it")
		}
	}
	w.flushRow(1)
	w.check(w.m.mergeIndexes(ctx, tab))
	if w.files.merging != nil {
		t.Fatal("nothing was merged")
	}
	if mapped != 0 || len(tab.indexes) != 0 {
		t.Errorf("%d indexes are still mapped, the table has %d", mapped, len(tab.indexes))
	}
	w.check(w.m.fold(ctx))
	w.check(w.m.reap(ctx))
	for path := range w.files.files {
		if strings.Contains(path, mergedPrefix) {
			t.Errorf("%s is left", path)
		}
	}
	w.end()
}

// TestMergeLeavesOutWhatMoved: an index some of whose files were compacted is merged without their entries: none of them may stand for a row of
// another file.
func TestMergeLeavesOutWhatMoved(t *testing.T) {
	w := newWorld(t, 1)
	w.faults, w.pressure, w.history = 0, false, 0
	w.start()
	ctx := context.Background()
	tab := w.m.byOID[1]
	partly := func(x *fileIndex) bool {
		moved := slices.Index(x.segments, nil) >= 0
		return moved && slices.ContainsFunc(x.segments, func(s *segment) bool { return s != nil })
	}
	grown := 0
	for ; !slices.ContainsFunc(tab.indexes, partly); grown++ {
		if grown == 200 {
			t.Fatal("no index is left with some of its files compacted")
		}
		w.grow(grown, 1)
		w.check(w.m.checkpoint(ctx))
		w.check(w.m.reap(ctx))
		if grown%5 == 4 {
			_, err := w.m.compact(ctx, tab, false)
			w.check(err)
		}
	}
	for ; slices.ContainsFunc(tab.indexes, partly); grown++ { // merged away
		if grown == 400 {
			t.Fatal("that index is not merged")
		}
		w.grow(grown, 1)
	}
	w.check(w.m.Check(ctx))
	w.deleteAll(1)
	w.audit()
	w.readSomewhere()
	w.end()
}

// TestMergeable: what is merged next follows from the live entries of each index, oldest first, and from how many one may have.
func TestMergeable(t *testing.T) {
	type size struct{ live, entries uint64 }
	for _, c := range []struct {
		most     uint64
		sizes    []size
		from, to int
	}{
		{100, nil, 0, 0},
		{100, []size{{50, 50}, {10, 10}}, 0, 0},
		{100, []size{{50, 50}, {30, 30}}, 0, 2},
		{70, []size{{50, 50}, {30, 30}}, 0, 0},
		{70, []size{{40, 50}, {30, 30}}, 0, 2}, // its live entries fit
		{100, []size{{15, 50}, {10, 10}}, 0, 2},
		{100, []size{{25, 50}}, 0, 0},
		{100, []size{{24, 50}}, 0, 1},
		{100, []size{{200, 200}, {90, 200}, {20, 20}}, 1, 2},
		{50, []size{{60, 200}, {24, 24}}, 0, 0}, // too large for one
		{100, []size{{40, 90}, {80, 80}, {9, 9}, {8, 8}}, 2, 4},
	} {
		m, tab := &Mirror{mergeEntries: c.most}, &table{state: stateStreaming}
		for _, s := range c.sizes {
			tab.indexes = append(tab.indexes, &fileIndex{live: s.live, entries: s.entries})
		}
		if got := tab.mergeable(m); !slices.Equal(got, tab.indexes[c.from:c.to]) {
			t.Errorf("%v, at most %d: %d are merged, want %d to %d", c.sizes, c.most, len(got), c.from, c.to)
		}
	}
}

// TestStaleEntriesGo: an index that is too large to be merged is written anew by itself when less than half of its rows are where it says, and no
// sooner.
func TestStaleEntriesGo(t *testing.T) {
	w := newWorld(t, 1)
	w.faults, w.pressure, w.history = 0, false, 0
	w.start()
	ctx := context.Background()
	tab := w.m.byOID[1]
	for i := range 40 {
		w.flushRow(i)
	}
	w.check(w.m.flusher.merge(ctx))
	w.check(w.m.checkpoint(ctx))
	w.check(w.m.reap(ctx))
	large := slices.MaxFunc(tab.indexes, func(a, b *fileIndex) int { return int(a.entries) - int(b.entries) })
	entries := large.entries
	if entries < 40 {
		t.Fatalf("the largest of %d indexes has %d entries", len(tab.indexes), entries)
	}
	for _, c := range []struct {
		rows  int64
		bound uint64 // its live entries and the new file's are too many for one
	}{{10, entries - 1}, {25, entries - 10}} {
		w.m.compactRows, w.m.mergeEntries = c.rows, c.bound
		if rw, err := w.m.compact(ctx, tab, true); err != nil || rw == nil {
			t.Fatalf("compacted %v, %v", rw, err)
		}
		if large.live == 0 || !slices.Contains(tab.indexes, large) {
			t.Fatalf("%d of its %d entries are left", large.live, entries)
		}
		stale := large.live < entries/2
		live := large.live
		w.check(w.m.flusher.merge(ctx))
		if gone := !slices.Contains(tab.indexes, large); gone != stale {
			t.Fatalf("with %d of %d entries live it is gone: %t", live, entries, gone)
		}
		if stale && !slices.ContainsFunc(tab.indexes, func(x *fileIndex) bool { return x.entries == live && x.live == live }) {
			t.Errorf("no index has the %d entries", live)
		}
		w.check(w.m.checkpoint(ctx))
		w.check(w.m.reap(ctx))
	}
	if slices.Contains(tab.indexes, large) {
		t.Errorf("the index stays with %d of %d entries", large.live, entries)
	}
	w.check(w.m.Check(ctx))
	w.deleteAll(1)
	w.audit()
	w.readSomewhere()
	w.end()
}

// TestMergeDuringCompaction: while a compaction writes, for however long, the FileIndexes of its table stay few, those of its input files included, and what
// was deleted meanwhile by way of a merged one is deleted in the new file.
func TestMergeDuringCompaction(t *testing.T) {
	w := newWorld(t, 1)
	w.faults, w.pressure, w.history = 0, false, 0
	w.start()
	ctx := context.Background()
	w.m.compactRows = 1000
	tab := w.m.byOID[1]
	for i := range 4 {
		w.flushRow(i)
	}
	w.check(w.m.checkpoint(ctx))
	w.check(w.m.reap(ctx))
	inputs := slices.Clone(tab.files)
	w.ware.writing = func() {
		w.ware.writing = nil
		w.grow(4, 300)
		if n := len(tab.indexes); n > 8 {
			t.Errorf("300 flushes during a compaction leave %d file indexes", n)
		}
		row := w.table(1).versions[1]
		w.planned(1, message{'D'}.u32(1).old(&w.table(1).def, row.cells), func(c LSN) { row.deleted = c })
	}
	rw, err := w.m.compact(ctx, tab, true)
	w.check(err)
	if rw == nil || !slices.Equal(rw.inputs, inputs) {
		t.Fatalf("compacted is %+v", rw)
	}
	w.check(w.m.flusher.merge(ctx))
	if n := len(tab.indexes); n > 8 {
		t.Errorf("after it there are %d file indexes", n)
	}
	w.audit()
	w.deleteAll(1)
	w.audit()
	w.readSomewhere()
	w.check(w.m.checkpoint(ctx))
	w.crash()
	w.audit()
	w.end()
}

// TestCompactionDuringMerge: a compaction is installed while FileIndexes are being merged, some of which cover its input files, alone or among others: every
// row is found in its new file, and none in its old one.
func TestCompactionDuringMerge(t *testing.T) {
	for _, c := range []struct {
		from, to int // of the files that are compacted; the first two have one index, the others one each
		indexes  int // afterwards
	}{{0, 1, 2}, {1, 2, 2}, {0, 2, 2}, {1, 3, 2}, {2, 3, 2}, {3, 4, 2}, {1, 4, 2}, {0, 4, 1}} {
		t.Run(fmt.Sprintf("%d to %d", c.from, c.to), func(t *testing.T) {
			w := newWorld(t, 1)
			w.faults, w.pressure, w.history = 0, false, 0
			w.start()
			ctx := context.Background()
			w.m.compactRows = 1000
			tab := w.m.byOID[1]
			w.grow(0, 2)
			w.flushRow(2)
			w.flushRow(3)
			w.check(w.m.checkpoint(ctx))
			w.check(w.m.reap(ctx))
			if len(tab.files) != 4 || len(tab.indexes) != 3 {
				t.Fatalf("%d files, %d indexes", len(tab.files), len(tab.indexes))
			}
			mapped := 0
			for _, x := range tab.indexes {
				unmap := x.unmap
				mapped++
				x.unmap = func() error { mapped--; return unmap() }
			}
			w.files.merging = func() {
				w.files.merging = nil
				rw, err := w.m.rewriteFiles(ctx, func() *rewrite {
					rw := w.m.beginCompaction(tab, true)
					rw.inputs, rw.rows = slices.Clone(tab.files[c.from:c.to]), rw.rows[c.from:c.to]
					return rw
				})
				w.check(err)
				if rw == nil || rw.out == nil || mapped != 3 {
					t.Fatalf("%+v; %d of the merge's inputs are mapped", rw, mapped)
				}
			}
			w.check(w.m.mergeIndexes(ctx, tab))
			if len(tab.indexes) != c.indexes || mapped != 0 {
				t.Errorf("%d indexes, %d of the inputs are mapped", len(tab.indexes), mapped)
			}
			w.audit()
			w.deleteAll(1)
			w.audit()
			w.readSomewhere()
			w.check(w.m.checkpoint(ctx))
			w.check(w.m.reap(ctx))
			w.crash()
			w.audit()
			w.end()
		})
	}
}

// deleteAll deletes every row of a table, one a transaction.
func (w *world) deleteAll(oid uint32) {
	w.t.Helper()
	mt := w.table(oid)
	for _, v := range mt.versions {
		if v.deleted == 0 {
			w.planned(oid, message{'D'}.u32(oid).old(&mt.def, v.cells), func(c LSN) { v.deleted = c })
		}
	}
}

// TestIndexesOfOtherFiles: file indexes that lie under each other's names, or under the name of no file, are not used after a restart: every row is
// found in its own file.
func TestIndexesOfOtherFiles(t *testing.T) {
	w := newWorld(t, 1)
	w.faults, w.pressure = 0, false
	w.start()
	ctx := context.Background()
	before := len(w.m.byOID[1].files)
	for i := range 3 {
		w.flushRow(i)
	}
	w.check(w.m.checkpoint(ctx))
	var paths []string
	for _, s := range w.m.byOID[1].files[before:] {
		paths = append(paths, s.file.index)
	}
	slices.Sort(paths)
	if len(slices.Compact(slices.Clone(paths))) != 3 {
		t.Fatalf("the files' indexes are %q, want one each", paths)
	}
	w.stop()
	<-w.ended
	files := w.files.files
	files[paths[0]], files[paths[1]], files[paths[2]] = files[paths[1]], files[paths[2]], files[paths[0]]
	stray := w.dir + "/stray.fidx"
	files[stray] = files[paths[0]]
	w.start()
	w.check(w.m.Check(ctx))
	if _, ok := files[stray]; ok {
		t.Errorf("%s is left", stray)
	}
	row := w.table(1).versions[len(w.table(1).versions)-3]
	w.planned(1, message{'D'}.u32(1).old(&w.table(1).def, row.cells), func(c LSN) { row.deleted = c })
	w.check(w.m.Check(ctx))
	w.same(1)
	w.end()
}
