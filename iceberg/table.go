package iceberg

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	icelib "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
)

// Keys of the snapshot summary that are ours. The caller's Commit.Summary adds slot, checkpoint and version.
const (
	summaryLSN = "pgmirror.lsn" // at which the snapshot is consistent
	summaryCut = "pgmirror.cut" // of the commit that made it: the same, except for a table that had failed
)

// table is a table at its current snapshot, with all that the next commit needs: nothing is read back from disk. It is
// immutable; a commit makes the next one.
type table struct {
	name   TableName
	uuid   string
	dir    string // absolute and local
	meta   icetable.Metadata
	path   string // of the metadata file
	schema *arrow.Schema
	lsn    LSN

	files     map[string]*liveFile // by path
	manifests []*manifest          // data manifests in list order
	deletes   *manifest            // the one delete manifest; nil when no vector is live and none was removed just now
	replaced  []replacedFile       // out of the current snapshot but in a retained one, by sequence
	unlisted  []replacedFile       // files that another writer took out, of which the next commit tells the catalog
}

// liveFile is a data file in the current snapshot.
type liveFile struct {
	file       DataFile
	sequence   int64 // of the snapshot that added it
	snapshotID int64
	firstRowID int64
	vector     *liveVector // nil: no row is deleted
}

// liveVector is the manifest entry of a data file's deletion vector.
type liveVector struct {
	path       string
	entry      icelib.DataFile
	sequence   int64
	snapshotID int64
}

// manifest is a manifest in the current snapshot's list.
type manifest struct {
	path  string
	file  icelib.ManifestFile // as the manifest list has it: sequence numbers and first row id assigned
	live  []string            // data files of its live entries; of a delete manifest, the data files its vectors belong to
	tombs int                 // DELETED entries
}

// state is what the rest of the program sees of the table.
func (t *table) state() TableState {
	s := TableState{Name: t.name, UUID: t.uuid, Location: t.dir, Schema: t.schema, LSN: t.lsn, LastColumnID: t.meta.LastColumnID()}
	if current := t.meta.CurrentSnapshot(); current != nil {
		s.SnapshotID = current.SnapshotID
	}
	for _, f := range t.inOrder() {
		s.Files = append(s.Files, f.file)
	}
	for _, snap := range t.meta.Snapshots() {
		s.Snapshots = append(s.Snapshots, snapshotInfo(&snap))
	}
	return s
}

func snapshotInfo(s *icetable.Snapshot) SnapshotInfo {
	info := SnapshotInfo{ID: s.SnapshotID, TimestampMs: s.TimestampMs}
	info.LSN, _ = snapshotLSN(s)
	if s.Summary != nil {
		info.Operation = string(s.Summary.Operation)
	}
	return info
}

// inOrder lists the live files by first row id: the order in which they were added.
func (t *table) inOrder() []*liveFile {
	return slices.SortedFunc(maps.Values(t.files), func(a, b *liveFile) int {
		if a.firstRowID != b.firstRowID {
			return int(min(1, max(-1, a.firstRowID-b.firstRowID)))
		}
		return int(a.sequence - b.sequence)
	})
}

func (t *table) dataDir() string     { return filepath.Join(t.dir, "data") }
func (t *table) metadataDir() string { return filepath.Join(t.dir, "metadata") }

// snapshotLSN reads pgmirror.lsn; a snapshot without it is not ours.
func snapshotLSN(s *icetable.Snapshot) (LSN, error) {
	text, ok := "", false
	if s.Summary != nil {
		text, ok = s.Summary.Properties[summaryLSN]
	}
	if !ok {
		return 0, fmt.Errorf("%w: snapshot %d has no %s", ErrForeignSnapshot, s.SnapshotID, summaryLSN)
	}
	return parseLSN(text)
}

// lineLSN is the LSN at which a snapshot is consistent: its own, or, when others have only rewritten what one of ours holds, that one's.
func lineLSN(meta icetable.Metadata, s *icetable.Snapshot) (LSN, error) {
	lsn, err := snapshotLSN(s)
	for seen := 0; err != nil && isRewrite(s) && s.ParentSnapshotID != nil && seen < len(meta.Snapshots()); seen++ {
		parent := meta.SnapshotByID(*s.ParentSnapshotID)
		if parent == nil {
			break
		}
		s = parent
		lsn, err = snapshotLSN(s)
	}
	return lsn, err
}

func isRewrite(s *icetable.Snapshot) bool {
	return s.Summary != nil && s.Summary.Operation == icetable.OpReplace
}

// snapshotCut is the LSN of the commit that made a snapshot.
func snapshotCut(s *icetable.Snapshot) (LSN, error) {
	if s.Summary != nil {
		if text, ok := s.Summary.Properties[summaryCut]; ok {
			return parseLSN(text)
		}
	}
	return snapshotLSN(s)
}

func parseLSN(text string) (LSN, error) {
	var lsn LSN
	if err := lsn.Scan(text); err != nil {
		return 0, fmt.Errorf("%w: %s %q: %w", ErrCorrupt, summaryLSN, text, err)
	}
	return lsn, nil
}

var metadataNumber = regexp.MustCompile(`^([0-9]{5,})-`)

// nextMetadataPath names the metadata file after path, in the form that Iceberg's catalogs share: a number and a uuid.
func nextMetadataPath(dir, path string) string {
	number := 0
	if m := metadataNumber.FindStringSubmatch(filepath.Base(path)); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			number = n + 1
		}
	}
	return filepath.Join(dir, fmt.Sprintf("%05d-%s.metadata.json", number, newID()))
}

// previousMetadata lists the older metadata files that a table's metadata log names.
func previousMetadata(meta icetable.Metadata) []string {
	var paths []string
	for entry := range meta.PreviousFiles() {
		if path, err := toPath(entry.MetadataFile); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}
