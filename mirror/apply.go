package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"pgmirror/deletion"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// apply applies one committed transaction to every streaming table and makes it visible in one step.
//
// It goes change by change, each looked up in the state that the one before left (X1, X2). Everything gets the commit's end
// LSN E, which is above HWM, so no reader sees any of it until HWM reaches E. A table that cannot take a change fails
// alone: what it has of E is above the LSN it is frozen at.
func (m *Mirror) apply(ctx context.Context, tx *pgcdc.Transaction) error {
	lsn := tx.EndLSN
	if lsn <= m.applied {
		return fmt.Errorf("transaction %d ends at %s, but everything up to %s is applied", tx.XID, lsn, m.applied)
	}
	m.xid = tx.XID
	if tx.Spilled {
		// A large transaction begins batches of its own: they may be flushed long before it is visible.
		for _, t := range m.tables {
			if err := m.sealOpen(t); err != nil {
				return err
			}
		}
	}
	var rows int64
	apply := func(ch *pgcdc.Change) error {
		n, err := m.change(ctx, ch, lsn)
		rows += n
		if err != nil {
			return err
		}
		return m.makeRoom(ctx)
	}
	var err error
	if m.worthProbing(tx) {
		err = m.applyInWindows(tx, apply)
	} else {
		err = tx.Changes(apply)
	}
	if err == nil && rows != tx.Rows {
		err = fmt.Errorf("%d rows were decoded, %d applied", tx.Rows, rows)
	}
	if err != nil {
		return fmt.Errorf("apply the transaction that ends at %s: %w", lsn, err)
	}
	for _, t := range m.touched {
		t.touched = false
		if t.open != nil {
			t.open.batch.publish()
			m.weigh(t.open.batch)
		}
	}
	m.touched = m.touched[:0]
	m.flusher.weighed()
	m.applied = lsn
	m.lastCommit = commitMark{EndLSN: lsn, XID: tx.XID, Time: tx.CommitTime}
	// Before the commit is visible: who waits for it also waits for the looks below it.
	if err := m.judge(); err != nil {
		return err
	}
	now := m.clock.Now()
	m.marks.publishCommit(lsn, tx.CommitTime, now)
	m.buryDead()
	m.noteCommit(tx, now)
	m.written.changes.Add(m.changed)
	m.changed = 0
	return nil
}

// change applies one step and says how many rows it counts for.
func (m *Mirror) change(ctx context.Context, ch *pgcdc.Change, lsn LSN) (rows int64, err error) {
	if len(m.joins) > 0 {
		m.noteForJoin(ch, lsn)
	}
	if ch.Op == pgcdc.OpTruncate {
		for _, oid := range ch.Truncated {
			if t := m.live(oid); t != nil {
				m.touch(t)
				if err := t.truncate(m, lsn); err != nil {
					return 0, err
				}
				t.truncatedBy = noteTruncate(t.truncatedBy, m.xid)
				m.counts.truncates.Add(1)
			}
		}
		return int64(len(ch.Truncated)), nil
	}
	t := m.live(ch.Relation.OID)
	if ch.Op == pgcdc.OpRelation {
		m.nameTaken(ch.Relation, lsn)
		if t != nil {
			if why := t.shape.differs(t, ch.Relation); why != "" {
				if taken, err := m.takeOver(ctx, t, ch.Relation, lsn); err != nil {
					return 0, err
				} else if !taken {
					m.outdated(t, t.oid, lsn, "the table's shape changed: "+why)
				}
			}
		}
		return 0, nil
	}
	if t == nil {
		return 1, nil
	}
	m.touch(t)
	if err := m.sealFull(t); err != nil {
		return 0, err
	}
	if err := m.changeRow(t, ch, lsn); err != nil {
		if errors.Is(err, errLeftOut) {
			m.outdated(t, t.oid, lsn, err.Error())
			return 1, nil
		}
		f, err := t.fault(ch, err)
		if err != nil {
			return 1, err
		}
		m.fail(t, lsn, f)
	}
	return 1, nil
}

// fault describes why the table cannot take a change. What is the machine's fault and not the change's stays an error.
func (t *table) fault(ch *pgcdc.Change, err error) (*failure, error) {
	var machine *machineError
	if errors.As(err, &machine) {
		return nil, err
	}
	f := &failure{Reason: err.Error(), Remedy: remedyRow}
	var row *rowError
	if errors.As(err, &row) {
		f.Column, f.Reason = row.column, row.err.Error()
		if errors.Is(err, pgcdc.ErrUnrepresentable) {
			f.Remedy = remedyUnrepresentable
		}
	}
	if errors.Is(err, errMissingRow) || errors.Is(err, errOtherIdentity) {
		f.Missing, f.Closed = t.fingerprint, true
	}
	tuple := ch.New
	if ch.Op == pgcdc.OpDelete || ch.OldKind != 0 {
		tuple = ch.Old
	}
	f.Key = t.keyText(tuple)
	return f, nil
}

// changeRow applies an insert, update or delete.
func (m *Mirror) changeRow(t *table, ch *pgcdc.Change, lsn LSN) error {
	m.changed += tupleBytes(ch.Old) + tupleBytes(ch.New)
	switch ch.Op {
	case pgcdc.OpInsert:
		m.counts.inserts.Add(1)
		return t.add(m, ch.New, nil, location{}, lsn)
	case pgcdc.OpUpdate:
		m.counts.updates.Add(1)
	case pgcdc.OpDelete:
		m.counts.deletes.Add(1)
	default:
		return fmt.Errorf("unknown operation %d", ch.Op)
	}
	if t.shape.mode == insertOnly {
		return fmt.Errorf("%w: it had none that is usable, and an update or delete came", errOtherIdentity)
	}
	old := ch.Old
	if ch.OldKind == 0 {
		old = ch.New
	}
	if t.shape.mode == wholeRow && ch.OldKind != 'O' {
		return fmt.Errorf("%w: it was FULL, and a change came without the old row", errOtherIdentity)
	}
	if err := t.seek(old, m.cfg.NullUnrepresentable && t.shape.mode == wholeRow); err != nil {
		return err
	}
	loc, ok, err := t.find(m)
	if err != nil {
		return err
	}
	if !ok {
		return errMissingRow
	}
	if ch.Op == pgcdc.OpUpdate {
		// The replacement is added before its incumbent is removed (D4).
		if err := t.add(m, ch.New, ch.Old, loc, lsn); err != nil {
			return err
		}
	}
	if err := t.remove(loc, lsn); err != nil {
		return err
	}
	m.noteDead(t, loc.segment)
	return nil
}

// batchBytes is the size at which a batch is sealed however few rows it has: offsets into its values are 32 bits, and a value
// has at most 1 GB.
const batchBytes = 64 << 20

// live is the streaming table with the OID, if there is one.
func (m *Mirror) live(oid uint32) *table {
	t := m.byOID[oid]
	if t == nil || t.state != stateStreaming {
		return nil
	}
	return t
}

// touch notes that a transaction changes the table.
func (m *Mirror) touch(t *table) {
	t.dirty = true
	if !t.touched {
		t.touched = true
		m.touched = append(m.touched, t)
	}
}

// sealFull ends the open batch if it has all the rows or bytes that it may have.
func (m *Mirror) sealFull(t *table) error {
	if b := t.open.batch; b.rows >= m.cfg.BatchRows || b.added >= batchBytes {
		return m.sealOpen(t)
	}
	return nil
}

// sealOpen ends the open batch, if it has rows, and opens the next one.
func (m *Mirror) sealOpen(t *table) error {
	if t.open == nil || t.open.batch.rows == 0 {
		return nil
	}
	t.open.batch.seal()
	m.weigh(t.open.batch)
	t.sealed = append(t.sealed, t.open)
	m.noteDead(t, t.open)
	t.open = m.newBatchSegment(t)
	t.install()
	m.flusher.sealed(t)
	return m.cfg.Effect("batch sealed")
}

func (m *Mirror) newBatchSegment(t *table) *segment {
	m.lastSegment++
	return &segment{id: m.lastSegment, vis: deletion.NewVisibility(t.birth(m)), batch: newBatch(t.shape)}
}

// truncate ends every segment the table has at lsn, without an entry a row.
func (t *table) truncate(m *Mirror, lsn LSN) error {
	if err := m.sealOpen(t); err != nil {
		return err
	}
	for _, s := range slices.Concat(t.files, t.sealed) {
		if s.droppedAt.Load() == 0 {
			s.droppedAt.Store(uint64(lsn))
		}
	}
	for _, s := range t.sealed {
		s.batch.index = nil
	}
	m.closeIndexes(t)
	t.rows = 0
	return nil
}

// weigh brings the memory account up to date with a batch.
func (m *Mirror) weigh(b *batch) {
	w := b.bytes()
	m.memory.Add(w - b.weight)
	b.weight = w
}

// fail stops a table: its changes from lsn on are dropped, all other tables run on.
func (m *Mirror) fail(t *table, lsn LSN, f *failure) {
	m.logFailure(t.String(), lsn, f)
	m.freeze(t, lsn, f)
}

// logFailure tells of a table that stops. The key of the row at fault holds values, which a log must not: status has it.
func (m *Mirror) logFailure(relation string, lsn LSN, f *failure) {
	args := []any{"relation", relation, "lsn", lsn.String()}
	if f.Column != "" {
		args = append(args, "column", f.Column)
	}
	if f.Key != "" {
		args = append(args, "row", "see pgmirror status")
	}
	m.cfg.Log.Error("table failed", append(args, "err", f.Reason, "remedy", f.Remedy)...)
}

// freeze keeps a table as it was at the last commit applied, or, when it is closed, at the last checkpoint.
func (m *Mirror) freeze(t *table, lsn LSN, f *failure) {
	f.LSN, f.Good = lsn, m.applied
	if f.Closed {
		m.closures++
		m.goodUpToCommit(t, f)
		signal(m.wantCut)
	}
	if t.shape == nil {
		f.Good = 0
	}
	t.state, t.failure = stateFailed, f
	t.dirty = true
	for _, x := range t.indexes {
		m.staleIndexes = append(m.staleIndexes, x.path)
		for _, s := range x.segments {
			if s != nil {
				s.file.index = ""
			}
		}
	}
	m.closeIndexes(t)
	t.forget(m, m.applied)
	m.updateShared()
}

// nameTaken stops the table that had the name which a Relation gives to another table: from here on the name's rows are the other's. The next
// look finds where both belong.
func (m *Mirror) nameTaken(r *pgcdc.Relation, lsn LSN) {
	i, found := slices.BinarySearchFunc(m.tables, readstate.TableName{Schema: r.Schema, Name: r.Name}, func(t *table, name readstate.TableName) int { return t.name.Compare(name) })
	if !found || m.tables[i].state != stateStreaming || m.tables[i].oid == r.OID {
		return
	}
	m.cfg.Log.Warn("a name is another table's now", "relation", m.tables[i].String(), "lsn", lsn.String())
	m.freeze(m.tables[i], lsn, &failure{Reason: reasonTaken, Remedy: remedyOutdated, Gone: true})
}

// outdated stops a table whose definition is not the source's any more, and asks for it to be copied as it is now.
func (m *Mirror) outdated(t *table, oid uint32, lsn LSN, why string) {
	m.cfg.Log.Warn("the table is copied again", "relation", t.String(), "lsn", lsn.String(), "why", why)
	m.freeze(t, lsn, &failure{Reason: why, Remedy: remedyOutdated, Closed: true})
	m.wantJoin(oid, t, why)
}

// forget drops what a failed table has in memory above an LSN: nobody will ever see it.
func (t *table) forget(m *Mirror, good LSN) {
	if t.open == nil {
		return
	}
	beyond := func(s *segment) bool {
		if s.batch.rows > 0 {
			if first, _ := s.batch.span(); first <= good {
				return false
			}
		}
		m.letGo(s.batch)
		return true
	}
	t.sealed = slices.DeleteFunc(slices.Clone(t.sealed), beyond)
	if beyond(t.open) {
		t.open = nil
	}
	t.install()
}

const (
	startAnew             = "drop the mirror and run again (pgmirror drop --warehouse, pgmirror run)"
	copyAnew              = "copy it anew (pgmirror resync TABLE)"
	remedyOutdated        = "it is being copied as it is now; wait until it is streaming"
	remedyGone            = "put back into the publication, it is copied again; `pgmirror forget` removes what is left of it here"
	remedyChanged         = "change that on the source, and it is copied again by itself"
	remedyRow             = copyAnew
	remedyUnrepresentable = "correct the row on the source and " + copyAnew + "; if there are more such values, before that make the column text with the setting types, run with on_unrepresentable: null, or change its type on the source"
	remedyUnsupported     = "change that on the source, or take the table out of the publication, and " + copyAnew
)

// differs says how a Relation message differs from the table as it is known; empty when it does not.
func (s *shape) differs(t *table, r *pgcdc.Relation) string {
	if r.Schema != t.name.Schema || r.Name != t.name.Name {
		return fmt.Sprintf("it is now called %s.%s", r.Schema, r.Name)
	}
	if len(r.Columns) != len(s.columns) {
		return fmt.Sprintf("it has %d columns instead of %d", len(r.Columns), len(s.columns))
	}
	for i, c := range r.Columns {
		known := &s.columns[i]
		if c.Name != known.name {
			return fmt.Sprintf("column %q is now %q", known.name, c.Name)
		}
		if c.TypeOID != known.pg.OID || c.TypeMod != known.pg.Mod {
			return fmt.Sprintf("column %q has another type", known.name)
		}
	}
	if s.mode == keyed && r.Identity != pgcdc.IdentityFull {
		for i, c := range r.Columns {
			if c.Key != slices.Contains(s.key, i) {
				return "its replica identity has other columns"
			}
		}
	}
	if s.mode == wholeRow && r.Identity != pgcdc.IdentityFull {
		return "its replica identity is no longer FULL"
	}
	return ""
}
