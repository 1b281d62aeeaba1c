package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

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
	m.inheritGarbage(st.Unreachable)
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
	if !doc.LastCommit.Time.IsZero() {
		m.counts.currentAt.Store(doc.LastCommit.Time.UnixNano())
	}
	m.catalogLSN, m.certain = doc.Certain, doc.Certain
	m.setDurable(doc.Cut)
	held := make(map[string]*iceberg.TableState, len(st.Tables))
	for i := range st.Tables {
		held[st.Tables[i].UUID] = &st.Tables[i]
	}
	faults := make(map[string]error, len(st.Faults))
	for _, f := range st.Faults {
		faults[f.UUID] = f.Err
	}
	err = m.sharedOnce(func() error {
		for _, r := range doc.Tables {
			if err := m.recoverTable(r, held[r.UUID], faults[r.UUID]); err != nil {
				return fmt.Errorf("recover table %s.%s: %w", r.Name.Schema, r.Name.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := m.recoverIndexes(ctx); err != nil {
		return err
	}
	m.marks.open(doc.Cut, doc.LastCommit.Time, m.clock.Now())
	m.updateShared()
	m.shared.set(func(s *sharedState) { s.opened = true })
	m.cfg.Log.Info("recovered", "lsn", doc.Cut.String(), "tables", len(m.tables))
	return nil
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func (m *Mirror) recoverTable(r tableRecord, held *iceberg.TableState, fault error) error {
	t := &table{oid: r.OID, name: r.Name, uuid: r.UUID, fingerprint: r.Fingerprint, storage: r.Storage, state: r.State, failure: r.Failure,
		unrepresentable: r.Nulled, truncatedBy: r.TruncatedBy, forms: r.Forms, durable: m.doc.Cut, stored: &r}
	m.adopt(t)
	if f := t.failure; f != nil && r.Resync == "" {
		m.cfg.Log.Warn("a table is still "+t.state.shown(f), "relation", t.String(), "lsn", f.LSN.String(), "err", f.Reason, "remedy", f.Remedy)
	}
	if r.Resync != "" {
		m.wantJoin(r.OID, t, r.Resync)
	}
	if fault != nil {
		t.rows = r.Rows
		m.damaged(t, fault)
		return nil
	}
	if held == nil {
		if t.state == stateStreaming {
			return fmt.Errorf("the catalog has no table with uuid %s; restore catalog.db and warehouse/ together, or %s", r.UUID, startAnew)
		}
		return nil
	}
	s, err := recoveredShape(held.Schema, r.Mode, r.Key)
	if err != nil {
		m.damaged(t, fmt.Errorf("its schema: %w", err))
		return nil
	}
	t.setShape(s)
	t.created, t.committed, t.lastFieldID = true, s, max(held.LastColumnID, r.LastFieldID)
	at := m.doc.Cut
	if t.failure != nil {
		at = min(at, t.failure.Good)
	}
	t.hold(m, held.Files, at)
	t.left = t.closed()
	if t.state == stateStreaming {
		t.open = m.newBatchSegment(t)
	}
	t.install()
	return nil
}

// recoverIndexes gives every data file of every streaming table a FileIndex: those on disk that can be used, the widest first, and new
// ones for the files left. Each file is covered exactly once; what is not used is removed.
func (m *Mirror) recoverIndexes(ctx context.Context) error {
	names, err := m.files.List(m.cfg.IndexDir)
	if err != nil {
		return fmt.Errorf("list file indexes: %w", err)
	}
	homes := map[string]indexedFile{}
	for _, t := range m.tables {
		if t.state != stateStreaming || t.shape.mode == insertOnly {
			continue
		}
		for _, s := range t.files {
			homes[filepath.Base(s.file.data.Path)] = indexedFile{t, s}
		}
	}
	var found []*fileIndex
	otherVersion := 0
	for _, name := range names {
		if strings.HasPrefix(name, runPrefix) {
			continue // removed below
		}
		x, err := m.openIndex(filepath.Join(m.cfg.IndexDir, name))
		if errors.Is(err, globalindex.ErrVersion) {
			otherVersion++
			continue
		}
		if err != nil {
			m.cfg.Log.Warn("file index cannot be used", "err", err)
			continue
		}
		found = append(found, x)
	}
	if otherVersion > 0 {
		m.cfg.Log.Info("file indexes were built by another version: rebuilding", "files", otherVersion)
	}
	slices.SortStableFunc(found, func(a, b *fileIndex) int { return len(b.index.Header().Files) - len(a.index.Header().Files) })
	used := map[string]bool{}
	for _, x := range found {
		if x.adopt(homes) {
			used[x.path] = true
		} else if err := x.unmap(); err != nil {
			return fmt.Errorf("close file index %s: %w", x.path, err)
		}
	}
	if err := m.rebuildIndexes(ctx, homes); err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(m.cfg.IndexDir, name)
		if home, ok := homes[dataName(name)]; !used[path] && (!ok || home.segment.file.index != path) || ok && home.table.damage != "" {
			if err := m.files.Remove(path); err != nil {
				return fmt.Errorf("remove file index %s: %w", path, err)
			}
		}
	}
	for _, t := range m.tables {
		order := make(map[*segment]int, len(t.files))
		for i, s := range t.files {
			order[s] = i
		}
		slices.SortFunc(t.indexes, func(a, b *fileIndex) int { return order[a.segments[0]] - order[b.segments[0]] })
	}
	return nil
}

// indexedFile is a data file that needs a FileIndex.
type indexedFile struct {
	table   *table
	segment *segment
}

// dataName is the base name of the data file whose own FileIndex has this name.
func dataName(index string) string { return strings.TrimSuffix(index, ".fidx") + ".parquet" }

// adopt makes the index that of its files, if all of them are live files of one table, none has an index yet, and it was
// built on the table's identity columns.
func (x *fileIndex) adopt(homes map[string]indexedFile) bool {
	h := x.index.Header()
	var rows uint64
	var t *table
	for _, f := range h.Files {
		home, ok := homes[f.Path]
		if !ok || home.segment.file.index != "" || t != nil && t != home.table || slices.Contains(x.segments, home.segment) {
			return false
		}
		t = home.table
		want := indexHeader(t.shape, home.segment.file.data)
		if want.Files[0] != f || want.KeyKind != h.KeyKind || !slices.Equal(want.Columns, h.Columns) {
			return false
		}
		rows += f.Rows
		x.segments = append(x.segments, home.segment)
	}
	if t == nil || rows != h.Entries {
		return false
	}
	if name := filepath.Base(x.path); !strings.HasPrefix(name, mergedPrefix) && dataName(name) != h.Files[0].Path {
		return false // under this name the index of another file will be written
	}
	for _, s := range x.segments {
		s.file.index = x.path
	}
	t.indexes = append(t.indexes, x)
	return true
}

// rebuildIndexes builds the FileIndexes of the files that have none: several at once, as many as there are processors (two at least) and half of the bound of memory
// has room for, the largest first. Status shows how far it is.
func (m *Mirror) rebuildIndexes(ctx context.Context, homes map[string]indexedFile) error {
	var missing []indexedFile
	rows := int64(0)
	for _, home := range homes {
		if home.segment.file.index == "" {
			missing = append(missing, home)
			rows += home.segment.file.data.Rows
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.SortFunc(missing, func(a, b indexedFile) int { return cmp.Compare(b.segment.file.data.Rows, a.segment.file.data.Rows) })
	m.cfg.Log.Info("building file indexes", "files", len(missing), "rows", rows)
	began := m.clock.Now()
	var mu sync.Mutex
	built, builtRows, faults := 0, int64(0), map[*table]error{}
	show := func() {
		m.shared.set(func(s *sharedState) {
			s.reason = fmt.Sprintf("building file indexes that are missing: %d of %d files, %d of %d rows", built, len(missing), builtRows, rows)
		})
	}
	show()
	defer m.shared.set(func(s *sharedState) { s.reason = "" })
	most := m.cfg.Memory / 2
	room := semaphore.NewWeighted(most)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(2, runtime.GOMAXPROCS(0)))
	for _, home := range missing {
		weight := min(most, home.segment.file.data.Rows*buildBytes)
		g.Go(func() error {
			if err := room.Acquire(gctx, weight); err != nil {
				return err
			}
			defer room.Release(weight)
			x, err := m.rebuildIndex(gctx, home.table.shape, home.segment)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, iceberg.ErrCorrupt) {
				faults[home.table] = err
				return nil
			}
			if err != nil {
				return err
			}
			home.segment.file.index = x.path
			home.table.indexes = append(home.table.indexes, x)
			built, builtRows = built+1, builtRows+home.segment.file.data.Rows
			show()
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for t, err := range faults {
		m.damaged(t, err)
	}
	m.cfg.Log.Info("built file indexes", "files", built, "rows", builtRows, "took", m.clock.Now().Sub(began))
	return nil
}

// rebuildIndex builds a data file's FileIndex from its key columns.
func (m *Mirror) rebuildIndex(ctx context.Context, of *shape, s *segment) (*fileIndex, error) {
	data := s.file.data
	hashes, err := m.keyHashes(ctx, of, data)
	if err != nil {
		return nil, fmt.Errorf("build the index of %s from its keys: %w", data.Path, err)
	}
	bytes, err := globalindex.BuildFileIndex(indexHeader(of, data), [][]uint64{hashes})
	if err != nil {
		return nil, fmt.Errorf("build the index of %s: %w", data.Path, err)
	}
	path := m.indexPath(data.Path)
	if err := m.files.WriteFile(path, bytes); err != nil {
		return nil, fmt.Errorf("build the index of %s: %w", data.Path, err)
	}
	m.written.index.Add(int64(len(bytes)))
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
					return fmt.Errorf("%w: %w", iceberg.ErrCorrupt, err)
				}
			}
		}
		for row := range int(rec.NumRows()) {
			hashes = append(hashes, scratch.hash(scratch.reading, row))
		}
		return nil
	})
	if err == nil && len(hashes) != int(data.Rows) {
		err = fmt.Errorf("%w: it has %d rows, the catalog says %d", iceberg.ErrCorrupt, len(hashes), data.Rows)
	}
	return hashes, err
}

// release gives up what the mirror holds at its end.
func (m *Mirror) release() {
	m.readers.close()
	for _, t := range m.withMemory() {
		m.closeIndexes(t)
	}
}
