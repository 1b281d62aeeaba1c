package pgcdc

import "context"

// handover gives events to whoever applies them. The server sends many small transactions in one piece; to hand each over by itself
// wakes the other side for each (measured at 3,000 transactions a second: most of the mirror's CPU time went into that). So events are
// held until the next read of the socket, and then handed over together: an event never waits for one that has not arrived.
type handover struct {
	out  chan<- Event
	held []Event
}

// heldMost bounds the events held.
const heldMost = 64

func (h *handover) add(ctx context.Context, event Event) error {
	h.held = append(h.held, event)
	if len(h.held) < heldMost {
		return nil
	}
	return h.flush(ctx)
}

// flush hands everything over, or, when ctx ends first, releases what is left.
func (h *handover) flush(ctx context.Context) error {
	for i, event := range h.held {
		select {
		case h.out <- event:
		case <-ctx.Done():
			for _, event := range h.held[i:] {
				if event.Transaction != nil {
					event.Transaction.Release()
				}
			}
			clear(h.held)
			h.held = h.held[:0]
			return ctx.Err()
		}
	}
	clear(h.held)
	h.held = h.held[:0]
	return nil
}
