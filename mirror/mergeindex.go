package mirror

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/google/uuid"

	"pgmirror/globalindex"
)

// A merged FileIndex is assembled in memory of its size, at about mergeBytes an entry. It has at most mergeMost entries, and takes no more than a quarter of the bound
// of memory, but for that of mergeLeast entries.
const (
	mergeBytes = 12
	mergeMost  = 64 << 20
	mergeLeast = 1 << 20
)

// mergeEntries is how many entries a merged FileIndex may have.
func mergeEntries(c *Config) uint64 {
	return uint64(min(mergeMost, max(mergeLeast, c.Memory/4/mergeBytes)))
}

// mergedPrefix begins the file name of every merged FileIndex.
const mergedPrefix = "merged-"

// indexMerge makes one FileIndex of several neighbours, so that a lookup asks few of them however many files there are; or of one alone, without the entries
// of files that were compacted. The inputs
// are read by a background goroutine while the applier goes on asking them; begin and install are the applier's.
//
// One merge at a time works on a table (table.merging), and a compaction may begin, write and be installed meanwhile (table.tidying), for neither reads
// what the other changes:
//
//   - A compaction reads data files and names segments, which a merge leaves as they are. Its install takes them out of the indexes that cover them in
//     that turn, whichever these are (uncover): it may put nil for a segment of an input, and take an input that covers nothing any more off the table.
//   - A merge reads the inputs' entries, which never change, and stay mapped while it is at work (busy). Which segments they cover it reads in the turn of its
//     install, so that what was uncovered while it wrote is so in the merged index: a lookup passes over its entries.
//   - Nothing is put between two indexes of a table, so the inputs that are left are still neighbours. With none left, nobody needs the merged one.
//
// So it comes to the same as when the merge had been installed before the compaction was.
type indexMerge struct {
	table   *table
	inputs  []*fileIndex
	header  globalindex.Header
	sources []globalindex.MergeSource
	covered []coveredFile // by the merged index, in its order
	out     *fileIndex
}

// coveredFile is one of the files of an index, by its position there.
type coveredFile struct {
	index *fileIndex
	file  int
}

// segment is what the index covers there now; nil when that was compacted. The applier's turn.
func (c coveredFile) segment() *segment { return c.index.segments[c.file] }

// mergeable chooses what to merge next, oldest first; empty when the tiers are in order and no index is mostly stale. The applier's turn.
//
// An index counts with its live entries, for the others are left out. One of which less than half is live is written anew by itself when
// the tiers leave it alone, as they do with one that is too large for them: so an index takes less than twice the room of its live entries, and each entry that is
// written stands for one at least that goes.
func (t *table) mergeable(m *Mirror) []*fileIndex {
	if t.state != stateStreaming {
		return nil
	}
	rows := make([]uint64, len(t.indexes))
	for i, x := range t.indexes {
		rows[i] = x.live
	}
	first, sum := len(rows), uint64(0)
	for first > 0 && sum+rows[first-1] <= m.mergeEntries {
		first--
		sum += rows[first]
	}
	if from, to := globalindex.Tiers(rows[first:]); from < to {
		return t.indexes[first+from : first+to]
	}
	if i := slices.IndexFunc(t.indexes, func(x *fileIndex) bool { return x.live < x.entries/2 && x.live <= m.mergeEntries }); i >= 0 {
		return t.indexes[i : i+1]
	}
	return nil
}

// mergeIndexes merges some of the table's FileIndexes, if there are too many. A background goroutine; it takes t.merging.
func (m *Mirror) mergeIndexes(ctx context.Context, t *table) error {
	t.merging.Lock()
	defer t.merging.Unlock()
	return m.mergeIndexesOf(ctx, t)
}

// mergeIndexesOf is mergeIndexes; the caller holds t.merging.
func (m *Mirror) mergeIndexesOf(ctx context.Context, t *table) (err error) {
	job := &indexMerge{table: t}
	if err := m.inAnyTurn(ctx, func() error { job.begin(m); return nil }); err != nil || len(job.inputs) == 0 {
		return err
	}
	// Whatever happens, the inputs are given back: what the applier wanted closed meanwhile is closed then.
	defer m.inAnyTurn(context.WithoutCancel(ctx), func() error { job.giveBack(m); return nil })
	merged := bytes.NewBuffer(make([]byte, 0, job.header.Size())) // grown by doubling it would take three times as much
	if err := globalindex.Merge(merged, job.header, job.sources); err != nil {
		return fmt.Errorf("table %s: %w", t, err)
	}
	if err := m.cfg.Effect("file index"); err != nil {
		return err
	}
	path := filepath.Join(m.cfg.IndexDir, mergedPrefix+uuid.NewString()+".fidx")
	if err := m.files.WriteFile(path, merged.Bytes()); err != nil {
		return fmt.Errorf("write merged file index %s: %w", path, err)
	}
	m.written.index.Add(int64(merged.Len()))
	if job.out, err = m.openIndex(path); err != nil {
		return err
	}
	return m.inAnyTurn(ctx, func() error { job.install(m); return nil })
}

// begin chooses the inputs and tells what the merged index covers. Files that were compacted since are left out. The applier's turn.
func (j *indexMerge) begin(m *Mirror) {
	j.inputs = slices.Clone(j.table.mergeable(m))
	for i, x := range j.inputs {
		x.busy = true
		h := x.index.Header()
		if i == 0 {
			j.header = h
			j.header.Files, j.header.Entries = nil, 0
		}
		j.header.Entries += x.live
		places := make([]int, len(h.Files)) // in the merged index; -1: left out
		for file, s := range x.segments {
			if places[file] = -1; s != nil {
				places[file] = len(j.header.Files)
				j.header.Files = append(j.header.Files, h.Files[file])
				j.covered = append(j.covered, coveredFile{x, file})
			}
		}
		source := globalindex.MergeSource{Index: x.index}
		if slices.Contains(places, -1) {
			source.Move = func(at globalindex.FileLocation) (globalindex.FileLocation, bool) {
				return globalindex.FileLocation{File: uint32(max(0, places[at.File])), Row: at.Row}, places[at.File] >= 0
			}
		}
		j.sources = append(j.sources, source)
	}
}

// install puts the merged index in the place of those inputs that the table has still, unless it has lost them all meanwhile. The applier's turn.
func (j *indexMerge) install(m *Mirror) {
	t := j.table
	left := slices.DeleteFunc(slices.Clone(j.inputs), func(x *fileIndex) bool { return !slices.Contains(t.indexes, x) })
	if len(left) == 0 {
		m.staleIndexes = append(m.staleIndexes, j.out.path)
		j.out.busy, j.out.closing = false, true
		m.closeIndex(j.out)
		return
	}
	for file, c := range j.covered {
		s := c.segment()
		if j.out.segments = append(j.out.segments, s); s != nil {
			s.file.index = j.out.path
		} else {
			j.out.live -= j.header.Files[file].Rows
		}
	}
	for _, x := range left {
		x.closing = true
		m.staleIndexes = append(m.staleIndexes, x.path)
	}
	at := slices.Index(t.indexes, left[0])
	t.indexes = slices.Replace(t.indexes, at, at+len(left), j.out)
	t.epoch++
}

// giveBack ends the job's hold on its inputs. The applier's turn.
func (j *indexMerge) giveBack(m *Mirror) {
	for _, x := range j.inputs {
		x.busy = false
		if x.closing {
			m.closeIndex(x)
		}
	}
}

// closeIndex unmaps an index, now or when the job that reads it has ended. The applier's turn.
func (m *Mirror) closeIndex(x *fileIndex) {
	x.closing = true
	if x.busy {
		return
	}
	if err := x.unmap(); err != nil {
		m.cfg.Log.Warn("close file index", "path", x.path, "err", err)
	}
}
