package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"pgmirror/pgcdc"
)

// join brings one table's content in while the stream goes on: of a table that was added to the publication, or of one that is
// copied again (resync) because its content is wrong or its definition has changed.
//
//	begin: changes go to a log ─▶ snapshot at F ─▶ copy ─▶ replay the log above F ─▶ install at J = HWM ≥ F
//
// The log begins before the snapshot is made, so what it holds above F is all that the copy lacks. The applier replays it between
// two transactions, a slice at a time, and installs the content in the turn in which the log is empty: readers at J and above see it,
// readers below J what was there before. Nothing of a join survives a crash but the wish for it; it then begins again.
type join struct {
	oid uint32
	// old is what the new content replaces: until then its state is shown. A table that was never there has one without content.
	old *table
	why string // what it is for, for a person

	log         *changeLog // nil while the join waits for its turn; the applier's
	arrived     int        // changes that came to the log since the last turn of the replay
	truncatedBy []uint32   // as table.truncatedBy, of what came to a log
	table       *table     // the new content; nil until it is copied
	from        LSN        // F
	kept        *logReader // what is being replayed; nil when nothing is
	shape       *pgcdc.Relation
	// shown is the table in the newest look that HWM has passed, and its Snapshot; nil when it was not in that.
	shown   *pgcdc.Table
	shownAt uint64

	copy    *tableCopy // under way; nil before
	trouble string     // why the last attempt ended; the applier's
	tried   int        // attempts that were begun; the applier's

	done   chan struct{}
	err    error // why it was given up; this and the next two are set before done is closed
	joined LSN   // J
	rows   int64 // at J
}

// replaySlice is the number of changes that are replayed in one turn: about 2 ms of the applier's time. It is more when more than
// half of it has arrived since the last turn, so that the log ends however fast it grows.
const replaySlice = 2048

// errJoinAgain: the source's table changed under the join, which begins again.
var errJoinAgain = errors.New("the table changed while it was copied")

// wantJoin asks for a table's rows to be copied in old's place; a join of it that waits or is under way is enough, even if what
// that was to replace has made room for another table. The applier's turn.
func (m *Mirror) wantJoin(oid uint32, old *table, why string) *join {
	if j := m.joins[oid]; j != nil {
		if j.old != old {
			old.copied, j.old.copied, j.old.joining = j.old.copied, nil, nil
			j.old, old.joining = old, j
			m.byOID[oid] = old
			m.updateShared()
		}
		return j
	}
	j := &join{oid: oid, old: old, why: why, done: make(chan struct{})}
	m.joins[oid] = j
	old.joining = j
	m.byOID[oid] = old
	m.updateShared()
	signal(m.joinWake)
	return j
}

// joinLoop makes the joins that are wanted, again and again until they succeed.
func (m *Mirror) joinLoop(ctx context.Context) error {
	wait := firstRetry
	for {
		select {
		case <-m.joinWake:
		case <-ctx.Done():
			return nil
		}
		for {
			left, fresh, err := m.joinQueued(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				wait = firstRetry
			}
			if left == 0 {
				break
			}
			if err == nil && fresh {
				continue
			}
			if err != nil && !errors.Is(err, ErrNotConnected) { // of that, the log and status tell already
				m.cfg.Log.Log(ctx, severity(err), "tables cannot be copied yet", "tables", left, "err", oneLine(err.Error()), "retry_in", wait)
			}
			select {
			case <-m.clock.After(wait):
			case <-ctx.Done():
				return nil
			}
			wait = min(2*wait, lastRetry)
		}
	}
}

// severity is Error for a disk of ours that takes no more: nothing gets better until somebody sees to it.
func severity(err error) slog.Level {
	if isDiskFull(err) {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// joinsTogether is how many joins are under way at once, all with one snapshot: each has a log, perhaps in a file, from before the first of them is copied.
const joinsTogether = 128

// joinQueued makes one attempt at the joins that wait, of many at those with the fewest attempts. It says how many
// still wait, and whether some of them were not tried yet; err is why the others do.
func (m *Mirror) joinQueued(ctx context.Context) (left int, fresh bool, err error) {
	var queue []*join
	err = m.inTurn(ctx, func() error {
		queue = m.queuedJoins()
		queue = queue[:min(len(queue), m.joinsTogether)]
		return nil
	})
	if err != nil || len(queue) == 0 {
		return 0, false, err
	}
	err = m.joinThese(ctx, queue)
	turn := m.inTurn(context.WithoutCancel(ctx), func() error {
		for _, j := range queue {
			if m.joins[j.oid] == j {
				j.giveBack(m, err)
			}
		}
		waiting := m.queuedJoins()
		left, fresh = len(waiting), len(waiting) > 0 && waiting[0].tried == 0
		return nil
	})
	return left, fresh, errors.Join(err, turn)
}

// queuedJoins lists the joins that are not under way, by attempts and table. The applier's turn.
func (m *Mirror) queuedJoins() (queue []*join) {
	for _, j := range m.joins {
		if j.log == nil {
			queue = append(queue, j)
		}
	}
	slices.SortFunc(queue, func(a, b *join) int { return cmp.Or(cmp.Compare(a.tried, b.tried), a.old.name.Compare(b.old.name)) })
	return queue
}

// giveBack ends an attempt that did not succeed. The applier's turn.
func (j *join) giveBack(m *Mirror, err error) {
	if err != nil {
		j.trouble = oneLine(err.Error())
	}
	if j.log != nil {
		j.log.close()
	}
	if j.kept != nil {
		j.kept.close()
	}
	if j.table != nil {
		m.discardTable(j.table)
	}
	j.log, j.arrived, j.kept, j.table, j.copy, j.shape = nil, 0, nil, nil, nil, nil
	j.old.copied = nil
	m.updateShared()
}

// joinThese copies tables and brings them in. What keeps one of them waiting does not keep the others.
func (m *Mirror) joinThese(ctx context.Context, queue []*join) error {
	if st := m.shared.get(); st.state != "streaming" {
		return fmt.Errorf("%w: %s", ErrNotConnected, st.state)
	}
	before, err := m.source.Look(ctx)
	if err != nil {
		return m.explain(err)
	}
	if err := m.inTurn(ctx, func() error { return m.beginJoins(before, queue) }); err != nil {
		return err
	}
	told := false
	snapshot, release, err := m.source.Snapshot(ctx, joinPatience, func(whom string) {
		if !told {
			told = true
			m.cfg.Log.Warn("the copy waits for older transactions to end", "tables", len(queue), "blocking", whom)
		}
		m.tellTrouble(ctx, queue, "older transactions must end: "+whom)
	})
	if err != nil {
		return err
	}
	defer release()
	m.tellTrouble(ctx, queue, "")
	after, err := m.source.Look(ctx)
	if err != nil {
		return err
	}
	var faults []error
	for _, j := range queue {
		err := m.joinOne(ctx, j, before, after, snapshot)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return err
		}
		if errors.Is(err, errJoinAgain) {
			m.cfg.Log.Warn("the copy of a table begins again", "relation", j.old.String(), "err", err)
		} else {
			faults = append(faults, err)
		}
		// What it holds is not kept while the others are copied, unless it has joined.
		if err := m.inTurn(ctx, func() error {
			if m.joins[j.oid] == j {
				j.giveBack(m, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return errors.Join(faults...)
}

// tellTrouble lets status say what joins wait for.
func (m *Mirror) tellTrouble(ctx context.Context, queue []*join, what string) {
	// An end of the mirror is noticed by whoever goes on.
	_ = m.inTurn(ctx, func() error {
		for _, j := range queue {
			j.trouble = what
		}
		return nil
	})
}

// joinPatience is how long a snapshot may wait for older transactions to end before the attempt is given up.
const joinPatience = time.Minute

// beginJoins begins the logs. From here on nothing of the tables' changes is missed. The applier's turn.
func (m *Mirror) beginJoins(catalog *pgcdc.Catalog, queue []*join) error {
	if m.shared.get().state != "streaming" {
		return fmt.Errorf("%w: %s", ErrNotConnected, m.shared.get().state)
	}
	if m.binary && !binaryOK(catalog) {
		// What arrives in binary could not be read.
		m.restartStream()
		return errors.New("the stream begins again in text, because a type has no binary form that can be read")
	}
	for _, j := range queue {
		j.log, j.trouble = newChangeLog(m.cfg.IndexDir), ""
		j.tried++
		j.log.limit = m.logMemory()
	}
	m.updateShared()
	return m.cfg.Effect("join begun")
}

// binaryOK says whether every column of every table can be read in binary.
func binaryOK(catalog *pgcdc.Catalog) bool {
	return !slices.ContainsFunc(catalog.Tables, func(t pgcdc.Table) bool { return !tableBinaryOK(&t) })
}

func tableBinaryOK(t *pgcdc.Table) bool {
	return !slices.ContainsFunc(t.Columns, func(c pgcdc.Column) bool { return !c.Type.BinaryOK })
}

// logMemory is how much of each log stays in memory: all of them together take an eighth of the bound. The applier's turn.
func (m *Mirror) logMemory() int {
	return int(min(logMemory, m.cfg.Memory/8/int64(max(1, min(len(m.joins), m.joinsTogether)))))
}

// noteForJoin keeps a change of a table that is being copied. The applier's.
func (m *Mirror) noteForJoin(ch *pgcdc.Change, lsn LSN) {
	if ch.Op != pgcdc.OpTruncate {
		m.joins[ch.Relation.OID].note(ch, lsn)
		return
	}
	for _, oid := range ch.Truncated {
		if j := m.joins[oid]; j != nil {
			j.note(ch, lsn)
			j.truncatedBy = noteTruncate(j.truncatedBy, m.xid)
		}
	}
}

// note keeps a change, if the table is being copied. The applier's.
func (j *join) note(ch *pgcdc.Change, lsn LSN) {
	if j != nil && j.log != nil {
		j.log.add(ch, lsn)
		j.arrived++
	}
}

// joinOne copies one table, replays what came meanwhile, and installs it. An error leaves the join waiting for another attempt. The two
// looks were taken before and after the snapshot: the definition holds at F only if they agree on it.
func (m *Mirror) joinOne(ctx context.Context, j *join, before, after *pgcdc.Catalog, snapshot pgcdc.ExportedSnapshot) error {
	was, now := tableOf(before, j.oid), tableOf(after, j.oid)
	if now == nil {
		f := &failure{Reason: reasonGone, LSN: after.LSN, Remedy: remedyGone, Gone: true, Absent: true}
		return m.inTurn(ctx, func() error { m.endJoin(j, f); return nil })
	}
	if was == nil || was.Fingerprint != now.Fingerprint || storageOf(was).rewritten(now) {
		return errJoinAgain
	}
	c := m.newCopy(now, snapshot.ConsistentPoint)
	c.table.seen = after.Snapshot
	if err := m.inTurn(ctx, func() error { j.copy, j.old.copied = c, &c.copied; m.updateShared(); return nil }); err != nil {
		return err
	}
	if c.table.state != stateFailed {
		if err := m.copyTables(ctx, snapshot, []*tableCopy{c}); err != nil {
			c.discard(ctx, m)
			return err
		}
	}
	if c.changed != nil {
		return fmt.Errorf("%w: %w", errJoinAgain, c.changed)
	}
	if f := c.table.failure; f != nil {
		return m.inTurn(ctx, func() error { m.endJoin(j, f); return nil })
	}
	if err := m.inTurn(ctx, func() error { j.copied(m, c); return nil }); err != nil {
		return err
	}
	// On an idle source nothing else may move the stream past the snapshot.
	if _, err := m.source.WaitPoint(ctx); err != nil {
		return err
	}
	for {
		var done, idle bool
		var full *table
		err := m.inTurn(ctx, func() (err error) {
			if done, err = j.catchUp(m); done || err != nil {
				return err
			}
			idle = j.kept == nil
			full, err = j.full(m)
			return err
		})
		if err != nil || done {
			return err
		}
		if full != nil {
			if err := m.flush(ctx, full, maxLSN); err != nil {
				return err
			}
		}
		if idle {
			select {
			case <-m.clock.After(joinPause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// full returns the table when what was replayed is to be written to a file before more is: as it is for a table that is followed, when
// it has many full batches or memory is short. The applier's turn.
func (j *join) full(m *Mirror) (*table, error) {
	t := j.table
	short := m.short()
	if short && t.open.batch.weight >= m.sealLeast() {
		if err := m.sealOpen(t); err != nil {
			return nil, err
		}
	}
	if short && len(t.sealed) > 0 || len(t.sealed) >= flushBatches {
		return t, nil
	}
	return nil, nil
}

// joinPause is how long a copied table waits for HWM to reach its snapshot before it is looked at again.
const joinPause = 10 * time.Millisecond

// copied takes over the files of the copy. The applier's turn.
func (j *join) copied(m *Mirror, c *tableCopy) {
	j.table, j.from = c.table, c.at
	for _, s := range c.table.files {
		m.lastSegment++
		s.id = m.lastSegment
	}
	c.table.replayed = c.at
	c.table.open = m.newBatchSegment(c.table)
	c.table.install()
}

// catchUp replays a slice of the log and, when there is nothing more, installs the table. The applier's turn, between two
// transactions.
func (j *join) catchUp(m *Mirror) (done bool, err error) {
	if j.log.err != nil {
		return false, j.log.err
	}
	if why := j.superseded(); why != "" {
		return false, fmt.Errorf("%w: %s", errJoinAgain, why)
	}
	slice := max(m.replaySlice, 2*j.arrived)
	j.arrived = 0
	for n := range slice {
		if n%replayWeighed == replayWeighed-1 {
			if m.weigh(j.table.open.batch); m.full() {
				return false, nil
			}
		}
		if j.kept != nil && j.kept.left == 0 {
			err := j.kept.close()
			if j.kept = nil; err != nil {
				return false, err
			}
		}
		if j.kept == nil && j.log.changes == 0 {
			if !m.installJoin(j) {
				return false, nil
			}
			return true, m.cfg.Effect("table joined")
		}
		if j.kept == nil {
			if j.kept, err = j.log.reader(); err != nil {
				return false, err
			}
			j.log = newChangeLog(m.cfg.IndexDir)
			j.log.limit = m.logMemory()
		}
		ch, lsn, err := j.kept.next()
		if err != nil {
			return false, err
		}
		if lsn <= j.from {
			continue
		}
		if err := j.replay(m, ch, lsn); err != nil {
			return false, err
		}
		if j.err != nil || m.joins[j.oid] != j { // its content cannot be held
			return true, nil
		}
	}
	m.weigh(j.table.open.batch)
	return false, nil
}

// replayWeighed is the number of changes after which a replay looks at the bound of memory.
const replayWeighed = 64

// superseded says what a look that HWM has passed shows otherwise than the look that the copy began with: what sent no row event is not
// in the log. Empty when nothing. The applier's turn.
func (j *join) superseded() string {
	t := j.table
	switch now := j.shown; {
	case j.shownAt == 0 || j.shownAt < t.seen:
		return ""
	case now == nil:
		return reasonGone
	case now.Unsupported != "":
		return now.Unsupported
	case now.Fingerprint != t.fingerprint:
		return t.changed(now)
	case t.storage.rewritten(now):
		return reasonRewritten(now)
	}
	return ""
}

// replay applies one kept change. The applier's turn.
func (j *join) replay(m *Mirror, ch *pgcdc.Change, lsn LSN) error {
	t := j.table
	if ch.Relation != nil && ch.Relation != j.shape {
		if why := t.shape.differs(t, ch.Relation); why != "" {
			return fmt.Errorf("%w: %s", errJoinAgain, why)
		}
		j.shape = ch.Relation
	}
	switch ch.Op {
	case pgcdc.OpRelation:
		return nil
	case pgcdc.OpTruncate:
		err := t.truncate(m, lsn)
		t.replayed = lsn
		return err
	}
	if err := m.sealFull(t); err != nil {
		return err
	}
	err := m.changeRow(t, ch, lsn)
	t.open.batch.publish()
	t.replayed = lsn
	if err == nil {
		return nil
	}
	if errors.Is(err, errLeftOut) {
		return fmt.Errorf("%w: %w", errJoinAgain, err)
	}
	f, err := t.fault(ch, err)
	if err != nil {
		return err
	}
	f.LSN = lsn
	m.endJoin(j, f)
	return nil
}

// endJoin gives a join up because of what the table holds or is; f says why. What was there before stays as it is, but stands for the relation that has its
// name now: looks find that one. The applier's turn.
func (m *Mirror) endJoin(j *join, f *failure) {
	old := j.old
	j.err = errors.New(f.Reason)
	j.giveBack(m, nil)
	delete(m.joins, j.oid)
	old.joining = nil
	m.cfg.Log.Error("the table cannot be copied", "relation", old.String(), "lsn", f.LSN.String(), "column", f.Column, "err", f.Reason)
	if old.state != stateStreaming {
		if old.failure != nil {
			f.inherit(old.failure)
		}
		old.state, old.failure = stateFailed, f
		old.dirty = true
		if old.oid != j.oid && !f.Absent {
			if m.byOID[old.oid] == old {
				delete(m.byOID, old.oid)
			}
			old.oid = j.oid
		}
	}
	m.updateShared()
	close(j.done)
}

// installJoin puts the table in its predecessor's place, as of HWM. It says no while HWM has not reached the copy's LSN, or while the
// name belongs to a table that is still followed: the watch is about to learn of its new name. The applier's turn.
func (m *Mirror) installJoin(j *join) bool {
	t := j.table
	if m.applied < j.from || m.applied != m.marks.high() {
		return false
	}
	at := slices.IndexFunc(m.tables, func(known *table) bool { return known.name == t.name })
	if at >= 0 && m.tables[at] != j.old {
		holder := m.tables[at]
		if holder.state == stateStreaming {
			return false
		}
		// It was renamed too, and comes back under its new name.
		m.retire(holder, t)
	}
	m.retire(j.old, t)
	t.state, t.appears, t.replayed, t.truncatedBy = stateStreaming, m.applied, 0, j.truncatedBy
	t.dirty = true
	m.adopt(t)
	delete(m.joins, j.oid)
	j.log.close()
	m.updateShared()
	j.joined, j.rows = t.appears, t.rows
	m.cfg.Log.Info("table joined", "relation", t.String(), "lsn", t.appears.String(), "rows", t.rows, "why", j.why)
	close(j.done)
	return true
}

// retire takes a table out of the mirror. Readers below the present LSN go on seeing it; the commit that creates by drops it. The
// applier's turn.
func (m *Mirror) retire(t, by *table) {
	if m.takeOut(t) {
		by.replaces = append(by.replaces, t)
	}
}

// takeOut takes a table off the list; readers that have it keep it. It says no when that was done before. The applier's turn.
func (m *Mirror) takeOut(t *table) bool {
	i := slices.Index(m.tables, t)
	if i < 0 { // with the table that took its name
		return false
	}
	m.tables = slices.Delete(m.tables, i, i+1)
	maps.DeleteFunc(m.byOID, func(_ uint32, known *table) bool { return known == t })
	t.retired, t.lastReader = m.applied, m.marks.lastSerial()
	m.closeIndexes(t)
	if t.version.Load() != nil || t.failure != nil {
		m.past = append(m.past, t)
	}
	return true
}

// reapPast forgets replaced tables that no reader can see any more. The applier's turn.
func (m *Mirror) reapPast(low LSN) {
	_, oldest := m.marks.readerCount()
	gone := func(t *table) bool {
		// A reader at the very LSN may have taken its state just before the other table came.
		if t.retired > low || oldest <= t.lastReader || t.busy() {
			return false
		}
		m.discardTable(t)
		return true
	}
	if before := len(m.past); before > 0 {
		if m.past = slices.DeleteFunc(m.past, gone); len(m.past) < before {
			m.updateShared()
		}
	}
}

// busy says whether a job works on the table. None begins on one that has been replaced.
func (t *table) busy() bool {
	for _, job := range []*sync.Mutex{&t.jobs, &t.tidying, &t.merging} {
		if !job.TryLock() {
			return true
		}
		job.Unlock()
	}
	return false
}

// discardTable frees what a table holds that nobody sees: its batches, its FileIndexes, and the data files that no snapshot ever named. The applier's
// turn.
func (m *Mirror) discardTable(t *table) {
	m.closeIndexes(t)
	for _, s := range t.files {
		if s.file.index != "" {
			m.staleIndexes = append(m.staleIndexes, s.file.index)
		}
		if !s.file.committed {
			m.discarded = append(m.discarded, s.file.data.Path)
		}
	}
	batches := t.sealed
	if t.open != nil {
		batches = append(slices.Clone(batches), t.open)
	}
	for _, s := range batches {
		m.letGo(s.batch)
	}
	t.files, t.sealed, t.open, t.discarded = nil, nil, nil, true
}

// tableOf finds a table in a look by its OID; nil when it is not there.
func tableOf(c *pgcdc.Catalog, oid uint32) *pgcdc.Table {
	for i := range c.Tables {
		if c.Tables[i].OID == oid {
			return &c.Tables[i]
		}
	}
	return nil
}

// joinings are the contents that are being brought in, by name. The applier's turn.
func (m *Mirror) joinings() (list []*table) {
	for _, j := range m.joins {
		if j.table != nil {
			list = append(list, j.table)
		}
	}
	slices.SortFunc(list, func(a, b *table) int { return a.name.Compare(b.name) })
	return list
}
