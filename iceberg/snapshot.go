package iceberg

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	icelib "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
)

// keepMetadata is how many older metadata files stay readable (write.metadata.previous-versions-max): a reader that has just
// learnt a table's pointer needs the file for some time.
const keepMetadata = 20

// assembly builds one table's next snapshot (https://iceberg.apache.org/spec/): the change is applied to the base in memory,
// then puffins, manifests, manifest list and metadata file are written and synced. Nothing is visible before the catalog's
// pointer moves.
type assembly struct {
	w      *Warehouse
	change *TableCommit
	base   *table // nil: the table is created
	next   *table
	// retention says which older snapshots stay.
	retention retention

	builder       *icetable.MetadataBuilder // of next's metadata, its schema current
	icebergSchema *icelib.Schema            // next's
	snapshotID    int64
	sequence      int64
	parent        *int64

	added       []*liveFile
	removed     map[string]*liveFile // data files that leave
	newVectors  []*liveFile          // files whose vector is new
	oldVectors  []removedVector      // vectors that leave: superseded, or of removed files
	written     []string             // by this assembly
	gone        []replacedFile       // left the current snapshot by this commit
	listed      []replacedFile       // what the catalog is to say of replaced files: gone, and those that nothing names any more
	unreachable []string
	summary     map[string]string
	operation   icetable.Operation
}

type removedVector struct {
	dataFile string
	vector   *liveVector
}

// run does it all. On an error the files in written are garbage.
func (a *assembly) run(c *Commit) error {
	if err := a.apply(); err != nil {
		return err
	}
	a.count(c)
	if err := a.writeVectors(); err != nil {
		return err
	}
	if err := a.w.ensureDir(a.next.metadataDir()); err != nil {
		return err
	}
	if err := a.w.effect("metadata written"); err != nil {
		return err
	}
	if err := a.writeManifests(); err != nil {
		return err
	}
	snapshot, err := a.writeList()
	if err != nil {
		return err
	}
	if err := a.writeMetadata(snapshot); err != nil {
		return err
	}
	if err := a.w.syncDir(a.next.metadataDir()); err != nil {
		return err
	}
	return a.next.check()
}

// newSnapshotID is a random positive number, as Iceberg's own are.
func newSnapshotID() int64 {
	var b [8]byte
	rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:])>>1) | 1
}

func (a *assembly) begin(name TableName, uuid, dir string) {
	a.snapshotID, a.sequence = newSnapshotID(), 1
	a.removed = map[string]*liveFile{}
	a.next = &table{name: name, uuid: uuid, dir: dir, files: map[string]*liveFile{}}
	if a.base == nil {
		return
	}
	a.next.schema, a.next.files = a.base.schema, maps.Clone(a.base.files)
	a.sequence = a.base.meta.LastSequenceNumber() + 1
	if s := a.base.meta.CurrentSnapshot(); s != nil {
		a.parent = &s.SnapshotID
	}
}

// write writes one file of metadata/ and returns its path.
func (a *assembly) write(name string, data []byte) (string, error) {
	path := filepath.Join(a.next.metadataDir(), name)
	a.written = append(a.written, path)
	return path, a.w.writeFile(path, data)
}

func (a *assembly) writeVectors() error {
	for _, f := range a.newVectors {
		v, err := a.w.writeVector(a.next.dataDir(), f.file.Path, f.file.Deleted)
		if err != nil {
			return fmt.Errorf("write deletion vector: %w", err)
		}
		v.sequence, v.snapshotID = a.sequence, a.snapshotID
		a.written = append(a.written, v.path)
		f.vector = v
	}
	if len(a.newVectors) > 0 {
		return a.w.syncDir(a.next.dataDir())
	}
	return nil
}

// timestamp is now, but always after the snapshot before: readers order snapshots by it, and the clock may have gone back.
func (a *assembly) timestamp() int64 {
	now := a.w.config.Now().UnixMilli()
	if a.base != nil {
		now = max(now, a.base.meta.LastUpdatedMillis()+1)
	}
	return now
}

// writeMetadata takes the snapshots that nothing needs any more out of the table and writes the metadata file, with the new snapshot if there
// is one.
func (a *assembly) writeMetadata(snapshot *icetable.Snapshot) error {
	if err := a.addSnapshot(snapshot); err != nil {
		return fmt.Errorf("build table metadata: %w", err)
	}
	meta, err := a.builder.Build()
	if err != nil {
		return fmt.Errorf("build table metadata: %w", err)
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return fmt.Errorf("encode table metadata: %w", err)
	}
	a.next.meta = meta
	basePath := ""
	if a.base != nil {
		basePath = a.base.path
		named := previousMetadata(meta)
		for _, path := range previousMetadata(a.base.meta) {
			if !slices.Contains(named, path) {
				a.gone = append(a.gone, replacedFile{path: path, uuid: a.next.uuid})
			}
		}
	}
	name := filepath.Base(nextMetadataPath("", basePath))
	if a.next.path, err = a.write(name, text); err != nil {
		return err
	}
	a.listReplaced()
	return nil
}

// addSnapshot makes a snapshot the current one, unless it is nil, and drops those that expire with the schemas that only they had.
func (a *assembly) addSnapshot(snapshot *icetable.Snapshot) error {
	b := a.builder
	if snapshot != nil {
		if err := b.AddSnapshot(snapshot); err != nil {
			return err
		}
		if err := b.SetSnapshotRef(icetable.MainBranch, a.snapshotID, icetable.BranchRef); err != nil {
			return err
		}
	}
	if a.base == nil || a.retention.all {
		return nil
	}
	snapshots, current := slices.Clone(a.base.meta.Snapshots()), a.snapshotID
	if snapshot != nil {
		snapshots = append(snapshots, *snapshot)
	} else {
		current = a.base.meta.CurrentSnapshot().SnapshotID
	}
	held := a.retention.holders(snapshots, current, maps.Collect(a.base.meta.Refs()))
	var expired []int64
	used := map[int]bool{b.CurrentSchema().ID: true}
	for _, s := range snapshots {
		if held[s.SnapshotID] != nil {
			if s.SchemaID != nil {
				used[*s.SchemaID] = true
			}
			continue
		}
		expired = append(expired, s.SnapshotID)
		path, err := toPath(s.ManifestList)
		if err != nil {
			return err
		}
		a.gone = append(a.gone, replacedFile{path: path, uuid: a.next.uuid})
	}
	if len(expired) == 0 {
		return nil
	}
	if err := b.RemoveSnapshots(expired, false); err != nil {
		return err
	}
	var unused []int
	for _, s := range a.base.meta.Schemas() {
		if !used[s.ID] {
			unused = append(unused, s.ID)
		}
	}
	return b.RemoveSchemas(unused)
}

// listReplaced notes which replaced files no retained snapshot names any more, from now on.
func (a *assembly) listReplaced() {
	if a.base != nil {
		a.gone = slices.Concat(a.base.unlisted, a.gone)
	}
	a.next.replaced, a.next.unlisted = slices.Clone(a.gone), nil
	if a.base != nil {
		a.next.replaced = slices.Concat(a.base.replaced, a.gone)
	}
	a.listed = slices.Clone(a.gone)
	snapshots := a.next.meta.Snapshots()
	now := a.w.config.Now().UnixMilli()
	a.next.replaced = slices.DeleteFunc(a.next.replaced, func(r replacedFile) bool {
		if r.namedBy(snapshots) {
			return false
		}
		r.since = now
		a.listed = append(a.listed, r)
		a.unreachable = append(a.unreachable, r.path)
		return true
	})
}
