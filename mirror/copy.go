package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"pgmirror/deletion"
	"pgmirror/iceberg"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// firstCopy makes the slot and copies every table as of the slot's consistent point, straight into data files and FileIndexes.
//
// The intent to make the slot is stored before it is made and its consistent point after that; nothing but the slot outlives
// a crash in between, and the next start drops it and begins again. A table that was rewritten after the snapshot was taken
// makes the whole copy begin again with a new slot; one to which that happens three times fails.
func (m *Mirror) firstCopy(ctx context.Context, id pgcdc.Identification) error {
	m.setState("copying", "")
	var known document
	if err := m.inTurn(ctx, func() error { known = m.doc; return nil }); err != nil {
		return err
	}
	if known.Phase == "" {
		slot, found, err := m.source.Slot(ctx)
		if err != nil {
			return err
		}
		if found {
			return fmt.Errorf("%w: the replication slot %q exists already (confirmed up to %s), but this data directory knows nothing of it; drop it with `pgmirror drop`, choose another --slot, or use its own data directory", ErrRefused, m.cfg.Slot, slot.ConfirmedFlush)
		}
	}
	// What can be seen to be wrong with the publications is seen before the slot is made: a slot that stays behind keeps WAL.
	if _, err := m.source.Look(ctx); err != nil {
		return err
	}
	rewritten := map[uint32]int{}
	for {
		err := m.tryCopy(ctx, id, rewritten, known.Phase != "")
		m.source.CloseSnapshot()
		var moved *rewrittenError
		if !errors.As(err, &moved) {
			return err
		}
		rewritten[moved.oid]++
		m.cfg.Log.Warn("the copy begins again", "relation", moved.name, "attempt", rewritten[moved.oid], "err", moved.err)
	}
}

// rewrittenError says which table spoiled a copy.
type rewrittenError struct {
	oid  uint32
	name string
	err  error
}

func (e *rewrittenError) Error() string { return e.name + ": " + e.err.Error() }
func (e *rewrittenError) Unwrap() error { return e.err }

// maxRewrites is how often one table may spoil the whole copy before it is left out.
const maxRewrites = 3

// tryCopy makes one attempt. again says that an earlier life stored its intent: a slot of the name is then ours.
func (m *Mirror) tryCopy(ctx context.Context, id pgcdc.Identification, rewritten map[uint32]int, again bool) (err error) {
	doc := document{Format: 1, Phase: phaseIntent, Slot: m.cfg.Slot, Publication: m.cfg.Publications, Database: id.Database,
		SystemID: id.SystemID, Timeline: id.Timeline}
	if _, err := m.storeDocument(ctx, &doc, nil); err != nil {
		return err
	}
	if err := m.source.DropSlot(ctx); err != nil {
		return err
	}
	if _, err := m.warehouse.RemoveOrphans(ctx); err != nil {
		return fmt.Errorf("remove the files of a broken copy: %w", err)
	}
	snapshot, err := m.source.CreateSlot(ctx)
	if errors.Is(err, pgcdc.ErrSlotExists) && again {
		// A previous life died while its request to make the slot was on the way; the server has made it since we dropped it.
		if err := m.source.DropSlot(ctx); err != nil {
			return err
		}
		snapshot, err = m.source.CreateSlot(ctx)
	}
	if err != nil {
		return err
	}
	doc.Phase, doc.Cut = phaseCopying, snapshot.ConsistentPoint
	if _, err := m.storeDocument(ctx, &doc, nil); err != nil {
		return err
	}
	catalog, err := m.source.Look(ctx)
	if err != nil {
		return err
	}
	doc.SearchPath = catalog.SearchPath
	copies := make([]*tableCopy, len(catalog.Tables))
	for i := range catalog.Tables {
		copies[i] = m.newCopy(&catalog.Tables[i], snapshot.ConsistentPoint)
		if rewritten[catalog.Tables[i].OID] >= maxRewrites && copies[i].table.state != stateFailed {
			copies[i].fail(m, &failure{Reason: "the table was rewritten again and again while it was copied", Remedy: remedyRow})
		}
	}
	m.showCopies(copies)
	defer func() {
		if err != nil {
			for _, c := range copies {
				m.closeIndexes(c.table)
			}
		}
	}()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(m.cfg.CopyWorkers)
	for _, c := range copies {
		if c.table.state != stateFailed {
			g.Go(func() error { return c.run(gctx, m, snapshot) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	doc.Phase = phaseStreaming
	commit := make([]iceberg.TableCommit, 0, len(copies))
	for _, c := range copies {
		if c.table.shape != nil && c.table.state != stateFailed {
			tc := iceberg.TableCommit{Name: c.table.name, UUID: c.table.uuid, Create: true, Schema: c.table.shape.arrow}
			for _, s := range c.table.files {
				tc.Add = append(tc.Add, s.file.data)
			}
			commit = append(commit, tc)
			c.table.state = stateStreaming
		}
		doc.Tables = append(doc.Tables, c.table.record())
	}
	result, err := m.storeDocument(ctx, &doc, commit)
	if err != nil {
		return err
	}
	for _, c := range copies {
		c.table.snapshots = result.Tables[c.table.name].Snapshots
	}
	return m.inTurn(ctx, func() error { m.start(&doc, copies); return nil })
}

// storeDocument commits the mirror's state with some tables.
func (m *Mirror) storeDocument(ctx context.Context, doc *document, tables []iceberg.TableCommit) (*iceberg.Result, error) {
	text, err := doc.encode()
	if err != nil {
		return nil, err
	}
	result, err := m.warehouse.Commit(ctx, iceberg.Commit{Mirror: text, LSN: doc.Cut, Tables: tables, Summary: map[string]string{
		"pgmirror.slot": m.cfg.Slot, "pgmirror.checkpoint": "0", "pgmirror.version": m.cfg.Version}})
	if err != nil {
		return nil, fmt.Errorf("store the state %q: %w", doc.Phase, err)
	}
	return result, m.inTurn(ctx, func() error {
		m.doc = *doc
		m.shared.set(func(s *sharedState) { s.database = doc.Database })
		return nil
	})
}

// start takes over what was copied and opens it for reading. The applier's turn.
func (m *Mirror) start(doc *document, copies []*tableCopy) {
	m.doc = *doc
	m.applied = doc.Cut
	m.catalogLSN = doc.Cut
	m.setDurable(doc.Cut)
	m.lastCheckpoint = m.clock.Now()
	var rows int64
	failed := 0
	for _, c := range copies {
		t := c.table
		for _, s := range t.files {
			m.lastSegment++
			s.id = m.lastSegment
			s.file.published, s.file.committed = true, true
		}
		if t.state == stateStreaming {
			t.open = m.newBatchSegment(t.shape)
			t.install()
		} else {
			failed++
		}
		rows += t.rows
		m.adopt(t)
	}
	m.marks.open(doc.Cut, m.clock.Now())
	m.updateShared()
	m.shared.set(func(s *sharedState) { s.opened, s.searchPath = true, doc.SearchPath })
	m.cfg.Log.Info("copied", "lsn", doc.Cut.String(), "tables", len(copies)-failed, "failed", failed, "rows", rows)
}

// tableCopy is the first copy of one table. Its table is nobody else's until the copy is done.
type tableCopy struct {
	table  *table
	source *pgcdc.Table
	at     LSN
	copied atomic.Int64 // rows so far
}

func nameOf(t *pgcdc.Table) readstate.TableName {
	return readstate.TableName{Schema: t.Schema, Name: t.Name}
}

func (m *Mirror) newCopy(src *pgcdc.Table, at LSN) *tableCopy {
	t := &table{oid: src.OID, name: nameOf(src), fingerprint: src.Fingerprint, storage: storageOf(src), state: stateCopying}
	c := &tableCopy{table: t, source: src, at: at}
	s, err := newShape(src, func(a *arrow.Schema) *arrow.Schema {
		withIDs, _ := iceberg.AssignFieldIDs(a, 0)
		return withIDs
	})
	if err != nil {
		c.fail(m, &failure{Reason: err.Error(), Remedy: "then " + startAnew + " to copy the table"})
		return c
	}
	t.uuid = uuid.NewString()
	t.setShape(s)
	if s.mode == insertOnly {
		m.cfg.Log.Warn("the table has no usable replica identity: only its inserts can be mirrored", "relation", t.String())
	}
	return c
}

func (c *tableCopy) fail(m *Mirror, f *failure) {
	f.LSN, f.Good = c.at, 0
	c.table.state, c.table.failure = stateFailed, f
	c.table.files, c.table.rows = nil, 0
	m.cfg.Log.Error("table failed", "relation", c.table.String(), "lsn", c.at.String(), "column", f.Column, "err", f.Reason)
}

// copyRows is the number of rows encoded at once: a full row group or nearly.
const copyRows = 1 << 16

// run copies the table. Only what concerns other tables too is an error; a fault of the table's own content fails it.
func (c *tableCopy) run(ctx context.Context, m *Mirror, snapshot pgcdc.ExportedSnapshot) error {
	t := c.table
	w := &copyWriter{m: m, table: t, schema: withLSN(t.shape.arrow)}
	w.begin()
	var bad error
	err := m.source.Copy(ctx, snapshot, c.source, func(tuple pgcdc.Tuple) error {
		if err := t.add(m, tuple, nil, location{}, c.at); err != nil {
			bad, w.key = err, t.keyText(tuple)
			return err
		}
		c.copied.Add(1)
		if b := t.open.batch; b.rows == copyRows || b.added >= batchBytes {
			return w.encode(ctx)
		}
		return nil
	})
	if err == nil {
		err = w.end(ctx)
	}
	if err != nil {
		w.abort()
	}
	t.open = nil
	switch {
	case bad != nil:
		f := &failure{Reason: bad.Error(), Remedy: remedyRow}
		var row *rowError
		if errors.As(bad, &row) {
			f.Column, f.Reason = row.column, row.err.Error()
			f.Remedy = remedyUnrepresentable
		}
		f.Key = w.key
		c.fail(m, f)
		return nil
	case errors.Is(err, pgcdc.ErrRewritten):
		return &rewrittenError{oid: t.oid, name: t.String(), err: err}
	case err != nil:
		return fmt.Errorf("copy %s: %w", t, err)
	}
	m.cfg.Log.Info("table copied", "relation", t.String(), "rows", t.rows)
	return nil
}

// copyWriter turns the rows of a copy into data files.
type copyWriter struct {
	m      *Mirror
	table  *table
	schema *arrow.Schema
	out    DataWriter
	job    *rewrite
	rows   int64
	key    string
}

// begin gives the table a fresh batch to fill.
func (w *copyWriter) begin() {
	b := newBatch(w.table.shape)
	b.index = nil
	w.table.open = &segment{batch: b}
}

// encode writes the filled batch to the current file.
func (w *copyWriter) encode(ctx context.Context) (err error) {
	b := w.table.open.batch
	if w.out == nil {
		w.job = &rewrite{table: w.table, shape: w.table.shape}
		if w.table.shape.mode != insertOnly {
			w.job.hashes = []uint64{}
		}
		w.out, err = w.m.warehouse.NewWriter(ctx, iceberg.TableLocation{Name: w.table.name, UUID: w.table.uuid, Schema: w.table.shape.arrow})
		if err != nil {
			return err
		}
	}
	w.job.note(b, b.rows)
	if err := w.out.Write(b.record(w.schema, b.rows)); err != nil {
		return err
	}
	w.rows += int64(b.rows)
	w.begin()
	if w.rows >= w.m.cfg.FileRows {
		return w.close()
	}
	return nil
}

// close ends the current file.
func (w *copyWriter) close() error {
	data, err := w.out.Close()
	w.out, w.rows = nil, 0
	if err != nil {
		return err
	}
	if err := w.job.finish(w.m, data); err != nil {
		return err
	}
	s := w.job.out
	s.file.cuts.Store(nil) // nobody reads below the copy's LSN
	s.vis = deletion.NewVisibility(data.MinLSN)
	w.table.files = append(w.table.files, s)
	if w.job.index != nil {
		w.table.indexes = append(w.table.indexes, w.job.index)
	}
	return nil
}

func (w *copyWriter) end(ctx context.Context) error {
	if w.table.open.batch.rows > 0 {
		if err := w.encode(ctx); err != nil {
			return err
		}
	}
	if w.out != nil {
		return w.close()
	}
	return nil
}

func (w *copyWriter) abort() {
	if w.out != nil {
		w.out.Abort()
	}
	w.m.closeIndexes(w.table)
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
