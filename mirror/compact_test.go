package mirror

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgmirror/deletion"

	"pgmirror/iceberg"
	"pgmirror/readstate"
)

// flushed makes a table's rows into that many files with live rows, all named by a snapshot, and lets no reader be below them.
func (w *world) flushed(oid uint32, files int) *table {
	w.t.Helper()
	ctx := context.Background()
	t := w.m.byOID[oid]
	lives := func() (n int) {
		for _, s := range t.files {
			if s.live() > 0 {
				n++
			}
		}
		return n
	}
	for lives() < files || slices.ContainsFunc(t.files, func(s *segment) bool { return !s.settled() }) {
		for before := len(w.table(oid).versions); len(w.table(oid).versions) == before; {
			w.transaction()
		}
		w.settle()
		w.check(w.m.checkpoint(ctx))
		w.check(w.m.reap(ctx))
	}
	return t
}

// lsnField reads the create LSNs of a file.
var lsnField = arrow.Field{Name: iceberg.LSNColumn, Type: arrow.PrimitiveTypes.Int64,
	Metadata: arrow.NewMetadata([]string{readstate.FieldIDKey}, []string{strconv.Itoa(iceberg.LSNFieldID)})}

// created lists the create LSNs that the table's files hold of the rows that are alive.
func (w *world) created(t *table) (lsns []string) {
	w.t.Helper()
	for _, s := range t.files {
		dead, err := s.vis.At(w.m.marks.high(), uint32(s.file.data.Rows))
		w.check(err)
		lsns = append(lsns, w.rowsOfFile(s.file.data.Path, s.file.data.Rows, []arrow.Field{lsnField}, dead.Contains)...)
	}
	slices.Sort(lsns)
	return lsns
}

// lineage lists the create LSN, row id and sequence number of the table's rows in files that are alive.
func (w *world) lineage(t *table) (rows []string) {
	w.t.Helper()
	for _, s := range t.files {
		dead, err := s.vis.At(w.m.marks.high(), uint32(s.file.data.Rows))
		w.check(err)
		first, sequence, ok := w.ware.Lineage(t.uuid, s.file.data.Path)
		at := int64(0)
		for _, row := range w.rowsOfFile(s.file.data.Path, s.file.data.Rows, append([]arrow.Field{lsnField}, iceberg.LineageFields()...), func(uint32) bool { return false }) {
			if strings.Contains(row, "NULL") {
				if !ok {
					w.fatal("%s: neither its rows nor a commit say where they come from", s.file.data.Path)
				}
				lsn, _, _ := strings.Cut(row, "NULL")
				row = fmt.Sprintf("%s'%d','%d'", lsn, first+at, sequence)
			}
			if !dead.Contains(uint32(at)) {
				rows = append(rows, row)
			}
			at++
		}
	}
	slices.Sort(rows)
	return rows
}

// TestCompactKeepsLineage: a row keeps its row id and its sequence number through one compaction and the next; rows that come later get others.
func TestCompactKeepsLineage(t *testing.T) {
	w := newWorld(t, 12)
	w.faults, w.pressure, w.history = 0, false, 0
	w.start()
	ctx := context.Background()
	w.m.compactRows = 1000
	for round := range 4 {
		tab := w.flushed(1, 4-min(round, 2)) // one file more each time, so that rows of before are among those that move
		before := w.lineage(tab)
		if len(slices.Compact(slices.Clone(before))) != len(before) || len(before) < 2 {
			t.Fatalf("%d rows: %v", len(before), before)
		}
		for len(tab.files) > 1 {
			rw, err := w.m.compact(ctx, tab, true)
			w.check(err)
			if rw == nil {
				break
			}
			w.check(w.m.checkpoint(ctx)) // what was compacted can be again
			w.check(w.m.reap(ctx))
		}
		if len(tab.files) != 1 {
			t.Fatalf("%d files are left", len(tab.files))
		}
		if after := w.lineage(tab); !slices.Equal(after, before) {
			t.Fatalf("the lineage is\n%v, was\n%v", after, before)
		}
		w.check(w.m.checkpoint(ctx))
		if after := w.lineage(tab); !slices.Equal(after, before) {
			t.Fatalf("when committed the lineage is\n%v, was\n%v", after, before)
		}
	}
	w.end()
}

// TestCompactMakesOneFile: many files become one, with the rows that are alive, found by their keys as before; a pinned reader keeps the old ones;
// the next snapshot names the new one alone, also after a crash, and the old ones go when nobody needs them.
func TestCompactMakesOneFile(t *testing.T) {
	w := newWorld(t, 11)
	w.faults, w.pressure, w.history = 0, false, 0
	w.start()
	ctx := context.Background()
	w.m.compactRows = 1000
	tab := w.flushed(1, 4)
	st, err := w.m.Pin(ctx, readstate.PinRequest{})
	w.check(err)
	old, created := len(tab.files), w.created(tab)
	for _, all := range []bool{false, true} {
		for {
			rw, err := w.m.compact(ctx, tab, all)
			w.check(err)
			if rw == nil {
				break
			}
		}
	}
	if len(tab.files) >= old || len(tab.indexes) != len(tab.files) || len(tab.compacted) < 2 {
		t.Fatalf("%d files of %d, %d indexes, %d compacted", len(tab.files), old, len(tab.indexes), len(tab.compacted))
	}
	if got := w.created(tab); !slices.Equal(got, created) {
		t.Errorf("the rows were created at %v, want %v", got, created)
	}
	w.audit()
	w.compare(st, false)
	for range 30 {
		w.transaction() // updates and deletes of rows that moved
	}
	w.settle()
	w.audit()
	w.readSomewhere()
	w.check(w.m.checkpoint(ctx)) // the fake warehouse compares the snapshot
	w.compare(st, false)
	if len(tab.compacted) != 0 {
		t.Errorf("%d files are still to be taken out", len(tab.compacted))
	}
	st.Release()
	for _, p := range w.pinned {
		p.Release()
	}
	w.pinned = nil
	w.check(w.m.reap(ctx))
	w.check(w.m.checkpoint(ctx))
	named := 0
	for _, held := range w.ware.tables {
		named += len(held.Files)
	}
	if len(w.ware.files) != named {
		t.Errorf("%d files are there, %d are named", len(w.ware.files), named)
	}
	// What was made by one compaction can go into the next once a snapshot names it.
	for range 5 {
		w.check(w.m.checkpoint(ctx))
		w.check(w.m.reap(ctx))
		_, err := w.m.compact(ctx, tab, true)
		w.check(err)
	}
	if len(tab.files) != 1 || len(tab.indexes) != 1 {
		t.Errorf("%d files, %d indexes", len(tab.files), len(tab.indexes))
	}
	w.check(w.m.checkpoint(ctx))
	w.crash()
	w.readSomewhere()
	w.audit()
	w.end()
}

// TestCompactDeadFiles: files of which every row is deleted go, without one in their place, out of the table, its indexes and the next snapshot.
func TestCompactDeadFiles(t *testing.T) {
	w := newWorld(t, 11)
	w.faults, w.pressure, w.history = 0, false, 0
	w.start()
	ctx := context.Background()
	tab := w.flushed(1, 3)
	for _, v := range w.table(1).versions {
		if v.created != 0 && v.deleted == 0 {
			w.planned(1, message{'D'}.u32(1).old(&w.table(1).def, v.cells), func(c LSN) { v.deleted = c })
		}
	}
	for _, p := range w.pinned {
		p.Release()
	}
	w.pinned = nil
	w.check(w.m.checkpoint(ctx))
	w.check(w.m.reap(ctx))
	if len(tab.files) < 3 {
		t.Fatalf("%d files", len(tab.files))
	}
	for range 10 {
		_, err := w.m.compact(ctx, tab, true)
		w.check(err)
	}
	w.audit()
	w.check(w.m.checkpoint(ctx)) // the fake warehouse compares the snapshot
	if len(tab.files) != 0 || len(tab.indexes) != 0 || len(w.ware.tables[tab.uuid].Files) != 0 {
		t.Errorf("%d files, %d indexes, %d files named", len(tab.files), len(tab.indexes), len(w.ware.tables[tab.uuid].Files))
	}
	w.crash()
	w.readSomewhere()
	w.audit()
	w.end()
}

// settledFile is a file that a snapshot names.
func settledFile(rows int64) *segment {
	return &segment{vis: deletion.NewVisibility(0), file: &file{data: iceberg.DataFile{Rows: rows}, published: true}}
}

// TestFilesGoDuringCompaction: a checkpoint may commit a TRUNCATE while the files that it ended are being compacted, and they may be deleted before they were read. The
// compaction then comes to nothing, and to no error.
func TestFilesGoDuringCompaction(t *testing.T) {
	w := newWorld(t, 18)
	w.faults, w.pressure, w.history = 0, false, 0
	w.ware.retains, w.ware.grace = false, 0
	w.start()
	ctx := context.Background()
	w.m.compactRows = 1000
	tab := w.flushed(1, 3)
	for _, p := range w.pinned {
		p.Release()
	}
	w.pinned = nil
	rw, err := w.m.startRewrite(ctx, func() *rewrite { return w.m.beginCompaction(tab, true) })
	w.check(err)
	w.planned(1, message{'T'}.u32(1).u8(0).u32(1), func(c LSN) {
		for _, v := range w.table(1).versions {
			if v.deleted == 0 {
				v.deleted = c
			}
		}
	})
	w.check(w.m.checkpoint(ctx))
	w.check(w.m.reap(ctx))
	if _, err := w.ware.OpenData(rw.inputs[0].file.data.Path); err == nil {
		t.Fatal("the file is still there")
	}
	w.check(rw.compact(ctx, w.m))
	rw.end(ctx, w.m)
	w.audit()
	w.readSomewhere()
	w.check(w.m.checkpoint(ctx))
	w.end()
}
