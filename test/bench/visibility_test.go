package main

import (
	"errors"
	"os"
	"testing"

	"pgmirror/deletion"
	"pgmirror/mirror"
	"pgmirror/readstate"
)

// The bits of visibility are spread over the live rows of all tables.
func TestVisibilityBits(t *testing.T) {
	st := mirror.Status{Memory: mirror.MemoryStatus{Visibility: 30}, Tables: []mirror.TableStatus{{Rows: 100, DeletedRows: 50}, {Rows: 20}}}
	if got := visibilityBits(&st); got != 2 {
		t.Errorf("%v bits/row, want 2", got)
	}
}

// The vectors of a state's files, and no others, are written and read back; one that was changed on disk is an error.
func TestStoredVectors(t *testing.T) {
	deleted := deletion.NewVector(10)
	deleted.Set(3)
	deleted.Freeze()
	state := &readstate.State{Tables: []*readstate.Table{{Files: []readstate.File{{Rows: 5}, {Rows: 10, Deleted: deleted}}}, {Batches: []readstate.Batch{{Rows: 10, Deleted: deleted}}}}}
	vectors, rows := vectorsOf(state, t.TempDir())
	if len(vectors) != 1 || rows != 15 {
		t.Fatalf("%d vectors of %d rows, want 1 of 15", len(vectors), rows)
	}
	bytes, err := vectors[0].write()
	if err != nil {
		t.Fatal(err)
	}
	blob, err := os.ReadFile(vectors[0].path)
	if err != nil || len(blob) != bytes {
		t.Fatalf("%d bytes in the file (%v), %d written", len(blob), err, bytes)
	}
	if err := vectors[0].read(); err != nil {
		t.Error(err)
	}
	blob[len(blob)-1]++
	if err := os.WriteFile(vectors[0].path, blob, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := vectors[0].read(); !errors.Is(err, deletion.ErrCorrupt) {
		t.Errorf("a changed file: %v", err)
	}
}
