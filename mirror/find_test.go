package mirror

import (
	"context"
	"fmt"
	"testing"
)

// TestEqualRowsAreFoundInLinearTime: deleting n equal rows of a table without a key looks at a number of rows that grows with n, not
// with its square, in memory, in one file, in many files, and in merged indexes; and exactly one row goes with each.
func TestEqualRowsAreFoundInLinearTime(t *testing.T) {
	for name, perFile := range map[string]int{"memory": 0, "one file": 4000, "many files": 200} {
		t.Run(name, func(t *testing.T) {
			const rows = 4000
			b := newBank(9)
			b.live(t, func(m *Mirror) {
				ctx := context.Background()
				log := m.byOID[3]
				row := []cell{val("1"), val("1"), nil}
				add := func(n int) {
					var changes []message
					for range n {
						changes = append(changes, message{'I'}.u32(3).u8('N').tuple(row))
					}
					b.source.commit(changes)
					if err := m.marks.wait(ctx, b.source.end()); err != nil {
						t.Fatal(err)
					}
				}
				if perFile == 0 {
					m.inTurn(ctx, func() error { m.cfg.Memory, m.cfg.BatchRows = 1<<30, 512; return nil })
					add(rows)
				}
				for made := 0; perFile > 0 && made < rows; made += perFile {
					add(perFile)
					if err := m.checkpoint(ctx); err != nil {
						t.Fatal(err)
					}
				}
				before := m.lookups.candidates.Load()
				for gone := 0; gone < rows; {
					n := min(1+gone%7*100, rows-gone)
					var changes []message
					for range n {
						changes = append(changes, message{'D'}.u32(3).u8('O').tuple(row))
					}
					b.source.commit(changes)
					gone += n
					if err := m.marks.wait(ctx, b.source.end()); err != nil {
						t.Fatal(err)
					}
					var left int64
					if err := m.inTurn(ctx, func() error { left = log.rows; return nil }); err != nil || left != int64(rows-gone) {
						t.Fatalf("%d rows are left of %d, %d were deleted: %v %+v", left, rows, gone, err, log.failure)
					}
				}
				// A merge or a compaction meanwhile begins anew to learn which rows are deleted; the square is 2,000 a row.
				if seen := m.lookups.candidates.Load() - before; seen > 150*rows {
					t.Errorf("%d lookups looked at %d rows", rows, seen)
				}
				if err := m.Check(ctx); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestSpentIsBounded: however many hashes have many deleted rows, little is remembered of them.
func TestSpentIsBounded(t *testing.T) {
	x := &fileIndex{}
	for i := range 5 * spentMost {
		x.note(uint64(i), i)
		if len(x.spent) > spentMost || x.spent[uint64(i)] != i {
			t.Fatal(fmt.Sprint(len(x.spent), " hashes are remembered"))
		}
	}
}

// TestLiveRowsAreNotPassedOver: of two keys with one hash the one has one row, and many rows of the other beside it are deleted; both are
// found, whichever is sought first and whichever came first.
func TestLiveRowsAreNotPassedOver(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		w := newWorld(t, 1)
		w.faults, w.pressure, w.eager, w.history = 0, false, false, 0
		w.start()
		ctx := context.Background()
		w.check(w.m.inTurn(ctx, func() error { w.m.cfg.BatchRows = 100; return nil }))
		mt := w.table(9)
		held := map[int]*version{}
		insert := func(key int) {
			row := []cell{uuidCell(collidingKeys[key]), nil, nil}
			w.planned(9, message{'I'}.u32(9).u8('N').tuple(row), func(c LSN) {
				held[key] = &version{cells: row, created: c}
				mt.versions = append(mt.versions, held[key])
			})
		}
		remove := func(key int) {
			w.planned(9, message{'D'}.u32(9).old(&mt.def, held[key].cells), func(c LSN) { held[key].deleted = c })
		}
		pin, err := w.m.marks.register(0) // so that the deleted rows go to the file
		w.check(err)
		insert(0)
		for range spentLeast {
			insert(1)
			remove(1)
		}
		insert(1)
		tab := w.m.byOID[9]
		w.check(w.m.inTurn(ctx, func() error { return w.m.sealOpen(tab) }))
		w.check(w.m.flush(ctx, tab, maxLSN))
		w.m.marks.release(pin)
		if n := tab.indexes[0].entries; n != spentLeast+2 {
			t.Fatalf("%d rows are in the file", n)
		}
		for _, key := range order {
			remove(key)
		}
		w.same(9)
		w.audit()
		w.end()
	}
}
