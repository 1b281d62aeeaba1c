package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
)

// world is a mirror between a source and a warehouse in memory, and the model of what it must hold. Everything happens on
// the test's goroutine or while it waits, in an order that the seed decides.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	source *fakeSource
	ware   *fakeWarehouse
	files  *fakeFiles
	clock  *fakeClock
	tables []*modelTable

	dir    string // of the logs of joins; the names of FileIndexes begin with it
	m      *Mirror
	replay *pgcdc.Replay
	told   bool // the session has sent its Relation messages
	stop   context.CancelFunc
	ended  chan error
	pinned []pinnedState
	depth  int // of operations inside operations

	// What the seed decides once.
	history  time.Duration
	nullBad  bool            // on_unrepresentable: null
	spill    int64           // bytes from which a transaction counts as large; 0 for the default
	pressure bool            // memory is always short: whatever can be flushed must be before the next change is applied
	eager    bool            // keys of a transaction are looked up together, however few
	faults   int             // tables that may still be made to fail
	alters   bool            // columns come, go, and get other names
	silence  bool            // rows go without a word on the stream
	steady   bool            // not now
	others   bool            // another engine commits to the tables too
	sound    bool            // no effect fails
	taken    int             // such changes that were taken over in place
	spoiled  map[string]bool // by uuid, tables of which another engine did more than to move rows

	sending bool // commits go to the mirror at once
	copied  LSN  // the first copy's LSN
	trail   []mark
	sent    LSN // end of the newest commit on the stream

	effectMu    sync.Mutex // the applier has effects too
	effectErr   map[string]error
	serial      int
	trace       []string
	snapshots   int // committed ones that were compared
	longest     int // checkpoints that one reader stayed for
	changesSeen int // by compareChanges
	// Of committed snapshots: tables that were closed, and cuts that were doubtful.
	closedSeen, doubtfulSeen int
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), ware: newFakeWarehouse(), files: &fakeFiles{files: map[string][]byte{}},
		clock: &fakeClock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, effectErr: map[string]error{}, spoiled: map[string]bool{}}
	w.dir = t.TempDir()
	defs := modelTables()
	for _, d := range defs {
		w.tables = append(w.tables, &modelTable{def: d})
	}
	w.source = newFakeSource(defs)
	w.source.rows = func(oid uint32, at LSN) [][]cell { return w.table(oid).at(at) }
	w.source.committed = w.ware.lastCut
	w.ware.committed = func(c iceberg.Commit) { w.snapshot(c) }
	if w.rng.IntN(3) == 0 {
		w.history = 10 * time.Second
	}
	w.nullBad = w.rng.IntN(2) == 0
	if w.rng.IntN(2) == 0 {
		w.spill = 1 + w.rng.Int64N(400)
	}
	w.pressure = w.rng.IntN(3) == 0
	w.faults = w.rng.IntN(4)
	w.eager = seed%2 == 0
	w.ware.now = w.clock.Now
	return w
}

func (w *world) table(oid uint32) *modelTable {
	return w.tables[slices.IndexFunc(w.tables, func(t *modelTable) bool { return t.def.OID == oid })]
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, strings.Repeat("  ", w.depth)+fmt.Sprintf(format, args...))
}

func (w *world) fatal(format string, args ...any) {
	w.t.Helper()
	tail := w.trace[max(0, len(w.trace)-60):]
	w.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(tail, "\n"))
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.fatal("%v", err)
	}
}

// lastCommitBefore is the end of the newest commit below an LSN, or the first copy's.
func (w *world) lastCommitBefore(lsn LSN) LSN {
	last := w.copied
	for _, c := range w.source.after(w.copied) {
		if c.end < lsn {
			last = max(last, c.end)
		}
	}
	return last
}

// effect is what the engine asks before each effect on the outside.
func (w *world) effect(name string) error {
	w.effectMu.Lock()
	defer w.effectMu.Unlock()
	if name == "columns changed" {
		w.taken++
	}
	return w.effectErr[name]
}

// failAt lets one effect fail from now on, or none.
func (w *world) failAt(name string) {
	w.effectMu.Lock()
	defer w.effectMu.Unlock()
	clear(w.effectErr)
	if name != "" {
		w.effectErr[name] = errPowerCut
	}
}

// start begins a life of the mirror: recovery, or the first copy, then the stream from the slot's confirmed LSN.
func (w *world) start() {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cfg := Config{Slot: "m", Publications: []string{"p"}, IndexDir: w.dir, BatchRows: 1 + w.rng.IntN(12), FlushWorkers: 1, CopyWorkers: 1,
		History: w.history, NullUnrepresentable: w.nullBad, FileRows: 1 + w.rng.Int64N(5), Grace: w.ware.grace,
		Effect: w.effect}
	m, err := New(cfg, w.source, w.ware, w.files, w.clock)
	w.check(err)
	if w.eager {
		m.probeRows, m.probeEntries = 2, 1
	}
	m.compactRun, m.compactRows, m.replaySlice, m.evolveLooks, m.smallFlushes = 2, 40, 1+w.rng.IntN(4), 2, 1
	m.carrySlice, m.sortRows, m.impatient = len(w.trace)%3, 1+len(w.trace)%5, true
	w.check(m.recover(ctx))
	w.m, w.stop, w.ended, w.sending = m, stop, make(chan error, 1), true
	go func() { w.ended <- m.applyLoop(ctx) }()
	if m.doc.Phase != phaseStreaming {
		id, _ := w.source.Identify(ctx)
		w.check(m.firstCopy(ctx, id))
		w.copied = m.doc.Cut
	}
	w.trail = append(w.trail[:0], mark{m.marks.high(), w.clock.Now()})
	w.setPressure(w.pressure)
	if w.others && w.rng.IntN(2) == 0 {
		w.check(m.lookForForeign(ctx))
	}
	w.connect()
}

// noRuns checks that no file of a rowSorter is left.
func (w *world) noRuns() {
	w.t.Helper()
	if names, _ := w.files.List(w.dir); slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, runPrefix) }) {
		w.fatal("files of a rewrite that was taken over are left: %v", names)
	}
}

// setPressure lets memory be always short, or never.
func (w *world) setPressure(short bool) {
	w.t.Helper()
	w.check(w.m.inAnyTurn(context.Background(), func() error {
		w.m.cfg.Memory = 1 << 40
		if short {
			w.m.cfg.Memory = 1
		}
		return nil
	}))
}

// connect begins a session: the server sends everything above the slot's confirmed LSN, Relation messages anew.
func (w *world) connect() {
	w.t.Helper()
	ctx := context.Background()
	w.check(w.m.drain(ctx))
	catalog, _ := w.source.Look(ctx)
	slot, _, _ := w.source.Slot(ctx)
	kept, err := w.m.rowsKept(ctx, catalog)
	w.check(err)
	w.check(w.m.inTurn(ctx, func() error {
		w.m.resolve(catalog, kept)
		w.m.guard.begin(w.m.lastCommit, slot.ConfirmedFlush)
		return nil
	}))
	for _, t := range w.tables {
		if v := w.viewAt(t.def.Name, maxLSN); w.alters && v != nil && v.failure != nil && v.failure.Remedy == remedyOutdated {
			w.excuse(t) // its columns changed after the last commit
		}
	}
	w.m.setState("streaming", "")
	spillDir := ""
	if w.spill > 0 {
		spillDir = w.t.TempDir()
	}
	w.replay, w.told = pgcdc.NewReplay(spillDir, w.spill), false
	for _, c := range w.source.after(slot.ConfirmedFlush) {
		w.send(c)
	}
	w.settle()
}

// reconnect loses the connection, perhaps in the middle of a transaction, and begins another session.
func (w *world) reconnect() {
	w.t.Helper()
	w.note("reconnect")
	if w.rng.IntN(2) == 0 {
		w.sending = false
		w.transaction()
		w.sending = true
		list := w.source.after(0)
		msgs := w.messages(list[len(list)-1])
		for _, msg := range msgs[:w.rng.IntN(len(msgs))] {
			tx, err := w.replay.Message(msg)
			w.check(err)
			if tx != nil {
				w.fatal("half a transaction is one")
			}
		}
	}
	w.connect()
}

// messages is a commit as this session sends it: whole, or streamed while it ran.
func (w *world) messages(c *commit) []message {
	if w.rng.IntN(3) == 0 {
		msgs, told := c.streamed(c.tables, w.rng)
		w.told = told // what was told before a rollback is told again
		return msgs
	}
	msgs := c.messages()
	if !w.told {
		w.told = true
		msgs = slices.Insert(msgs, 1, relationMessages(c.tables)...)
	}
	return msgs
}

// send puts a commit on the stream.
func (w *world) send(c *commit) {
	w.t.Helper()
	w.sent = c.end
	for _, msg := range w.messages(c) {
		tx, err := w.replay.Message(msg)
		w.check(err)
		if tx != nil {
			w.deliver(pgcdc.Event{Transaction: tx})
		}
	}
	w.passed(c.end)
}

// passed notes that HWM reaches an LSN now, unless it had before.
func (w *world) passed(lsn LSN) {
	if lsn > w.trail[len(w.trail)-1].lsn {
		w.trail = append(w.trail, mark{lsn, w.clock.Now()})
	}
}

func (w *world) deliver(ev pgcdc.Event) {
	w.t.Helper()
	select {
	case w.m.events <- ev:
	case err := <-w.ended:
		w.fatal("the applier ended: %v", err)
	}
	if w.pressure && w.depth == 0 {
		w.settle()
	}
}

// settle waits until everything sent is applied. Under pressure it does the flusher's work meanwhile, and now and then a
// checkpoint is asked for in the middle of a transaction; it must wait for the transaction's end.
func (w *world) settle() {
	w.t.Helper()
	done := make(chan error, 1)
	go func() { done <- w.m.drain(context.Background()) }()
	var wake <-chan struct{}
	ask := false
	var checkpoint chan error
	if w.pressure && w.depth == 0 {
		wake, ask = w.m.flusher.wake, w.rng.IntN(5) == 0
	}
	for {
		select {
		case <-wake:
			for {
				// In the middle of a transaction the applier waits for these; what is left at its end comes below.
				chosen := w.chooseToFlush(true)
				if len(chosen) == 0 {
					break
				}
				if ask {
					ask = false
					job := w.m.checkpoint
					if w.others && len(w.trace)%2 == 0 {
						w.note("other writers are looked for in the middle of a transaction")
						job = w.m.lookForForeign
					} else {
						w.note("a checkpoint is asked for in the middle of a transaction")
					}
					checkpoint = make(chan error, 1)
					go func() {
						defer close(checkpoint)
						checkpoint <- job(context.Background())
					}()
				}
				w.flushForMemory(chosen, checkpoint == nil)
			}
		case err := <-done:
			w.check(err)
			if checkpoint != nil {
				w.check(<-checkpoint)
				if w.t.Failed() { // on the checkpoint's goroutine
					w.t.FailNow()
				}
			}
			for wake != nil {
				chosen := w.chooseToFlush(false)
				if len(chosen) == 0 {
					break
				}
				w.flushForMemory(chosen, true)
			}
			return
		case err := <-w.ended:
			w.fatal("the applier ended: %v", err)
		}
	}
}

// chooseToFlush asks the flusher what to flush, with inside only if a transaction is being applied.
func (w *world) chooseToFlush(inside bool) (chosen []*table) {
	w.t.Helper()
	w.check(w.m.inAnyTurn(context.Background(), func() (err error) {
		if !inside || w.m.applied < w.sent {
			chosen, err = w.m.flusher.choose()
		}
		return err
	}))
	return chosen
}

// flushForMemory is a round of the flusher; with reads, they happen meanwhile.
func (w *world) flushForMemory(chosen []*table, reads bool) {
	w.t.Helper()
	if reads {
		w.ware.writing = func() {
			if w.rng.IntN(3) == 0 {
				w.depth++
				w.readSomewhere()
				w.depth--
			}
		}
		defer func() { w.ware.writing = nil }()
	}
	for _, t := range chosen {
		w.note("flush %s for memory", t)
		w.check(w.m.flush(context.Background(), t, maxLSN))
	}
	signal(w.m.flusher.progress)
}

// crash ends the life without notice. What is not committed is gone; now and then index files are lost or torn with it, or
// are those of another file.
func (w *world) crash() {
	w.t.Helper()
	w.note("crash")
	w.stop()
	<-w.ended
	for _, t := range w.m.tables {
		w.noteBase(t)
	}
	w.pinned = nil
	w.failAt("")
	w.ware.writing, w.ware.committing, w.files.merging = nil, nil, nil
	var paths []string
	for path := range w.files.files {
		paths = append(paths, path)
	}
	// By content: a merged index has a random name.
	slices.SortFunc(paths, func(a, b string) int { return bytes.Compare(w.files.files[a], w.files.files[b]) })
	for _, path := range paths {
		data := w.files.files[path]
		switch w.rng.IntN(8) {
		case 0:
			delete(w.files.files, path)
		case 1:
			w.files.files[path] = data[:w.rng.IntN(len(data)+1)]
		case 2:
			w.files.files[path] = w.files.files[paths[w.rng.IntN(len(paths))]]
		}
	}
	w.start()
}

// step does one random thing. Inside a flush or a commit it does things that may happen meanwhile.
func (w *world) step() {
	w.t.Helper()
	ctx := context.Background()
	if w.history > 0 {
		w.settle() // each commit becomes visible at the time that the seed says
	}
	w.clock.advance(time.Duration(w.rng.Int64N(int64(600 * time.Millisecond))))
	if w.silence && !w.steady {
		switch w.rng.IntN(30) {
		case 0:
			w.silently()
			return
		case 1:
			w.look()
			return
		}
	}
	if w.alters && !w.steady {
		switch w.rng.IntN(30) {
		case 0:
			w.alterColumns()
			return
		case 1:
			w.look()
			return
		}
	}
	if w.others && !w.steady && w.rng.IntN(12) == 0 {
		w.anotherCommits()
		if w.depth == 0 && w.rng.IntN(3) == 0 {
			w.during("look for other writers", func() error { return w.m.lookForForeign(ctx) })
			w.noRuns()
		}
		return
	}
	switch n := w.rng.IntN(100); {
	case n < 44:
		w.transaction()
	case n < 49:
		end := w.source.idle()
		w.note("keepalive %s", end)
		w.deliver(pgcdc.Event{WALEnd: end})
		w.passed(end)
	case n < 70:
		w.settle()
		w.readSomewhere()
		w.checkWindow()
	case n < 73:
		w.settle()
		w.readOutside()
	case n < 79:
		w.readAgain()
	case n < 83:
		w.fold()
	case n < 85:
		w.settle()
		w.audit()
	case w.depth > 0:
		// Checkpoints and crashes do not happen inside others; folding, another table's flush, and merges and compactions of any table do.
		switch {
		case w.depth == 1 && n < 92:
			w.flushAnother()
		case w.depth == 1 && n < 95:
			w.mergeMeanwhile()
		case w.depth == 1 && n < 97:
			w.compactMeanwhile()
		default:
			w.fold()
		}
	case n < 87:
		w.during("merge", func() error {
			for _, t := range w.m.tables {
				if err := w.m.mergeIndexes(ctx, t); err != nil {
					return err
				}
			}
			return nil
		})
	case n < 88:
		w.resync()
	case n == 89:
		w.during("expire", func() error { _, err := w.m.Expire(ctx, ExpireRequest{}); return err })
	case n == 88:
		w.during("compact", func() error {
			for _, t := range w.m.tables {
				if _, err := w.m.compact(ctx, t, w.rng.IntN(2) == 0); err != nil {
					return err
				}
			}
			return nil
		})
	case n < 91:
		w.during("flush", func() error {
			t := w.m.tables[w.rng.IntN(len(w.m.tables))]
			if w.rng.IntN(2) == 0 {
				w.check(w.m.inTurn(ctx, func() error { w.m.sealOpen(t); return nil }))
			}
			return w.m.flush(ctx, t, maxLSN)
		})
	case n < 96:
		w.during("checkpoint", func() error { return w.m.checkpoint(ctx) })
		w.noRuns()
	case n < 98:
		w.reconnect()
	default:
		w.crash()
	}
	if w.source.early != 0 {
		w.fatal("%s was acknowledged, but only %s is committed", w.source.early, w.ware.lastCut())
	}
}

// resync copies a table again, healthy or failed, and what else waits for it, while other things happen.
func (w *world) resync() {
	w.t.Helper()
	ctx := context.Background()
	w.settle()
	i := w.rng.IntN(len(w.tables))
	mt := w.tables[i]
	for _, r := range mt.at(w.source.end()) {
		if !w.nullBad && slices.ContainsFunc(r, func(c cell) bool { return c != nil && c.bad }) {
			return // it cannot be copied (TestJoinOfWhatCannotBeHeld)
		}
	}
	w.check(w.m.inTurn(ctx, func() error {
		w.m.wantJoin(mt.def.OID, w.m.byOID[mt.def.OID], "resync")
		return nil
	}))
	end := w.source.end()
	w.deliver(pgcdc.Event{WALEnd: end}) // after a crash the server tells it anew
	w.passed(end)
	w.steady = true // the join would begin again
	defer func() { w.steady = false }()
	faults := w.faults
	w.source.snapshotting = func() { // the log has begun: what comes now is in it and in the copy
		for range w.rng.IntN(3) {
			w.transaction()
		}
		w.settle()
	}
	defer func() { w.source.snapshotting = nil }()
	w.faults = 0 // a copy that meets one is given up, and the table is what it was before
	w.note("table %s is to be copied again", mt.def.Name)
	w.during("resync", func() error {
		left, _, err := w.m.joinQueued(ctx)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d tables were not copied", left)
		}
		return err
	})
	w.faults = faults
}

// noteBase tells the model from where a content was copied; the mirror does not know it after a restart.
func (w *world) noteBase(t *table) {
	mt := w.table(t.oid)
	if mt.bases == nil {
		mt.bases = map[string]LSN{}
	}
	if t.copiedAt != 0 {
		mt.bases[t.uuid] = t.copiedAt
	}
}

// flushAnother flushes a table on which no job is at work, in the middle of a checkpoint or of another table's flush.
func (w *world) flushAnother() {
	w.t.Helper()
	w.settle()
	ctx := context.Background()
	t := w.m.tables[w.rng.IntN(len(w.m.tables))]
	if !t.jobs.TryLock() {
		return
	}
	t.jobs.Unlock()
	w.note("flush %s meanwhile", t)
	w.check(w.m.inTurn(ctx, func() error { w.m.sealOpen(t); return nil }))
	if err := w.m.flush(ctx, t, maxLSN); !errors.Is(err, errPowerCut) { // the outer job ends by the same effect
		w.check(err)
	}
}

// mergeMeanwhile merges a table's FileIndexes in the middle of another job, such as a compaction of its files.
func (w *world) mergeMeanwhile() {
	w.t.Helper()
	w.settle()
	t := w.m.tables[w.rng.IntN(len(w.m.tables))]
	if !t.merging.TryLock() {
		return
	}
	w.note("merge %s meanwhile", t)
	err := w.m.mergeIndexesOf(context.Background(), t)
	t.merging.Unlock()
	if !errors.Is(err, errPowerCut) { // the outer job ends by the same effect
		w.check(err)
	}
}

// compactMeanwhile compacts a table in the middle of another job, such as a merge of its FileIndexes.
func (w *world) compactMeanwhile() {
	w.t.Helper()
	w.settle()
	t, all := w.m.tables[w.rng.IntN(len(w.m.tables))], w.rng.IntN(2) == 0
	if !t.tidying.TryLock() {
		return
	}
	w.note("compact %s meanwhile", t)
	_, err := w.m.rewriteFiles(context.Background(), func() *rewrite { return w.m.beginCompaction(t, all) })
	t.tidying.Unlock()
	if !errors.Is(err, errPowerCut) {
		w.check(err)
	}
}

func (w *world) fold() {
	w.t.Helper()
	w.settle()
	w.note("fold")
	w.check(w.m.fold(context.Background()))
	w.check(w.m.reap(context.Background()))
}

// checkWindow: what was visible history ago can still be read.
func (w *world) checkWindow() {
	w.t.Helper()
	since := w.clock.Now().Add(-w.history)
	asked := w.trail[0].lsn
	for _, m := range w.trail {
		if !m.at.After(since) {
			asked = m.lsn
		}
	}
	if low := w.m.marks.low(); low > asked {
		w.fatal("LWM is %s, but %s was visible at %s, %s ago", low, asked, since, w.history)
	}
}

// audit examines the mirror's insides.
func (w *world) audit() {
	w.t.Helper()
	ctx := context.Background()
	w.note("audit")
	w.check(w.m.Check(ctx))
	w.check(w.m.inTurn(ctx, func() error {
		for _, t := range w.m.tables {
			if t.state != stateStreaming {
				continue
			}
			mt := w.table(t.oid)
			if mt.silent[t.uuid] != 0 {
				continue
			}
			w.noteBase(t)
			base, want := mt.bases[t.uuid], int64(0)
			for _, r := range mt.at(base) {
				for _, c := range r {
					if c != nil && c.bad {
						want++
					}
				}
			}
			for _, n := range mt.nulled {
				if n.at > base && n.at <= w.m.applied {
					want += n.values
				}
			}
			if t.unrepresentable != want {
				return fmt.Errorf("table %s counts %d values stored as NULL, want %d", t, t.unrepresentable, want)
			}
			if rows := int64(len(mt.at(w.m.applied))); t.rows != rows {
				return fmt.Errorf("table %s counts %d rows, want %d", t, t.rows, rows)
			}
		}
		return nil
	}))
}

// during runs a job that writes files while other things happen, and now and then lets it fail at one of its effects, which
// is a crash.
func (w *world) during(name string, job func() error) {
	w.t.Helper()
	w.settle()
	w.note("%s", name)
	if w.pressure {
		w.setPressure(false) // one goroutine cannot flush for memory inside another flush
	}
	w.ware.writing = func() {
		w.depth++
		for range w.rng.IntN(6) {
			w.step()
		}
		if name == "resync" {
			w.settle() // so that every turn of the join finds the same log in every run
		}
		w.depth--
	}
	w.files.merging = w.ware.writing
	w.ware.committing = func() error {
		w.ware.writing()
		return w.effect("commit")
	}
	if !w.sound && w.rng.IntN(6) == 0 {
		effects := []string{"file index", "version installed", "commit", "acknowledge"}
		w.failAt(effects[w.rng.IntN(len(effects))])
	}
	err := job()
	if w.t.Failed() { // on a goroutine of the job
		w.t.FailNow()
	}
	w.ware.writing, w.ware.committing, w.files.merging = nil, nil, nil
	w.note("%s done: %v", name, err)
	if errors.Is(err, errPowerCut) {
		w.crash()
		return
	}
	w.failAt("")
	w.check(err)
	w.settle()
	if w.pressure {
		w.setPressure(true)
	}
}

// end finishes the last life.
func (w *world) end() {
	w.t.Helper()
	for _, p := range w.pinned {
		p.Release()
	}
	w.pinned = nil
	if w.m.readers.openStates() == 0 && len(w.m.settled.named)+len(w.m.settled.kept) > 0 {
		w.fatal("files are named by no state: %v, %v", w.m.settled.named, w.m.settled.kept)
	}
	w.stop()
	if err := <-w.ended; err != nil {
		w.fatal("the applier ended: %v", err)
	}
	w.m.release()
}

// fakeClock stands still until it is advanced.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
