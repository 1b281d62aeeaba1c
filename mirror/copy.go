package mirror

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
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
			return fmt.Errorf("%w: the replication slot %q exists already (confirmed up to %s), but this data directory knows nothing of it; use the data directory that it belongs to (--data), or choose another --slot; only when no mirror needs it any more, remove it with `pgmirror drop`", ErrRefused, m.cfg.Slot, slot.ConfirmedFlush)
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
	if err := m.removeIndexes(); err != nil {
		return fmt.Errorf("remove the file indexes of a broken copy: %w", err)
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
				c.closeIndexes(m)
			}
		}
	}()
	if err := m.copyTables(ctx, snapshot, copies); err != nil {
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
			c.table.state, c.table.created = stateStreaming, true
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

// removeIndexes removes every FileIndex; no table has content yet.
func (m *Mirror) removeIndexes() error {
	names, err := m.files.List(m.cfg.IndexDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := m.files.Remove(filepath.Join(m.cfg.IndexDir, name)); err != nil {
			return err
		}
	}
	return nil
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
			t.open = m.newBatchSegment(t)
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
