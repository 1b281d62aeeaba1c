package pgcdc

import (
	"context"
	"sync"
)

// backlogSpills is how many transactions of the size at which spilling begins may wait to be applied. Beyond that the stream
// is read no further; the server keeps what it cannot send.
const backlogSpills = 4

// backlog bounds the memory of transactions that were handed out and are not released yet.
type backlog struct {
	limit int64
	freed chan struct{} // something was released

	mu    sync.Mutex
	bytes int64
}

func newBacklog(limit int64) *backlog { return &backlog{limit: limit, freed: make(chan struct{}, 1)} }

// room says whether enter would return at once.
func (b *backlog) room(t *Transaction) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes == 0 || b.bytes+t.staged.memory <= b.limit
}

// enter waits until there is room for the transaction; one that is larger than all room waits until it is alone.
func (b *backlog) enter(ctx context.Context, t *Transaction) error {
	n := t.staged.memory
	for {
		b.mu.Lock()
		if b.bytes == 0 || b.bytes+n <= b.limit {
			b.bytes += n
			b.mu.Unlock()
			t.leave = func() { b.release(n) }
			return nil
		}
		b.mu.Unlock()
		select {
		case <-b.freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// size is what is there now, in bytes.
func (b *backlog) size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

func (b *backlog) release(n int64) {
	b.mu.Lock()
	b.bytes -= n
	b.mu.Unlock()
	select {
	case b.freed <- struct{}{}:
	default:
	}
}
