package mirror

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"pgmirror/deletion"
	"pgmirror/iceberg"
)

// carrying is a rewrite whose rows are being deleted, in a mirror of which nothing runs but the applier. It reads and writes nothing.
type carrying struct {
	tb   testing.TB
	m    *Mirror
	rw   *rewrite
	rows int   // of each input
	perm []int // rows of all inputs, in the order in which they are deleted
	done int   // how many are; the applier's
	stop func()
}

// startCarrying begins the rewrite of some files with so many rows each, of which count are to be deleted at random.
func startCarrying(tb testing.TB, slice, files, rows, count int) *carrying {
	tb.Helper()
	m, err := New(Config{Slot: "m", Publications: []string{"p"}, IndexDir: "/i"}, nil, nil, nil, SystemClock())
	if err != nil {
		tb.Fatal(err)
	}
	m.carrySlice = slice
	m.marks.open(1, someTime, someTime)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.applyLoop(ctx) }()
	c := &carrying{tb: tb, m: m, rows: rows, perm: rand.New(rand.NewPCG(1, 2)).Perm(files * rows)[:count], stop: func() { stop(); <-ended }}
	c.rw = &rewrite{table: &table{}, floor: 1, out: &segment{file: &file{}}}
	for range files {
		c.rw.inputs = append(c.rw.inputs, &segment{vis: deletion.NewVisibility(1), file: &file{data: iceberg.DataFile{Rows: int64(rows)}}})
		c.rw.rows = append(c.rw.rows, rows)
	}
	if _, err := m.startRewrite(ctx, func() *rewrite { return c.rw }); err != nil {
		tb.Fatal(err)
	}
	return c
}

// delete deletes up to n rows more, one a transaction, in one turn of the applier.
func (c *carrying) delete(n int) {
	err := c.m.inAnyTurn(context.Background(), func() error {
		for ; n > 0 && c.done < len(c.perm); n, c.done = n-1, c.done+1 {
			row := c.perm[c.done]
			if err := c.rw.inputs[row/c.rows].delete(uint32(row%c.rows), LSN(100+c.done)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		c.tb.Error(err)
	}
}

// carryOver carries the log over while rows go on being deleted, each in a turn of its own, and says how many were.
func (c *carrying) carryOver() (meanwhile int) {
	c.tb.Helper()
	var installed atomic.Bool
	before, at := c.done, 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !installed.Load() {
			c.delete(1)
		}
	}()
	err := c.rw.carryOver(context.Background(), c.m, func() error {
		installed.Store(true)
		at = c.done
		return c.rw.succeed()
	})
	<-ended
	if err != nil {
		c.tb.Fatal(err)
	}
	if n := c.rw.out.vis.Count(); n != at {
		c.tb.Fatalf("%d rows were deleted by the install, and %d are in the new file", at, n)
	}
	return at - before
}

// TestCarryOverRest: however many rows were deleted while a file was written, and while they go on being deleted, the turn of the install carries over
// no more than a slice, and none is missing.
func TestCarryOverRest(t *testing.T) {
	const slice = 100
	for _, before := range []int{0, slice, slice + 1, 10 * slice, 200 * slice} {
		c := startCarrying(t, slice, 4, 20_000, 80_000)
		c.delete(before)
		meanwhile := c.carryOver()
		if c.rw.rest > slice {
			t.Errorf("of %d rows and %d that were deleted meanwhile %d were left to the install", before, meanwhile, c.rw.rest)
		}
		c.stop()
	}
}

// BenchmarkCarryOver is the longest time for which the applier stands still (stall-ms) when a million rows of four files with ten million are deleted, at
// random and one a transaction, while the files are rewritten, and as fast as the applier gets them while that is carried over: in slices, and for
// comparison in one turn. "meanwhile" are the rows that came during the carry-over, "rest" those that were left to the turn of the install; "a full slice"
// is such a turn with as many as there may be. It counts no reading and writing.
func BenchmarkCarryOver(b *testing.B) {
	const files, rows, deleted = 4, 2_500_000, 1_000_000
	for _, c := range []struct {
		name          string
		slice, before int
	}{{"slices", carrySlice, deleted}, {"a full slice", carrySlice, carrySlice}, {"one turn", 2 * deleted, deleted}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				carrying := startCarrying(b, c.slice, files, rows, 2*deleted)
				carrying.delete(c.before)
				meanwhile := carrying.carryOver()
				b.ReportMetric(float64(carrying.rw.stall.Microseconds())/1000, "stall-ms")
				b.ReportMetric(float64(meanwhile), "meanwhile")
				b.ReportMetric(float64(carrying.rw.rest), "rest")
				carrying.stop()
			}
		})
	}
}
