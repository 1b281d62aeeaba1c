package mirror

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/globalindex"
	"pgmirror/iceberg"
)

// batch is a run of rows in memory, in create order. The applier appends to the open one and publishes its row count with
// each commit; a sealed one never changes. Readers look at rows below the published count only, and at those of them
// whose create LSN is not above theirs.
type batch struct {
	shape *shape
	cols  []*column
	keys  []*column   // the identity's columns among cols, in key order
	lsns  vec[uint64] // create LSN of each row, never decreasing

	hashes []uint64              // of each row's key; nil when the table has no index
	index  *globalindex.MemIndex // rows that are current, by hash; the applier's

	rows      int          // the writer's
	published atomic.Int64 // rows that readers may look at
	added     int64        // bytes of values; the writer's
	weight    int64        // memory as last accounted, in bytes
	pins      pins

	sealed    bool // the writer's
	arrays    []arrow.Array
	arraysMu  sync.Mutex
	sealedNow atomic.Bool
}

func newBatch(s *shape) *batch {
	b := &batch{shape: s, cols: s.newColumns()}
	for _, k := range s.key {
		b.keys = append(b.keys, b.cols[k])
	}
	if s.mode != insertOnly {
		b.index = globalindex.NewMemIndex(0)
	}
	return b
}

// publish makes every row written so far visible to readers whose LSN reaches them.
func (b *batch) publish() { b.published.Store(int64(b.rows)) }

// seal ends the batch: all its rows are there.
func (b *batch) seal() {
	b.publish()
	b.sealed = true
	b.sealedNow.Store(true)
}

// truncate takes back rows that were never published.
func (b *batch) truncate(rows int) {
	for _, c := range b.cols {
		c.truncate(rows)
	}
	b.lsns.truncate(min(rows, b.lsns.len()))
	if b.hashes != nil {
		b.hashes = b.hashes[:min(rows, len(b.hashes))]
	}
	b.rows = rows
}

// visible counts the rows created at or before x. Any goroutine may call it.
func (b *batch) visible(x LSN) int {
	n := int(b.published.Load())
	lsns := b.lsns.read(n)
	if n == 0 || lsns[n-1] <= uint64(x) {
		return n
	}
	return sort.Search(n, func(i int) bool { return lsns[i] > uint64(x) })
}

// span is the create LSN of the first and of the last row of a batch that has rows.
func (b *batch) span() (first, last LSN) { return LSN(b.lsns.own[0]), LSN(b.lsns.own[b.rows-1]) }

// bytes is the memory taken by values and index, in bytes; the writer's.
func (b *batch) bytes() int64 {
	n := int64(cap(b.lsns.own)+cap(b.hashes)) * 8
	if b.index != nil {
		n += b.index.Bytes()
	}
	for _, c := range b.cols {
		n += c.bytes()
	}
	return n
}

// column returns rows [from, to) of one column. Any goroutine may call it for rows below a published count.
func (b *batch) column(i, from, to int) arrow.Array {
	if !b.sealedNow.Load() {
		return b.cols[i].array(from, to)
	}
	b.arraysMu.Lock()
	if b.arrays == nil {
		b.arrays = make([]arrow.Array, len(b.cols))
	}
	whole := b.arrays[i]
	if whole == nil {
		whole = b.cols[i].array(0, int(b.published.Load()))
		b.arrays[i] = whole
	}
	b.arraysMu.Unlock()
	if from == 0 && to == whole.Len() {
		return whole
	}
	return sliceArray(whole.Data(), from, to)
}

// read returns rows [from, to) of some columns of a shape, the batch's or a later one of its table, checked.
func (b *batch) read(s *shape, columns []int, from, to int) ([]arrow.Array, error) {
	if n := int(b.published.Load()); from < 0 || to < from || to > n {
		return nil, fmt.Errorf("read rows %d to %d of a batch of %d", from, to, n)
	}
	out := make([]arrow.Array, len(columns))
	for i, c := range columns {
		if c < 0 || c >= len(s.columns) {
			return nil, fmt.Errorf("read column %d of a batch of %d", c, len(s.columns))
		}
		at := c
		if s != b.shape {
			at = b.shape.position(s.columns[c].fieldID)
		}
		if at >= 0 {
			out[i] = b.column(at, from, to)
			continue
		}
		missing, err := iceberg.Missing(s.arrow.Field(c), to-from)
		if err != nil {
			return nil, err
		}
		out[i] = missing
	}
	return out, nil
}
