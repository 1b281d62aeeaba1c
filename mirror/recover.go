package mirror

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"pgmirror/deletion"
	"pgmirror/globalindex"
	"pgmirror/iceberg"
)

// recover brings back what the warehouse holds and opens it for reading at the stored cut. It needs no source.
//
// The catalog and the slot are the truth; FileIndexes are caches: one that is missing, torn, foreign or built on other columns
// is built again from the file's key columns.
func (m *Mirror) recover(ctx context.Context) error {
	st, err := m.warehouse.Load(ctx)
	if err != nil {
		return fmt.Errorf("open the warehouse: %w", err)
	}
	removed, err := m.warehouse.RemoveOrphans(ctx)
	if err != nil {
		return fmt.Errorf("remove files of a previous life: %w", err)
	}
	if len(removed) > 0 {
		m.cfg.Log.Info("removed files that no snapshot names", "files", len(removed))
	}
	if st.Mirror == nil {
		return nil
	}
	doc, err := decodeDocument(st.Mirror)
	if err != nil {
		return err
	}
	if doc.Slot != m.cfg.Slot {
		return fmt.Errorf("%w: the data directory belongs to slot %q, not %q; use that slot or another data directory", ErrRefused, doc.Slot, m.cfg.Slot)
	}
	if !slices.Equal(sorted(doc.Publication), sorted(m.cfg.Publications)) {
		return fmt.Errorf("%w: the data directory mirrors publication %q, not %q; use that publication, or %s", ErrRefused, doc.Publication, m.cfg.Publications, startAnew)
	}
	m.doc = *doc
	m.shared.set(func(s *sharedState) { s.database, s.searchPath = doc.Database, doc.SearchPath })
	if doc.Phase != phaseStreaming {
		return nil
	}
	m.applied, m.lastCommit = doc.Cut, doc.LastCommit
	m.catalogLSN = doc.Cut
	m.setDurable(doc.Cut)
	held := make(map[string]*iceberg.TableState, len(st.Tables))
	for i := range st.Tables {
		held[st.Tables[i].UUID] = &st.Tables[i]
	}
	for _, r := range doc.Tables {
		if err := m.recoverTable(r, held[r.UUID]); err != nil {
			return fmt.Errorf("recover table %s.%s: %w", r.Name.Schema, r.Name.Name, err)
		}
	}
	if err := m.recoverIndexes(ctx); err != nil {
		return err
	}
	m.marks.open(doc.Cut, m.clock.Now())
	m.updateShared()
	m.shared.set(func(s *sharedState) { s.opened = true })
	m.cfg.Log.Info("recovered", "lsn", doc.Cut.String(), "tables", len(m.tables))
	return nil
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func (m *Mirror) recoverTable(r tableRecord, held *iceberg.TableState) error {
	t := &table{oid: r.OID, name: r.Name, uuid: r.UUID, fingerprint: r.Fingerprint, storage: r.Storage, state: r.State, failure: r.Failure,
		unrepresentable: r.Nulled, durable: m.doc.Cut}
	m.adopt(t)
	if held == nil {
		if t.state == stateStreaming {
			return fmt.Errorf("the catalog has no table with uuid %s; restore catalog.db and warehouse/ together, or %s", r.UUID, startAnew)
		}
		return nil
	}
	s, err := recoveredShape(held.Schema, r.Mode, r.Key)
	if err != nil {
		return err
	}
	t.setShape(s)
	t.snapshots = held.Snapshots
	at := m.doc.Cut
	if t.failure != nil {
		at = min(at, t.failure.Good)
	}
	for _, data := range held.Files {
		m.lastSegment++
		t.files = append(t.files, &segment{id: m.lastSegment, vis: deletion.FromVector(data.Deleted, at),
			file: &file{data: data, published: true, committed: true, vector: data.Deleted.Cardinality()}})
		t.rows += data.Rows - int64(data.Deleted.Cardinality())
	}
	if t.state == stateStreaming {
		t.open = m.newBatchSegment(s)
	}
	t.install()
	return nil
}

// recoverIndexes opens the FileIndex of every data file of every streaming table, building those that cannot be used.
func (m *Mirror) recoverIndexes(ctx context.Context) error {
	names, err := m.files.List(m.cfg.IndexDir)
	if err != nil {
		return fmt.Errorf("list file indexes: %w", err)
	}
	unused := make(map[string]bool, len(names))
	for _, n := range names {
		unused[filepath.Join(m.cfg.IndexDir, n)] = true
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(m.cfg.FlushWorkers)
	rebuilt := 0
	for _, t := range m.tables {
		if t.state != stateStreaming || t.shape.mode == insertOnly {
			continue
		}
		t.indexes = make([]*fileIndex, len(t.files))
		for i, s := range t.files {
			path := m.indexPath(s.file.data.Path)
			if unused[path] {
				delete(unused, path)
				x, err := m.openIndex(path)
				if err == nil {
					if err = x.covers(t.shape, s.file.data); err == nil {
						x.segments = []*segment{s}
						t.indexes[i] = x
						continue
					}
					x.unmap()
				}
				m.cfg.Log.Warn("file index cannot be used", "relation", t.String(), "err", err)
			}
			rebuilt++
			g.Go(func() error {
				x, err := m.rebuildIndex(gctx, t, s)
				t.indexes[i] = x
				return err
			})
		}
	}
	if rebuilt > 0 {
		m.cfg.Log.Info("building file indexes", "files", rebuilt)
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for path := range unused {
		if err := m.files.Remove(path); err != nil {
			return fmt.Errorf("remove file index %s: %w", path, err)
		}
	}
	return nil
}

// covers says why an index is not the one of a data file; nil when it is.
func (x *fileIndex) covers(s *shape, data iceberg.DataFile) error {
	want, have := indexHeader(s, data), x.index.Header()
	if have.KeyKind != want.KeyKind || !slices.Equal(have.Columns, want.Columns) {
		return fmt.Errorf("file index %s is built on other columns", x.path)
	}
	if len(have.Files) != 1 || have.Files[0] != want.Files[0] || have.Entries != uint64(data.Rows) {
		return fmt.Errorf("file index %s belongs to another file", x.path)
	}
	return nil
}

// rebuildIndex builds a data file's FileIndex from its key columns.
func (m *Mirror) rebuildIndex(ctx context.Context, t *table, s *segment) (*fileIndex, error) {
	data := s.file.data
	hashes, err := m.keyHashes(ctx, t.shape, data)
	if err != nil {
		return nil, fmt.Errorf("build the index of %s: %w", data.Path, err)
	}
	bytes, err := globalindex.BuildFileIndex(indexHeader(t.shape, data), [][]uint64{hashes})
	if err != nil {
		return nil, fmt.Errorf("build the index of %s: %w", data.Path, err)
	}
	path := m.indexPath(data.Path)
	if err := m.files.WriteFile(path, bytes); err != nil {
		return nil, fmt.Errorf("build the index of %s: %w", data.Path, err)
	}
	x, err := m.openIndex(path)
	if err != nil {
		return nil, err
	}
	x.segments = []*segment{s}
	return x, nil
}

// keyHashes reads the key columns of a data file and hashes each row's.
func (m *Mirror) keyHashes(ctx context.Context, s *shape, data iceberg.DataFile) ([]uint64, error) {
	r, err := m.warehouse.OpenData(data.Path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	scratch := &table{}
	scratch.setShape(s)
	hashes := make([]uint64, 0, data.Rows)
	err = r.Columns(ctx, s.keyFieldIDs(), func(rec arrow.RecordBatch, _ int64) error {
		for _, c := range scratch.reading {
			c.truncate(0)
		}
		for i, c := range scratch.reading {
			for row := range int(rec.NumRows()) {
				if err := c.appendArray(rec.Column(i), row); err != nil {
					return err
				}
			}
		}
		for row := range int(rec.NumRows()) {
			hashes = append(hashes, scratch.hash(scratch.reading, row))
		}
		return nil
	})
	if err == nil && len(hashes) != int(data.Rows) {
		err = fmt.Errorf("it has %d rows, the catalog says %d", len(hashes), data.Rows)
	}
	return hashes, err
}

// release gives up what the mirror holds at its end.
func (m *Mirror) release() {
	m.readers.close()
	for _, t := range m.tables {
		m.closeIndexes(t)
	}
}
