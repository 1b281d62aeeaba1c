package mirror

import (
	"sync/atomic"

	"pgmirror/pgcdc"
)

// writtenBytes counts what was written since the start, in bytes, by what for. What the warehouse writes beside data files it counts itself.
type writtenBytes struct {
	changes                          atomic.Int64 // of row changes, as the source sent them: what the rest is measured by
	flush, compaction, copies, index atomic.Int64
}

// WrittenStatus is what was written since the start, in bytes. The files of deleted snapshots and of failed commits count too; the catalog does not.
type WrittenStatus struct {
	// Changes are the row changes applied, as the source sent them: what the rest may be measured by.
	Changes    int64 `json:"changes_bytes"`
	Flush      int64 `json:"flush_bytes"`      // data files of rows that came through the stream
	Compaction int64 `json:"compaction_bytes"` // data files that took the place of others
	Copy       int64 `json:"copy_bytes"`       // data files of copies
	Vectors    int64 `json:"vectors_bytes"`    // Puffin files
	Metadata   int64 `json:"metadata_bytes"`   // manifests, their lists and metadata files
	Index      int64 `json:"index_bytes"`      // FileIndexes, merged ones too
}

// tupleBytes is what the values of a row, or of an old row's key, take as they were sent.
func tupleBytes(t pgcdc.Tuple) (bytes int64) {
	for i := range t {
		bytes += int64(len(t[i].Data))
	}
	return bytes
}

// status reads the counters.
func (w *writtenBytes) status(m *Mirror) WrittenStatus {
	s := WrittenStatus{Changes: w.changes.Load(), Flush: w.flush.Load(), Compaction: w.compaction.Load(), Copy: w.copies.Load(), Index: w.index.Load()}
	s.Vectors, s.Metadata = m.warehouse.Written()
	return s
}
