package iceberg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	icelib "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
)

// The catalog is open to every Iceberg engine, and one may commit to a table of ours: it expires snapshots, makes a tag, rewrites files, or
// writes rows. The pointer is then not where we left it, which a commit, an expiry and Moved notice; nothing of ours overwrites it.
//
//	Moved, MovedError ─▶ Examine ─▶ Adopt: we go on from what the other left there
//	                             └▶ Refuse: nothing is committed to the table any more
//
// Until then, and for ever after Refuse, the table is what we committed last, of which nothing is deleted.

// Foreign is what another writer made of a table.
type Foreign struct {
	Name TableName
	UUID string
	// Reason says why the mirror cannot go on from it; empty when it can, or nothing has changed.
	Reason string
	// Held is the table as we committed it last.
	Held TableState
	// Removed and Added are data files of a rewrite, as they were and as they are, with their vectors. Whoever adopts them knows that their rows
	// are the same.
	Removed, Added []DataFile

	base, table *table
}

// Moved lists the tables whose pointers are not where we left them, but for those that were refused, sorted by name.
func (w *Warehouse) Moved(ctx context.Context) (moved []MovedTable, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, err := w.catalog.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range c.pointers {
		if t := w.tables[p.uuid]; t != nil && p.location != toURI(t.path) && !w.refused[p.uuid] {
			moved = append(moved, MovedTable{p.name, p.uuid})
		}
	}
	return moved, nil
}

// Examine says what another writer made of a table. A table that we do not have yet, because another one has its name in the catalog, has a
// Reason alone. The error is the catalog's.
func (w *Warehouse) Examine(ctx context.Context, moved MovedTable) (*Foreign, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &Foreign{Name: moved.Name, UUID: moved.UUID, base: w.tables[moved.UUID]}
	if f.base == nil {
		f.Reason = fmt.Sprintf("the catalog has another table %s, which is not the mirror's", moved.Name)
		return f, nil
	}
	f.Held = f.base.state()
	location, err := w.catalog.location(ctx, moved.Name)
	if err != nil {
		return nil, err
	}
	switch below := toURI(f.base.dir) + "/"; {
	case location == toURI(f.base.path):
		f.table = f.base
	case location != "" && !strings.HasPrefix(location, below):
		f.Reason = fmt.Sprintf("the catalog has another table in its place, with the metadata %s", location)
	case location != "":
		f.Reason = f.understand(w.files, location)
	default:
		name, err := w.catalog.holder(ctx, below)
		if err != nil {
			return nil, err
		}
		if f.Reason = "it was dropped from the catalog"; name != (TableName{}) {
			f.Reason = fmt.Sprintf("it was renamed to %s in the catalog", name)
		}
	}
	return f, nil
}

// Held is a table as we committed it last; ok is false for one that we do not have.
func (w *Warehouse) Held(uuid string) (t TableState, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if held := w.tables[uuid]; held != nil {
		return held.state(), true
	}
	return t, false
}

// Adopt makes what another writer left the table that the next commit changes. It is in force when that commit is there: a start before that
// finds the same table moved again.
func (w *Warehouse) Adopt(f *Foreign) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tables[f.UUID] == f.base && f.table != nil {
		w.setTable(f.table)
	}
}

// Refuse leaves a table as it is until it is dropped.
func (w *Warehouse) Refuse(uuid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused[uuid] = true
}

// location is what the catalog says of a name; "" when it has no such table.
func (c *catalog) location(ctx context.Context, name TableName) (location string, err error) {
	err = c.db.QueryRowContext(ctx, `SELECT coalesce(metadata_location, '') FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?`,
		CatalogName, name.Schema, name.Name).Scan(&location)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("read catalog: %w", err)
	}
	return location, nil
}

// holder is a name under which the catalog has metadata that begins with a prefix; none when it has not.
func (c *catalog) holder(ctx context.Context, prefix string) (name TableName, err error) {
	err = c.db.QueryRowContext(ctx, `SELECT table_namespace, table_name FROM iceberg_tables WHERE substr(metadata_location, 1, length(?)) = ? LIMIT 1`,
		prefix, prefix).Scan(&name.Schema, &name.Name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return name, fmt.Errorf("read catalog: %w", err)
	}
	return name, nil
}

// understand reads the metadata at a location and fills f, or says why the mirror cannot go on from it. What cannot be read cannot be understood.
func (f *Foreign) understand(files FileSystem, location string) (reason string) {
	defer func() { // a library's decoder may panic
		if p := recover(); p != nil {
			f.table, reason = nil, fmt.Sprintf("its metadata %s cannot be read: %v", location, p)
		}
	}()
	path, err := toPath(location)
	if err != nil || filepath.Dir(path) != f.base.metadataDir() {
		return fmt.Sprintf("its metadata is at %s, which is not where the mirror keeps it", location)
	}
	meta, err := readMetadata(files, path)
	if err != nil {
		return err.Error()
	}
	was := f.base.meta
	current := meta.CurrentSnapshot()
	switch {
	case meta.TableUUID() != was.TableUUID() || meta.Location() != was.Location():
		return fmt.Sprintf("its metadata %s describes another table (%s at %s)", location, meta.TableUUID(), meta.Location())
	case current == nil:
		return "its rows were taken away: it has no current snapshot"
	}
	since, reason := snapshotsSince(meta, was.CurrentSnapshot())
	if reason != "" {
		return reason
	}
	if !meta.CurrentSchema().Equals(was.CurrentSchema()) || meta.LastColumnID() != was.LastColumnID() {
		return "its columns were changed"
	}
	next := &table{name: f.base.name, uuid: f.base.uuid, dir: f.base.dir, meta: meta, path: path, lsn: f.base.lsn, replaced: f.base.replaced}
	if len(since) == 0 {
		next.schema, next.files, next.manifests, next.deletes = f.base.schema, f.base.files, f.base.manifests, f.base.deletes
	} else if reason := f.load(files, next, since); reason != "" {
		return reason
	}
	next.unlisted = f.base.goneFrom(next, since)
	f.table = next
	return ""
}

// load reads the newest snapshot and compares its files with those that we have.
func (f *Foreign) load(files FileSystem, next *table, since []icetable.Snapshot) (reason string) {
	if err := next.loadSnapshot(files, &since[0]); err != nil {
		return fmt.Sprintf("%s cannot be taken over: %s", describe(&since[0]), err)
	}
	if !next.schema.Equal(f.base.schema) {
		return describe(&since[0]) + " has other columns"
	}
	for _, was := range f.base.inOrder() {
		is := next.files[was.file.Path]
		if is == nil {
			f.Removed = append(f.Removed, was.file)
		} else if !contains(is.file.Deleted, was.file.Deleted) || !contains(was.file.Deleted, is.file.Deleted) {
			return fmt.Sprintf("%s has another deletion vector of %s", describe(&since[0]), was.file.Path)
		}
	}
	for _, is := range next.inOrder() {
		if f.base.files[is.file.Path] != nil {
			continue
		}
		if is.file.entry.FileFormat() != icelib.ParquetFile {
			return fmt.Sprintf("%s has the file %s, which is not Parquet", describe(&since[0]), is.file.Path)
		}
		if err := checkSize(files, is.file.Path, is.file.Bytes); err != nil {
			return err.Error()
		}
		f.Added = append(f.Added, is.file)
	}
	return ""
}

// snapshotsSince lists the snapshots after one of ours that lead to the current one, newest first, without those that have expired; all of them only
// move rows to other files. Else reason says what they do.
func snapshotsSince(meta icetable.Metadata, ours *icetable.Snapshot) (since []icetable.Snapshot, reason string) {
	for s := meta.CurrentSnapshot(); s != nil && s.SnapshotID != ours.SnapshotID; s = meta.SnapshotByID(*s.ParentSnapshotID) {
		since = append(since, *s)
		if s.ParentSnapshotID == nil || s.SequenceNumber <= ours.SequenceNumber {
			return nil, fmt.Sprintf("%s is not a successor of %d, the mirror's last one", describe(&since[0]), ours.SnapshotID)
		}
	}
	for _, s := range slices.Backward(since) {
		if !isRewrite(&s) {
			return nil, describe(&s) + " was committed"
		}
	}
	return since, ""
}

// describe says which snapshot it is, by whom, and what it does.
func describe(s *icetable.Snapshot) string {
	operation, by, counts := "unknown operation", "an engine that does not say its name", []string{}
	if s.Summary != nil {
		p := s.Summary.Properties
		operation = string(s.Summary.Operation)
		switch {
		case p["engine-name"] != "":
			by = strings.TrimSpace(p["engine-name"] + " " + p["engine-version"])
		case p["iceberg-version"] != "":
			by = p["iceberg-version"]
		}
		for _, key := range []string{"added-records", "deleted-records", "added-position-deletes", "added-equality-deletes"} {
			if n := p[key]; n != "" && n != "0" {
				counts = append(counts, key+" "+n)
			}
		}
	}
	text := fmt.Sprintf("snapshot %d (%s by %s", s.SnapshotID, operation, by)
	if len(counts) > 0 {
		text += ": " + strings.Join(counts, ", ")
	}
	return text + ")"
}

// goneFrom lists what the table needs and next, which another writer made of it in the snapshots since, does not, beyond what is listed already. Files
// that came and went within those snapshots are not known; they stay.
func (t *table) goneFrom(next *table, since []icetable.Snapshot) (gone []replacedFile) {
	gone = slices.Clone(t.unlisted)
	forget := func(path string) { gone = append(gone, replacedFile{path: path, uuid: t.uuid}) }
	kept := map[int64]bool{}
	for _, s := range next.meta.Snapshots() {
		kept[s.SnapshotID] = true
	}
	for _, s := range t.meta.Snapshots() {
		if path, err := toPath(s.ManifestList); err == nil && !kept[s.SnapshotID] {
			forget(path)
		}
	}
	named := previousMetadata(next.meta)
	for _, path := range append(previousMetadata(t.meta), t.path) {
		if path != next.path && !slices.Contains(named, path) {
			forget(path)
		}
	}
	if len(since) == 0 {
		return gone
	}
	sequence := since[len(since)-1].SequenceNumber
	drop := func(path string, added int64) {
		gone = append(gone, replacedFile{path: path, uuid: t.uuid, added: added, sequence: sequence})
	}
	manifests := map[string]bool{}
	for _, m := range append(slices.Clone(next.manifests), next.deletes) {
		if m != nil {
			manifests[m.path] = true
		}
	}
	for _, m := range append(slices.Clone(t.manifests), t.deletes) {
		if m != nil && !manifests[m.path] {
			drop(m.path, m.file.SequenceNum())
		}
	}
	vectors := map[string]bool{}
	for f := range maps.Values(next.files) {
		if f.vector != nil {
			vectors[f.vector.path] = true
		}
	}
	for path, f := range t.files {
		if next.files[path] == nil {
			drop(path, f.sequence)
		}
		if f.vector != nil && !vectors[f.vector.path] {
			vectors[f.vector.path] = true
			drop(f.vector.path, f.vector.sequence)
		}
	}
	return gone
}
