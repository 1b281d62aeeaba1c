package mirror

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// load is a table's files under one workload: what checkpoints add and delete, and what the policy makes of it.
type load struct {
	t       *testing.T
	m       *Mirror
	tab     *table
	rng     *rand.Rand
	now     LSN
	changed int64 // rows inserted and deleted
	written int64 // by compaction
	most    int   // files
	largest int64 // rows written at once
}

func newLoad(t *testing.T) *load {
	m, tab := choosing(t)
	m.cfg.Memory = 4 << 30 // so much that it bounds no file
	return &load{t: t, m: m, tab: tab, rng: rand.New(rand.NewPCG(3, 4)), now: 10}
}

// add is a checkpoint's new file.
func (l *load) add(rows int64) {
	if rows > 0 {
		l.tab.files = append(l.tab.files, settledFile(rows))
		l.tab.rows += rows
		l.changed += rows
	}
}

// remove deletes up to n rows, the oldest ones or random ones.
func (l *load) remove(n int, oldest bool) {
	l.now++
	for tries := 0; n > 0 && l.tab.rows > 0 && tries < 100*n; tries++ {
		s := l.tab.files[0]
		for i := 0; oldest && s.live() == 0; i++ {
			s = l.tab.files[i]
		}
		row := uint32(s.vis.Count()) // the oldest goes first, always
		if !oldest {
			at := l.rng.Int64N(l.tab.rows)
			for _, s = range l.tab.files {
				if at -= s.file.data.Rows; at < 0 {
					break
				}
			}
			row = uint32(l.rng.Int64N(s.file.data.Rows))
		}
		if s.vis.Deleted(row) {
			continue
		}
		if err := s.vis.Delete(row, l.now); err != nil {
			l.t.Fatal(err)
		}
		l.tab.rows--
		l.changed++
		n--
	}
}

// settle compacts until nothing is left to do.
func (l *load) settle() {
	for rounds := 0; ; rounds++ {
		chosen := l.tab.compactable(l.m, l.now, false)
		if len(chosen) == 0 {
			break
		}
		if rounds > 10_000 {
			l.t.Fatal("compaction does not end")
		}
		var out []*segment
		rows := aliveIn(chosen)
		if rows > 0 {
			out = append(out, settledFile(rows))
		}
		at := slices.Index(l.tab.files, chosen[0])
		l.tab.files = slices.Replace(l.tab.files, at, at+len(chosen), out...)
		l.written += rows
		l.largest = max(l.largest, rows)
	}
	l.most = max(l.most, len(l.tab.files))
}

// TestFewFiles (S-P6, with the soak): under any steady workload a table keeps to the files that the setting allows, or one for each eight million rows, and what compaction
// writes stays in proportion to what changes.
func TestFewFiles(t *testing.T) {
	for _, w := range []struct {
		name  string
		steps int
		step  func(l *load, i int)
		files int     // at the most
		amp   float64 // rows written by compaction for each one changed
	}{
		{"tiny appends", 3000, func(l *load, i int) { l.add(100) }, 64, 6},
		{"one row at a time", 3000, func(l *load, i int) { l.add(1) }, 64, 6},
		{"appends of any size", 2000, func(l *load, i int) { l.add(1 << l.rng.IntN(20)) }, 64, 8},
		{"each half of the last", 2000, func(l *load, i int) { l.add(1 << (20 - i%21)) }, 64, 8},
		{"each twice the last", 2000, func(l *load, i int) { l.add(1 << (i % 21)) }, 64, 8},
		{"random updates", 600, func(l *load, i int) {
			if i == 0 {
				l.add(200_000)
				l.changed = 0
			}
			l.remove(500, false)
			l.add(500)
		}, 64, 6},
		{"a queue", 1500, func(l *load, i int) {
			l.add(1000)
			if i >= 20 {
				l.remove(1000, true)
			}
		}, 64, 6},
		{"a queue that is emptied", 600, func(l *load, i int) {
			l.add(300)
			if i%50 == 49 {
				l.remove(1<<30, true)
			}
		}, 64, 6},
		{"bulk loads", 1200, func(l *load, i int) { l.add(524_288) }, 1200 * 524_288 / (8 << 20), 6},
		{"a large table and tiny appends", 2000, func(l *load, i int) {
			if i == 0 {
				for range 100 {
					l.add(4_000_000)
				}
			}
			if i == 100 { // what the copy left has found its place
				l.changed, l.written, l.most = 0, 0, 0
			}
			l.add(1000)
		}, 64, 6},
	} {
		t.Run(w.name, func(t *testing.T) {
			l := newLoad(t)
			for i := range w.steps {
				w.step(l, i)
				l.settle()
			}
			amp := float64(l.written) / float64(l.changed)
			if l.most > w.files || amp > w.amp {
				t.Errorf("%d files at the most, want %d; %.1f rows rewritten for each changed, want %.1f", l.most, w.files, amp, w.amp)
			}
			t.Logf("%d files at the most; %.1f rows rewritten for each changed", l.most, amp)
		})
	}
}

// TestFewFilesHasATarget: the number of files follows the setting.
func TestFewFilesHasATarget(t *testing.T) {
	most := func(files int) int {
		l := newLoad(t)
		l.m.cfg.Compact.Files = files
		for i := range 500 {
			l.add(1 << (20 - i%21))
			l.settle()
		}
		return l.most
	}
	if few, many := most(8), most(64); few > 8 || many <= 8 {
		t.Errorf("of 8 there are %d, of 64 %d", few, many)
	}
}

// TestCompactionMemory: the hashes and the FileIndex of a file that compaction writes take at most a quarter of the bound of memory, or what those of a
// copied file do; the table has more files then, but not more than the bound asks for.
func TestCompactionMemory(t *testing.T) {
	for _, memory := range []int64{1 << 20, 64 << 20, 512 << 20, 16 << 30} {
		l := newLoad(t)
		cfg := Config{Slot: "m", Publications: []string{"p"}, IndexDir: "/i", Memory: memory}
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		l.m.cfg, l.m.compactRows = cfg, cfg.FileRows
		most := max(cfg.FileRows, min(16<<20, memory/4/21))
		l.add(100 * cfg.FileRows)
		for i := range 1000 {
			l.add(most / 20)
			l.settle()
			if rows := aliveIn(l.tab.compactable(l.m, l.now, true)); rows > most {
				t.Fatalf("%d bytes: a compaction that is asked for after %d files writes %d rows, at most %d", memory, i, rows, most)
			}
		}
		// The first file is larger than what may be written now, as after memory was made less.
		if files := max(64, int(2*l.tab.rows/most)); l.largest > most || l.largest < most/3 || l.most > files {
			t.Errorf("%d bytes: %d rows in one file, at most %d; %d files, at most %d", memory, l.largest, most, l.most, files)
		}
	}
}

// aliveIn is the rows that are alive in some files.
func aliveIn(files []*segment) (rows int64) {
	for _, s := range files {
		rows += s.live()
	}
	return rows
}

// TestDeadRatio: a file is written anew from the set part of deleted rows on, once no reader sees them.
func TestDeadRatio(t *testing.T) {
	for _, ratio := range []float64{0.2, 0.5, 1} {
		l := newLoad(t)
		l.m.cfg.Compact.DeadRatio = ratio
		l.add(1000)
		for deleted := 1; deleted <= 1000; deleted++ {
			l.remove(1, true)
			if chosen := l.tab.compactable(l.m, l.now-1, false); float64(deleted-1) < ratio*1000 && len(chosen) > 0 {
				t.Fatalf("ratio %g: chosen at %d rows, while a reader sees one of them", ratio, deleted)
			}
			if chosen := l.tab.compactable(l.m, l.now, false); (len(chosen) > 0) != (float64(deleted) >= ratio*1000) {
				t.Fatalf("ratio %g: %d rows are deleted, chosen are %d files", ratio, deleted, len(chosen))
			}
		}
	}
}

// TestDayWindow: a window has its first moment and not its last, in UTC, over midnight too.
func TestDayWindow(t *testing.T) {
	day := DayWindow{9 * time.Hour, 17*time.Hour + 30*time.Minute}
	night := DayWindow{22 * time.Hour, 6 * time.Hour}
	zone := time.FixedZone("", 5*3600)
	for text, want := range map[string][2]bool{
		"00:00:00": {false, true}, "05:59:59": {false, true}, "06:00:00": {false, false}, "08:59:59": {false, false}, "09:00:00": {true, false},
		"17:29:59": {true, false}, "17:30:00": {false, false}, "21:59:59": {false, false}, "22:00:00": {false, true}, "23:59:59": {false, true},
	} {
		at, err := time.Parse(time.DateTime, "2026-02-28 "+text)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]bool{day.Contains(at.In(zone)), night.Contains(at.In(zone))}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		if !(DayWindow{}).Contains(at) {
			t.Errorf("%s is not in all of the day", text)
		}
	}
}

// TestPace: work is spread so that it takes no more than the bytes of each second; what was not used is not saved up; without a bound nothing waits.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		spend := func(p *pace, times int) time.Duration {
			began := time.Now()
			for range times {
				if err := p.spend(ctx, SystemClock(), 1000); err != nil {
					t.Fatal(err)
				}
			}
			return time.Since(began)
		}
		p := &pace{perSecond: 100_000}
		for range 2 {
			if took := spend(p, 500); took < 4900*time.Millisecond || took > 5100*time.Millisecond {
				t.Errorf("500 KB at 100 KB/s took %s", took)
			}
			time.Sleep(time.Hour)
		}
		if took := spend(&pace{}, 500); took != 0 {
			t.Errorf("without a bound it took %s", took)
		}
		ctx, stop := context.WithCancel(ctx)
		stop()
		if err := p.spend(ctx, SystemClock(), 1<<30); err == nil {
			t.Error("it goes on after the end")
		}
	})
}

// TestCheckpointDoesNotWaitForCompaction: while the files of a table are being compacted, its changes are flushed and committed; what was deleted meanwhile is deleted in
// the new file.
func TestCheckpointDoesNotWaitForCompaction(t *testing.T) {
	w := newWorld(t, 13)
	w.faults, w.pressure, w.history = 0, false, 0
	w.start()
	ctx := context.Background()
	w.m.compactRows = 1000
	tab := w.flushed(1, 4)
	began, goOn := make(chan struct{}), make(chan struct{})
	var compacting atomic.Bool
	w.ware.writing = func() {
		if compacting.CompareAndSwap(false, true) {
			close(began)
			<-goOn
		}
	}
	compacted := make(chan error, 1)
	go func() {
		rw, err := w.m.compact(ctx, tab, true)
		if err == nil && rw == nil {
			err = errors.New("nothing was compacted")
		}
		compacted <- err
	}()
	<-began
	for range 3 {
		for range 20 {
			w.transaction()
		}
		w.settle()
		committed := make(chan error, 1)
		go func() { committed <- w.m.checkpoint(ctx) }()
		select {
		case err := <-committed:
			w.check(err)
		case <-time.After(time.Minute):
			t.Fatal("the checkpoint waits")
		}
		if cut := w.ware.lastCut(); cut != w.m.marks.high() {
			t.Fatalf("committed is %s, visible %s", cut, w.m.marks.high())
		}
	}
	close(goOn)
	w.check(<-compacted)
	w.audit()
	w.readSomewhere()
	w.check(w.m.checkpoint(ctx)) // the fake warehouse compares the snapshot
	w.crash()
	w.readSomewhere()
	w.end()
}

// TestCompactorPolicy: the compactor works in its window only, and not again on a table before the interval is over; who asks for a compaction need not wait.
func TestCompactorPolicy(t *testing.T) {
	w := newWorld(t, 16)
	w.faults, w.pressure, w.history = 0, false, 0
	w.start()
	ctx := context.Background()
	w.m.compactRows = 1000
	midnight := w.clock.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
	at := func(hour time.Duration) { w.clock.advance(midnight.Add(hour).Sub(w.clock.Now())) }
	compacts := func() bool {
		t.Helper()
		tab := w.flushed(1, 4)
		before := len(tab.compacted)
		w.check(w.m.compactor.compact(ctx))
		return len(tab.compacted) > before
	}
	at(0)
	w.m.cfg.Compact.Window = DayWindow{time.Hour, 3 * time.Hour}
	w.m.cfg.Compact.MinInterval = time.Hour
	if compacts() {
		t.Error("it compacts before its window")
	}
	at(time.Hour)
	if !compacts() {
		t.Error("it does not compact in its window")
	}
	at(time.Hour + 50*time.Minute)
	if compacts() {
		t.Error("it compacts again before the interval is over")
	}
	if _, err := w.m.Compact(ctx, CompactRequest{Tables: []string{w.m.byOID[1].String()}}, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if files := len(w.m.byOID[1].files); files > 1 {
		t.Errorf("asked for, it leaves %d files", files)
	}
	at(2*time.Hour + 10*time.Minute)
	if !compacts() {
		t.Error("it does not compact again when the interval is over")
	}
	at(4 * time.Hour)
	if compacts() {
		t.Error("it compacts after its window")
	}
	w.end()
}

// TestWindowEndsDuringRewrite: a rewrite that outlasts the window, or during which the disk runs short, is ended, and no other begins, of the same table either.
func TestWindowEndsDuringRewrite(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"the window ends":     func(w *world) { w.clock.advance(3 * time.Hour) },
		"the disk runs short": func(w *world) { w.m.cfg.Disk.wrote("a test", syscall.ENOSPC) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 16)
			w.faults, w.pressure, w.history = 0, false, 0
			w.start()
			ctx := context.Background()
			tab := w.pairs(1, 8)
			w.clock.advance(w.clock.Now().Truncate(24 * time.Hour).Add(25 * time.Hour).Sub(w.clock.Now()))
			none := func() (int64, error) { return 0, nil }
			w.m.cfg.Disk = NewDisk(none, none)
			w.m.cfg.Compact.Window = DayWindow{time.Hour, 3 * time.Hour}
			rewrites := 0
			w.ware.writing = func() {
				if rewrites++; rewrites == 1 {
					end(w)
				}
			}
			w.check(w.m.compactor.compact(ctx))
			w.ware.writing = nil
			if rewrites != 1 || len(tab.compacted) != 2 {
				t.Errorf("%d rewrites began, %d files were compacted", rewrites, len(tab.compacted))
			}
			w.audit()
			w.end()
		})
	}
}

// TestTablesTakeTurns: of tables that are all due each has one rewrite before any has its next; one whose files a command holds is passed over.
func TestTablesTakeTurns(t *testing.T) {
	w := newWorld(t, 16)
	w.faults, w.pressure, w.history = 0, false, 0
	w.start()
	ctx := context.Background()
	a, b := w.pairs(1, 12), w.pairs(2, 12)
	var order []int // files compacted of one less those of the other, at each rewrite
	w.ware.writing = func() { order = append(order, len(a.compacted)-len(b.compacted)) }
	w.check(w.m.compactor.compact(ctx))
	if len(order) < 12 {
		t.Fatalf("%d rewrites", len(order))
	}
	for _, lead := range order {
		if lead < -2 || lead > 2 {
			t.Fatalf("a table has two rewrites more than the other: %v", order)
		}
	}
	w.ware.writing = nil
	a, b = w.pairs(1, 4), w.pairs(2, 4)
	a.tidying.Lock()
	w.check(w.m.compactor.compact(ctx))
	if len(a.compacted) != 0 || len(b.compacted) < 4 {
		t.Errorf("%d files of the table that is held were compacted, %d of the other", len(a.compacted), len(b.compacted))
	}
	a.tidying.Unlock()
	w.check(w.m.compactor.compact(ctx))
	if len(a.compacted) < 4 {
		t.Errorf("given back, %d of its files were compacted", len(a.compacted))
	}
	w.audit()
	w.end()
}

// pairs gives a table new files of one row each, all named by a snapshot, of which compaction joins two at a time.
func (w *world) pairs(oid uint32, files int) *table {
	w.t.Helper()
	ctx := context.Background()
	for _, p := range w.pinned {
		p.Release()
	}
	w.pinned = nil
	for range files {
		w.flushRowOf(oid, len(w.table(oid).versions))
	}
	w.check(w.m.checkpoint(ctx))
	w.check(w.m.reap(ctx))
	t := w.m.byOID[oid]
	w.m.compactRows = max(2, 4*t.rows/int64(w.m.cfg.Compact.Files))
	return t
}
