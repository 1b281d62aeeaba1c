package mirror

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

var (
	simSeeds = flag.Uint64("sim.seeds", 30, "seeds of TestSimulation")
	simSeed  = flag.Uint64("sim.seed", 0, "the only seed of TestSimulation")
	simEvery = flag.Int("sim.every", 31, "of so many calls to the outside TestEveryEffect breaks one")
)

// TestSimulation runs whole mirrors, with all their goroutines, over a source, a warehouse and files in memory and in virtual time
// (testing/synctest): a life of hours takes a moment. Lives end by a stop, by a death at any call to the outside, or by an error that such a call
// returned; connections are lost. Readers come at any time and stay for up to an hour. Everything that anyone reads, and everything committed, is
// what the model says, and nothing is acknowledged that is not durable.
//
// A seed decides what happens; the order of goroutines is the runtime's.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), *simSeeds
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	total := &simCounts{}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSim(t, seed)
				for range 6 {
					s.life(s.randomPlan(), 5+s.rng.IntN(60))
				}
				s.finish()
				total.add(s.counts)
			})
		})
	}
	t.Logf("%+v", *total)
	if *simSeed == 0 && last >= 30 && !t.Failed() && (total.Deaths < 20 || total.Failures < 10 || total.Lost < 20 || total.Reads < 1000 || total.Checkpoints < 100) {
		t.Errorf("too little happened: %+v", *total)
	}
}

// TestEveryEffect lets one call to the outside after the other be the last one of its life, and return an error once.
func TestEveryEffect(t *testing.T) {
	calls := 0
	one := func(p plan) {
		synctest.Test(t, func(t *testing.T) {
			s := newSim(t, 1)
			s.life(p, 40)
			calls = max(calls, s.called)
			s.finish()
		})
	}
	one(plan{})
	t.Logf("%d calls", calls)
	if calls < 100 {
		t.Errorf("%d calls are too few", calls)
	}
	for at := 1; at <= calls; at += *simEvery {
		one(plan{dieAt: at})
		one(plan{failAt: at, failures: 1})
		if t.Failed() {
			t.Fatalf("call %d", at)
		}
	}
}

// plan is what happens to one life.
type plan struct {
	dieAt    int // the call from which on nothing reaches the outside any more; 0: none
	failAt   int // the first call that returns an error; 0: none
	failures int // how many in a row do
	lose     int // of so many calls to the source one loses the connection; 0: none
}

type simCounts struct{ Lives, Deaths, Failures, Lost, Reads, Checkpoints int }

func (c *simCounts) add(o simCounts) {
	c.Lives += o.Lives
	c.Deaths += o.Deaths
	c.Failures += o.Failures
	c.Lost += o.Lost
	c.Reads += o.Reads
	c.Checkpoints += o.Checkpoints
}

// sim is a world whose mirror runs by itself.
type sim struct {
	*world
	model sync.Mutex // held while the model changes or is compared with

	mu     sync.Mutex // of what follows
	plan   plan
	called int // calls to the outside in this life
	dead   bool
	luck   *rand.Rand
	counts simCounts
}

// errIO is what a disk says that does not always work.
var errIO = fmt.Errorf("write: %w", syscall.EIO)

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{world: newWorld(t, seed), luck: rand.New(rand.NewPCG(seed, 9))}
	s.faults, s.pressure = 0, false
	s.ware.now, s.ware.retains = time.Now, seed%2 == 0
	if seed%3 > 0 {
		s.ware.grace = 10 * time.Minute
	}
	s.sending = false // the source's own stream tells what happens
	rows := s.source.rows
	s.source.rows = func(oid uint32, at LSN) [][]cell {
		s.model.Lock()
		defer s.model.Unlock()
		return rows(oid, at)
	}
	s.source.fault = func(call string) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.dead || s.plan.lose > 0 && s.luck.IntN(s.plan.lose) == 0 {
			s.counts.Lost++
			return fmt.Errorf("%s: %w", call, pgcdc.ErrLost)
		}
		return nil
	}
	s.ware.committed = func(c iceberg.Commit) {
		s.model.Lock()
		defer s.model.Unlock()
		s.snapshot(c)
		s.counts.Checkpoints++
	}
	for range s.rng.IntN(30) {
		s.transaction()
	}
	return s
}

// randomPlan chooses what happens to a life. The mirror makes some ten calls at its start and about as many a checkpoint.
func (s *sim) randomPlan() plan {
	var p plan
	switch s.rng.IntN(4) {
	case 0:
		p.dieAt = 1 + s.rng.IntN(300)
	case 1:
		p.failAt, p.failures = 1+s.rng.IntN(200), 1+s.rng.IntN(3)
	}
	if s.rng.IntN(2) == 0 {
		p.lose = 2 + s.rng.IntN(60)
	}
	return p
}

// call is asked before each call to the outside.
func (s *sim) call(string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.called++
	switch n := s.called; {
	case s.dead || n == s.plan.dieAt:
		s.dead = true
		return errPowerCut
	case s.plan.failAt != 0 && n >= s.plan.failAt && n < s.plan.failAt+s.plan.failures:
		s.counts.Failures++
		return errIO
	}
	return nil
}

// life lets a mirror run through some steps, and end as the plan says or by a stop.
func (s *sim) life(p plan, steps int) {
	s.t.Helper()
	s.plan, s.called, s.dead = p, 0, false
	m, err := New(Config{Slot: "m", Publications: []string{"p"}, IndexDir: s.dir, BatchRows: 1 + s.rng.IntN(12), FlushWorkers: 1 + s.rng.IntN(2),
		CopyWorkers: 1 + s.rng.IntN(2), History: s.history, NullUnrepresentable: s.nullBad, FileRows: 1 + s.rng.Int64N(5), Grace: s.ware.grace, Effect: s.call,
		Log: slog.New(slog.DiscardHandler)}, s.source, simWarehouse{s.ware, s}, simFiles{s.files, s}, SystemClock())
	s.check(err)
	m.compactRun, m.compactRows, m.replaySlice, m.carrySlice = 2, 40, 1+s.rng.IntN(4), s.rng.IntN(3)
	if s.rng.IntN(2) == 0 {
		m.cfg.Memory = 1 << 12 << s.rng.IntN(8)
	}
	s.m = m
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	var readers sync.WaitGroup
	for range 3 {
		r := rand.New(rand.NewPCG(s.rng.Uint64(), 2))
		readers.Go(func() { s.reads(ctx, m, r) })
	}
	over := false
	for ; steps > 0 && !over && !s.t.Failed() && !s.died(); steps-- {
		s.model.Lock()
		for range s.rng.IntN(4) {
			s.transaction()
		}
		s.model.Unlock()
		if s.rng.IntN(5) == 0 {
			s.source.idle()
		}
		pause := time.Duration(s.rng.Int64N(int64(200 * time.Millisecond)))
		switch s.rng.IntN(10) {
		case 0:
			pause *= 20_000 // up to an hour
		case 1, 2:
			pause *= 300 // up to a minute
		}
		select {
		case err = <-ended:
			over = true
		case <-time.After(pause):
		}
	}
	stop()
	if !over {
		err = <-ended
	}
	readers.Wait()
	s.counts.Lives++
	switch {
	case s.died():
		s.counts.Deaths++
	case err != nil && !errors.Is(err, errIO) && !pgcdc.IsRetryable(err):
		s.t.Fatalf("the mirror ended with %v", err)
	}
	if s.source.early != 0 {
		s.t.Fatalf("%s was acknowledged, but only %s is committed", s.source.early, s.ware.lastCut())
	}
	if s.died() && s.rng.IntN(2) == 0 {
		s.loseIndexes()
	}
}

func (s *sim) died() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// loseIndexes is what a crash may do to files that can be rebuilt.
func (s *sim) loseIndexes() {
	paths := slices.Sorted(maps.Keys(s.files.files))
	for _, path := range paths {
		data := s.files.files[path]
		switch s.rng.IntN(6) {
		case 0:
			delete(s.files.files, path)
		case 1:
			s.files.files[path] = data[:s.rng.IntN(len(data)+1)]
		case 2:
			s.files.files[path] = s.files.files[paths[s.rng.IntN(len(paths))]]
		}
	}
}

// finish lets a last life catch up, with nothing in its way, and compares all of it: what is visible, what is committed after the stop, and what
// lies about.
func (s *sim) finish() {
	s.t.Helper()
	if s.t.Failed() {
		return
	}
	s.life(plan{}, 5)
	m, err := New(Config{Slot: "m", Publications: []string{"p"}, IndexDir: s.dir, Grace: s.ware.grace, Log: slog.New(slog.DiscardHandler)}, s.source, s.ware, s.files, SystemClock())
	s.check(err)
	s.m = m
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	for {
		st, err := m.Pin(ctx, readstate.PinRequest{WaitSource: true, Timeout: time.Hour})
		if err == nil {
			if st.LSN < s.source.end() {
				s.t.Errorf("the mirror is at %s, the source at %s", st.LSN, s.source.end())
			}
			s.model.Lock()
			s.compare(st, false)
			s.model.Unlock()
			st.Release()
			break
		}
		select {
		case <-time.After(time.Second):
		case err := <-ended:
			s.t.Fatalf("the last life ended with %v", err)
		}
	}
	s.check(m.Check(ctx))
	stop()
	if err := <-ended; err != nil {
		s.t.Fatalf("a stop ended with %v", err)
	}
	if s.ware.lastCut() < s.source.end() {
		s.t.Errorf("a stop left the warehouse at %s, the source is at %s", s.ware.lastCut(), s.source.end())
	}
	_, err = s.ware.RemoveOrphans(context.Background())
	s.check(err)
	logs, err := os.ReadDir(s.dir)
	s.check(err)
	for _, f := range logs {
		s.t.Errorf("%s is left", f.Name())
	}
}

// reads reads again and again as long as the mirror lives; some states are kept for up to an hour, and must not change.
func (s *sim) reads(ctx context.Context, m *Mirror, r *rand.Rand) {
	sleep := func(most time.Duration) {
		select {
		case <-time.After(time.Duration(r.Int64N(int64(most)))):
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil && !s.died() && !s.t.Failed() {
		sleep(time.Minute)
		req := readstate.PinRequest{Timeout: time.Minute}
		switch r.IntN(4) {
		case 0:
			req.WaitSource = true
		case 1:
			low, high := m.marks.low(), m.marks.high()
			if high > low {
				req.At = low + LSN(r.Uint64N(uint64(high-low)+1))
			}
		}
		atLeast := LSN(0)
		if req.WaitSource {
			atLeast = s.source.end()
		}
		st, err := m.Pin(ctx, req)
		if err != nil {
			continue // not open yet, or at its end, or without a source
		}
		if st.LSN < atLeast {
			s.t.Errorf("a read that waits for the source is at %s, which was at %s", st.LSN, atLeast)
		}
		for range 1 + r.IntN(3) {
			s.model.Lock()
			s.compare(st, false)
			s.model.Unlock()
			s.mu.Lock()
			s.counts.Reads++
			s.mu.Unlock()
			if r.IntN(3) > 0 || s.died() {
				break
			}
			sleep(time.Hour)
		}
		st.Release()
	}
}

// simWarehouse asks the simulation before each call, and again when a commit is stored.
type simWarehouse struct {
	*fakeWarehouse
	sim *sim
}

func (w simWarehouse) Load(ctx context.Context) (*iceberg.State, error) {
	if err := w.sim.call("load"); err != nil {
		return nil, err
	}
	return w.fakeWarehouse.Load(ctx)
}

func (w simWarehouse) RemoveOrphans(ctx context.Context) ([]string, error) {
	if err := w.sim.call("remove orphans"); err != nil {
		return nil, err
	}
	return w.fakeWarehouse.RemoveOrphans(ctx)
}

func (w simWarehouse) NewWriter(ctx context.Context, loc iceberg.TableLocation) (DataWriter, error) {
	if err := w.sim.call("new data file"); err != nil {
		return nil, err
	}
	x, err := w.fakeWarehouse.NewWriter(ctx, loc)
	return simWriter{x, w.sim}, err
}

func (w simWarehouse) Commit(ctx context.Context, c iceberg.Commit) (*iceberg.Result, error) {
	if err := w.sim.call("commit"); err != nil {
		return nil, err
	}
	result, err := w.fakeWarehouse.Commit(ctx, c)
	if err == nil && w.sim.dies("committed") {
		return nil, errPowerCut
	}
	return result, err
}

func (w simWarehouse) Expire(ctx context.Context, most int, dryRun bool) (*iceberg.Expiry, error) {
	if err := w.sim.call("expire"); err != nil {
		return nil, err
	}
	x, err := w.fakeWarehouse.Expire(ctx, most, dryRun)
	if err == nil && w.sim.dies("expired") {
		return nil, errPowerCut
	}
	return x, err
}

func (w simWarehouse) DeleteUnreachable(ctx context.Context, paths []string) error {
	if err := w.sim.call("delete files"); err != nil {
		return err
	}
	return w.fakeWarehouse.DeleteUnreachable(ctx, paths)
}

func (w simWarehouse) Discard(ctx context.Context, path string) error {
	if err := w.sim.call("discard"); err != nil {
		return err
	}
	return w.fakeWarehouse.Discard(ctx, path)
}

// dies asks after a call that cannot be taken back whether it was the last.
func (s *sim) dies(name string) bool { return errors.Is(s.call(name), errPowerCut) }

type simWriter struct {
	DataWriter
	sim *sim
}

func (x simWriter) Write(rec arrow.RecordBatch) error {
	if err := x.sim.call("write rows"); err != nil {
		return err
	}
	return x.DataWriter.Write(rec)
}

func (x simWriter) Close() (iceberg.DataFile, error) {
	if err := x.sim.call("close data file"); err != nil {
		return iceberg.DataFile{}, err
	}
	return x.DataWriter.Close()
}

// simFiles asks the simulation before each call.
type simFiles struct {
	*fakeFiles
	sim *sim
}

func (f simFiles) WriteFile(path string, data []byte) error {
	if err := f.sim.call("write index"); err != nil {
		return err
	}
	return f.fakeFiles.WriteFile(path, data)
}

func (f simFiles) Remove(path string) error {
	if err := f.sim.call("remove index"); err != nil {
		return err
	}
	return f.fakeFiles.Remove(path)
}
