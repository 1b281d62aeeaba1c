package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"pgmirror/deletion"
	"pgmirror/iceberg"
)

// checkpoint makes one consistent cut of all tables durable and then acknowledges it:
//
//	choose C = HWM, seal ─▶ write files up to C ─▶ commit tables, C and states in one transaction ─▶ acknowledge C ─▶ release
//
// The cut is registered like a reader, so nothing that the snapshot at C needs is folded or dropped meanwhile. Changes go on
// being applied. One checkpoint runs at a time. One that meets another writer's commit is made again when that is settled.
func (m *Mirror) checkpoint(ctx context.Context) error {
	m.checkpointing.Lock()
	defer m.checkpointing.Unlock()
	for again := 1; ; again++ {
		err := m.cutOnce(ctx, again)
		if errors.Is(err, errCutAgain) {
			continue
		}
		var moved *iceberg.MovedError
		if !errors.As(err, &moved) {
			return err
		}
		refuse := ""
		if again >= foreignAgain {
			refuse = "it keeps changing it"
		}
		if err := m.settleForeign(context.WithoutCancel(ctx), moved.Tables, refuse); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
	}
}

// cutOnce is one attempt at a checkpoint. The caller holds m.checkpointing.
func (m *Mirror) cutOnce(ctx context.Context, attempt int) error {
	started := m.clock.Now()
	cp := checkpoint{attempt: attempt}
	if err := m.leaveClosed(ctx); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := m.inTurn(ctx, func() error { return m.beginCheckpoint(&cp) }); err != nil || cp.pin == nil {
		return err
	}
	defer m.marks.release(cp.pin)
	committed := false
	defer m.inTurn(context.WithoutCancel(ctx), func() error {
		m.cut = 0
		for _, t := range cp.tables {
			t.dirty = t.dirty || !committed // else the next cut would leave out what this one did not commit
		}
		return nil
	})

	if err := m.flushAll(ctx, &cp); err != nil {
		return fmt.Errorf("checkpoint at %s: %w", cp.cut, err)
	}
	if err := m.confirm(ctx, &cp); err != nil {
		return fmt.Errorf("checkpoint at %s: %w", cp.cut, err)
	}
	if err := m.inTurn(ctx, func() error { return m.describe(&cp) }); err != nil {
		return fmt.Errorf("checkpoint at %s: %w", cp.cut, err)
	}
	if err := cp.vectors(); err != nil {
		return fmt.Errorf("checkpoint at %s: %w", cp.cut, err)
	}
	text, err := cp.doc.encode()
	if err != nil {
		return fmt.Errorf("checkpoint at %s: %w", cp.cut, err)
	}
	cp.commit.Mirror = text
	m.storedBytes.Store(int64(len(text)))
	// Whoever asked may give up; a commit that was begun is seen through, since half-known it could not be followed by another.
	result, err := m.warehouse.Commit(context.WithoutCancel(ctx), cp.commit)
	if err != nil {
		return fmt.Errorf("commit checkpoint at %s: %w", cp.cut, err)
	}
	committed = true
	if err := m.cfg.Effect("acknowledge"); err != nil {
		return err
	}
	m.source.Acknowledge(cp.cut)
	if err := m.cfg.Effect("acknowledged"); err != nil {
		return err
	}
	err = m.inTurn(context.WithoutCancel(ctx), func() error { return m.finishCheckpoint(&cp, result, started) })
	if err != nil {
		return err
	}
	err = m.reap(context.WithoutCancel(ctx)) // what it takes off the list of garbage, it deletes
	signal(m.compactor.wake)                 // files that the commit has named, and of which it has dropped the cut-offs, may be worth compacting
	return err
}

// checkpoint is one in flight.
type checkpoint struct {
	attempt    int    // at one, from 1
	closures   uint64 // as the mirror's, at the cut
	evolutions uint64
	cut        LSN
	pin        *pin
	doc        *document
	tables     []*table // changed since the last cut
	small      []bool   // of these, the ones with little in memory
	forgot     []*table // not in doc any more
	commit     iceberg.Commit
	files      []publishedFile   // to be looked at for their vectors
	fresh      []*segment        // become published
	gone       []*segment        // published before, ended by the cut
	shapes     map[*table]*shape // of the tables, at the cut
	// restated are tables of which there is a snapshot of ours after another writer's, even when nothing has changed.
	restated []*table
}

// publishedFile is a file of the commit and the LSN at which its table is committed.
type publishedFile struct {
	segment *segment
	into    *iceberg.TableCommit
	at      LSN
	vector  *deletion.Vector
}

// beginCheckpoint chooses the cut, or none while there is no complete copy. The applier's turn, between two transactions: C is a
// boundary of all tables.
func (m *Mirror) beginCheckpoint(cp *checkpoint) (err error) {
	if m.doc.Phase != phaseStreaming {
		return nil
	}
	cp.cut, cp.closures, cp.evolutions = m.marks.high(), m.closures, m.evolutions
	if cp.pin, err = m.marks.register(cp.cut); err != nil {
		return fmt.Errorf("begin checkpoint: %w", err)
	}
	m.cut = cp.cut
	cp.shapes = map[*table]*shape{}
	for _, t := range m.tables {
		if t.dirty {
			t.dirty = false
			if err := m.sealOpen(t); err != nil {
				return fmt.Errorf("begin checkpoint: %w", err)
			}
			cp.tables, cp.small = append(cp.tables, t), append(cp.small, t.sealedBytes() < smallFlush)
			if t.shape != nil {
				cp.shapes[t] = t.committable(cp.cut)
			}
		}
	}
	cp.forgot = slices.Clone(m.forgot)
	m.doc.Checkpoint++
	cp.doc = m.document(cp.cut)
	return nil
}

const (
	// smallFlush is the memory below which a flush takes next to no time but that of waiting for its files to be durable.
	smallFlush = 1 << 20
	// smallFlushes is how many such are made at once: the file system makes files that wait together durable in one step.
	smallFlushes = 16
)

// flushAll writes what the tables have up to the cut: the small ones many at once, then the large ones, which take cores and memory. One that fails, for
// want of space, leaves the others to finish their files.
func (m *Mirror) flushAll(ctx context.Context, cp *checkpoint) error {
	flush := func(small bool, together int) error {
		var g errgroup.Group
		g.SetLimit(together)
		for i, t := range cp.tables {
			if cp.small[i] == small {
				g.Go(func() error { return m.flush(ctx, t, cp.cut) })
			}
		}
		return g.Wait()
	}
	return errors.Join(flush(true, m.smallFlushes), flush(false, m.cfg.FlushWorkers))
}

// sealedBytes is what the table's sealed batches take, in bytes. The applier's turn.
func (t *table) sealedBytes() (n int64) {
	for _, s := range t.sealed {
		n += s.batch.weight
	}
	return n
}

// describe says what each changed table's snapshot consists of. The applier's turn.
func (m *Mirror) describe(cp *checkpoint) error {
	if m.closures != cp.closures { // the document of the cut has them as streaming
		return errCutAgain
	}
	cp.commit = iceberg.Commit{
		LSN: cp.cut,
		Summary: map[string]string{
			"pgmirror.slot":       m.cfg.Slot,
			"pgmirror.checkpoint": strconv.Itoa(cp.doc.Checkpoint),
			"pgmirror.version":    m.cfg.Version,
		},
	}
	room := len(cp.tables)
	for _, t := range cp.tables {
		room += len(t.dropped())
	}
	gone := &table{replaces: cp.forgot}
	room += len(gone.dropped())
	cp.commit.Tables = make([]iceberg.TableCommit, 0, room) // never moves: cp.files point into it
	cp.drop(gone.dropped())
	for _, t := range cp.tables {
		if t.closed() {
			if !t.created { // what it was to replace goes all the same
				cp.drop(t.dropped())
			}
			continue
		}
		if t.shape == nil || t.uuid == "" {
			continue
		}
		at := cp.cut
		if t.failure != nil {
			at = min(at, t.failure.Good)
		}
		if !t.created && t.appears == 0 {
			continue // its copy failed: there is nothing of it
		}
		into := cp.add(t)
		if t.restate {
			cp.restated = append(cp.restated, t)
		}
		if at != cp.cut {
			into.At = at
		}
		for _, s := range t.compacted {
			into.Remove = append(into.Remove, s.file.data.Path)
			cp.gone = append(cp.gone, s)
		}
		for _, s := range t.files {
			ended := !s.alive(at)
			switch {
			case s.file.published && ended:
				into.Remove = append(into.Remove, s.file.data.Path)
				cp.gone = append(cp.gone, s)
			case s.file.published:
				if s.vis.Count() != int(s.file.vector) {
					cp.files = append(cp.files, publishedFile{segment: s, into: into, at: at})
				}
			case !ended && s.file.data.MaxLSN <= at:
				into.Add = append(into.Add, s.file.data)
				cp.fresh = append(cp.fresh, s)
				if s.vis.Count() > 0 {
					cp.files = append(cp.files, publishedFile{segment: s, into: into, at: at})
				}
			}
		}
	}
	return nil
}

// add makes room for a table's part of the commit. A table that comes in another's place is created with it, and the other dropped.
func (cp *checkpoint) add(t *table) *iceberg.TableCommit {
	cp.drop(t.dropped())
	c := iceberg.TableCommit{Name: t.name, UUID: t.uuid, Vectors: map[string]*deletion.Vector{}}
	if s := cp.shapes[t]; !t.created || s != t.committed {
		c.Create, c.Schema = !t.created, s.arrow
	}
	cp.commit.Tables = append(cp.commit.Tables, c)
	return &cp.commit.Tables[len(cp.commit.Tables)-1]
}

func (cp *checkpoint) drop(tables []*table) {
	for _, old := range tables {
		cp.commit.Tables = append(cp.commit.Tables, iceberg.TableCommit{Name: old.name, UUID: old.uuid, Drop: true})
	}
}

// dropped lists the tables in the catalog that the next commit of t drops: those it replaces, and those which these had replaced.
func (t *table) dropped() (list []*table) {
	for _, old := range t.replaces {
		if old.created {
			list = append(list, old)
		} else {
			list = append(list, old.dropped()...)
		}
	}
	return list
}

// vectors works out the deletion vectors of the files whose deletions have changed.
func (cp *checkpoint) vectors() error {
	for i := range cp.files {
		f := &cp.files[i]
		data := f.segment.file.data
		v, err := f.segment.vis.At(f.at, uint32(data.Rows))
		if err != nil {
			return fmt.Errorf("deletions of %s: %w", data.Path, err)
		}
		if v.Cardinality() != f.segment.file.vector {
			f.vector = v
			f.into.Vectors[data.Path] = v
		}
	}
	cp.commit.Tables = slices.DeleteFunc(cp.commit.Tables, func(t iceberg.TableCommit) bool {
		return len(t.Add) == 0 && len(t.Remove) == 0 && len(t.Vectors) == 0 && t.Schema == nil && !t.Drop && !cp.restates(t.UUID)
	})
	return nil
}

func (cp *checkpoint) restates(uuid string) bool {
	return slices.ContainsFunc(cp.restated, func(t *table) bool { return t.uuid == uuid })
}

// finishCheckpoint notes what is durable now. The applier's turn.
func (m *Mirror) finishCheckpoint(cp *checkpoint, result *iceberg.Result, started time.Time) error {
	for _, s := range cp.fresh {
		s.file.published, s.file.committed = true, true
	}
	for _, f := range cp.files {
		if f.vector != nil {
			f.segment.file.vector = f.vector.Cardinality()
		}
	}
	for _, t := range cp.restated {
		t.restate = false
	}
	m.setDurable(cp.cut)
	m.certain = cp.doc.Certain
	committed := make(map[string]bool, len(cp.commit.Tables))
	for _, c := range cp.commit.Tables {
		committed[c.UUID] = committed[c.UUID] || !c.Drop
	}
	for _, t := range cp.tables {
		if t.closed() && !committed[t.uuid] && !t.created {
			t.replaces = nil
			continue
		}
		if !committed[t.uuid] {
			continue
		}
		t.created, t.replaces, t.committed = true, nil, cp.shapes[t]
		if t.closed() { // while this was being committed
			f := *t.failure
			m.goodUpToCommit(t, &f)
			t.failure, t.dirty = &f, true
		}
	}
	m.forgot = slices.DeleteFunc(m.forgot, func(t *table) bool { return slices.Contains(cp.forgot, t) })
	for _, s := range cp.gone {
		s.file.published = false
	}
	for _, t := range cp.tables {
		t.compacted = slices.DeleteFunc(t.compacted, func(s *segment) bool { return !s.file.published })
	}
	m.addGarbage(result.Unreachable, cp.cut)
	now := m.clock.Now()
	m.lastCheckpoint, m.checkpointTook = now, now.Sub(started)
	m.updateShared()
	if len(cp.tables) > 0 {
		m.counts.checkpoints.Add(1)
		m.cfg.Log.Info("checkpoint", "lsn", cp.cut.String(), "tables", len(cp.commit.Tables), "took", now.Sub(started))
	}
	return nil
}

// reap drops what nobody can see any more: ended segments, cut-offs below LWM, and files that were named only by readers who
// have gone.
func (m *Mirror) reap(ctx context.Context) error {
	m.deleting.Lock()
	defer m.deleting.Unlock()
	var paths, indexes, discarded []string
	err := m.inTurn(ctx, func() error {
		low := m.marks.low()
		for _, t := range m.tables {
			t.reap(m, low)
		}
		m.reapPast(low)
		indexes, m.staleIndexes = m.staleIndexes, nil
		discarded, m.discarded = m.settled.split(m.discarded)
		paths = m.takeGarbage(low)
		return nil
	})
	if err != nil {
		return err
	}
	for err == nil && len(indexes) > 0 {
		if err = m.files.Remove(indexes[0]); err == nil {
			indexes = indexes[1:]
		}
	}
	for err == nil && len(discarded) > 0 {
		if err = m.warehouse.Discard(ctx, discarded[0]); err == nil {
			discarded = discarded[1:]
		}
	}
	if err == nil && len(paths) > 0 {
		err = m.warehouse.DeleteUnreachable(ctx, paths)
	}
	if err == nil {
		return nil
	}
	again := m.inTurn(ctx, func() error { // what is left
		m.staleIndexes, m.discarded = append(m.staleIndexes, indexes...), append(m.discarded, discarded...)
		m.garbage = append(m.garbage, garbage{paths: paths})
		return nil
	})
	return errors.Join(err, again)
}

// reap drops the table's ended segments once no reader is left that sees them. The applier's turn.
func (t *table) reap(m *Mirror, low LSN) {
	if t.state == stateFailed {
		low = min(low, t.failure.Good)
	}
	ended := func(s *segment) bool {
		d := LSN(s.droppedAt.Load())
		return d != 0 && d <= low && (s.batch != nil || !s.file.published) || s.buriable(low)
	}
	before := len(t.files) + len(t.sealed)
	if t.earlier != nil && t.since <= low {
		t.earlier, before = nil, -1
	}
	t.files = slices.DeleteFunc(slices.Clone(t.files), func(s *segment) bool {
		if !ended(s) {
			return false
		}
		if s.file.index != "" {
			m.staleIndexes = append(m.staleIndexes, s.file.index)
		}
		if !s.file.committed {
			m.discarded = append(m.discarded, s.file.data.Path)
		}
		return true
	})
	t.sealed = slices.DeleteFunc(slices.Clone(t.sealed), func(s *segment) bool {
		if !ended(s) {
			return false
		}
		m.letGo(s.batch)
		return true
	})
	for _, s := range t.files {
		if cuts := s.file.cuts.Load(); cuts != nil && (*cuts)[len(*cuts)-1].lsn <= low {
			s.file.cuts.Store(nil)
		}
	}
	if len(t.files)+len(t.sealed) != before {
		t.install()
	}
}

// fold merges deletions that every reader sees into the base of each segment. The applier's turn, a table at a time.
func (m *Mirror) fold(ctx context.Context) error {
	weight := int64(0) // of visibility
	for i := 0; ; i++ {
		done := false
		err := m.inTurn(ctx, func() error {
			if done = i >= len(m.tables); done {
				m.folded = weight
				return nil
			}
			t := m.tables[i]
			if t.state != stateStreaming {
				return nil
			}
			low := m.marks.low()
			for _, s := range t.version.Load().segments {
				s.vis.Fold(low)
				weight += s.vis.Bytes()
			}
			return nil
		})
		if err != nil || done {
			return err
		}
	}
}

// setDurable notes the LSN up to which everything is durable.
func (m *Mirror) setDurable(lsn LSN) {
	m.durable = lsn
	m.shared.set(func(s *sharedState) { s.durable = lsn })
}
