package pgcdc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// Transactions that are not released hold the stream back at the limit, a large one passes when it is alone, and a wait
// ends with its context.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog(100)
		sized := func(n int64) *Transaction { return &Transaction{staged: &staging{memory: n}} }
		first, second := sized(60), sized(40)
		for _, tx := range []*Transaction{first, second} {
			if err := b.enter(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
		}
		large := sized(500)
		entered := make(chan error, 1)
		go func() { entered <- b.enter(context.Background(), large) }()
		first.leave()
		synctest.Wait()
		if len(entered) != 0 {
			t.Fatal("a large transaction entered beside another")
		}
		second.leave()
		synctest.Wait()
		if len(entered) != 1 {
			t.Fatal("a large transaction does not enter alone")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { entered <- b.enter(ctx, sized(1)) }()
		cancel()
		<-entered
		if err := <-entered; !errors.Is(err, context.Canceled) {
			t.Fatalf("a wait that was given up ended with %v", err)
		}
		large.leave()
		if b.bytes != 0 {
			t.Fatalf("%d bytes are left", b.bytes)
		}
	})
}
