package mirror

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pgmirror/readstate"
)

// spaceOf is a Disk of a size, of which free bytes are free, and 1,000 must stay so.
func spaceOf(free *atomic.Int64) *Disk {
	return NewDisk(func() (int64, error) { return 1000, nil }, func() (int64, error) { return free.Load(), nil })
}

// TestDiskRule: a Disk pauses below what must stay free and goes on an eighth above it; a refused write pauses it however much is free, until
// that very write succeeds.
func TestDiskRule(t *testing.T) {
	var free atomic.Int64
	d := spaceOf(&free)
	for i, step := range []struct {
		free           int64
		paused, differ bool
	}{{1000, false, false}, {999, true, true}, {1000, true, false}, {1124, true, false}, {1125, false, true}, {1001, false, false}, {0, true, true}, {5000, false, true}} {
		free.Store(step.free)
		changed, err := d.look()
		if err != nil || changed != step.differ || (d.Paused() != "") != step.paused {
			t.Errorf("step %d, %d free: changed %v, paused %q, %v", i, step.free, changed, d.Paused(), err)
		}
	}
	if !d.wrote("a", syscall.ENOSPC) || d.wrote("b", syscall.EDQUOT) || d.wrote("a", nil) || d.Paused() == "" || !d.wrote("b", nil) || d.Paused() != "" {
		t.Errorf("paused %q", d.Paused())
	}
}

// TestPausedForDisk: while too little is free nothing more is read, status and readiness say why, what was taken in becomes durable, and
// queries are answered; when there is room the mirror goes on by itself and has everything.
func TestPausedForDisk(t *testing.T) {
	b := newBank(8)
	var free atomic.Int64
	free.Store(1 << 20)
	disk := spaceOf(&free)
	b.source.admit = disk.Wait
	b.disk = disk
	m, log := b.following(t)
	opened(t, m)
	b.transfer()
	free.Store(10)
	until(t, m, func(st *Status) bool {
		return st.State == "paused" && strings.Contains(st.Reason, "min_free_disk") && st.DiskFree == 10 && st.DiskLeast == 1000
	})
	if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "free space") {
		t.Errorf("ready: %v", err)
	}
	b.transfer() // the reader was perhaps asked for already and takes this one
	b.transfer()
	b.transfer()
	last := b.source.end()
	until(t, m, func(st *Status) bool { return st.DurableLSN == st.VisibleLSN && st.MemoryRows() == 0 })
	if err := b.read(t.Context(), m, readstate.PinRequest{}); err != nil {
		t.Fatal(err)
	}
	if high := m.marks.high(); high >= last {
		t.Fatalf("everything up to %s was read without room", high)
	}
	free.Store(1 << 20)
	opened(t, m)
	b.equal(t, m)
	if text := log.String(); strings.Count(text, "level=ERROR msg=paused") != 1 || !strings.Contains(text, "going on") {
		t.Errorf("the log is\n%s", text)
	}
}

// MemoryRows is the number of rows that are in no file.
func (st *Status) MemoryRows() (n int64) {
	for _, t := range st.Tables {
		n += t.MemoryRows
	}
	return n
}

// TestFullDisk: whatever cannot be written because the disk is full is written when there is room: the mirror ends by none of it, shows it,
// answers queries, and loses nothing, neither for itself nor for one that takes over.
func TestFullDisk(t *testing.T) {
	for _, place := range []string{"data file", "file index", "commit"} {
		t.Run(place, func(t *testing.T) {
			b := newBank(9)
			var full atomic.Bool
			var refused atomic.Int64
			write := func() error {
				if !full.Load() {
					return nil
				}
				refused.Add(1)
				return fmt.Errorf("write: %w", syscall.ENOSPC)
			}
			switch place {
			case "data file":
				b.ware.closing = write
			case "file index":
				b.files.writing = write
			case "commit":
				b.ware.committing = write
			}
			var free atomic.Int64
			free.Store(1 << 20)
			b.disk = spaceOf(&free)
			b.source.admit = b.disk.Wait
			m, log := b.following(t)
			opened(t, m)
			for range 50 {
				b.transfer()
			}
			full.Store(true)
			for range 50 {
				b.transfer()
			}
			until(t, m, func(st *Status) bool {
				return st.State == "paused" && strings.Contains(st.Reason, "no space left") && refused.Load() > 3
			})
			if err := b.read(t.Context(), m, readstate.PinRequest{}); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Call(t.Context(), "checkpoint", nil, nil); place == "commit" && !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("a checkpoint that was asked for: %v", err)
			}
			full.Store(false)
			opened(t, m)
			b.equal(t, m)
			if _, err := m.Call(t.Context(), "checkpoint", nil, nil); err != nil {
				t.Fatal(err)
			}
			b.noOrphans(t, m)
			if text := log.String(); !strings.Contains(text, "nothing is lost, and it is tried again") {
				t.Errorf("the log is\n%s", text)
			}
		})
	}
}

// noOrphans says that every data file is one that the mirror knows, but for those that it is deleting at the moment.
func (b *bank) noOrphans(t *testing.T, m *Mirror) {
	t.Helper()
	var orphans []string
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		orphans = nil
		if err := m.inTurn(t.Context(), func() error { orphans = b.orphans(m); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(orphans) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v belong to nobody", orphans)
		}
	}
}

// orphans are the data files that the mirror does not know. The applier's turn.
func (b *bank) orphans(m *Mirror) (paths []string) {
	known := map[string]bool{}
	for _, table := range m.tables {
		for _, s := range append(table.files, table.compacted...) {
			known[s.file.data.Path] = true
		}
	}
	for _, g := range m.garbage {
		for _, path := range g.paths {
			known[path] = true
		}
	}
	for _, path := range m.discarded {
		known[path] = true
	}
	b.ware.mu.Lock()
	defer b.ware.mu.Unlock()
	for path := range b.ware.files {
		if !known[path] {
			paths = append(paths, path)
		}
	}
	return paths
}

// TestFirstCopyOnAFullDisk: a first copy that finds no room says so and begins again when there is some.
func TestFirstCopyOnAFullDisk(t *testing.T) {
	b := newBank(10)
	var full atomic.Bool
	full.Store(true)
	b.ware.closing = func() error {
		if full.Load() {
			return syscall.ENOSPC
		}
		return nil
	}
	m, _ := b.following(t)
	until(t, m, func(st *Status) bool { return st.State == "copying" && strings.Contains(st.Reason, "takes no more") })
	full.Store(false)
	opened(t, m)
	b.equal(t, m)
}

// TestFilesDeletedLater: files that could not be deleted, for want of space in the catalogue, are deleted by the next attempt.
func TestFilesDeletedLater(t *testing.T) {
	b := newBank(11)
	var once sync.Once
	var failed atomic.Bool
	b.ware.deleting = func() (err error) {
		once.Do(func() { err = fmt.Errorf("forget: %w", syscall.ENOSPC); failed.Store(true) })
		return err
	}
	m, _ := b.following(t)
	opened(t, m)
	for i := 0; i < 2000 && !failed.Load(); i++ {
		b.transfer()
	}
	until(t, m, func(*Status) bool { return failed.Load() })
	b.equal(t, m)
	until(t, m, func(*Status) bool {
		left := true
		err := m.inTurn(t.Context(), func() error { left = len(m.garbage) > 0; return nil })
		return err == nil && !left
	})
	b.noOrphans(t, m)
}

// TestFilesThatStay: of files that are to be deleted none is forgotten because another one cannot be.
func TestFilesThatStay(t *testing.T) {
	w := quietWorld(t, 22)
	ctx := t.Context()
	w.ware.deleting = func() error { return syscall.ENOSPC }
	w.check(w.m.inTurn(ctx, func() error {
		w.m.staleIndexes = append(w.m.staleIndexes, w.dir+"/gone.fidx")
		for _, path := range []string{"/w/a/1.parquet", "/w/a/2.parquet"} {
			w.ware.files[path], w.m.discarded = nil, append(w.m.discarded, path)
		}
		w.m.garbage = append(w.m.garbage, garbage{paths: []string{"/w/a/3.parquet"}})
		return nil
	}))
	if err := w.m.reap(ctx); !isDiskFull(err) {
		t.Fatalf("the disk is full, but: %v", err)
	}
	w.check(w.m.inTurn(ctx, func() error {
		if len(w.m.discarded) != 2 || len(w.m.garbage) != 1 {
			t.Errorf("%v and %v are still to be deleted", w.m.discarded, w.m.garbage)
		}
		return nil
	}))
	w.ware.deleting = nil
	w.check(w.m.reap(ctx))
	w.check(w.m.inTurn(ctx, func() error {
		if len(w.m.staleIndexes)+len(w.m.discarded)+len(w.m.garbage) != 0 {
			t.Errorf("%v, %v and %v are still to be deleted", w.m.staleIndexes, w.m.discarded, w.m.garbage)
		}
		return nil
	}))
	w.end()
}

// TestExpiryOnAFullDisk: snapshots that cannot expire, for want of space for the metadata, expire when there is room.
func TestExpiryOnAFullDisk(t *testing.T) {
	b := newBank(12)
	var full atomic.Bool
	var refused, expired atomic.Int64
	full.Store(true)
	b.ware.expiring = func() error {
		if full.Load() {
			refused.Add(1)
			return fmt.Errorf("write metadata: %w", syscall.ENOSPC)
		}
		expired.Add(1)
		return nil
	}
	m, log := b.following(t)
	until(t, m, func(*Status) bool { return refused.Load() > 3 })
	b.transfer()
	b.equal(t, m)
	full.Store(false)
	until(t, m, func(*Status) bool { return expired.Load() > 0 })
	if text := log.String(); !strings.Contains(text, "snapshots expire later") {
		t.Errorf("the log is\n%s", text)
	}
}
