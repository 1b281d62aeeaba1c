package mirror

import (
	"sort"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/deletion"
	"pgmirror/iceberg"
)

// segment is one run of rows of a table: a memory batch or a Parquet file. It has a life [appears at its rows' create LSNs,
// droppedAt) and a Visibility that says when each of its rows was deleted.
type segment struct {
	id  uint32 // unique within the life of the process
	vis *deletion.Visibility
	// droppedAt is the end LSN of the transaction whose TRUNCATE ended the segment; 0 while it lives.
	droppedAt atomic.Uint64

	batch *batch // exactly one of batch and file is set
	file  *file

	moving moving // to another segment; the applier's
}

// file is a persisted segment's Parquet file.
type file struct {
	data iceberg.DataFile
	// cuts says how many rows were created up to each commit, for readers below the newest of them; nil once none can be.
	cuts atomic.Pointer[[]cut]

	index string // path of the FileIndex that covers the file; the applier's

	// The fields below belong to the checkpoint and the applier's turn.
	published bool   // the current snapshot names the file
	committed bool   // a snapshot named it once
	vector    uint64 // rows that its committed vector deletes
}

// cut says that rows [0, rows) were created at or before lsn.
type cut struct {
	lsn  LSN
	rows int
}

// tableVersion is an immutable list of a table's segments, oldest rows first; the last one is the open batch. Any version
// installed at or after a pin gives the same rows at the pin's LSN.
type tableVersion struct {
	shape    *shape
	segments []*segment
	// since is where the shape begins: readers below it have earlier, the last version of the shape before. Nil when nobody can be below it.
	since   LSN
	earlier *tableVersion
	// moved is where another writer's files took the place of ours; 0 for never.
	moved LSN
}

// at is the version that has the shape of an LSN.
func (v *tableVersion) at(lsn LSN) *tableVersion {
	for lsn < v.since && v.earlier != nil {
		v = v.earlier
	}
	return v
}

// rowsAt counts the segment's rows that were created at or before x. Any goroutine may call it.
func (s *segment) rowsAt(x LSN) int {
	if s.batch != nil {
		return s.batch.visible(x)
	}
	cuts := s.file.cuts.Load()
	if cuts == nil {
		return int(s.file.data.Rows)
	}
	i := sort.Search(len(*cuts), func(i int) bool { return (*cuts)[i].lsn > x })
	if i == 0 {
		return 0
	}
	return (*cuts)[i-1].rows
}

// alive reports whether the segment is there at x.
func (s *segment) alive(x LSN) bool {
	d := LSN(s.droppedAt.Load())
	return d == 0 || x < d
}

// rows counts all rows of the segment, whatever their LSN; the applier's.
func (s *segment) rows() int {
	if s.batch != nil {
		return s.batch.rows
	}
	return int(s.file.data.Rows)
}

// columnReader gives a read state's client the columns of a memory batch.
type columnReader struct {
	batch *batch
	shape *shape // the reader's, perhaps a later one than the batch's
}

func (r columnReader) Read(columns []int, from, to int) ([]arrow.Array, error) {
	return r.batch.read(r.shape, columns, from, to)
}
