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
	"reflect"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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
// returned; connections are lost, data files cannot be read or are said to be damaged, and another engine commits to the tables. Readers come at any time
// and stay for up to an hour, some through the server of read states, where old states settle. Everything that anyone reads, and everything committed, is
// what the model says; a table fails for a reason alone, and is copied again; and nothing is acknowledged that is not durable.
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
	if *simSeed == 0 && last >= 30 && !t.Failed() && total.tooLittle() {
		t.Errorf("too little happened: %+v", *total)
	}
}

// TestEveryEffect lets one call to the outside after the other be the last one of its life, and return an error once.
func TestEveryEffect(t *testing.T) {
	calls, read := 0, false // read: a call failed that reads a data file
	one := func(p plan) {
		synctest.Test(t, func(t *testing.T) {
			s := newSim(t, 1)
			s.life(p, 30)
			calls = max(calls, s.called)
			s.finish()
			read = s.counts.Reading > 0
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
		if read {
			one(plan{failAt: at, failures: 1, damage: true})
		}
		if t.Failed() {
			t.Fatalf("call %d", at)
		}
	}
}

// plan is what happens to one life.
type plan struct {
	dieAt    int             // the call from which on nothing reaches the outside any more; 0: none
	failAt   int             // the first call that returns an error; 0: none
	failures int             // how many in a row do
	only     map[string]bool // the calls that count for these; nil: all
	damage   bool            // failing reads of data files say that the file is damaged
	lose     int             // of so many calls to the source one loses the connection; 0: none
}

type simCounts struct {
	Lives, Deaths, Failures, Lost, Reads, Checkpoints int

	Reading             int // reads of data files that failed
	Damaged             int // tables that failed for such a one
	Adopted, Spoiled    int // another engine's commits that were taken over, and tables that failed for one
	Resyncs             int
	AtTime, Beyond      int // reads of a time, and of a checkpoint below the window
	Feeds, Changes      int // change feeds, and what they listed
	Settled, Afterwards int // states that settled, and reads of such
	Frozen              int // reads of failed tables at their last good LSN
}

func (c *simCounts) add(o simCounts) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(o)
	for i := range to.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + from.Field(i).Int())
	}
}

func (c *simCounts) tooLittle() bool {
	return c.Deaths < 20 || c.Failures < 10 || c.Lost < 20 || c.Reads < 1000 || c.Checkpoints < 100 || c.Reading < 10 || c.Damaged < 3 || c.Adopted < 20 || c.Spoiled < 3 ||
		c.Resyncs < 3 || c.AtTime < 20 || c.Beyond < 20 || c.Feeds < 100 || c.Changes < 100 || c.Settled < 20 || c.Afterwards < 20 || c.Frozen < 3
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
	failed map[string]bool // by uuid, failed tables that were counted
	wanted map[string]bool // tables that are being copied again because somebody asked
	plans  plan            // what lives so far had in their plans, as far as it outlives them

	leaving bool   // the mirror is to stop; the model's
	states  string // directory of states that have settled
}

// errIO is what a disk says that does not always work.
var errIO = fmt.Errorf("write: %w", syscall.EIO)

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{world: newWorld(t, seed), luck: rand.New(rand.NewPCG(seed, 9)), failed: map[string]bool{}, wanted: map[string]bool{}}
	s.states = t.TempDir()
	s.faults, s.pressure, s.ware.mixed = 0, false, true
	if s.history > 0 && seed%2 == 0 {
		s.history = 20 * time.Minute
	}
	s.ware.now, s.ware.retains = time.Now, seed%2 == 0
	if seed%3 > 0 {
		s.ware.grace = 10 * time.Minute
	}
	s.sending = false // the source's own stream tells what happens
	s.source.clock = func() time.Time { return time.Now().Add(-time.Duration(s.rng.IntN(int(clocksApart)))) }
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

// clocksApart is how far the times of commits go back at most: the source's cores take them before they write the commits.
const clocksApart = 5 * time.Millisecond

// seldom are calls that few of all are.
var seldom = []string{"open data file", "read columns", "read a row", "look for other writers", "examine", "hold", "map index", "list indexes"}

// randomPlan chooses what happens to a life. The mirror makes some ten calls at its start and about as many a checkpoint.
func (s *sim) randomPlan() plan {
	p := plan{damage: s.rng.IntN(2) == 0}
	switch s.rng.IntN(7) {
	case 0, 1:
		p.dieAt = 1 + s.rng.IntN(300)
	case 2:
		p.failAt, p.failures = 1+s.rng.IntN(200), 1+s.rng.IntN(3)
	case 3:
		p.only = map[string]bool{seldom[s.rng.IntN(len(seldom))]: true}
		p.failAt, p.failures = 1+s.rng.IntN(10), 1+s.rng.IntN(3)
	case 4:
		p.only = map[string]bool{"open data file": true, "read columns": true, "read a row": true}
		p.failAt, p.failures = 1+s.rng.IntN(40), 1+s.rng.IntN(3)
	}
	if s.rng.IntN(2) == 0 {
		p.lose = 2 + s.rng.IntN(60)
	}
	return p
}

// call is asked before each call to the outside.
func (s *sim) call(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plan.only != nil && !s.plan.only[name] {
		if s.dead {
			return errPowerCut
		}
		return nil
	}
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

// damaging says whether a read that fails is of a damaged file.
func (s *sim) damaging() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Reading++
	return s.plan.damage
}

func (s *sim) count(what func(*simCounts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what(&s.counts)
}

// life lets a mirror run through some steps, and end as the plan says or by a stop.
func (s *sim) life(p plan, steps int) {
	s.t.Helper()
	s.mu.Lock()
	s.plan, s.called, s.dead = p, 0, false
	clear(s.wanted)
	s.plans.damage = s.plans.damage || p.damage
	s.mu.Unlock()
	s.leaving = false
	m, err := New(Config{Slot: "m", Publications: []string{"p"}, IndexDir: s.dir, BatchRows: 1 + s.rng.IntN(12), FlushWorkers: 1 + s.rng.IntN(2),
		CopyWorkers: 1 + s.rng.IntN(2), History: s.history, NullUnrepresentable: s.nullBad, FileRows: 1 + s.rng.Int64N(5), Grace: s.ware.grace, Effect: s.call,
		Log: slog.New(slog.DiscardHandler)}, s.source, simWarehouse{s.ware, s}, simFiles{s.files, s}, SystemClock())
	s.check(err)
	m.compactRun, m.compactRows, m.replaySlice, m.carrySlice, m.sortRows = 2, 40, 1+s.rng.IntN(4), s.rng.IntN(3), 1+s.rng.IntN(8)
	if s.rng.IntN(2) == 0 {
		m.cfg.Memory = 1 << 12 << s.rng.IntN(8)
	}
	s.m = m
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	server := s.serve(m)
	var readers sync.WaitGroup
	for i := range 3 {
		r := &simReading{sim: s, m: m, from: m, r: rand.New(rand.NewPCG(s.rng.Uint64(), 2))}
		if i == 0 {
			r.from, r.server = server.client, server
		}
		readers.Go(func() { r.run(ctx) })
	}
	over := false
	for ; steps > 0 && !over && !s.t.Failed() && !s.died(); steps-- {
		s.model.Lock()
		for range s.rng.IntN(4) {
			s.transaction()
		}
		if s.rng.IntN(8) == 0 {
			s.anotherCommits()
		}
		s.model.Unlock()
		if s.rng.IntN(5) == 0 {
			s.source.idle()
		}
		if s.rng.IntN(5) == 0 {
			readers.Go(func() { s.copyFailed(ctx, m) })
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
	s.model.Lock()
	s.leaving = true
	s.model.Unlock()
	stop()
	if !over {
		err = <-ended
	}
	readers.Wait()
	server.stop()
	s.nothingHeld(m)
	s.counts.Lives++
	switch {
	case s.died():
		s.counts.Deaths++
	case errors.Is(err, iceberg.ErrCorrupt):
		s.t.Fatalf("a damaged data file ended the mirror: %v", err)
	case err != nil && !errors.Is(err, errIO) && !pgcdc.IsRetryable(err):
		s.t.Fatalf("the mirror ended with %v", err)
	}
	if s.source.early != 0 {
		s.t.Fatalf("%s was acknowledged, but only %s is committed", s.source.early, s.ware.lastCut())
	}
	if s.died() && s.rng.IntN(2) == 0 {
		s.loseIndexes()
	}
	if s.rng.IntN(4) == 0 {
		s.anotherCommits()
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
	m, err := New(Config{Slot: "m", Publications: []string{"p"}, IndexDir: s.dir, NullUnrepresentable: s.nullBad, Grace: s.ware.grace, Log: slog.New(slog.DiscardHandler)}, s.source, s.ware, s.files, SystemClock())
	s.check(err)
	s.m = m
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	for tries := 1; ; tries++ {
		err := s.mend(ctx, m)
		if err == nil {
			break
		}
		if tries == 1000 {
			s.t.Fatalf("tables cannot be mended: %v", err)
		}
		select {
		case <-time.After(time.Second):
		case err := <-ended:
			s.t.Fatalf("the last life ended with %v", err)
		}
	}
	st, err := m.Pin(ctx, readstate.PinRequest{WaitSource: true, Timeout: time.Hour})
	s.check(err)
	if st.LSN < s.source.end() {
		s.t.Errorf("the mirror is at %s, the source at %s", st.LSN, s.source.end())
	}
	s.withModel(func() { s.compare(st, false) })
	st.Release()
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
