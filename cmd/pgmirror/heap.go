package main

import (
	"os"
	"runtime/debug"
)

// heapBeside is what Go's heap may take beside the memory batches before the garbage collector works harder than usual: staged
// transactions (64 MiB of open ones), Parquet files being written, visibility, and garbage. Without it the heap would grow to
// twice what lives in it before flushed batches are collected. (The program and mapped FileIndexes come on top, 180 MiB with 10 million rows; the system
// takes them back when it needs to.)
const heapBeside = 192 << 20

// rowGroupBytes is what a file being written may keep of its values, of a bound of memory: a sixteenth, within bounds that readers like.
func rowGroupBytes(memory int64) int64 { return min(256<<20, max(16<<20, memory/16)) }

// limitHeap lets the garbage collector aim at the bound of memory, unless GOMEMLIMIT sets another.
func limitHeap(memory int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory + heapBeside)
	}
}
