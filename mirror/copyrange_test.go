package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"pgmirror/pgcdc"
)

// copyWith makes a first copy with several workers and no pauses.
func (w *world) copyWith(workers int) error {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m, err := New(Config{Slot: "m", Publications: []string{"p"}, IndexDir: w.dir, CopyWorkers: workers, FileRows: 1}, w.source, w.ware, w.files, eagerClock{})
	w.check(err)
	w.check(m.recover(ctx))
	ended := make(chan error, 1)
	go func() { ended <- m.applyLoop(ctx) }()
	id, _ := w.source.Identify(ctx)
	err = m.firstCopy(ctx, id)
	w.copied = m.doc.Cut
	done, total := m.CopyProgress()
	if err == nil && (done != total || total == 0) {
		w.t.Errorf("progress ends at %d of %d", done, total)
	}
	stop()
	<-ended
	m.release()
	return err
}

// onlyNamedFiles: every data file and every FileIndex belongs to a table's content.
func (w *world) onlyNamedFiles() {
	w.t.Helper()
	named := 0
	for _, held := range w.ware.tables {
		named += len(held.Files)
	}
	if named != len(w.ware.files) {
		w.t.Errorf("%d files of %d are named", named, len(w.ware.files))
	}
	if indexes := len(w.files.files); indexes > named {
		w.t.Errorf("%d file indexes of %d files", indexes, named)
	}
}

// TestCopyRangeRetried: a range whose connection is lost is read again from its beginning, every other range once; nothing is
// doubled or lost, and what the broken attempts wrote is gone.
func TestCopyRangeRetried(t *testing.T) {
	w := filled(t)
	broken := slices.MaxFunc(w.tables, func(a, b *modelTable) int { return len(a.at(w.source.end())) - len(b.at(w.source.end())) })
	at := len(broken.at(w.source.end()))/2/rangeRows*rangeRows + 1
	const losses = 3
	type place struct {
		oid uint32
		row int
	}
	var mu sync.Mutex
	reads := map[place]int{}
	lost := 0
	w.source.copiedRow = func(oid uint32, row int) error {
		mu.Lock()
		defer mu.Unlock()
		if oid == broken.def.OID && row == at && lost < losses {
			lost++
			return fmt.Errorf("read: %w", pgcdc.ErrLost)
		}
		reads[place{oid, row}]++
		return nil
	}
	slots := w.source.slots
	w.check(w.copyWith(3))
	if w.source.slots != slots+1 || lost != losses {
		t.Errorf("%d slots were made, %d connections were lost", w.source.slots-slots, lost)
	}
	from := at // the broken range's first row
	for reads[place{broken.def.OID, from - 1}] > 1 {
		from--
	}
	for p, n := range reads {
		want := 1
		if p.oid == broken.def.OID && p.row >= from && p.row < at {
			want = 1 + losses
		}
		if n != want {
			t.Errorf("row %d of table %d was read %d times, want %d", p.row, p.oid, n, want)
		}
	}
	if from%rangeRows != 0 || from == at {
		t.Errorf("the rows from %d to %d were read again: no range, or one without rows before the broken one", from, at)
	}
	w.onlyNamedFiles()
	w.start()
	w.settle()
	w.readSomewhere()
	w.audit()
	w.end()
}

// TestCopySnapshotGone: a range that finds the snapshot gone is not tried again: the whole copy begins anew with the next attempt.
func TestCopySnapshotGone(t *testing.T) {
	w := filled(t)
	oid := w.tables[1].def.OID
	tries := 0
	w.source.copied = func(table uint32) error {
		if table != oid {
			return nil
		}
		tries++
		return fmt.Errorf("copy: %w", pgcdc.ErrSnapshotLost)
	}
	err := w.copyWith(1)
	if !errors.Is(err, pgcdc.ErrSnapshotLost) || !pgcdc.IsRetryable(err) || tries != 1 {
		t.Fatalf("after %d tries: %v", tries, err)
	}
	w.source.copied = nil
	slots := w.source.slots
	w.start()
	if w.source.slots != slots+1 {
		t.Errorf("%d slots were made since", w.source.slots-slots)
	}
	w.onlyNamedFiles()
	w.end()
}

// TestCopyRangeFails: a row that cannot be mirrored stops all ranges of its table and no other table, and leaves no file of it.
func TestCopyRangeFails(t *testing.T) {
	w := filled(t)
	bad := w.table(8)
	cells, ok := w.freshRow(bad, nil, nil)
	if !ok {
		t.Fatal("no row")
	}
	cells[0], cells[2] = val("4711"), w.badValue(oidNumeric)
	bad.versions = slices.Insert(bad.versions, len(bad.versions)/2, &version{cells: cells, created: w.source.end()})
	w.check(w.copyWith(3))
	if len(w.ware.tables) != len(w.tables)-1 {
		t.Errorf("%d tables of %d are there", len(w.ware.tables), len(w.tables))
	}
	w.onlyNamedFiles()
}

// TestSplitRanges: ranges follow each other from the first block to an open end, none is empty, there are no more than are worth
// it, and none is too large.
func TestSplitRanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := pgcdc.Extent{Blocks: rapid.Uint32().Draw(rt, "blocks"), Bytes: rapid.Int64Range(0, 1<<45).Draw(rt, "bytes")}
		if rapid.Bool().Draw(rt, "small") {
			e.Blocks %= 5000
			e.Bytes = int64(e.Blocks) * rapid.Int64Range(8192, 100_000).Draw(rt, "block size")
		}
		workers := rapid.IntRange(1, 64).Draw(rt, "workers")
		ranges := splitRanges(e, workers)
		if ranges[0].From != 0 || ranges[len(ranges)-1].To != 0 {
			rt.Fatalf("%v do not cover the table", ranges)
		}
		for i, r := range ranges[1:] {
			if r.From != ranges[i].To || r.From <= ranges[i].From {
				rt.Fatalf("%v follows %v", r, ranges[i])
			}
		}
		n := int64(len(ranges))
		if n > 1 && (n > int64(e.Blocks) || e.Bytes/n < rangeBytesMin && n*rangeBytesMax < e.Bytes) {
			rt.Fatalf("%d ranges of %d bytes, %d blocks", n, e.Bytes, e.Blocks)
		}
		if n < int64(e.Blocks) && e.Bytes/n > rangeBytesMax {
			rt.Fatalf("%d ranges of %d bytes are too large", n, e.Bytes)
		}
		if n < int64(min(workers, 2)*workers) && workers > 1 && n < int64(e.Blocks) && e.Bytes/(n+1) >= rangeBytesMin {
			rt.Fatalf("%d ranges of %d bytes for %d workers", n, e.Bytes, workers)
		}
	})
	if got := splitRanges(pgcdc.Extent{Blocks: 4 << 16, Bytes: 2 << 30}, 1); len(got) != 4 || got[1] != (pgcdc.Range{From: 1 << 16, To: 2 << 16}) {
		t.Errorf("2 GiB by one worker: %v", got)
	}
	if got := splitRanges(pgcdc.Extent{Blocks: 12800, Bytes: 100 << 20}, 2); len(got) != 3 {
		t.Errorf("100 MiB by two workers: %v", got)
	}
}
