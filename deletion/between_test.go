package deletion

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// Between lists exactly the deletions of a range, whatever was folded below it; a range that begins below the fold is refused.
func TestBetween(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		v := NewVisibility(100)
		var all []Deletion
		at := LSN(100)
		for _, row := range rng.Perm(3 * tileRows)[:300] {
			if rng.IntN(3) == 0 {
				at += LSN(rng.IntN(10))
			}
			d := Deletion{uint32(row), at}
			if err := v.Delete(d.Row, d.At); err != nil {
				t.Fatal(err)
			}
			all = append(all, d)
		}
		base := 100 + LSN(rng.Uint64N(uint64(at-100)+1))
		v.Fold(base)
		for range 20 {
			from := base + LSN(rng.Uint64N(uint64(at-base)+10))
			to := from + LSN(rng.Uint64N(200))
			var want []Deletion
			for _, d := range all {
				if d.At > from && d.At <= to {
					want = append(want, d)
				}
			}
			slices.SortFunc(want, func(a, b Deletion) int { return int(a.Row) - int(b.Row) })
			if got, err := v.Between(from, to); err != nil || !slices.Equal(got, want) {
				t.Fatalf("from %s to %s: %v, %v; want %v", from, to, got, err, want)
			}
		}
		if _, err := v.Between(base-1, at); !errors.Is(err, ErrFolded) {
			t.Errorf("below the base: %v", err)
		}
	}
}
