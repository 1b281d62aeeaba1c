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
	began   time.Time
}

// watch looks at the catalogue from time to time.
func (m *Mirror) watch(ctx context.Context) error {
	for {
		select {
		case <-m.clock.After(m.cfg.CatalogPoll):
		case <-ctx.Done():
			return nil
		}
		if m.shared.get().state != "streaming" {
			continue
		}
		if err := m.look(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			m.cfg.Log.Warn("look at the catalogue", "err", err)
		}
	}
}

// look takes one look and queues it for judgement.
func (m *Mirror) look(ctx context.Context) error {
	began := m.clock.Now()
	c, err := m.source.Look(ctx)
	if err != nil {
		return err
	}
	m.counts.sourceEnd.Store(uint64(c.LSN))
	return m.inTurn(ctx, func() error {
		m.looks = append(m.looks, look{c, began})
		m.judge()
		return nil
	})
}

// judge compares each look that HWM has passed with what is known. The applier's turn.
func (m *Mirror) judge() {
	for len(m.looks) > 0 && m.looks[0].catalog.LSN <= m.applied {
		c := m.looks[0].catalog
		m.counts.currentAt.Store(m.looks[0].began.UnixNano())
		m.looks = m.looks[1:]
		if c.CheckedLSN < m.catalogLSN {
			continue
		}
		m.compare(c)
		m.catalogLSN = c.CheckedLSN
	}
	// Looks come every catalog_poll; while the stream is behind, only the newest of those still ahead matters.
	if len(m.looks) > maxLooks {
		m.looks = append(m.looks[:0], m.looks[len(m.looks)-1])
	}
}

const maxLooks = 64

const reasonRewritten = "the table's rows were rewritten by ALTER TABLE"

// compare fails each table that a look shows changed with no Relation message to explain it.
func (m *Mirror) compare(c *pgcdc.Catalog) {
	seen := make(map[uint32]*pgcdc.Table, len(c.Tables))
	for i := range c.Tables {
		seen[c.Tables[i].OID] = &c.Tables[i]
	}
	for _, t := range m.tables {
		if t.state != stateStreaming {
			continue
		}
		now, ok := seen[t.oid]
		switch {
		case !ok:
			m.fail(t, c.LSN, &failure{Reason: "the table was dropped or taken out of the publication", Remedy: remedyShape})
		case now.Unsupported != "":
			m.fail(t, c.LSN, &failure{Reason: now.Unsupported, Remedy: remedyShape})
		case now.Fingerprint != t.fingerprint:
			m.fail(t, c.LSN, &failure{Reason: "the table's definition changed: " + t.changed(now), Remedy: remedyShape})
		case t.storage.rewritten(storageOf(now)):
			m.fail(t, c.LSN, &failure{Reason: reasonRewritten, Remedy: remedyShape})
		default:
			t.storage = storageOf(now)
		}
	}
	added := false
	for i := range c.Tables {
		now := &c.Tables[i]
		if m.byOID[now.OID] != nil {
			continue
		}
		if slices.ContainsFunc(m.tables, func(t *table) bool { return t.name == nameOf(now) }) {
			// It took the name of a table that has failed because of that. A name stands for one table; this one has no rows here.
			m.byOID[now.OID] = &table{oid: now.OID, name: nameOf(now), state: stateFailed}
			m.cfg.Log.Warn("table not mirrored", "relation", nameOf(now).String(), "lsn", c.LSN.String(), "err", "another table had its name before")
			continue
		}
		t := &table{oid: now.OID, name: nameOf(now), fingerprint: now.Fingerprint, state: stateFailed, failure: &failure{
			Reason: "the table joined the publication after the first copy", LSN: c.LSN, Remedy: startAnew + " to copy it: adding tables while streaming comes with a later version"}}
		m.adopt(t)
		m.cfg.Log.Warn("table not mirrored", "relation", t.String(), "lsn", c.LSN.String(), "err", t.failure.Reason)
		added = true
	}
	if added {
		m.updateShared()
	}
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
		if known := &t.shape.columns[i]; c.Name != known.name || c.AttNum != known.attNum {
			return fmt.Sprintf("column %q is now %q", known.name, c.Name)
		} else if known.pg != nil && (c.Type.OID != known.pg.OID || c.Type.Mod != known.pg.Mod) {
			return fmt.Sprintf("column %q has another type", known.name)
		}
	}
	return "a column's properties, an enum's labels, the replica identity or the persistence"
}

// resolve gives recovered tables what only the catalogue knows, and fails those that changed while the mirror was away. The
// applier's turn, before the stream begins.
func (m *Mirror) resolve(c *pgcdc.Catalog) {
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
			reason = "the table was dropped or taken out of the publication while the mirror was stopped"
		case now.Unsupported != "":
			reason = now.Unsupported
		case now.Fingerprint != t.fingerprint:
			reason = "the table's definition changed while the mirror was stopped: " + t.changed(now)
		case t.storage.rewritten(storageOf(now)):
			reason = reasonRewritten + " while the mirror was stopped"
		default:
			t.storage = storageOf(now)
			if err := t.shape.resolve(now); err != nil {
				reason = err.Error()
			}
		}
		if reason != "" {
			m.fail(t, m.applied, &failure{Reason: reason, Remedy: remedyShape})
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
