package readstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// watch lets the settler see a pin that its client knows of; unwatch ends that. The owner of a pin leaves it after unwatch.
func (s *Server) watch(p *pin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The client may have gone, or given the state up, before it was told: then it is not watched any more.
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	if p.session.pins[p.id] == p {
		s.watched[p] = struct{}{}
	}
}

func (s *Server) unwatch(p *pin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watched, p)
}

// entered returns the watched pins, entered, the oldest first.
func (s *Server) entered() (list []*pin) {
	s.mu.Lock()
	for p := range s.watched {
		p.enter()
		list = append(list, p)
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b *pin) int { return a.state.Pinned.Compare(b.state.Pinned) })
	return list
}

// settleLoop looks for pins past the limit, or at any age while they weigh too much, until ctx ends. They are settled one after the other: it is one disk.
func (s *Server) settleLoop(ctx context.Context) {
	tick := time.NewTicker(min(max(s.config.Limit/settleLooks, settleLeast), settleMost))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.settleOld(ctx)
	}
}

// settleOld settles what is to, the oldest first, and ends what is then too much.
func (s *Server) settleOld(ctx context.Context) {
	for _, p := range s.entered() {
		if ctx.Err() == nil && (time.Since(p.state.Pinned) >= s.config.Limit || s.config.Weigh()) {
			s.settle(p)
		}
		p.leave()
		if s.counters.settledBytes.Load() > s.config.MaxBytes {
			s.bound()
		}
	}
	s.bound()
}

// A pin is looked at settleLooks times before it reaches the limit, but no more often than each settleLeast and no less than each settleMost.
const (
	settleLooks = 16
	settleLeast = 10 * time.Millisecond
	settleMost  = 10 * time.Second
)

// settle writes what a pin sees to a file, if that was not done before, and then lets its LSN go. The settler's.
func (s *Server) settle(p *pin) {
	if p.ended != nil || p.settled != nil {
		return
	}
	var kept *settled
	var err error
	if why := s.config.Paused(); why != "" {
		err = errors.New(why)
	} else {
		kept, err = settle(s.config.Dir, p.vectors, p.batches, s.config.MaxBytes)
	}
	switch {
	case errors.Is(err, errTooLarge):
		s.end(p, "its rows in memory and deletion vectors take more")
		return
	case err != nil:
		if !p.warned {
			s.log.Warn("an old read state cannot be written to a file and goes on holding its LSN", "lsn", p.state.LSN.String(), "err", err)
		}
		p.warned = true
		return
	}
	p.mu.Lock()
	p.settled, p.vectors, p.batches = kept, nil, nil
	p.mu.Unlock()
	s.counters.settled.Add(1)
	s.counters.settledBytes.Add(kept.size)
	if p.state.Settle != nil {
		p.state.Settle()
	}
	for _, t := range p.state.Tables {
		t.Files, t.Batches = nil, nil // the provider's memory
	}
}

// holding is what a settled pin has on disk.
type holding struct {
	*pin
	own   int64            // bytes of its file
	files map[string]int64 // bytes of the data files that are there for settled states alone, by path
	bytes int64            // of both
}

// bound ends settled pins until what all of them hold is no more than it may be: of the client that holds the most the pin that holds the most, so that
// many states of one do not end the only one of another. The settler's.
func (s *Server) bound() {
	pins := s.entered()
	defer func() {
		for _, p := range pins {
			p.leave()
		}
	}()
	var (
		held    []holding
		total   int64
		users   = map[string]int{} // pins that hold a data file
		clients = map[*session]int64{}
	)
	for _, p := range pins {
		if p.settled == nil {
			continue
		}
		h := holding{pin: p, own: p.settled.size, bytes: p.settled.size}
		if p.state.Kept != nil {
			h.files = p.state.Kept()
		}
		total += h.own
		for path, size := range h.files {
			if users[path]++; users[path] == 1 {
				total += size
			}
			h.bytes += size
		}
		held = append(held, h)
		clients[p.session] += h.bytes
	}
	for total > s.config.MaxBytes {
		i := 0
		for j, h := range held {
			most := held[i]
			if cmp.Or(cmp.Compare(clients[h.session], clients[most.session]), cmp.Compare(h.bytes, most.bytes), most.state.Pinned.Compare(h.state.Pinned)) > 0 {
				i = j
			}
		}
		h := held[i]
		held = slices.Delete(held, i, i+1)
		s.end(h.pin, fmt.Sprintf("they hold %d, and this one the most of the client that holds the most: a file of %d, and data files of %d that are there for such states alone", total, h.own, h.bytes-h.own))
		clients[h.session] -= h.bytes
		total -= h.own
		for path, size := range h.files {
			if users[path]--; users[path] == 0 {
				total -= size
			}
		}
	}
}

// end takes a pin from its client, who hears why first. The settler's.
func (s *Server) end(p *pin, why string) {
	err := fmt.Errorf("%w: it was pinned at %s, %s ago, and read states that have settled, at the age of %s (read_state_limit) or when memory is short, may hold %d bytes of disk together (read_state_bytes): %s", ErrEnded, p.state.LSN,
		time.Since(p.state.Pinned).Round(time.Second), s.config.Limit, s.config.MaxBytes, why)
	s.log.Warn("a read state is ended", "lsn", p.state.LSN.String(), "err", err)
	s.counters.ended.Add(1)
	p.mu.Lock()
	p.ended = err
	p.mu.Unlock()
	if p.session.hearsEnds {
		_ = p.session.send(answer{Kind: kindEnded, State: p.id, Message: shorten(err.Error())}, false) // its error closed the connection
	} else {
		p.session.conn.Close() // an older client, which would go on reading files that are not there
	}
	p.free()
}
