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
				if seen := m.lookups.candidates.Load() - before; seen > 15*rows {
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
