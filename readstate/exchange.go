package readstate

import "context"

// maxLines bounds the progress lines that wait for a slow reader.
const maxLines = 4096

// exchange is one request and what has been answered to it. Its fields belong to the client's lock until done is closed.
type exchange struct {
	op        string
	maxParts  int
	parts     [][]byte
	body      []byte
	state     uint64
	life      *life // of the state that it pinned
	err       error
	abandoned bool
	lines     []string
	news      chan struct{} // tells that lines has something
	done      chan struct{}
}

// do sends a request and waits for its last answer. When ctx ends first the server is told to cancel, and a state that it
// pinned all the same is released when its answer comes.
func (c *Client) do(ctx context.Context, req request, body []byte, progress func(string)) (*exchange, error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.reason()
	}
	e := &exchange{op: req.Op, maxParts: len(req.Tables) + len(req.Vectors) + len(req.Columns), news: make(chan struct{}, 1), done: make(chan struct{})}
	c.mu.Lock()
	c.lastID++
	req.ID = c.lastID
	c.exchanges[req.ID] = e
	c.postLocked(req, body)
	c.mu.Unlock()

	for {
		select {
		case <-e.news:
			c.tellProgress(e, progress)
		case <-e.done:
			c.tellProgress(e, progress)
			return e, e.err
		case <-ctx.Done():
			if c.abandon(req.ID, e) {
				return nil, ctx.Err()
			}
			ctx = context.WithoutCancel(ctx) // the answer was faster
		case <-c.done:
			return nil, c.reason()
		}
	}
}

func (c *Client) tellProgress(e *exchange, progress func(string)) {
	c.mu.Lock()
	lines := e.lines
	e.lines = nil
	c.mu.Unlock()
	if progress != nil {
		for _, line := range lines {
			progress(line)
		}
	}
}

// abandon gives an exchange up unless it has its answer.
func (c *Client) abandon(id uint64, e *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exchanges[id] == nil {
		return false
	}
	e.abandoned = true
	e.parts = nil
	c.postLocked(request{Op: opCancel, Target: id}, nil)
	return true
}

// take gives an answer to the exchange it belongs to. It never waits for that exchange's caller.
func (c *Client) take(a answer, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Kind == kindEnded {
		if l := c.lives[a.State]; l != nil { // else it is being released
			l.end(&RemoteError{Code: codeEnded, Message: a.Message})
		}
		return nil
	}
	e := c.exchanges[a.ID]
	if e == nil {
		return protocolErrorf("answer to the unknown request %d", a.ID)
	}
	switch a.Kind {
	case kindPart:
		if e.maxParts == 0 {
			return protocolErrorf("a part too many for a request of %s", e.op)
		}
		e.maxParts--
		if !e.abandoned {
			e.parts = append(e.parts, body)
		}
		return nil
	case kindProgress:
		if e.op != opCall {
			return protocolErrorf("progress of a request of %s", e.op)
		}
		if !e.abandoned {
			e.addLine(a.Line)
		}
		return nil
	case kindDone:
		if e.maxParts > 0 {
			return protocolErrorf("%d parts are missing from the answer to a request of %s", e.maxParts, e.op)
		}
		e.body, e.state = body, a.State
		switch {
		case e.op != opPin:
		case e.abandoned:
			c.postLocked(request{Op: opRelease, State: a.State}, nil)
		default: // now, since the next frame may end it
			e.life = &life{}
			c.lives[a.State] = e.life
		}
	case kindError:
		e.err = &RemoteError{Code: a.Code, Message: a.Message}
	default:
		return protocolErrorf("answer of the unknown kind %q", a.Kind)
	}
	delete(c.exchanges, a.ID)
	<-c.slots
	close(e.done)
	return nil
}

func (e *exchange) addLine(line string) {
	if len(e.lines) >= maxLines {
		e.lines = e.lines[1:]
	}
	e.lines = append(e.lines, line)
	select {
	case e.news <- struct{}{}:
	default:
	}
}
