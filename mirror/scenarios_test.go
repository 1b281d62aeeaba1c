package mirror

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"pgmirror/readstate"
)

// S-X6: two quick flushes finish out of order, and the mirror dies when the file of the second alone is there. Both tables have all their rows again.
func TestFlushesFinishOutOfOrder(t *testing.T) {
	w := quietWorld(t, 21)
	ctx := context.Background()
	first, second := w.m.byOID[1], w.m.byOID[2]
	inMemory := func(t *table) (rows int) {
		w.settle()
		w.check(w.m.inTurn(ctx, func() error { rows = t.open.batch.rows - int(t.open.vis.Count()); return nil }))
		return rows
	}
	for inMemory(first) == 0 || inMemory(second) == 0 {
		w.transaction()
	}
	w.check(w.m.inTurn(ctx, func() error { return errors.Join(w.m.sealOpen(first), w.m.sealOpen(second)) }))
	files := len(second.files)
	w.ware.writing = func() {
		w.ware.writing = nil
		w.transaction() // both have newer rows, too
		w.settle()
		w.check(w.m.flush(ctx, second, maxLSN))
		w.failAt("file index")
	}
	if err := w.m.flush(ctx, first, maxLSN); !errors.Is(err, errPowerCut) {
		t.Fatalf("the first flush ends with %v", err)
	}
	if len(second.files) != files+1 {
		t.Fatalf("the second flush made %d files", len(second.files)-files)
	}
	durable := w.m.durable
	w.crash()
	if w.m.durable != durable {
		t.Errorf("the crash has made %s durable, it was %s", w.m.durable, durable)
	}
	w.settle()
	w.same(1)
	w.same(2)
	w.audit()
	w.check(w.m.checkpoint(ctx))
	w.crash()
	w.settle()
	w.same(1)
	w.same(2)
	w.end()
}

// S-D4: a long scan reads the same rows, from files that are there, while rows are deleted, files compacted, snapshots expired and files removed; when
// it ends, its files go.
func TestLongScanDuringCompaction(t *testing.T) {
	w := newWorld(t, 22)
	w.faults, w.pressure, w.history, w.ware.grace = 0, false, 0, 0
	w.start()
	ctx := context.Background()
	w.flushed(1, 3)
	st, err := w.m.Pin(ctx, readstate.PinRequest{})
	w.check(err)
	read := func() (rows [][]string) {
		for _, rt := range st.Tables {
			if rt.Err == "" {
				rows = append(rows, w.rowsOf(rt))
			}
		}
		return rows
	}
	want := read()
	var paths []string
	for _, rt := range st.Tables {
		for _, f := range rt.Files {
			paths = append(paths, f.Path)
		}
	}
	there := func() (n int) {
		w.ware.mu.Lock()
		defer w.ware.mu.Unlock()
		for _, path := range paths {
			if w.ware.files[path] != nil {
				n++
			}
		}
		return n
	}
	for round := range 15 {
		for range 10 {
			w.transaction()
		}
		w.settle()
		w.check(w.m.checkpoint(ctx))
		for _, mt := range w.tables {
			if t := w.m.live(mt.def.OID); t != nil {
				_, err := w.m.compact(ctx, t, true)
				w.check(err)
			}
		}
		_, err := w.m.Expire(ctx, ExpireRequest{})
		w.check(err)
		w.fold()
		if got := read(); !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("round %d: the scan reads %v, want %v", round, got, want)
		}
		if n := there(); n != len(paths) {
			t.Fatalf("round %d: %d of the scan's %d files are there", round, n, len(paths))
		}
	}
	waiting := func() (n int) {
		report, err := w.m.Compact(ctx, CompactRequest{}, func(string) {})
		w.check(err)
		for _, t := range report.Tables {
			n += t.Waiting
		}
		return n
	}
	if waiting() == 0 {
		t.Error("compact does not say that files wait for the scan")
	}
	st.Release()
	w.check(w.m.checkpoint(ctx))
	w.fold()
	if n := waiting(); n != 0 {
		t.Errorf("compact says that %d files wait, and there is no reader", n)
	}
	if n := there(); n == len(paths) {
		t.Error("the scan has ended, and all of its files are kept")
	}
	w.end()
}

// S-D7: eight readers over the socket beside a writer never wait for ever; one that waits for what does not come gets an error in time.
func TestEightReadersAndAWriter(t *testing.T) {
	b := newBank(23)
	m := b.begin(t)
	opened(t, m)
	dir := t.TempDir()
	socket, err := readstate.Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	server := readstate.NewServer(m, slog.New(slog.DiscardHandler), readstate.ServerConfig{})
	go func() { served <- server.Serve(ctx, socket) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	limit, cancel := context.WithTimeout(ctx, 5*time.Minute) // what would be a hang
	defer cancel()
	g, gctx := errgroup.WithContext(limit)
	const readers, reads = 8, 30
	reading := make(chan struct{}, readers)
	for range readers {
		g.Go(func() error {
			defer func() { reading <- struct{}{} }()
			client, err := readstate.Dial(gctx, dir)
			if err != nil {
				return err
			}
			defer client.Close()
			for i := range reads {
				st, err := client.Pin(gctx, readstate.PinRequest{WaitSource: i%3 == 0, Timeout: 2 * time.Minute})
				if err != nil {
					return err
				}
				sum, rows, err := b.sum(st, "a", "b")
				if st.Release(); err != nil {
					return err
				}
				if sum != bankSum || rows != 2*bankAccounts {
					t.Errorf("at %s the sum is %d over %d accounts", st.LSN, sum, rows)
				}
			}
			_, err = client.Pin(gctx, readstate.PinRequest{WaitLSN: maxLSN >> 1, Timeout: 20 * time.Millisecond})
			if err == nil || !strings.Contains(err.Error(), "timed out") {
				t.Errorf("waiting for what does not come ends with %v", err)
			}
			return nil
		})
	}
	written := 0
	for done := 0; done < readers; {
		select {
		case <-reading:
			done++
		default:
			b.transfer()
			if written++; written%16 == 0 { // no faster than the mirror
				if err := b.read(limit, m, readstate.PinRequest{WaitSource: true, Timeout: 2 * time.Minute}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := server.Stats().StatesPinned; n < readers*reads {
		t.Errorf("%d states were pinned", n)
	}
}
