package mirror

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// Mirror keeps the tables of one publication. Make it with New, run it with Run; the readstate.Provider methods may be called
// by any goroutine while it runs.
type Mirror struct {
	cfg       Config
	source    Source
	warehouse Warehouse
	files     Files
	clock     Clock

	marks       *watermarks
	lastFeed    atomic.Uint64 // of the batches of change feeds
	feeds       atomic.Int64  // bytes of the lists of change feeds that are open
	memory      atomic.Int64  // bytes in memory batches
	visible     atomic.Int64  // bytes of visibility and of the window's commit times, as last weighed
	pinned      atomic.Int64  // bytes of batches that only read states see, and of the vectors of read states
	copyRows    atomic.Int64  // bytes of rows that copies hold
	copyBytes   int64         // that a worker of a copy may hold
	storedBytes atomic.Int64  // of the document that the last commit stored
	counts      counters
	copying     copyProgress
	lookups     lookupCounts
	written     writtenBytes
	stalls      *stalls
	readers     readers
	settled     settledFiles
	serving     func() readstate.Stats // of the server of read states; nil when there is none

	events    chan pgcdc.Event
	turns     chan *turn    // for between two transactions
	urgent    chan *turn    // for between two changes
	stop      chan struct{} // closed: no more events are taken
	stopped   chan struct{} // closed: the applier has ended
	stopOne   sync.Once
	flusher   *flusher
	compactor *compactor
	pace      *pace // of compaction
	// The constants but in tests.
	replaySlice   int
	carrySlice    int
	smallFlushes  int
	impatient     bool // checkpoints do not wait for HWM to pass a look
	joinsTogether int
	evolveLooks   int
	compactRun    int
	compactRows   int64  // FileRows but in tests
	sortRows      int    // rows that a rowSorter keeps in memory
	mergeEntries  uint64 // how many entries a merged FileIndex may have

	checkpointing sync.Mutex
	matching      matching      // its lock comes after m.checkpointing
	deleting      sync.Mutex    // from the choice of files to be deleted until they are
	wantCut       chan struct{} // asks the checkpointer for a cut now
	wantFold      chan struct{} // asks for deletions to be folded now

	// The applier's. Other goroutines see them through inTurn or shared.
	doc     document
	tables  []*table
	byOID   map[uint32]*table
	touched []*table
	changed int64  // bytes of the changes applied since the last commit
	steps   int    // changes applied
	xid     uint32 // of the transaction that is being applied
	window  window // of the transaction that is being applied
	probed  *probe // what the FileIndexes say of the key of the change that is being applied; nil when they were not asked
	// From these sizes on keys are looked up together; a test lowers them.
	probeRows    int64
	probeEntries uint64
	slotGiven    chan struct{} // closed: the slot is to be dropped (slotwal.go)
	begun        func()        // to be called with the first event of a connection
	lastSegment  uint32
	folded       int64 // bytes of visibility after the last fold
	applied      LSN   // end of the last commit applied, or of the keepalive that came after it
	abandoned    bool  // a stop came inside a transaction; what was applied of it counts for nothing
	durable      LSN
	certain      LSN     // of the newest commit of which a look has shown that the catalogue was the one that the tables are known by; at most durable
	deaths       []death // of batches that were not buried yet, about in the order of their LSNs
	closures     uint64  // counts tables that were closed
	evolutions   uint64  // counts tables whose columns changed in place
	cut          LSN     // of the checkpoint in flight; 0 when there is none
	lastCommit   commitMark
	guard        forkGuard
	refuseStream context.CancelCauseFunc // of the present connection
	refused      bool                    // a fork was seen: what else has arrived is not applied
	looks        []look
	catalogLSN   LSN
	catalogSeen  uint64 // Snapshot of the newest look that was compared
	garbage      []garbage
	// staleIndexes are FileIndexes of files that are gone from their tables.
	discarded    []string // data files that were truncated before any snapshot named them
	staleIndexes []string
	reapedAt     LSN // LWM when memory ran short and ended batches were dropped for it

	joins    map[uint32]*join // by the OID of the table on the source
	joinWake chan struct{}    // a join is wanted
	past     []*table         // replaced by others or forgotten, but readers may still see them
	forgot   []*table         // forgotten, and to be dropped by the next commit
	binary   bool             // the format of the stream

	lastCheckpoint time.Time
	checkpointTook time.Duration

	shared   shared
	sharing  bool // updateShared waits for sharedOnce
	unshared bool // and was called
	// endStream, if set, ends the stream so that another one begins at once. follow sets it.
	endStream atomic.Pointer[context.CancelFunc]
}

// turn is work that the applier does between two changes for somebody else.
type turn struct {
	do   func() error
	err  error
	done chan struct{}
}

// New makes a mirror; nothing starts before Run.
func New(cfg Config, source Source, warehouse Warehouse, files Files, clock Clock) (*Mirror, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Mirror{
		cfg: cfg, source: source, warehouse: warehouse, files: files, clock: clock,
		marks:   newWatermarks(cfg.History),
		events:  make(chan pgcdc.Event, 256),
		turns:   make(chan *turn),
		urgent:  make(chan *turn),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
		wantCut: make(chan struct{}, 1), wantFold: make(chan struct{}, 1), slotGiven: make(chan struct{}),
		byOID: map[uint32]*table{}, stalls: newStalls(),

		replaySlice: replaySlice, carrySlice: carrySlice, smallFlushes: smallFlushes, joinsTogether: joinsTogether, evolveLooks: evolveLooks, compactRun: compactRun, compactRows: cfg.FileRows, sortRows: sortRows(cfg.Memory),

		joins: map[uint32]*join{}, joinWake: make(chan struct{}, 1),
	}
	m.copyBytes, m.mergeEntries = copyBytes(&m.cfg), mergeEntries(&m.cfg)
	m.probeRows, m.probeEntries = probeRows, probeEntries
	m.window.m = m
	m.flusher = newFlusher(m)
	m.compactor, m.pace = &compactor{m: m, wake: make(chan struct{}, 1)}, &pace{perSecond: m.cfg.Compact.BytesPerSecond}
	m.shared.set(func(s *sharedState) { s.state = "starting" })
	return m, nil
}

// ServedBy tells whose figures of read states status and metrics show. It comes before Run, and stats may be called at any time.
func (m *Mirror) ServedBy(stats func() readstate.Stats) { m.serving = stats }

// Run recovers what the warehouse holds, opens it for reading, copies the source if that was never done, and then follows it
// until ctx ends. It then stops reading, makes a last checkpoint, acknowledges it and returns nil. An error means that the
// mirror cannot go on; ErrRefused is among its causes when a person must decide.
func (m *Mirror) Run(ctx context.Context) error {
	if err := m.recover(ctx); err != nil {
		close(m.stopped)
		return err
	}
	// Workers outlive ctx: they are needed for the last checkpoint.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(ErrStopped)
	g, work := errgroup.WithContext(work)
	// The applier may end first, by an error; whoever still waits for a turn must then hear of it, or Run would never end.
	g.Go(func() error { defer close(m.stopped); return m.applyLoop(work) })
	g.Go(func() error { return m.flusher.run(work) })
	g.Go(func() error { return m.compactor.run(work) })
	g.Go(func() error { return m.checkpointLoop(work) })
	g.Go(func() error { return m.foldLoop(work) })
	g.Go(func() error { return m.expireLoop(work) })
	g.Go(func() error { return m.diskLoop(work) })

	follow, stopFollowing := context.WithCancel(work)
	defer stopFollowing()
	g.Go(func() error { return m.follow(follow, ctx) })
	g.Go(func() error { return m.watch(follow) })
	g.Go(func() error { return m.slotLoop(follow) })
	g.Go(func() error { return m.joinLoop(follow) })

	g.Go(func() error {
		select {
		case <-ctx.Done():
		case <-work.Done():
			return nil
		}
		m.cfg.Log.Info("stopping")
		m.stopOne.Do(func() { close(m.stop) })
		err := m.checkpoint(work)
		stopFollowing()
		if err != nil {
			return fmt.Errorf("last checkpoint: %w", err)
		}
		cancel(ErrStopped)
		return nil
	})
	err := g.Wait()
	m.release()
	if ctx.Err() != nil && context.Cause(work) == ErrStopped {
		return nil
	}
	return err
}

// applyLoop is the one goroutine that owns all tables' state.
func (m *Mirror) applyLoop(ctx context.Context) error {
	events := m.events
	for {
		select {
		case t := <-m.turns:
			t.run()
		case t := <-m.urgent:
			t.run()
		case ev := <-events:
			if m.stopping() {
				// The last checkpoint may have had its turn already: what is applied now would be visible and not durable.
				events = nil
				if ev.Transaction != nil {
					ev.Transaction.Release()
				}
			} else if err := m.event(ctx, ev); errors.Is(err, errAbandoned) {
				m.abandoned, events = true, nil
			} else if err != nil {
				return err
			}
		case <-m.stop:
			// Only turns from here on: what has not been applied is sent again next time.
			events = nil
			select {
			case t := <-m.turns:
				t.run()
			case t := <-m.urgent:
				t.run()
			case <-ctx.Done():
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// stopping reports whether no more events are taken.
func (m *Mirror) stopping() bool {
	select {
	case <-m.stop:
		return true
	default:
		return false
	}
}

func (t *turn) run() {
	t.err = t.do()
	close(t.done)
}

// inTurn runs do on the applier's goroutine between two transactions.
func (m *Mirror) inTurn(ctx context.Context, do func() error) error { return m.hand(ctx, m.turns, do) }

// inAnyTurn runs do on the applier's goroutine, perhaps in the middle of a transaction that waits for memory.
func (m *Mirror) inAnyTurn(ctx context.Context, do func() error) error {
	return m.hand(ctx, m.urgent, do)
}

// inReadingTurn is inAnyTurn for work that only looks at the state: as nothing is half changed by it, a panic in it is an error.
func (m *Mirror) inReadingTurn(ctx context.Context, look func() error) error {
	return m.inAnyTurn(ctx, func() error { return m.guarded(look) })
}

// guarded makes a panic of do an error, and logs where it was.
func (m *Mirror) guarded(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			m.cfg.Log.Error("a command panicked", "err", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", errPanicked, p)
		}
	}()
	return do()
}

// inTimedTurn is inAnyTurn, and raises longest to the time that the turn took.
func (m *Mirror) inTimedTurn(ctx context.Context, longest *time.Duration, do func() error) error {
	return m.inAnyTurn(ctx, func() error {
		began := m.clock.Now()
		defer func() { *longest = max(*longest, m.clock.Now().Sub(began)) }()
		return do()
	})
}

func (m *Mirror) hand(ctx context.Context, to chan<- *turn, do func() error) error {
	if ctx.Err() != nil { // select would choose at random between it and an idle applier
		return context.Cause(ctx)
	}
	t := &turn{do: m.stalls.timed(m.clock, do), done: make(chan struct{})}
	select {
	case to <- t:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.stopped:
		return ErrStopped
	}
	<-t.done
	return t.err
}

// refuse ends the stream because of what came on it: nothing of this connection is applied any more, and follow hears why.
func (m *Mirror) refuse(err error) error {
	if m.refuseStream == nil {
		return err
	}
	m.refused = true
	m.refuseStream(err)
	return nil
}

// event takes one element of the stream.
func (m *Mirror) event(ctx context.Context, ev pgcdc.Event) error {
	if m.refused {
		if ev.Transaction != nil {
			ev.Transaction.Release()
		}
		return nil
	}
	if begun := m.begun; begun != nil {
		m.begun = nil
		begun()
	}
	tx := ev.Transaction
	if tx == nil {
		if ev.WALEnd > m.applied {
			if err := m.guard.passed(); err != nil {
				return m.refuse(err)
			}
			m.applied = ev.WALEnd
			if err := m.judge(); err != nil {
				return err
			}
			m.marks.publish(ev.WALEnd, m.clock.Now())
		}
		return nil
	}
	defer tx.Release()
	if tx.EndLSN <= m.applied {
		if err := m.guard.again(commitMark{tx.EndLSN, tx.XID, tx.CommitTime}, m.applied); err != nil {
			return m.refuse(err)
		}
		return nil
	}
	if err := m.guard.passed(); err != nil {
		return m.refuse(err)
	}
	return m.apply(ctx, tx)
}

// errAbandoned: the mirror stops inside a transaction, which the source sends again.
var errAbandoned = errors.New("stopping inside a transaction")

// weighEvery is the number of changes after which visibility is weighed: a look at every segment.
const weighEvery = 64 * yieldEvery

// yieldEvery is the number of changes of one transaction after which others get their turn.
const yieldEvery = 1024

// makeRoom lets others have their turn now and then, and waits, at the memory bound, until flushes have brought memory below it;
// their results are installed meanwhile.
func (m *Mirror) makeRoom(ctx context.Context) error {
	if m.steps++; m.steps%yieldEvery == 0 {
		for _, t := range m.touched {
			if t.open != nil {
				m.weigh(t.open.batch)
			}
		}
		if m.steps%weighEvery == 0 {
			m.weighVisibility()
		}
		m.flusher.weighed()
		select {
		case <-m.stop:
			return errAbandoned
		case t := <-m.urgent:
			t.run()
		default:
		}
	}
	if !m.full() {
		return nil
	}
	for m.full() && m.flusher.busy() {
		select {
		case t := <-m.urgent:
			t.run()
		case <-m.flusher.progress:
		case <-m.stop:
			return errAbandoned
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if low := m.marks.low(); m.full() && low > m.reapedAt {
		m.reapedAt = low
		for _, t := range m.tables {
			t.reap(m, low)
		}
	}
	return nil
}

// checkpointLoop makes checkpoints when they are due or asked for.
func (m *Mirror) checkpointLoop(ctx context.Context) error {
	last := m.clock.Now()
	if err := m.lookForForeign(ctx); err != nil && !isDiskFull(err) { // what came while we were away
		return ignoreStop(ctx, err)
	}
	for {
		asked := false
		select {
		case <-m.wantCut:
			asked = true
		case <-m.clock.After(min(time.Second, m.cfg.CheckpointInterval)):
		case <-m.stop:
			return nil
		case <-ctx.Done():
			return nil
		}
		var dirty, behind bool
		if err := m.inTurn(ctx, func() error {
			for _, t := range m.tables {
				dirty = dirty || t.dirty
			}
			behind = m.doc.Phase == phaseStreaming && m.marks.high() > m.durable
			m.weighVisibility()
			return nil
		}); err != nil {
			return ignoreStop(ctx, err)
		}
		now := m.clock.Now()
		wait := m.cfg.CheckpointInterval
		if !dirty {
			wait = min(wait, storePause(m.storedBytes.Load()))
		}
		if !dirty && !behind || !asked && now.Sub(last) < wait {
			continue
		}
		if err := m.untilWritten(ctx, "checkpoint", func() error { return m.checkpoint(ctx) }); err != nil {
			return ignoreStop(ctx, err)
		}
		last = now
	}
}

// storeRate is how much is stored in a second, at most, to note how far a mirror has come to which nothing happens: the state of 5,000 tables takes
// 3 MB, and the source's WAL goes on all the time.
const storeRate = 64 << 10

// storePause is the time between two such notes of a state of so many bytes.
func storePause(bytes int64) time.Duration { return time.Duration(bytes) * time.Second / storeRate }

// foldLoop folds deletions from time to time.
func (m *Mirror) foldLoop(ctx context.Context) error {
	for {
		select {
		case <-m.clock.After(m.cfg.FoldInterval):
		case <-m.wantFold:
		case <-ctx.Done():
			return nil
		}
		if err := m.fold(ctx); err != nil {
			return ignoreStop(ctx, err)
		}
		if err := m.reap(ctx); isDiskFull(err) {
			m.cfg.Log.Error("the disk takes no more: files that nobody needs stay for now", "err", err)
		} else if err != nil {
			return ignoreStop(ctx, err)
		}
	}
}

// ignoreStop is nil when err only says that the mirror is stopping.
func ignoreStop(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
