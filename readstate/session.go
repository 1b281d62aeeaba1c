package readstate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// session is one connection: its reader, the requests in flight and the states it has pinned.
type session struct {
	server *Server
	conn   net.Conn
	in     *bufio.Reader

	writing sync.Mutex // held for a whole frame
	out     *bufio.Writer

	mu       sync.Mutex
	inFlight map[uint64]context.CancelFunc
	pins     map[uint64]*pin
	reserved int // pins and pin requests
	lastPin  uint64
	schemas  map[TableName]namedSchema // of the newest pin
	lastID   uint64                    // of a schema

	hearsEnds bool // the client knows kindEnded
}

// namedSchema is a schema and the ID by which the client keeps it.
type namedSchema struct {
	schema *arrow.Schema
	id     uint64
}

func newSession(server *Server, conn net.Conn) *session {
	return &session{
		server:   server,
		conn:     conn,
		in:       bufio.NewReaderSize(conn, 64<<10),
		out:      bufio.NewWriterSize(stallWriter{conn, server.config.WriteStall}, 64<<10),
		inFlight: map[uint64]context.CancelFunc{},
		pins:     map[uint64]*pin{},
	}
}

// run serves the connection until it ends. Then nothing that it started runs and nothing that it pinned is held.
func (s *session) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	var handlers sync.WaitGroup
	err := s.greet()
	if err == nil {
		err = s.read(ctx, &handlers)
	}
	ended := ctx.Err() != nil
	cancel()
	stop()
	s.conn.Close()
	s.releaseAll() // a command may go on for long
	handlers.Wait()
	s.releaseAll() // what was being pinned
	if !ended && err != nil && !errors.Is(err, io.EOF) {
		s.server.cutOffs.report(err)
	}
}

// greet exchanges hellos.
func (s *session) greet() error {
	if err := s.conn.SetReadDeadline(time.Now().Add(s.server.config.HelloTimeout)); err != nil {
		return err
	}
	version, theirs, err := readHello(s.in)
	if err != nil {
		return err
	}
	s.hearsEnds = slices.Contains(theirs.Capabilities, capabilityEnded)
	mine := hello{
		Program:      "pgmirror",
		Capabilities: []string{capabilityProgress, capabilityPast, capabilityEnded},
		MaxInFlight:  s.server.config.MaxInFlight,
		SearchPath:   s.server.provider.SearchPath(),
	}
	if version != Version {
		mine.Error = fmt.Sprintf("client speaks version %d, this pgmirror speaks %d", version, Version)
		err = fmt.Errorf("%w: %s", ErrVersion, mine.Error)
	}
	if err := writeHello(s.out, Version, mine); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	return s.conn.SetReadDeadline(time.Time{})
}

// read takes requests until the connection ends or breaks the protocol.
func (s *session) read(ctx context.Context, handlers *sync.WaitGroup) error {
	for {
		header, body, err := readFrame(s.in, maxArgs)
		if err != nil {
			return err
		}
		req, err := parseRequest(header)
		if err != nil {
			return err
		}
		switch req.Op {
		case opRelease:
			s.release(req.State)
			continue
		case opCancel:
			s.mu.Lock()
			if cancel := s.inFlight[req.Target]; cancel != nil {
				cancel()
			}
			s.mu.Unlock()
			continue
		}
		reqCtx, cancel := context.WithCancel(ctx)
		if err := s.begin(req.ID, cancel); err != nil {
			cancel()
			return err
		}
		handlers.Go(func() {
			defer cancel()
			s.handle(reqCtx, req, body)
		})
	}
}

// begin counts a request in; respond counts it out.
func (s *session) begin(id uint64, cancel context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[id] != nil {
		return protocolErrorf("request id %d is in use", id)
	}
	if len(s.inFlight) >= s.server.config.MaxInFlight {
		return protocolErrorf("more than %d requests in flight", s.server.config.MaxInFlight)
	}
	s.inFlight[id] = cancel
	return nil
}

// handle runs one request and sends its last frame.
func (s *session) handle(ctx context.Context, req request, args []byte) {
	last := answer{ID: req.ID, Kind: kindDone}
	body, err := s.answer(ctx, req, args, &last)
	if err != nil {
		last = answer{ID: req.ID, Kind: kindError, Code: errorCode(err), Message: shorten(err.Error())}
		body = nil
	}
	_ = s.send(last, true, body) // its error closed the connection
}

// answer does what is asked. A panic in what only reads is the client's error; a command may change something, and what its panic means is
// the provider's to say.
func (s *session) answer(ctx context.Context, req request, args []byte, last *answer) (body []byte, err error) {
	if req.Op != opCall {
		defer func() {
			if p := recover(); p != nil {
				s.server.log.Error("a request panicked", "request", req.Op, "err", p, "stack", string(debug.Stack()))
				err = fmt.Errorf("a fault of pgmirror itself, which its log describes: %v", p)
			}
		}()
	}
	switch req.Op {
	case opPin:
		last.State, body, err = s.pin(ctx, req)
	case opSchemas:
		err = s.sendSchemas(req)
	case opVectors:
		err = s.sendVectors(req)
	case opColumns:
		err = s.sendColumns(req)
	case opStatus:
		body, err = s.server.provider.Status(ctx)
	case opCall:
		var progress func(string)
		if req.Progress {
			progress = func(line string) { s.progress(req.ID, line) }
		}
		body, err = s.server.provider.Call(ctx, req.Command, args, progress)
	default:
		err = fmt.Errorf("this pgmirror does not know the request %q", req.Op)
	}
	return body, err
}

// maxText bounds a message or a line in a header; JSON may need six bytes for one.
const maxText = 8 << 10

func shorten(text string) string {
	if len(text) > maxText {
		return text[:maxText] + "…"
	}
	return text
}

func (s *session) progress(id uint64, line string) {
	_ = s.send(answer{ID: id, Kind: kindProgress, Line: shorten(line)}, false) // its error closed the connection
}

// send writes one frame. With the last frame of a request the request is counted out just before it is written, so that a
// client that saw the answer can send its next request at once. A connection that cannot be written to is closed, which
// ends its reader.
func (s *session) send(header answer, last bool, body ...[]byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if last {
		s.mu.Lock()
		delete(s.inFlight, header.ID)
		s.mu.Unlock()
	}
	err := writeFrame(s.out, header, body...)
	if err != nil {
		s.conn.Close()
	}
	return err
}

// release gives a pin up. An unknown id is one that was released before.
func (s *session) release(id uint64) {
	s.mu.Lock()
	p := s.pins[id]
	if p != nil {
		delete(s.pins, id)
		s.reserved--
	}
	s.mu.Unlock()
	if p != nil {
		s.server.unwatch(p)
		s.server.counters.openStates.Add(-1)
		p.leave()
	}
}

func (s *session) releaseAll() {
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.pins))
	s.mu.Unlock()
	for _, id := range ids {
		s.release(id)
	}
}

// use returns a pin that stays until its leave is called.
func (s *session) use(id uint64) (*pin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pins[id]
	if p == nil {
		return nil, ErrReleased
	}
	p.enter()
	return p, nil
}
