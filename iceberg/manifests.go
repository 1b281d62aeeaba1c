package iceberg

import (
	"bytes"
	"fmt"
	"slices"

	icelib "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
)

// A table whose small data manifests are more than maxManifests has those with fewer than mergeBelow files merged into one:
// every reader opens every manifest on every query.
const (
	maxManifests = 32
	mergeBelow   = 1_000
)

// writeManifests decides which manifests stay and writes those that do not.
func (a *assembly) writeManifests() error {
	var kept []*manifest
	if a.base != nil {
		for _, m := range a.base.manifests {
			switch {
			case len(m.live) == 0: // its files left in the snapshot before
				a.drop(m.path, m.file.SequenceNum())
			case slices.ContainsFunc(m.live, func(path string) bool { return a.removed[path] != nil }):
				again, err := a.dataManifest([]*manifest{m}, nil)
				if err != nil {
					return err
				}
				kept = append(kept, again)
			default:
				kept = append(kept, m)
			}
		}
	}
	if small := mergeable(kept, maxManifests); len(small) > 0 {
		merged, err := a.dataManifest(small, nil)
		if err != nil {
			return err
		}
		kept = slices.DeleteFunc(kept, func(m *manifest) bool { return slices.Contains(small, m) })
		kept = append(kept, merged)
	}
	if len(a.added) > 0 {
		m, err := a.dataManifest(nil, a.added)
		if err != nil {
			return err
		}
		kept = append(kept, m)
	}
	a.next.manifests = kept
	return a.writeDeletes()
}

// mergeable picks the manifests that are worth merging: none while there are few.
func mergeable(manifests []*manifest, limit int) []*manifest {
	small := slices.DeleteFunc(slices.Clone(manifests), func(m *manifest) bool { return len(m.live) >= mergeBelow })
	if len(small) < limit {
		return nil
	}
	// What this snapshot wrote itself stays: it may hold tombstones.
	return slices.DeleteFunc(small, func(m *manifest) bool { return m.tombs > 0 && m.file.SequenceNum() < 0 })
}

// drop takes a metadata or data file of older snapshots out of the current one.
// added is the sequence number of the snapshot that brought it.
func (a *assembly) drop(path string, added int64) {
	a.gone = append(a.gone, replacedFile{path: path, uuid: a.next.uuid, added: added, sequence: a.sequence})
}

// dataManifest writes a data manifest: what is left of old ones as EXISTING entries, what this commit removes as DELETED
// ones, added files as ADDED ones.
func (a *assembly) dataManifest(old []*manifest, added []*liveFile) (*manifest, error) {
	out := &manifest{}
	var buf bytes.Buffer
	w, err := icelib.NewManifestWriter(3, &buf, *icelib.UnpartitionedSpec, a.icebergSchema, a.snapshotID,
		icelib.WithManifestWriterContent(icelib.ManifestContentData))
	if err != nil {
		return nil, fmt.Errorf("write data manifest: %w", err)
	}
	for _, m := range old {
		for _, path := range m.live {
			if f := a.removed[path]; f != nil {
				err = w.Delete(icelib.NewManifestEntry(icelib.EntryStatusDELETED, &a.snapshotID, &f.sequence, &f.sequence, withFirstRowID(f)))
				out.tombs++
			} else {
				f := a.next.files[path]
				err = w.Existing(icelib.NewManifestEntry(icelib.EntryStatusEXISTING, &f.snapshotID, &f.sequence, &f.sequence, withFirstRowID(f)))
				out.live = append(out.live, path)
			}
			if err != nil {
				return nil, fmt.Errorf("write data manifest: %s: %w", path, err)
			}
		}
		a.drop(m.path, m.file.SequenceNum())
	}
	for _, f := range added {
		if err := w.Add(icelib.NewManifestEntry(icelib.EntryStatusADDED, &a.snapshotID, nil, nil, f.file.entry)); err != nil {
			return nil, fmt.Errorf("write data manifest: %s: %w", f.file.Path, err)
		}
		out.live = append(out.live, f.file.Path)
	}
	return out, a.finishManifest(out, w, &buf, "data-")
}

// writeDeletes writes the delete manifest anew if any vector came or went. It is the table's only one: a snapshot has at
// most one live vector a data file, and that is plain to see in one manifest.
func (a *assembly) writeDeletes() error {
	var base *manifest
	if a.base != nil {
		base = a.base.deletes
	}
	if len(a.newVectors) == 0 && len(a.oldVectors) == 0 {
		if base != nil && len(base.live) == 0 { // only tombstones of the snapshot before: they cost readers their fast count
			a.drop(base.path, base.file.SequenceNum())
			base = nil
		}
		a.next.deletes = base
		return nil
	}
	out := &manifest{}
	var buf bytes.Buffer
	w, err := icelib.NewManifestWriter(3, &buf, *icelib.UnpartitionedSpec, a.icebergSchema, a.snapshotID,
		icelib.WithManifestWriterContent(icelib.ManifestContentDeletes))
	if err != nil {
		return fmt.Errorf("write delete manifest: %w", err)
	}
	fresh := map[string]bool{}
	for _, f := range a.newVectors {
		fresh[f.file.Path] = true
	}
	if base != nil {
		a.drop(base.path, base.file.SequenceNum())
		for _, path := range base.live {
			f := a.next.files[path]
			if f == nil || fresh[path] {
				continue
			}
			v := f.vector
			if err := w.Existing(icelib.NewManifestEntry(icelib.EntryStatusEXISTING, &v.snapshotID, &v.sequence, &v.sequence, v.entry)); err != nil {
				return fmt.Errorf("write delete manifest: %s: %w", path, err)
			}
			out.live = append(out.live, path)
		}
	}
	live := map[string]bool{} // of another writer's Puffin files several vectors may share one
	if len(a.oldVectors) > 0 {
		for _, f := range a.next.files {
			if f.vector != nil {
				live[f.vector.path] = true
			}
		}
	}
	for _, r := range a.oldVectors {
		v := r.vector
		if err := w.Delete(icelib.NewManifestEntry(icelib.EntryStatusDELETED, &a.snapshotID, &v.sequence, &v.sequence, v.entry)); err != nil {
			return fmt.Errorf("write delete manifest: %s: %w", r.dataFile, err)
		}
		out.tombs++
		if !live[v.path] {
			live[v.path] = true
			a.drop(v.path, v.sequence)
		}
	}
	for _, f := range a.newVectors {
		if err := w.Add(icelib.NewManifestEntry(icelib.EntryStatusADDED, &a.snapshotID, nil, nil, f.vector.entry)); err != nil {
			return fmt.Errorf("write delete manifest: %s: %w", f.file.Path, err)
		}
		out.live = append(out.live, f.file.Path)
	}
	a.next.deletes = out
	return a.finishManifest(out, w, &buf, "deletes-")
}

func (a *assembly) finishManifest(m *manifest, w *icelib.ManifestWriter, buf *bytes.Buffer, prefix string) error {
	err := w.Close()
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	if m.path, err = a.write(prefix+newID()+".avro", buf.Bytes()); err != nil {
		return err
	}
	m.file, err = w.ToManifestFile(toURI(m.path), int64(buf.Len()))
	if err != nil {
		return fmt.Errorf("write manifest %s: %w", m.path, err)
	}
	return nil
}

// withFirstRowID is a file's manifest entry with its first row id written out, as entries that move to another manifest need.
func withFirstRowID(f *liveFile) icelib.DataFile {
	e := f.file.entry
	if e.FirstRowID() != nil {
		return e
	}
	b, err := icelib.NewDataFileBuilder(*icelib.UnpartitionedSpec, e.ContentType(), e.FilePath(), e.FileFormat(), nil, nil, nil, e.Count(), e.FileSizeBytes())
	if err != nil {
		return e // the same arguments built e
	}
	return b.ColumnSizes(e.ColumnSizes()).ValueCounts(e.ValueCounts()).NullValueCounts(e.NullValueCounts()).NaNValueCounts(e.NaNValueCounts()).
		LowerBoundValues(e.LowerBoundValues()).UpperBoundValues(e.UpperBoundValues()).SplitOffsets(e.SplitOffsets()).
		FirstRowID(f.firstRowID).Build()
}

// writeList writes the manifest list, which assigns sequence numbers and row ids, and takes those over.
func (a *assembly) writeList() (*icetable.Snapshot, error) {
	var firstRowID int64
	if a.base != nil {
		firstRowID = a.base.meta.NextRowID()
	}
	var buf bytes.Buffer
	w, err := icelib.NewManifestListWriterV3(&buf, a.snapshotID, a.sequence, firstRowID, a.parent)
	if err != nil {
		return nil, fmt.Errorf("write manifest list: %w", err)
	}
	all := slices.Clone(a.next.manifests)
	if a.next.deletes != nil {
		all = append(all, a.next.deletes)
	}
	files := make([]icelib.ManifestFile, len(all))
	for i, m := range all {
		files[i] = m.file
	}
	if err := w.AddManifests(files); err != nil {
		return nil, fmt.Errorf("write manifest list: %w", err)
	}
	nextRowID := *w.NextRowID()
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write manifest list: %w", err)
	}
	path, err := a.write("snap-"+newID()+".avro", buf.Bytes())
	if err != nil {
		return nil, err
	}
	listed, err := icelib.ReadManifestList(bytes.NewReader(buf.Bytes()))
	if err != nil || len(listed) != len(all) {
		return nil, fmt.Errorf("read the manifest list just written: %d of %d entries: %w", len(listed), len(all), err)
	}
	for i, m := range all {
		own := *m // a kept manifest is shared with the base
		own.file = listed[i]
		if i < len(a.next.manifests) {
			a.next.manifests[i] = &own
		} else {
			a.next.deletes = &own
		}
	}
	if len(a.added) > 0 {
		id := a.next.manifests[len(a.next.manifests)-1].file.FirstRowID()
		if id == nil {
			return nil, fmt.Errorf("manifest of added files has no first row id")
		}
		at := *id
		for _, f := range a.added {
			f.firstRowID = at
			at += f.file.Rows
		}
	}
	addedRows, schemaID := nextRowID-firstRowID, a.icebergSchema.ID
	return &icetable.Snapshot{SnapshotID: a.snapshotID, ParentSnapshotID: a.parent, SequenceNumber: a.sequence, ManifestList: toURI(path),
		TimestampMs: a.timestamp(), Summary: &icetable.Summary{Operation: a.operation, Properties: a.summary}, SchemaID: &schemaID,
		FirstRowID: &firstRowID, AddedRows: &addedRows}, nil
}
