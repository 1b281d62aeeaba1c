package mirror

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// TestDoubtEnds: a commit is doubtful until a look is judged that began after its cut.
func TestDoubtEnds(t *testing.T) {
	w := quietWorld(t, 21)
	ctx := context.Background()
	w.transaction()
	w.settle()
	w.check(w.m.checkpoint(ctx))
	early, err := w.source.Look(ctx)
	w.check(err)
	w.transaction()
	w.settle()
	w.m.setState("reconnecting", "")
	w.check(w.m.checkpoint(ctx))
	doubtful := func() (d bool) {
		w.check(w.m.inTurn(ctx, func() error { d = w.m.certain < w.m.durable; return nil }))
		return d
	}
	if !doubtful() {
		t.Error("a commit that no look has confirmed is certain")
	}
	late, err := w.source.Look(ctx)
	w.check(err)
	for _, c := range []struct {
		look  look
		doubt bool
	}{{look{catalog: early}, true}, {look{catalog: late}, false}} {
		w.check(w.m.inTurn(ctx, func() error { w.m.looks = append(w.m.looks, c.look); return w.m.judge() }))
		if doubtful() != c.doubt {
			t.Errorf("after a look at %s the commit at %s is doubtful: %v", c.look.catalog.CheckedLSN, w.m.durable, !c.doubt)
		}
	}
	w.end()
}

// TestDoubtStays: a table of whose content the last commit is not certain goes on saying so when the source does not publish it any more.
func TestDoubtStays(t *testing.T) {
	w := quietWorld(t, 21)
	w.check(w.m.inTurn(context.Background(), func() error {
		tab := w.m.byOID[1]
		w.m.certain = w.m.durable - 1
		w.m.outdated(tab, 1, w.m.applied, "")
		if !tab.failure.Doubtful {
			t.Error("a table that is closed after a commit that is not certain is without doubt")
		}
		w.m.absent(tab, w.m.applied, "")
		if f := tab.failure; !f.Absent || !f.Closed || !f.Doubtful || f.Good >= w.m.durable {
			t.Errorf("%+v", f)
		}
		return nil
	}))
	w.stop()
	<-w.ended
}

// TestLeaveWaitsWithoutLocks: until a closed table can be left, in a turn between two transactions, a flush of it can go on: the transaction that is being
// applied may wait for the memory.
func TestLeaveWaitsWithoutLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.faults, w.pressure = 0, false
		w.transaction()
		w.start()
		var closed *table
		w.check(w.m.inTurn(t.Context(), func() error {
			closed = w.m.tables[0]
			closed.failure = &failure{Reason: "a test", Closed: true}
			return nil
		}))
		begun, end := make(chan struct{}), make(chan struct{})
		go w.m.inTurn(t.Context(), func() error { // a transaction that waits for memory
			close(begun)
			<-end
			return nil
		})
		<-begun
		left := make(chan error, 1)
		go func() { left <- w.m.leaveOne(t.Context(), closed) }()
		synctest.Wait()
		if closed.busy() {
			t.Error("it waits for its turn with a lock that a flush needs")
		}
		close(end)
		w.check(<-left)
		if slices.Contains(w.m.tables, closed) {
			t.Error("it was not left")
		}
		w.end()
	})
}
