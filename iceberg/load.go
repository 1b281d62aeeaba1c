package iceberg

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	icelib "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
	"golang.org/x/sync/errgroup"
)

// Load reads what we committed last and checks it: every file that the current snapshots name is there and has the right
// size. It comes before the first Commit and is called once. A table that is damaged is in State.Faults and not in State.Tables; nothing is
// committed to it in this life, and its files stay as they are. What another writer has committed since is not looked at (Moved). An error means
// that the catalog cannot be read, or that the machine did not let us look.
func (w *Warehouse) Load(ctx context.Context) (*State, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loaded {
		return nil, errors.New("load: the warehouse is loaded already")
	}
	c, err := w.catalog.read(ctx)
	if err != nil {
		return nil, err
	}
	tables, faults, err := loadTables(ctx, w.files, c.pointers, w.root)
	if err != nil {
		return nil, err
	}
	listed, err := w.catalog.replaced(ctx)
	if err != nil {
		return nil, err
	}
	replaced := map[string][]replacedFile{}
	for _, r := range listed {
		replaced[r.uuid] = append(replaced[r.uuid], r)
	}
	if err := w.refuseOlder(tables); err != nil {
		return nil, err
	}
	state := &State{Mirror: c.mirror, LSN: c.lsn}
	w.lsn = c.lsn
	for i, t := range tables {
		if p := c.pointers[i]; faults[i] != nil {
			if !errors.Is(faults[i], ErrCorrupt) && !errors.Is(faults[i], ErrForeignSnapshot) {
				return nil, fmt.Errorf("load table %s.%s: %w", p.name.Schema, p.name.Name, faults[i])
			}
			w.faulty[p.uuid] = p
			state.Faults = append(state.Faults, TableFault{Name: p.name, UUID: p.uuid, Err: faults[i]})
			delete(replaced, p.uuid) // they stay as they are
			continue
		}
		named := func(r replacedFile) bool { return r.namedBy(t.meta.Snapshots()) }
		for _, r := range replaced[t.uuid] {
			if named(r) {
				t.replaced = append(t.replaced, r)
			}
		}
		replaced[t.uuid] = slices.DeleteFunc(replaced[t.uuid], named)
		w.setTable(t)
		state.Tables = append(state.Tables, t.state())
	}
	for _, n := range c.foreign {
		w.log.Warn("a table in the catalog is not the mirror's; it is left alone", "relation", n)
	}
	for _, uuid := range slices.Sorted(maps.Keys(replaced)) {
		for _, r := range replaced[uuid] {
			since := w.config.Now()
			if r.since != 0 { // a life that did not note the time has left it to us
				since = time.UnixMilli(r.since)
			}
			state.Unreachable = append(state.Unreachable, UnreachableFile{Path: r.path, Since: since})
		}
	}
	w.loadHistory()
	w.loaded = true
	return state, w.repairHints(tables)
}

// Document returns the document stored with the last commit, nil in a new warehouse. It needs no Load, so that it works when
// a table's files are damaged.
func (w *Warehouse) Document(ctx context.Context) ([]byte, error) { return w.catalog.document(ctx) }

// refuseOlder is an error when a table's version hint names a later commit than the catalog: the hint is written when the catalog has the commit, so the
// catalog has been replaced by an older one, for which the newer commits' files would be orphans.
func (w *Warehouse) refuseOlder(tables []*table) error {
	for _, t := range tables {
		if t == nil {
			continue
		}
		hint, err := readAll(w.files, filepath.Join(t.metadataDir(), hintName))
		if err != nil || !hintForm.Match(hint) || versionOf(string(hint)) <= versionOf(hintOf(t)) {
			continue
		}
		names, err := w.files.ReadDir(t.metadataDir())
		if err == nil && slices.Contains(names, string(hint)+metadataSuffix) {
			return fmt.Errorf("%w: catalog.db is older than table %s.%s, which has the metadata %s: restore catalog.db and warehouse/ as they were at one time, or drop the warehouse (pgmirror drop --warehouse)",
				ErrCorrupt, t.name.Schema, t.name.Name, hint)
		}
	}
	return nil
}

// versionOf is the number that the name of a metadata file begins with.
func versionOf(hint string) int {
	number, _, _ := strings.Cut(hint, "-")
	version, _ := strconv.Atoi(number)
	return version
}

func (w *Warehouse) repairHints(tables []*table) error {
	for _, t := range tables {
		if t == nil {
			continue
		}
		hint, err := readAll(w.files, filepath.Join(t.metadataDir(), hintName))
		if err == nil && string(hint) == hintOf(t) {
			continue
		}
		if err := w.writeHint(t); err != nil {
			return fmt.Errorf("table %s.%s: %w", t.name.Schema, t.name.Name, err)
		}
	}
	return nil
}

// loadTables loads the current snapshot of every table, several at once, in the order of the pointers. Where one cannot be
// loaded, faults says why.
func loadTables(ctx context.Context, files FileSystem, pointers []pointer, root string) (tables []*table, faults []error, err error) {
	tables, faults = make([]*table, len(pointers)), make([]error, len(pointers))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range pointers {
		group.Go(func() error {
			tables[i], faults[i] = loadTable(files, p, root)
			return ctx.Err()
		})
	}
	return tables, faults, group.Wait()
}

func loadTable(files FileSystem, p pointer, root string) (_ *table, err error) {
	defer func() { // damaged bytes may make a library's decoder panic
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: metadata: %v", ErrCorrupt, p)
		}
	}()
	if p.location != p.ours { // what we committed last counts until Examine has told what came after it
		defer func() {
			if err != nil {
				err = fmt.Errorf("%w, and what we committed last is gone: %w", ErrForeignSnapshot, err)
			}
		}()
	}
	path, err := toPath(p.ours)
	if err != nil {
		return nil, err
	}
	meta, err := readMetadata(files, path)
	if err != nil {
		return nil, err
	}
	dir, err := toPath(meta.Location())
	if err != nil {
		return nil, err
	}
	if meta.TableUUID().String() != p.uuid || filepath.Dir(filepath.Dir(path)) != dir || !strings.HasPrefix(dir, root+"/") {
		return nil, fmt.Errorf("%w: %s describes another table or place (%s); a data directory cannot be moved: put it back or start a new one", ErrCorrupt, path, dir)
	}
	snapshot := meta.CurrentSnapshot()
	if snapshot == nil {
		return nil, fmt.Errorf("%w: %s has no current snapshot", ErrCorrupt, path)
	}
	t := &table{name: p.name, uuid: p.uuid, dir: dir, meta: meta, path: path}
	if err := t.loadSnapshot(files, snapshot); err != nil {
		return nil, err
	}
	for _, f := range t.files {
		if err := checkSize(files, f.file.Path, f.file.Bytes); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func checkSize(files FileSystem, path string, size int64) error {
	f, err := files.Open(path)
	if err != nil {
		return fmt.Errorf("data file: %w", damage(err))
	}
	defer f.Close()
	if f.Size() != size {
		return fmt.Errorf("%w: %s has %d bytes where the manifest says %d", ErrCorrupt, path, f.Size(), size)
	}
	return nil
}

func readMetadata(files FileSystem, path string) (icetable.Metadata, error) {
	text, err := readAll(files, path)
	if err != nil {
		return nil, fmt.Errorf("table metadata: %w", damage(err))
	}
	meta, err := icetable.ParseMetadataBytes(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	if meta.Version() != 3 || !isUnpartitioned(meta) {
		return nil, fmt.Errorf("%w: %s: format version %d or a partition spec that is not ours", ErrForeignSnapshot, path, meta.Version())
	}
	return meta, nil
}

func isUnpartitioned(meta icetable.Metadata) bool {
	specs := meta.PartitionSpecs()
	return len(specs) == 1 && specs[0].IsUnpartitioned()
}

// loadSnapshot fills t with what one of its retained snapshots shows; its LSN too, unless that is known.
func (t *table) loadSnapshot(files FileSystem, snapshot *icetable.Snapshot) (err error) {
	if t.lsn == 0 {
		if t.lsn, err = lineLSN(t.meta, snapshot); err != nil {
			return err
		}
	}
	if t.schema, err = schemaOf(t.meta, snapshot); err != nil {
		return err
	}
	path, err := toPath(snapshot.ManifestList)
	if err != nil {
		return err
	}
	text, err := readAll(files, path)
	if err != nil {
		return fmt.Errorf("manifest list: %w", damage(err))
	}
	listed, err := icelib.ReadManifestList(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	t.files = map[string]*liveFile{}
	var deletes []*manifest
	for _, file := range listed {
		m := &manifest{file: file}
		if m.path, err = toPath(file.FilePath()); err != nil {
			return err
		}
		if file.ManifestContent() == icelib.ManifestContentDeletes {
			deletes = append(deletes, m)
			continue
		}
		if err := t.loadManifest(files, m, t.loadFile); err != nil {
			return err
		}
		t.manifests = append(t.manifests, m)
	}
	if len(deletes) > 1 {
		return fmt.Errorf("%w: %s: %d delete manifests where we write one", ErrForeignSnapshot, path, len(deletes))
	}
	for _, m := range deletes {
		t.deletes = m
		if err := t.loadManifest(files, m, func(m *manifest, e icelib.ManifestEntry, path string) error { return t.loadVector(files, m, e, path) }); err != nil {
			return err
		}
	}
	if err := t.check(); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

func schemaOf(meta icetable.Metadata, snapshot *icetable.Snapshot) (*arrow.Schema, error) {
	if snapshot.SchemaID != nil {
		for _, s := range meta.Schemas() {
			if s.ID == *snapshot.SchemaID {
				schema, err := arrowSchema(s)
				if err != nil {
					return nil, fmt.Errorf("%w: schema %d: %w", ErrForeignSnapshot, s.ID, err)
				}
				return schema, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: snapshot %d has no known schema", ErrCorrupt, snapshot.SnapshotID)
}

func (t *table) loadManifest(files FileSystem, m *manifest, live func(m *manifest, e icelib.ManifestEntry, path string) error) error {
	text, err := readAll(files, m.path)
	if err != nil {
		return fmt.Errorf("manifest: %w", damage(err))
	}
	entries, err := icelib.ReadManifest(m.file, bytes.NewReader(text), false)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, m.path, err)
	}
	for _, e := range entries {
		if e.Status() == icelib.EntryStatusDELETED {
			m.tombs++
			continue
		}
		path, err := toPath(e.DataFile().FilePath())
		if err == nil {
			err = live(m, e, path)
		}
		if err != nil {
			return fmt.Errorf("manifest %s: %w", m.path, err)
		}
	}
	return nil
}

func (t *table) loadFile(m *manifest, e icelib.ManifestEntry, path string) error {
	entry := e.DataFile()
	first := entry.FirstRowID()
	lower, upper := entry.LowerBoundValues()[LSNFieldID], entry.UpperBoundValues()[LSNFieldID]
	if first == nil || len(lower) != 8 || len(upper) != 8 {
		return fmt.Errorf("%w: %s has no row ids or no bounds of %s", ErrForeignSnapshot, path, LSNColumn)
	}
	if t.files[path] != nil {
		return fmt.Errorf("%w: %s is live twice", ErrCorrupt, path)
	}
	t.files[path] = &liveFile{sequence: e.SequenceNum(), snapshotID: e.SnapshotID(), firstRowID: *first,
		file: DataFile{Path: path, Rows: entry.Count(), Bytes: entry.FileSizeBytes(), MinLSN: littleEndianLSN(lower), MaxLSN: littleEndianLSN(upper), entry: entry}}
	m.live = append(m.live, path)
	return nil
}

func (t *table) loadVector(files FileSystem, m *manifest, e icelib.ManifestEntry, path string) error {
	entry := e.DataFile()
	if entry.ReferencedDataFile() == nil || entry.FileFormat() != icelib.PuffinFile {
		return fmt.Errorf("%w: %s is not a deletion vector", ErrForeignSnapshot, path)
	}
	dataFile, err := toPath(*entry.ReferencedDataFile())
	if err != nil {
		return err
	}
	f := t.files[dataFile]
	if f == nil || f.vector != nil {
		return fmt.Errorf("%w: %s is a vector of %s, which is not live or has another", ErrCorrupt, path, dataFile)
	}
	if f.file.Deleted, err = readVector(files, entry, path, f.file.Rows); err != nil {
		return err
	}
	f.vector = &liveVector{path: path, entry: entry, sequence: e.SequenceNum(), snapshotID: e.SnapshotID()}
	m.live = append(m.live, dataFile)
	return nil
}

func littleEndianLSN(b []byte) LSN { return LSN(binary.LittleEndian.Uint64(b)) }
