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
// a crash in between, and the next start drops it and begins again. A table that was rewritten, truncated or altered after the snapshot was
// taken and before its copy is left out, and joins (join.go) once the stream has begun.
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
	err := m.copyAll(ctx, id, known.Phase != "")
	m.source.CloseSnapshot()
	return err
}

// copyAll copies every table with a new slot. again says that an earlier life stored its intent: a slot of the name is then ours.
func (m *Mirror) copyAll(ctx context.Context, id pgcdc.Identification, again bool) (err error) {
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
	doc.Phase, doc.Certain = phaseStreaming, doc.Cut
	commit := make([]iceberg.TableCommit, 0, len(copies))
	for _, c := range copies {
		resync := ""
		switch {
		case c.table.state == stateFailed:
		case c.changed != nil:
			m.cfg.Log.Warn("the table changed before it was copied, and is copied when the stream has begun", "relation", c.table.String(), "err", c.changed)
			c.table = &table{oid: c.table.oid, name: c.table.name, state: stateCopying, seen: catalog.Snapshot}
			resync = reasonOutrun
		default:
			tc := iceberg.TableCommit{Name: c.table.name, UUID: c.table.uuid, Create: true, Schema: c.table.shape.arrow}
			for _, s := range c.table.files {
				tc.Add = append(tc.Add, s.file.data)
			}
			commit = append(commit, tc)
			c.table.state, c.table.created, c.table.committed = stateStreaming, true, c.table.shape
		}
		record := c.table.record(c.at)
		record.Resync = resync
		doc.Tables = append(doc.Tables, record)
	}
	if _, err := m.storeDocument(ctx, &doc, commit); err != nil {
		return err
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

// reasonOutrun is why a table of the first copy joins after it.
const reasonOutrun = "it changed while the other tables were copied"

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
	m.catalogLSN, m.certain = doc.Cut, doc.Cut
	m.setDurable(doc.Cut)
	m.lastCheckpoint = m.clock.Now()
	var rows int64
	failed, later := 0, 0
	for _, c := range copies {
		t := c.table
		for _, s := range t.files {
			m.lastSegment++
			s.id = m.lastSegment
			s.file.published, s.file.committed = true, true
		}
		m.adopt(t)
		switch t.state {
		case stateStreaming:
			t.open = m.newBatchSegment(t)
			t.install()
		case stateCopying:
			later++
			m.wantJoin(t.oid, t, reasonOutrun)
		default:
			failed++
		}
		rows += t.rows
	}
	m.marks.open(doc.Cut, doc.LastCommit.Time, m.clock.Now())
	m.updateShared()
	m.shared.set(func(s *sharedState) { s.opened, s.searchPath = true, doc.SearchPath })
	m.cfg.Log.Info("copied", "lsn", doc.Cut.String(), "tables", len(copies)-failed-later, "failed", failed, "later", later, "rows", rows)
}
