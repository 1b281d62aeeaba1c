package mirror

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"pgmirror/readstate"
)

// TestForkGuard: a source is taken for ours if, and only if, our newest commit comes again unchanged when it lies above the slot's
// confirmed LSN, and no unknown commit lies at or below what is applied.
func TestForkGuard(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := func(end LSN, xid uint32) commitMark { return commitMark{end, xid, at} }
	last := c(200, 7)
	for name, tc := range map[string]struct {
		last      commitMark
		confirmed LSN
		applied   LSN
		again     []commitMark // at or below applied
		more      bool         // then something above applied
		forked    bool
	}{
		"nothing above the slot":               {last: last, confirmed: 200, applied: 200, more: true},
		"a keepalive came after our commit":    {last: last, confirmed: 200, applied: 250, more: true},
		"comes again":                          {last: last, confirmed: 100, applied: 200, again: []commitMark{c(150, 6), last}, more: true},
		"comes again, applied by a keepalive":  {last: last, confirmed: 100, applied: 250, again: []commitMark{last}, more: true},
		"never copied a commit yet":            {confirmed: 100, applied: 100, more: true},
		"does not come again":                  {last: last, confirmed: 100, applied: 200, again: []commitMark{c(150, 6)}, more: true, forked: true},
		"nothing comes again":                  {last: last, confirmed: 199, applied: 200, more: true, forked: true},
		"nothing has come yet":                 {last: last, confirmed: 100, applied: 200},
		"another transaction at its place":     {last: last, confirmed: 100, applied: 200, again: []commitMark{c(200, 8)}, forked: true},
		"another time at its place":            {last: last, confirmed: 100, applied: 200, again: []commitMark{{200, 7, at.Add(1)}}, forked: true},
		"the same time in another zone":        {last: last, confirmed: 100, applied: 200, again: []commitMark{{200, 7, at.In(time.FixedZone("x", 3600))}}, more: true},
		"a commit that we never saw":           {last: last, confirmed: 200, applied: 250, again: []commitMark{c(230, 8)}, forked: true},
		"a commit that we never saw, after it": {last: last, confirmed: 100, applied: 250, again: []commitMark{last, c(230, 8)}, forked: true},
		"a commit although none was known":     {confirmed: 100, applied: 150, again: []commitMark{c(130, 8)}, forked: true},
	} {
		t.Run(name, func(t *testing.T) {
			var g forkGuard
			g.begin(tc.last, tc.confirmed)
			var err error
			for _, c := range tc.again {
				err = errors.Join(err, g.again(c, tc.applied))
			}
			if tc.more {
				err = errors.Join(err, g.passed())
			}
			if errors.Is(err, ErrRefused) != tc.forked || tc.forked == (err == nil) {
				t.Errorf("forked: %v, want %v", err, tc.forked)
			}
		})
	}
}

// TestForkWhileRunning: a source that comes back with another history under a running mirror is refused: the mirror goes on answering
// with what it holds, status says why, nothing of the other history is applied, and a stop is an ordinary one. The same at the first
// connection of a life ends it.
func TestForkWhileRunning(t *testing.T) {
	b := newBank(6)
	broken := make(chan struct{})
	b.source.fault = func(call string) error {
		if call != "commit" {
			return nil
		}
		select {
		case <-broken:
			return nil
		default:
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.source.end() < 0x9000 {
			return nil
		}
		close(broken) // the server was restored: it has another transaction where we hold one, and new ones
		b.source.mu.Lock()
		for _, c := range b.source.wal {
			c.xid += 1000
		}
		b.source.mu.Unlock()
		return &netError{}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m := b.mirror(t)
	m.clock = eagerClock{}
	m.cfg.CheckpointInterval = time.Hour // what is acknowledged need not come again
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	opened(t, m)
	b.transfer() // the mirror must hold a commit to see that another one stands in its place
	if err := m.marks.wait(ctx, b.source.end()); err != nil {
		t.Fatal(err)
	}
	for b.source.end() < 0x9000 {
		b.transfer()
	}
	<-broken
	b.transfer()
	for m.shared.get().state != "refused" {
		select {
		case err := <-ended:
			t.Fatalf("the mirror ended with %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if reason := m.shared.get().reason; !strings.Contains(reason, "history") || strings.HasPrefix(reason, "refused: ") {
		t.Errorf("refused: %s", reason)
	}
	st, err := m.Pin(ctx, readstate.PinRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if sum, rows, err := b.sum(st, "a", "b"); err != nil || sum != bankSum || rows != 2*bankAccounts {
		t.Errorf("%d in %d rows, %v", sum, rows, err)
	}
	if st.LSN >= b.source.end() {
		t.Errorf("%s of the other history is shown", st.LSN)
	}
	st.Release()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("a stop ended with %v", err)
	}
}
