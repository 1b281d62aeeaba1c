package mirror

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"pgmirror/deletion"
	"pgmirror/iceberg"
	"pgmirror/pgcdc"
)

// The catalogue tells what the stream does not: that an ALTER TABLE has written the rows anew, that a partition came with rows. Between such a change
// and the look that shows it, what is applied may be a mixture that the source never had. So a cut is committed only when a look that began after it
// shows every table as it is known:
//
//	cut C, files ─▶ look ─┬▶ as known ─▶ commit
//	                      ├▶ other, and HWM has passed the look: a table is closed, or has other columns ─▶ cut again
//	                      └▶ other, and the stream is behind; or no look is to be had ─▶ commit, not certain until a later look shows the same
//
// A table that the catalogue shows to be another is closed: nothing more is committed to it, and it is good up to the last commit that is certain.

// confirmWait is how long a checkpoint waits for a look at the catalogue, and for HWM to pass it.
const confirmWait = 5 * time.Second

// confirmAgain is how often a checkpoint is cut again because columns change.
const confirmAgain = 5

// errCutAgain: the tables are not what they were taken for at the cut.
var errCutAgain = errors.New("the catalogue has changed")

// confirm finds out whether the catalogue at the cut was the one that the tables are known by. The document says which one was for certain.
func (m *Mirror) confirm(ctx context.Context, cp *checkpoint) error {
	sure, changed := false, false
	see := func(c *pgcdc.Catalog) error {
		return m.inTurn(ctx, func() error {
			sure = m.catalogLSN >= cp.cut || c != nil && m.knownAs(c)
			changed = m.closures != cp.closures || m.evolutions != cp.evolutions
			return nil
		})
	}
	if err := see(nil); err != nil {
		return err
	}
	if !sure && m.shared.get().state == "streaming" {
		patient, cancel := context.WithTimeout(ctx, confirmWait)
		defer cancel()
		c, err := m.look(patient, true)
		if err == nil {
			err = see(c)
		}
		if err == nil && !sure && !m.impatient && !m.stopping() {
			var point LSN
			if point, err = m.source.WaitPoint(patient); err == nil { // the stream passes it soon, also when nothing else happens
				err = m.marks.wait(patient, max(point, c.LSN))
			}
			if err == nil {
				err = see(c)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			m.cfg.Log.Warn("the catalogue at a checkpoint is not known", "lsn", cp.cut.String(), "err", oneLine(err.Error()))
		}
	}
	if changed && cp.attempt < confirmAgain {
		return errCutAgain
	}
	return m.inTurn(ctx, func() error {
		if cp.doc.Certain = m.certain; sure {
			cp.doc.Certain = cp.cut
		}
		return nil
	})
}

// knownAs says whether a look shows every table as it is known. The applier's turn.
func (m *Mirror) knownAs(c *pgcdc.Catalog) bool {
	seen := make(map[uint32]*pgcdc.Table, len(c.Tables))
	for i := range c.Tables {
		seen[c.Tables[i].OID] = &c.Tables[i]
	}
	return !slices.ContainsFunc(m.tables, func(t *table) bool {
		now := seen[t.oid]
		if t.unsure() {
			return now != nil && !t.shownAs(now)
		}
		return t.state == stateStreaming && (now == nil || now.Unsupported != "" || !t.shownAs(now))
	})
}

// holdsGood says whether a failed table holds what it did at its last good LSN, also below the window.
func (v *tableView) holdsGood() bool {
	return !v.failure.Closed || v.table.left && !v.failure.Doubtful
}

// goodUpToCommit notes in the failure of a table that is closed up to where it is good: up to the last commit that is certain, if the table was there.
// The applier's turn.
func (m *Mirror) goodUpToCommit(t *table, f *failure) {
	f.Good, f.Doubtful = m.certain, m.certain < m.durable
	if !t.created || m.certain < t.appears {
		f.Good = 0
	}
}

// leaveClosed leaves of the tables that were closed what the last commit has of them. The caller holds m.checkpointing: nothing is committed meanwhile.
func (m *Mirror) leaveClosed(ctx context.Context) error {
	var closed []*table
	err := m.inAnyTurn(ctx, func() error { // leaveOne looks again
		for _, t := range m.tables {
			if t.closed() && !t.left && t.shape != nil {
				closed = append(closed, t)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, t := range closed {
		if err := m.leaveOne(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mirror) leaveOne(ctx context.Context, t *table) error {
	held, _ := m.warehouse.Held(t.uuid)
	return m.inTurn(ctx, func() error {
		for _, job := range []*sync.Mutex{&t.jobs, &t.tidying, &t.merging} { // in the turn: nothing waits for one with t.jobs, for which a flush may wait that the applier waits for
			if !job.TryLock() { // a flush, a compaction or a merge is under way, perhaps for long: the next checkpoint will do
				return nil
			}
			defer job.Unlock()
		}
		if slices.Contains(m.tables, t) && t.closed() {
			m.leave(t, t.failure, held.Files)
		}
		return nil
	})
}

// leave puts in a table's place, as closed for f, one that holds what the last commit made of it; readers of before keep what they see. The caller
// holds t.jobs, t.tidying and t.merging. The applier's turn.
func (m *Mirror) leave(t *table, f *failure, files []iceberg.DataFile) {
	left := &table{oid: t.oid, name: t.name, uuid: t.uuid, fingerprint: t.fingerprint, storage: t.storage, forms: t.forms, frame: t.frame, lastAttNum: t.lastAttNum,
		lastFieldID: t.lastFieldID, committed: t.committed, state: stateFailed, failure: f, unrepresentable: t.unrepresentable, dirty: true, durable: m.durable,
		created: t.created, replaces: t.replaces, appears: max(f.Good, t.appears), truncatedBy: t.truncatedBy, seen: t.seen, copied: t.copied, joining: t.joining, left: true}
	record := t.record(m.durable)
	left.stored = &record
	t.replaces, t.copied, t.joining = nil, nil, nil
	if left.joining != nil {
		left.joining.old = left
	}
	if t.committed != nil {
		left.setShape(t.committed)
	}
	if f.Doubtful { // what the last commit has is not read
		left.appears = max(f.Good+1, t.appears)
	} else if t.committed != nil {
		left.hold(m, files, f.Good)
		left.install()
	}
	known := m.byOID[t.oid]
	m.takeOut(t)
	m.adopt(left)
	if known != t {
		m.byOID[t.oid] = known
	}
	m.updateShared()
}

// hold makes the table that of a commit's files, as of an LSN up to which they are complete.
func (t *table) hold(m *Mirror, files []iceberg.DataFile, at LSN) {
	slices.SortStableFunc(files, func(a, b iceberg.DataFile) int { // as they were: a commit lists what a compaction made last
		return cmp.Or(cmp.Compare(a.MinLSN, b.MinLSN), cmp.Compare(a.MaxLSN, b.MaxLSN))
	})
	t.rows = 0
	for _, data := range files {
		m.lastSegment++
		t.files = append(t.files, &segment{id: m.lastSegment, vis: deletion.FromVector(data.Deleted, at),
			file: &file{data: data, published: true, committed: true, vector: data.Deleted.Cardinality()}})
		t.rows += data.Rows - int64(data.Deleted.Cardinality())
	}
}
