package mirror

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// churn is a table of 16 keys of which every row takes another's place, or one that only grows, in batches of 1,024 rows: the shapes by which dead buffers
// are measured (docs/decisions/0030).
type churn struct {
	m    *Mirror
	t    *table
	keys int // 0: every row has its own
	row  pgcdc.Tuple
	n    int
}

const churnKeys, churnBatch, churnCommit = 16, 1024, 64

func newChurn(b testing.TB, keys, payload int) *churn {
	types := []uint32{oidInt8, oidText}
	m, t, _ := benchTable(b, types...)
	m.cfg.BatchRows = churnBatch
	return &churn{m: m, t: t, keys: keys, row: binaryRow(types, strings.Repeat("x", payload))}
}

// write brings rows, in commits of 64. With bury, batches are buried when they are dead.
func (c *churn) write(b testing.TB, rows int, bury bool) {
	for range rows {
		key, op := c.n, pgcdc.OpInsert
		if c.keys > 0 {
			if key = c.n % c.keys; c.n >= c.keys {
				op = pgcdc.OpUpdate
			}
		}
		binary.BigEndian.PutUint64(c.row[0].Data, uint64(key))
		lsn := LSN(c.n/churnCommit + 1)
		if err := c.m.sealFull(c.t); err != nil {
			b.Fatal(err)
		}
		if err := c.m.changeRow(c.t, &pgcdc.Change{Op: op, New: c.row}, lsn); err != nil {
			b.Fatal(err)
		}
		if c.n++; c.n%churnCommit == 0 {
			c.t.open.batch.publish()
			c.m.marks.publish(lsn, c.m.clock.Now())
			if bury {
				c.m.buryDead()
			}
		}
	}
	c.m.weigh(c.t.open.batch)
}

// retained is the memory of the table's batches, in bytes.
func (c *churn) retained() int64 { return c.m.memory.Load() }

// live counts the rows that a reader of now sees.
func (c *churn) live() (rows int) {
	for _, s := range append(c.t.sealed, c.t.open) {
		rows += s.batch.rows - s.vis.Count()
	}
	return rows
}

// TestDeadBatches: of a table whose rows all take each other's place one batch is left, however many came; of one that grows, all are. Not one
// is let go that a reader sees.
func TestDeadBatches(t *testing.T) {
	for _, rows := range []int{4096, 32768} {
		for _, payload := range []int{16, 256} {
			t.Run(fmt.Sprintf("%d rows of %d", rows, payload), func(t *testing.T) {
				size := func(keys int, bury bool) int64 {
					c := newChurn(t, keys, payload)
					c.write(t, rows, bury)
					if want := max(keys, 0); keys > 0 && c.live() != want || keys == 0 && c.live() != rows {
						t.Errorf("%d keys: %d rows live", keys, c.live())
					}
					return c.retained()
				}
				batches := int64(rows / churnBatch)
				if all, left := size(churnKeys, false), size(churnKeys, true); all != batches*left {
					t.Errorf("%d bytes stay of %d, want one in %d", left, all, batches)
				}
				if all, left := size(0, false), size(0, true); all != left {
					t.Errorf("of rows that all live %d bytes stay of %d", left, all)
				}
			})
		}
	}
	c := newChurn(t, churnKeys, 16)
	c.write(t, 2048, true)
	p, err := c.m.marks.register(0)
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, 8192, true)
	if n := len(c.t.sealed); n != 8 { // the one that it sees, and those with rows that were there after its LSN
		t.Errorf("%d batches are left under a reader", n)
	}
	c.m.marks.release(p)
	c.write(t, churnCommit, true)
	if n := len(c.t.sealed); n > 1 {
		t.Errorf("%d batches are left after the reader", n)
	}
}

// TestDeadBatchesOfAFailedTable: what a table had at its last good LSN stays, though the transaction in which it failed has deleted it.
func TestDeadBatchesOfAFailedTable(t *testing.T) {
	c := newChurn(t, churnKeys, 16)
	c.write(t, churnBatch, true)
	c.write(t, churnCommit, false)
	if n := len(c.t.sealed); n != 1 || !c.t.sealed[0].dead() {
		t.Fatalf("%d batches are sealed", n)
	}
	c.t.failure = &failure{Good: c.t.sealed[0].vis.Last() - 1}
	c.m.buryDead()
	if n := len(c.t.sealed); n != 1 {
		t.Errorf("%d batches are left", n)
	}
}

// TestCommitsBuryDeadBatches: the applier lets a dead batch go with the commit that nobody reads below any more.
func TestCommitsBuryDeadBatches(t *testing.T) {
	w := newWorld(t, 3)
	w.faults, w.pressure, w.history = 0, false, 0
	w.start()
	w.check(w.m.inTurn(t.Context(), func() error { w.m.cfg.BatchRows = 2; return nil }))
	sealed := func() (n int) {
		w.check(w.m.inTurn(t.Context(), func() error {
			for _, tab := range w.m.byOID {
				for _, s := range tab.sealed {
					if n++; s.buriable(w.m.marks.low()) {
						t.Errorf("a dead batch of %s is there after a commit", tab)
					}
				}
			}
			return nil
		}))
		return n
	}
	hold, err := w.m.Pin(t.Context(), readstate.PinRequest{})
	w.check(err)
	for range 100 {
		w.transaction()
	}
	w.settle()
	held := sealed()
	hold.Release()
	for range 10 {
		w.transaction()
	}
	w.settle()
	if left := sealed(); left >= held {
		t.Errorf("%d batches were there under a reader, %d are without", held, left)
	}
	w.end()
}

// BenchmarkDeadBatches: what it costs to bury, and what it wins, in bytes that stay.
func BenchmarkDeadBatches(b *testing.B) {
	for _, shape := range []struct {
		name string
		keys int
	}{{"append", 0}, {"upsert", churnKeys}} {
		for _, rows := range []int{4096, 32768} {
			for _, payload := range []int{16, 256} {
				for _, bury := range []bool{false, true} {
					b.Run(fmt.Sprintf("%s/rows=%d/payload=%d/bury=%t", shape.name, rows, payload, bury), func(b *testing.B) {
						var kept int64
						for b.Loop() {
							c := newChurn(b, shape.keys, payload)
							c.write(b, rows, bury)
							kept = c.retained()
						}
						b.ReportMetric(float64(kept), "retained-B")
					})
				}
			}
		}
	}
}
