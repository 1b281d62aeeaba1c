package mirror

import (
	"context"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
)

// A change of a table's columns that leaves the rows on the source's disk as they are (columns added, dropped, or renamed) is taken over in
// place: the table goes on with another shape, and batches and files from before keep theirs.
//
//	… rows of the old shape │ Relation or look │ rows of the new shape …
//	                        since: readers below it see the version before, with its columns
//
// What shows which column is which is the catalogue alone: a Relation has no attnums. Look and Relation must agree on every column, and between the
// last look and this one columns were either added or dropped: then no look or Relation between them can have named the same columns and meant
// others. Everything else is copied again (join.go).

// evolved is the table's shape by a look that shows other columns than the look before; nil when it cannot take it over in place. The
// applier's turn.
func (t *table) evolved(now *pgcdc.Table) *shape {
	old := t.shape
	switch {
	case !old.resolved, now.Unsupported != "", now.Frame == "", now.Frame != t.frame, now.Fingerprint == t.fingerprint:
		return nil
	case now.Relfilenode != t.storage.Relfilenode: // what the rows show in a new column may be lost
		return nil
	case now.Kind == 'p' && t.storage.rewritten(now):
		return nil
	case now.LastDropped > t.lastAttNum: // a column came and went meanwhile
		return nil
	}
	known := make(map[int16]*shapeColumn, len(old.columns))
	for i := range old.columns {
		known[old.columns[i].attNum] = &old.columns[i]
	}
	kept, added := 0, 0
	for i := range now.Columns {
		c := &now.Columns[i]
		was := known[c.AttNum]
		switch {
		case was != nil && was.means(c):
			kept++
		case was == nil && c.AttNum > t.lastAttNum:
			added++
		default:
			return nil
		}
	}
	dropped := len(old.columns) - kept
	if added > 0 && dropped > 0 || old.mode == wholeRow && added+dropped > 0 {
		return nil
	}
	fits := true
	s, err := newShape(now, func(schema *arrow.Schema) *arrow.Schema {
		fields := schema.Fields()
		for i := range fields {
			c := &now.Columns[i]
			if was := known[c.AttNum]; was != nil {
				before := old.arrow.Field(slices.IndexFunc(old.columns, func(o shapeColumn) bool { return o.attNum == c.AttNum }))
				fields[i].Type, fields[i].Metadata = before.Type, before.Metadata
				fits = fits && fields[i].Nullable == before.Nullable
			}
		}
		schema, _ = iceberg.AssignFieldIDs(arrow.NewSchema(fields, nil), t.lastFieldID)
		fields = schema.Fields()
		for i := range fields {
			if c := &now.Columns[i]; known[c.AttNum] == nil {
				var ok bool
				fields[i], ok = withMissing(fields[i], c)
				fits = fits && ok
			}
		}
		return arrow.NewSchema(fields, nil)
	})
	if err != nil || !fits || s.mode != old.mode || len(s.key) != len(old.key) {
		return nil
	}
	for i := range s.key {
		if s.columns[s.key[i]].attNum != old.columns[old.key[i]].attNum {
			return nil
		}
	}
	return s
}

// means says whether a look's column has the values that the known one has.
func (c *shapeColumn) means(now *pgcdc.Column) bool {
	if c.fingerprint == now.Fingerprint {
		return true
	}
	return c.pg.Textual() && now.Type.Textual()
}

// withMissing gives a new column's field what the rows that are there show in it; ok is false when that has no form in all places.
func withMissing(f arrow.Field, c *pgcdc.Column) (with arrow.Field, ok bool) {
	if !f.Nullable || c.MissingUnknown {
		return f, false
	}
	if c.Missing == nil {
		return f, true
	}
	value := newColumn(f.Type)
	if err := c.Type.Decode(pgcdc.FormatText, []byte(*c.Missing), value); err != nil {
		return f, false
	}
	return iceberg.WithDefault(f, value.ownArray())
}

// evolve gives a table the shape that a look shows, for rows from lsn on. The applier's turn.
func (m *Mirror) evolve(t *table, now *pgcdc.Table, s *shape, lsn LSN, seen uint64) error {
	what := t.changed(now)
	if err := m.sealOpen(t); err != nil {
		return err
	}
	m.memory.Add(-t.open.batch.weight)
	t.earlier, t.since = t.version.Load(), lsn
	t.setShape(s)
	t.learn(now)
	t.forms = formsOf(now)
	t.seen = seen
	m.evolutions++
	t.open = m.newBatchSegment(t)
	t.dirty = true
	t.install()
	m.updateShared()
	m.cfg.Log.Info("the table's columns changed", "relation", t.String(), "lsn", lsn.String(), "what", what)
	return m.cfg.Effect("columns changed")
}

// learn takes over what a look says of a table whose shape is that of the look.
func (t *table) learn(now *pgcdc.Table) {
	t.fingerprint, t.frame, t.storage, t.lastAttNum = now.Fingerprint, now.Frame, storageOf(now), now.LastAttNum
	for _, f := range t.shape.arrow.Fields() {
		t.lastFieldID = max(t.lastFieldID, lastFieldID(f))
	}
}

// lastFieldID is the highest field id in a field.
func lastFieldID(f arrow.Field) int {
	id, _ := fieldID(f)
	if list, ok := f.Type.(*arrow.ListType); ok {
		id = max(id, lastFieldID(list.ElemField()))
	}
	return id
}

const (
	// evolveLooks is how often the applier looks for the catalogue to show a change that the stream has brought, about a second long: a commit is sent
	// before it is visible on the source.
	evolveLooks = 200
	evolveAgain = 5 * time.Millisecond
)

// takeOver takes a Relation's change of a table's columns over, if that can be done in place. The applier waits for a look at the catalogue: nothing
// after the Relation can be read before it is known which columns it names.
func (m *Mirror) takeOver(ctx context.Context, t *table, r *pgcdc.Relation, lsn LSN) (bool, error) {
	if r.Schema != t.name.Schema || r.Name != t.name.Name || !t.shape.resolved {
		return false, nil
	}
	for range m.evolveLooks {
		c, err := m.source.Look(ctx)
		if err != nil {
			return false, ctx.Err() // a join looks again
		}
		now := tableOf(c, t.oid)
		if now == nil || now.Unsupported != "" || m.binary && !tableBinaryOK(now) {
			return false, nil
		}
		if now.Fingerprint != t.fingerprint {
			s := t.evolved(now)
			if s == nil || s.differs(t, r) != "" {
				return false, nil
			}
			return true, m.evolve(t, now, s, lsn, c.Snapshot)
		}
		select {
		case <-m.clock.After(evolveAgain):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return false, nil
}
