package pgcdc

import (
	"context"
	"errors"
	"testing"
)

// Events stay until the next read, or until there are many; then all come in order, and none twice.
func TestHandoverInBursts(t *testing.T) {
	ctx := context.Background()
	out := make(chan Event, 10*heldMost)
	h := &handover{out: out}
	c := &silenceConn{Conn: &readyConn{size: smallRead}, beforeRead: func() error { return h.flush(ctx) }}
	c.limit.Store(1 << 40)
	sent := LSN(0)
	add := func(n int) {
		for range n {
			sent++
			if err := h.add(ctx, Event{WALEnd: sent}); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := LSN(0)
	expect := func(n int) {
		t.Helper()
		if len(out) != n {
			t.Fatalf("%d events came, want %d", len(out), n)
		}
		for range n {
			if got++; (<-out).WALEnd != got {
				t.Fatalf("event %s is not the next", got)
			}
		}
	}
	add(5)
	expect(0)
	if _, err := c.Read(nil); err != nil {
		t.Fatal(err)
	}
	expect(5)
	add(heldMost + 3)
	expect(heldMost)
	if _, err := c.Read(nil); err != nil {
		t.Fatal(err)
	}
	expect(3)
}

// When nobody takes events any more, a read ends with the context, and every transaction is released.
func TestHandoverReleases(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	h := &handover{out: make(chan Event)}
	c := &silenceConn{Conn: &readyConn{size: 1}, beforeRead: func() error { return h.flush(ctx) }}
	c.limit.Store(1 << 40)
	released := 0
	for range 3 {
		tx := &Transaction{staged: newStaging(), leave: func() { released++ }}
		if err := h.add(ctx, Event{Transaction: tx}); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if _, err := c.Read(nil); !errors.Is(err, context.Canceled) || released != 3 {
		t.Errorf("%v, %d of 3 transactions released", err, released)
	}
	if err := h.flush(context.Background()); err != nil || released != 3 {
		t.Errorf("%v, %d of 3 transactions released", err, released)
	}
}
