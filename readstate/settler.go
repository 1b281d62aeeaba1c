package readstate

import (
	"context"
	"errors"
	"fmt"
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

// old returns the pins that are older than the limit, entered.
func (s *Server) old(now time.Time) (list []*pin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.watched {
		if now.Sub(p.state.Pinned) >= s.config.Limit {
			p.enter()
			list = append(list, p)
		}
	}
	return list
}

// settleLoop looks for pins past the limit until ctx ends. They are settled one after the other: it is one disk.
func (s *Server) settleLoop(ctx context.Context) {
	tick := time.NewTicker(min(max(s.config.Limit/settleLooks, settleLeast), settleMost))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, p := range s.old(time.Now()) {
			if ctx.Err() == nil {
				s.settle(p)
			}
			p.leave()
		}
	}
}

// A pin is looked at settleLooks times before it reaches the limit, but no more often than each settleLeast and no less than each settleMost.
const (
	settleLooks = 16
	settleLeast = 10 * time.Millisecond
	settleMost  = 10 * time.Second
)

// settle writes what a pin sees to a file, if that was not done before, and then lets its LSN go. One that holds more than it may ends. The settler's.
func (s *Server) settle(p *pin) {
	if p.ended != nil {
		return
	}
	if p.settled == nil {
		kept, err := settle(s.config.Dir, p.vectors, p.batches, s.config.MaxBytes)
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
	if p.state.Kept == nil {
		return
	}
	if files := p.state.Kept(); p.settled.size+files > s.config.MaxBytes {
		s.end(p, fmt.Sprintf("files of %d bytes are there for it alone, and its own takes %d", files, p.settled.size))
	}
}

// end takes a pin from its client, who hears why first. The settler's.
func (s *Server) end(p *pin, why string) {
	err := fmt.Errorf("%w: it was pinned at %s, %s ago, and may hold %d bytes (read_state_bytes) when it is older than %s (read_state_limit): %s", ErrEnded, p.state.LSN,
		time.Since(p.state.Pinned).Round(time.Second), s.config.MaxBytes, s.config.Limit, why)
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
