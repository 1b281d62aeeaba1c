package mirror

import (
	"context"
	"fmt"
	"slices"
	"time"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// look is a look at the source's catalogue that waits until HWM passes its LSN: only then are all row events before it
// applied.
type look struct {
	catalog *pgcdc.Catalog
	kept    map[uint32]pgcdc.Kept // by OID, of tables and leaves that may have been rewritten
	began   time.Time
	awaited bool // somebody reads what it shows when HWM has passed it
}

// watch looks at the catalogue from time to time.
func (m *Mirror) watch(ctx context.Context) error {
	told := ""
	for {
		select {
		case <-m.clock.After(m.cfg.CatalogPoll):
		case <-ctx.Done():
			return nil
		}
		if m.shared.get().state != "streaming" {
			continue
		}
		if _, err := m.look(ctx, false); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if text := err.Error(); text != told {
				m.cfg.Log.Warn("look at the catalogue", "err", err)
				told = text
				m.tellLook(text)
			}
			continue
		}
		if told != "" {
			m.tellLook("")
		}
		told = ""
	}
}

// tellLook makes status tell of a look that failed while the stream goes on: nothing else may show that the publication is missing until somebody writes.
func (m *Mirror) tellLook(trouble string) {
	m.shared.set(func(s *sharedState) {
		if s.state == "streaming" {
			s.reason = oneLine(trouble)
		}
	})
}

// look takes one look and queues it for judgement; one that is awaited is judged for certain before HWM passes it.
func (m *Mirror) look(ctx context.Context, awaited bool) (*pgcdc.Catalog, error) {
	began := m.clock.Now()
	c, err := m.source.Look(ctx)
	if err != nil {
		return nil, m.explain(err)
	}
	m.counts.sourceEnd.Store(uint64(c.LSN))
	kept, err := m.rowsKept(ctx, c)
	if err != nil {
		return nil, err
	}
	return c, m.inTurn(ctx, func() error {
		m.looks = append(m.looks, look{c, kept, began, awaited})
		return m.judge()
	})
}

// rowsKept asks the source about the rows of the tables that a look shows as perhaps rewritten.
func (m *Mirror) rowsKept(ctx context.Context, c *pgcdc.Catalog) (map[uint32]pgcdc.Kept, error) {
	since := map[*pgcdc.Table]storageMark{}
	err := m.inTurn(ctx, func() error {
		for i := range c.Tables {
			now := &c.Tables[i]
			if t := m.live(now.OID); t != nil && t.fingerprint == now.Fingerprint && t.storage.rewritten(now) {
				since[now] = t.storage
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	kept := make(map[uint32]pgcdc.Kept, len(since))
	for t, mark := range since {
		if t.Kind == 'p' {
			err = m.askLeaves(ctx, t, mark, kept)
		} else {
			kept[t.OID], err = m.source.RowsKept(ctx, t, mark.Horizon)
		}
		if err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// judge compares each look that HWM has passed with what is known. The applier's turn.
func (m *Mirror) judge() error {
	for len(m.looks) > 0 && m.looks[0].catalog.LSN <= m.applied {
		c, kept := m.looks[0].catalog, m.looks[0].kept
		m.counts.currentAt.Store(m.looks[0].began.UnixNano())
		m.looks = m.looks[1:]
		if c.Snapshot >= m.catalogSeen { // else one that saw more was faster
			if err := m.sharedOnce(func() error { return m.compare(c, kept) }); err != nil {
				return err
			}
			m.catalogSeen = c.Snapshot
		}
		if m.catalogLSN = max(m.catalogLSN, c.CheckedLSN); m.catalogLSN >= m.durable {
			m.certain = m.durable
		}
	}
	m.thinLooks()
	return nil
}

// forgetLooks lets looks on a timeline that ended at an LSN count for nothing on the one that followed it: there, what lies above that LSN has not
// happened, and transactions have their numbers anew. The applier's turn.
func (m *Mirror) forgetLooks(end LSN) {
	m.looks, m.catalogSeen, m.catalogLSN = nil, 0, min(m.catalogLSN, end)
	for _, t := range m.tables {
		t.seen = 0
	}
	for _, j := range m.joins {
		j.shown, j.shownAt = nil, 0
		if j.table != nil {
			j.table.seen = 0
		}
	}
}

// maxLooks is how many looks that nobody awaits are kept while the stream is behind: each is the whole catalogue, of 5,000 tables about 10 MB.
const maxLooks = 8

// thinLooks drops every second look that nobody awaits when there are too many: one shows what those before it show, some time later.
func (m *Mirror) thinLooks() {
	spare := 0
	for _, l := range m.looks {
		if !l.awaited {
			spare++
		}
	}
	if spare <= maxLooks {
		return
	}
	n := 0
	m.looks = slices.DeleteFunc(m.looks, func(l look) bool {
		if l.awaited {
			return false
		}
		n++
		return n%2 == 0 // the oldest stays, and, as one more than maxLooks are there, the newest too
	})
}

const reasonTaken = "another table has taken its name"

const reasonGone = "the table was dropped or taken out of the publication"

// compare looks for what no row event tells: tables whose definition has changed and tables that come are copied, tables that
// are gone fail. A change of columns that needs no copy is taken over.
func (m *Mirror) compare(c *pgcdc.Catalog, kept map[uint32]pgcdc.Kept) error {
	seen := make(map[uint32]*pgcdc.Table, len(c.Tables))
	for i := range c.Tables {
		seen[c.Tables[i].OID] = &c.Tables[i]
	}
	for _, j := range m.joins {
		j.shown, j.shownAt = seen[j.oid], c.Snapshot
	}
	for _, t := range slices.Clone(m.tables) {
		now, ok := seen[t.oid]
		if c.Snapshot >= t.seen {
			m.judgeGood(t, now, c)
		}
		switch {
		case c.Snapshot < t.seen: // known as it is later
		case t.state == stateCopying: // its join compares for itself
		case t.state == stateFailed:
			switch {
			case t.joining != nil:
			case ok && t.repaired(now) && t.failure.Absent:
				m.wantJoin(t.oid, t, "it is back in the publication")
			case ok && t.repaired(now) && t.failure.Gone:
				m.wantJoin(t.oid, t, t.failure.Reason+", and that has changed")
			case ok && t.repaired(now):
				m.wantJoin(t.oid, t, "the table's definition changed before that row")
			case ok && now.Unsupported != "" && t.failure.Missing != "":
				// That is why.
				f := &failure{Reason: now.Unsupported, Remedy: remedyChanged, LSN: c.LSN, Gone: true}
				f.inherit(t.failure)
				m.logFailure(t.String(), c.LSN, f)
				t.failure, t.dirty = f, true
				m.updateShared()
			case !ok && !t.failure.Absent:
				m.absent(t, c.LSN, "")
			}
		case !ok:
			m.absent(t, c.LSN, "")
		case now.Unsupported != "":
			m.fail(t, c.LSN, &failure{Reason: now.Unsupported, Remedy: remedyChanged, Gone: true, Closed: true})
		case now.Fingerprint != t.fingerprint:
			if s := t.evolved(now); s == nil || m.binary && !tableBinaryOK(now) {
				m.outdated(t, t.oid, c.LSN, "the table's definition changed: "+t.changed(now))
			} else if err := m.evolve(t, now, s, m.applied, c.Snapshot); err != nil {
				return err
			}
		case t.rowsLost(now, kept):
			m.outdated(t, t.oid, c.LSN, reasonRewritten(now))
		default:
			t.storage = storageOf(now)
		}
	}
	for i := range c.Tables {
		if now := &c.Tables[i]; m.byOID[now.OID] == nil {
			m.newcomer(now, c)
		}
	}
	return nil
}

// judgeGood looks whether a failed table was what it is said to have been at its last good LSN. A look that shows it changed, the first since the failure, does
// not say whether that came before that LSN or after it. Then only what the last commit has is good. now is nil when the look does not show the table.
func (m *Mirror) judgeGood(t *table, now *pgcdc.Table, c *pgcdc.Catalog) {
	switch {
	case !t.unsure() || now == nil:
	case t.shownAs(now):
		t.sure = c.CheckedLSN >= t.failure.Good
	default:
		f := *t.failure
		f.Closed = true
		m.goodUpToCommit(t, &f)
		f.Good = min(f.Good, t.failure.Good)
		m.cfg.Log.Warn("a failed table had changed before it failed, or after that", "relation", t.String(), "good", f.Good.String())
		t.failure, t.dirty = &f, true
		m.closures++
		signal(m.wantCut)
		m.updateShared()
	}
}

// newcomer takes up a table that was not there before. The applier's turn.
func (m *Mirror) newcomer(now *pgcdc.Table, c *pgcdc.Catalog) {
	if i := slices.IndexFunc(m.tables, func(t *table) bool { return t.name == nameOf(now) }); i >= 0 {
		// It has the name of a table that is gone, or is about to be found gone or renamed.
		if t := m.tables[i]; t.state == stateFailed && t.joining == nil {
			m.wantJoin(now.OID, t, reasonTaken)
		}
		return
	}
	t := &table{oid: now.OID, name: nameOf(now), state: stateCopying, seen: c.Snapshot}
	m.adopt(t)
	if now.Unsupported != "" {
		m.fail(t, c.LSN, &failure{Reason: now.Unsupported, Remedy: remedyChanged, Gone: true})
		return
	}
	m.cfg.Log.Info("a table has joined the publication", "relation", t.String(), "lsn", c.LSN.String())
	m.wantJoin(now.OID, t, "it has joined the publication")
	m.updateShared()
}

// changed says what a look shows changed.
func (t *table) changed(now *pgcdc.Table) string {
	if now.Schema != t.name.Schema || now.Name != t.name.Name {
		return fmt.Sprintf("it is now called %s.%s", now.Schema, now.Name)
	}
	if len(now.Columns) != len(t.shape.columns) {
		return fmt.Sprintf("it has %d columns instead of %d", len(now.Columns), len(t.shape.columns))
	}
	for i, c := range now.Columns {
		known := &t.shape.columns[i]
		if c.Name != known.name {
			return fmt.Sprintf("column %q is now %q", known.name, c.Name)
		} else if known.attNum != 0 && c.AttNum != known.attNum {
			return fmt.Sprintf("column %q was dropped and made anew", known.name)
		} else if known.pg != nil && (c.Type.OID != known.pg.OID || c.Type.Mod != known.pg.Mod) {
			return fmt.Sprintf("column %q has another type", known.name)
		}
	}
	return "a column's properties or its form, an enum's labels, a composite's attributes, the replica identity, the persistence, or how it is published"
}

// resolve gives recovered tables what only the catalogue knows, and fails those that changed while the mirror was away. The
// applier's turn, before the stream begins.
func (m *Mirror) resolve(c *pgcdc.Catalog, kept map[uint32]pgcdc.Kept) {
	seen := make(map[uint32]*pgcdc.Table, len(c.Tables))
	for i := range c.Tables {
		seen[c.Tables[i].OID] = &c.Tables[i]
	}
	for _, t := range m.tables {
		if t.state != stateStreaming || t.shape.resolved {
			continue
		}
		now, reason := seen[t.oid], ""
		switch {
		case now == nil:
			m.absent(t, m.applied, " while the mirror was stopped")
		case now.Unsupported != "":
			m.fail(t, m.applied, &failure{Reason: now.Unsupported, Remedy: remedyChanged, Gone: true, Closed: true})
		case now.Fingerprint != t.fingerprint:
			reason = "the table's definition changed while the mirror was stopped: " + t.changed(now)
		default:
			certain, _ := t.storage.rowsKept(now, kept)
			if certain == pgcdc.KeptUnknown {
				reason = reasonRewritten(now) + " while the mirror was stopped"
				break
			}
			if certain == pgcdc.KeptCertain { // else it is judged once the stream has told of a TRUNCATE
				t.storage = storageOf(now)
			}
			if err := t.shape.resolve(now); err != nil {
				reason = err.Error()
			} else {
				t.frame, t.lastAttNum = now.Frame, now.LastAttNum
			}
		}
		if reason != "" {
			m.outdated(t, t.oid, m.applied, reason)
		}
	}
	m.doc.SearchPath = c.SearchPath
	m.shared.set(func(s *sharedState) { s.searchPath = c.SearchPath })
}

// adopt makes a table known. Tables are kept in the order of their names, as read states list them.
func (m *Mirror) adopt(t *table) {
	at, _ := slices.BinarySearchFunc(m.tables, t.name, func(known *table, name readstate.TableName) int { return known.name.Compare(name) })
	m.tables = slices.Insert(m.tables, at, t)
	m.byOID[t.oid] = t
}
