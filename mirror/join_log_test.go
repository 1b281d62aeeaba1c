package mirror

import (
	"context"
	"testing"
)

// TestLogBeginsBeforeTheSnapshot: what the source commits after it has made the snapshot, and before the mirror hears of it, is neither
// in the copy nor yet to come on the stream: only a log that has begun before holds it.
func TestLogBeginsBeforeTheSnapshot(t *testing.T) {
	w := quietWorld(t, 16)
	w.want(1)
	mt := w.table(1)
	w.source.snapshotted = func() {
		for before := len(mt.versions); len(mt.versions) < before+3; {
			w.transaction()
		}
		w.settle()
	}
	left, _, err := w.m.joinQueued(context.Background())
	w.check(err)
	if left != 0 {
		t.Fatal("the table was not copied")
	}
	w.same(1)
	w.audit()
	w.end()
}
