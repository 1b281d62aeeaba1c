package mirror

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync/atomic"

	"pgmirror/pgcdc"
)

const (
	// rangeBytesMax is the size of heap and TOAST from which a range is split although every worker has one: what a lost
	// connection costs, and about the size of a data file.
	rangeBytesMax = 512 << 20
	// rangeBytesMin is the size below which a range is not split to give another worker something to do: below it, the
	// connection and the file of its own cost more than is won, and small files make queries slow.
	rangeBytesMin = 32 << 20
	// rangesPerWorker evens out ranges that take longer than others.
	rangesPerWorker = 2
)

// copyRange is a part of a table that one worker copies.
type copyRange struct {
	copy   *tableCopy
	number int           // among the table's
	blocks []pgcdc.Range // read one after the other: one, or some small leaves whole

	bytes    int64   // about its share of the table, for progress
	rowBytes float64 // about the size of a row on the source by its statistics; 0 without
	shown    int64   // bytes that progress counts as done
}

// planCopies cuts the tables into ranges, the largest first, so that no worker is left with a long one at the end.
func (m *Mirror) planCopies(ctx context.Context, copies []*tableCopy) ([]*copyRange, error) {
	var live []*tableCopy
	var tables []*pgcdc.Table
	for _, c := range copies {
		if !c.over() {
			live, tables = append(live, c), append(tables, c.source)
		}
	}
	extents, err := m.source.Extents(ctx, tables)
	if err != nil {
		return nil, err
	}
	var all []*copyRange
	total := int64(0)
	for i, c := range live {
		e := extents[i]
		pieces := cutTable(e, m.cfg.CopyWorkers)
		c.parts = make([]*table, len(pieces))
		c.pending = len(pieces)
		for number, p := range pieces {
			r := &copyRange{copy: c, number: number, blocks: p.blocks, bytes: p.bytes}
			if e.Rows > 0 {
				r.rowBytes = float64(e.Bytes) / float64(e.Rows)
			}
			total += r.bytes
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b *copyRange) int { return cmp.Compare(b.bytes, a.bytes) })
	m.copying.begin(total)
	return all, nil
}

// piece is what one worker is to copy of a table, and about its size.
type piece struct {
	blocks []pgcdc.Range
	bytes  int64
}

// cutTable cuts a table into pieces: a partitioned one leaf by leaf, and several small leaves are one piece.
func cutTable(e pgcdc.Extent, workers int) (pieces []piece) {
	if len(e.Leaves) == 0 {
		ranges := splitRanges(e, workers)
		for _, blocks := range ranges {
			pieces = append(pieces, piece{[]pgcdc.Range{blocks}, e.Bytes / int64(len(ranges))})
		}
		return pieces
	}
	var small piece
	for _, leaf := range e.Leaves {
		ranges := splitRanges(leaf.Extent, workers)
		for i := range ranges {
			ranges[i].Leaf = leaf.Leaf
			if len(ranges) > 1 {
				pieces = append(pieces, piece{ranges[i : i+1], leaf.Bytes / int64(len(ranges))})
			}
		}
		if len(ranges) > 1 {
			continue
		}
		if len(small.blocks) > 0 && small.bytes+leaf.Bytes > rangeBytesMin {
			pieces, small = append(pieces, small), piece{}
		}
		small.blocks, small.bytes = append(small.blocks, ranges[0]), small.bytes+leaf.Bytes
	}
	if len(small.blocks) > 0 {
		pieces = append(pieces, small)
	}
	return pieces
}

// splitRanges cuts a table into ranges of equal numbers of blocks.
func splitRanges(e pgcdc.Extent, workers int) []pgcdc.Range {
	n := (e.Bytes + rangeBytesMax - 1) / rangeBytesMax
	if workers > 1 {
		n = max(n, min(int64(workers)*rangesPerWorker, e.Bytes/rangeBytesMin))
	}
	n = min(n, int64(e.Blocks))
	if n <= 1 {
		return []pgcdc.Range{{}}
	}
	ranges := make([]pgcdc.Range, n)
	for i := range n {
		ranges[i] = pgcdc.Range{From: uint32(int64(e.Blocks) * i / n), To: uint32(int64(e.Blocks) * (i + 1) / n)}
	}
	ranges[n-1].To = 0 // the table may have grown since
	return ranges
}

// copyProgress is how far the first copy is, in bytes of the source's tables, by estimate.
type copyProgress struct{ total, done atomic.Int64 }

func (p *copyProgress) begin(total int64) {
	p.total.Store(total)
	p.done.Store(0)
}

// count adds rows of a range that were copied, as far as its size allows.
func (r *copyRange) count(p *copyProgress, rows int) {
	rowBytes := r.rowBytes
	if rowBytes == 0 {
		rowBytes = math.Float64frombits(r.copy.rowBytes.Load())
	}
	more := min(int64(rowBytes*float64(rows)), r.bytes-r.shown)
	r.shown += more
	p.done.Add(more)
}

// settle counts the range as done, or as not begun.
func (r *copyRange) settle(p *copyProgress, done bool) {
	before := r.shown
	r.shown = 0
	if done {
		r.shown = r.bytes
	}
	p.done.Add(r.shown - before)
}

// CopyProgress says how far the first copy is: about how many bytes of how many in the source's tables are copied. Both are 0
// before it begins. Any goroutine may call it.
func (m *Mirror) CopyProgress() (done, total int64) {
	return m.copying.done.Load(), m.copying.total.Load()
}
