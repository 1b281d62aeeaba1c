package duckdb

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgmirror/readstate"
)

// pgmirror_live lets through exactly the rows that a set does not have, wherever a run of rows begins and ends, in order or not.
func TestLiveRuns(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, rows := range []int{1, 63, 64, 65, 500, 5000} {
		for _, ratio := range []float64{0.02, 0.5, 0.98} {
			dead := deadRows(rng, rows, ratio)
			if len(dead) == 0 || len(dead) == rows {
				continue
			}
			gone := make(map[int]bool)
			for _, d := range dead {
				gone[int(d)] = true
			}
			f := fileOf(t, itemRows(0, rows), dead, 100)
			db := openTest(t, fixed(table("items", itemSchema, []readstate.File{f}, nil)))
			query(t, db, "BEGIN; SELECT max(id) FROM items")
			var id int64
			for id = range db.handles.open {
			}
			for range 40 {
				from := rng.IntN(rows)
				to, step := from+1+rng.IntN(rows-from), 1+rng.IntN(2)*rng.IntN(5)
				var want []int
				for r := from; r < to; r += step {
					if !gone[r] {
						want = append(want, r)
					}
				}
				got := query(t, db, fmt.Sprintf("SELECT r FROM range(%d, %d, %d) t(r) WHERE pgmirror_live(%d, 0, r)", from, to, step, id))
				if len(got) != len(want) {
					t.Fatalf("%d of %d rows, from %d to %d by %d: %d rows, want %d", len(dead), rows, from, to, step, len(got), len(want))
				}
				for i := range want {
					if got[i][0] != fmt.Sprint(want[i]) {
						t.Fatalf("%d of %d rows, from %d to %d by %d: row %s, want %d", len(dead), rows, from, to, step, got[i][0], want[i])
					}
				}
			}
			query(t, db, "COMMIT")
		}
	}
}
