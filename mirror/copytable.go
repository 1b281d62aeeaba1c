package mirror

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// tableCopy is the first copy of one table. Its table is nobody else's until the copy is done.
//
//	table ─▶ ranges of blocks ─▶ one part each: files and FileIndexes ─▶ the table's, in the ranges' order
//
// A part is kept once its range is done; what goes wrong in one range costs that range alone, unless it is the content that is
// wrong, or the snapshot that is gone.
type tableCopy struct {
	table  *table
	source *pgcdc.Table
	at     LSN
	copied atomic.Int64 // rows so far
	// rowBytes is about the size of a row on the source, as float64 bits, from the newest range that is done; 0 before.
	rowBytes atomic.Uint64
	stop     func() // ends the table's other ranges when it is over

	mu      sync.Mutex
	changed error    // pgcdc.ErrRewritten: the table is no longer the snapshot's, and nothing is kept of the copy; nil when it is
	parts   []*table // of the ranges that are done: files, indexes and counts
	pending int      // ranges that are not done
}

func nameOf(t *pgcdc.Table) readstate.TableName {
	return readstate.TableName{Schema: t.Schema, Name: t.Name}
}

// forms are what columns are made by the configuration instead of by their types, by name; nil when there is none.
type forms map[string]string

func formsOf(t *pgcdc.Table) (f forms) {
	for _, c := range t.Columns {
		if c.Form != "" {
			if f == nil {
				f = forms{}
			}
			f[c.Name] = c.Form
		}
	}
	return f
}

func (m *Mirror) newCopy(src *pgcdc.Table, at LSN) *tableCopy {
	t := &table{oid: src.OID, name: nameOf(src), fingerprint: src.Fingerprint, storage: storageOf(src), forms: formsOf(src), state: stateCopying, copiedAt: at}
	c := &tableCopy{table: t, source: src, at: at, stop: func() {}}
	s, err := newShape(src, func(a *arrow.Schema) *arrow.Schema {
		withIDs, _ := iceberg.AssignFieldIDs(a, 0)
		return withIDs
	})
	if err != nil {
		c.fail(m, &failure{Reason: err.Error(), Remedy: remedyUnsupported})
		return c
	}
	t.uuid = uuid.NewString()
	t.setShape(s)
	t.learn(src)
	if len(src.Generated) > 0 {
		m.cfg.Log.Info("generated columns are not published and left out", "relation", t.String(), "columns", strings.Join(src.Generated, ", "))
	}
	if s.mode == insertOnly {
		m.cfg.Log.Warn("the table has no usable replica identity: only its inserts can be mirrored", "relation", t.String())
	}
	return c
}

// fail stops the table's copy for good. Of several reasons the first counts.
func (c *tableCopy) fail(m *Mirror, f *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.table.state == stateFailed {
		return
	}
	f.LSN, f.Good = c.at, 0
	c.table.state, c.table.failure = stateFailed, f
	c.stop()
	m.logFailure(c.table.String(), c.at, f)
}

// outrun gives the copy up, because the table is no longer what the snapshot has.
func (c *tableCopy) outrun(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = err
		c.stop()
	}
}

// over says that nothing of the table is to be copied any more with this snapshot.
func (c *tableCopy) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.state == stateFailed || c.changed != nil
}

// copyTables copies all tables, several ranges at once. Only what concerns other tables too is an error; a fault of a table's
// own content fails that table, and one that the snapshot does not fit any more says so (changed).
func (m *Mirror) copyTables(ctx context.Context, snapshot pgcdc.ExportedSnapshot, copies []*tableCopy) error {
	ranges, err := m.planCopies(ctx, copies)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(m.cfg.CopyWorkers + m.smallFlushes - 1)
	slots := make(chan struct{}, m.cfg.CopyWorkers)
	contexts := make(map[*tableCopy]context.Context, len(copies))
	for _, c := range copies {
		contexts[c], c.stop = context.WithCancel(gctx)
		defer c.stop()
	}
	for _, r := range ranges {
		g.Go(func() error { return r.run(contexts[r.copy], m, snapshot, slots) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, c := range copies {
		c.gather(ctx, m)
	}
	return nil
}

// done takes the part of a range that is copied.
func (c *tableCopy) done(m *Mirror, r *copyRange, part *table) {
	if part.rows > 0 {
		c.rowBytes.Store(math.Float64bits(float64(r.bytes) / float64(part.rows)))
	}
	c.mu.Lock()
	c.parts[r.number] = part
	c.pending--
	last := c.pending == 0
	c.mu.Unlock()
	if last && !c.over() {
		m.cfg.Log.Info("table copied", "relation", c.table.String(), "rows", c.copied.Load(), "ranges", len(c.parts))
	}
}

// gather makes the parts the table's content. Those of a copy that is over are given up.
func (c *tableCopy) gather(ctx context.Context, m *Mirror) {
	for _, part := range c.parts {
		switch {
		case part == nil: // the copy was over before the range was read
		case c.over():
			m.discardPart(ctx, part)
		default:
			c.table.files = append(c.table.files, part.files...)
			c.table.indexes = append(c.table.indexes, part.indexes...)
			c.table.rows += part.rows
			c.table.unrepresentable += part.unrepresentable
		}
	}
	c.parts = nil
}

// closeIndexes lets go of what a copy that is given up holds. Its files are removed as orphans before the next one.
func (c *tableCopy) closeIndexes(m *Mirror) {
	m.closeIndexes(c.table)
	for _, part := range c.parts {
		if part != nil {
			m.closeIndexes(part)
		}
	}
}

// discard deletes what a copy has written whose attempt has ended with an error.
func (c *tableCopy) discard(ctx context.Context, m *Mirror) {
	for _, part := range c.parts {
		if part != nil {
			m.discardPart(ctx, part)
		}
	}
	c.parts = nil
}

// discardPart deletes the files of a part that nobody will need. One that cannot be deleted is removed as an orphan by the next
// start.
func (m *Mirror) discardPart(ctx context.Context, part *table) {
	m.closeIndexes(part)
	ctx = context.WithoutCancel(ctx) // a table's failure ends its context
	for _, s := range part.files {
		err := m.warehouse.Discard(ctx, s.file.data.Path)
		if err == nil && s.file.index != "" {
			err = m.files.Remove(s.file.index)
		}
		if err != nil {
			m.cfg.Log.Warn("a file of a broken copy stays until the next start", "relation", part.String(), "path", s.file.data.Path, "err", err)
		}
	}
	part.files = nil
}

// showCopies shows the tables of a copy in status.
func (m *Mirror) showCopies(copies []*tableCopy) {
	slices.SortFunc(copies, func(a, b *tableCopy) int { return strings.Compare(a.table.String(), b.table.String()) })
	views := make([]*tableView, len(copies))
	for i, c := range copies {
		views[i] = &tableView{table: c.table, state: c.table.state, failure: c.table.failure, schema: arrow.NewSchema(nil, nil), copied: &c.copied}
		if c.table.shape != nil {
			views[i].schema = c.table.shape.arrow
		}
	}
	m.shared.set(func(s *sharedState) { s.tables = views })
}
