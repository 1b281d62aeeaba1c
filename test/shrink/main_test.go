package main

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestShrink: of a list that fails for some of its elements, exactly these are left, in their order.
func TestShrink(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(rt, "n")
		list := make([]int, n)
		for i := range list {
			list[i] = i
		}
		guilty := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 1, min(n, 5), rapid.ID[int]).Draw(rt, "guilty")
		slices.Sort(guilty)
		plays := 0
		got := shrink(list, func(some []int) bool {
			plays++
			return !slices.ContainsFunc(guilty, func(g int) bool { return !slices.Contains(some, g) })
		})
		if !slices.Equal(got, guilty) {
			rt.Fatalf("%v is left of %d, want %v", got, n, guilty)
		}
		if plays > 20*(n+10) {
			rt.Fatalf("%d plays for %d elements", plays, n)
		}
	})
}
