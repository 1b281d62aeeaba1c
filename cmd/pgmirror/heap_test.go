package main

import (
	"math"
	"runtime/debug"
	"testing"
)

// The garbage collector aims at the bound of memory, or at GOMEMLIMIT where that is set.
func TestLimitHeap(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "")
	limitHeap(512 << 20)
	if got := debug.SetMemoryLimit(-1); got != 704<<20 {
		t.Errorf("limit %d", got)
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	limitHeap(100 << 20)
	if got := debug.SetMemoryLimit(-1); got != 704<<20 {
		t.Errorf("GOMEMLIMIT overridden by %d", got)
	}
}
