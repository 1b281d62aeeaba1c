package readstate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// ClientConfig bounds a client. Zero or less means the default.
type ClientConfig struct {
	CacheBytes int64 // columns of memory batches that are kept; default 256 MiB
}

const defaultCacheBytes = 256 << 20

// helloWait bounds the exchange of hellos when the context has no earlier deadline.
const helloWait = 10 * time.Second

var _ Provider = (*Client)(nil)

// Client is a connection to a running mirror. It is a Provider, and all its methods may be called by several goroutines.
// It does not reconnect: after ErrLost the caller dials again.
type Client struct {
	conn    net.Conn
	slots   chan struct{} // one for each request in flight
	cache   *cache
	past    bool // the server understands requests for times and change feeds
	running sync.WaitGroup
	done    chan struct{} // closed when the connection is over; err is set before
	wake    chan struct{} // tells the writer that queue has something

	mu         sync.Mutex
	err        error
	lastID     uint64
	exchanges  map[uint64]*exchange
	lives      map[uint64]*life // of the states that are pinned, by the server's IDs
	queue      []outFrame
	searchPath []string
	schemas    map[uint64]*arrow.Schema // of the newest state, by the server's IDs
}

type outFrame struct {
	header request
	body   []byte
}

// NewClient says hello over conn and owns it from then on, also when it returns an error.
func NewClient(ctx context.Context, conn net.Conn, config ClientConfig) (*Client, error) {
	setDefault(&config.CacheBytes, defaultCacheBytes)
	in := bufio.NewReaderSize(conn, 64<<10)
	theirs, err := greetServer(ctx, conn, in)
	if err != nil {
		conn.Close()
		return nil, err
	}
	c := &Client{
		conn:       conn,
		slots:      make(chan struct{}, theirs.MaxInFlight),
		cache:      newCache(config.CacheBytes),
		done:       make(chan struct{}),
		wake:       make(chan struct{}, 1),
		exchanges:  map[uint64]*exchange{},
		lives:      map[uint64]*life{},
		searchPath: theirs.SearchPath,
		past:       slices.Contains(theirs.Capabilities, capabilityPast),
	}
	c.running.Go(func() { c.read(in) })
	c.running.Go(c.write)
	return c, nil
}

// greetServer exchanges hellos, bounded by ctx.
func greetServer(ctx context.Context, conn net.Conn, in *bufio.Reader) (hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloWait)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	fail := func(err error) (hello, error) {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return hello{}, fmt.Errorf("greet the running pgmirror: %w", err)
	}
	// A server that turns the client away may have closed already, so what it wrote is read even when writing fails.
	writeErr := writeHello(bufio.NewWriter(conn), Version, hello{Program: "pgmirror", Capabilities: []string{capabilityEnded}})
	version, theirs, err := readHello(in)
	switch {
	case err != nil:
		return fail(errors.Join(writeErr, err))
	case version != Version:
		return fail(fmt.Errorf("%w (it speaks %d, this program speaks %d)", ErrVersion, version, Version))
	case theirs.Error != "":
		return fail(&RemoteError{Code: codeOther, Message: theirs.Error})
	case writeErr != nil:
		return fail(writeErr)
	case theirs.MaxInFlight < 1 || theirs.MaxInFlight > 1<<16:
		return fail(protocolErrorf("%d requests in flight", theirs.MaxInFlight))
	}
	if !stop() {
		return fail(ctx.Err())
	}
	return theirs, nil
}

// SearchPath is the source database's, as the newest pin told it.
func (c *Client) SearchPath() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.searchPath
}

// Status returns the JSON document of `status --json`.
func (c *Client) Status(ctx context.Context) ([]byte, error) {
	e, err := c.do(ctx, request{Op: opStatus}, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the running pgmirror for its status: %w", err)
	}
	return e.body, nil
}

// Call runs a command in the mirror's process. args and the answer are JSON; progress, if not nil, is called with lines
// for people, on the caller's goroutine. When it is slower than the lines come, the oldest waiting ones are left out.
func (c *Client) Call(ctx context.Context, command string, args []byte, progress func(line string)) ([]byte, error) {
	if len(args) > maxArgs {
		return nil, fmt.Errorf("call %s: arguments of %d bytes, allowed are %d", command, len(args), maxArgs)
	}
	e, err := c.do(ctx, request{Op: opCall, Command: command, Progress: progress != nil}, args, progress)
	var answered *RemoteError
	if errors.As(err, &answered) && strings.HasPrefix(answered.Message, command+": ") {
		return nil, answered
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return e.body, nil
}

// Done is closed when the connection is over, by Close or because it was lost.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the connection; the server releases what it pinned. Waiting calls return ErrClosed. States that are still
// open can be released but not read, except for what is in the cache. Calling it again does nothing.
func (c *Client) Close() error {
	c.end(ErrClosed)
	c.running.Wait()
	return nil
}

// end closes the connection for the first reason given.
func (c *Client) end(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = reason
	c.queue = nil
	close(c.done)
	c.conn.Close()
}

// reason is why the connection is over; nil while it is not.
func (c *Client) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// post queues a frame. It never blocks; what is posted after the end is dropped.
func (c *Client) post(header request, body []byte) {
	c.mu.Lock()
	c.postLocked(header, body)
	c.mu.Unlock()
}

func (c *Client) postLocked(header request, body []byte) {
	if c.err != nil {
		return
	}
	c.queue = append(c.queue, outFrame{header, body})
	select {
	case c.wake <- struct{}{}:
	default: // the writer is already told
	}
}

// write sends what is queued until the end.
func (c *Client) write() {
	out := bufio.NewWriter(c.conn)
	for {
		select {
		case <-c.done:
			return
		case <-c.wake:
		}
		c.mu.Lock()
		queue := c.queue
		c.queue = nil
		c.mu.Unlock()
		for _, frame := range queue {
			if err := writeFrame(out, frame.header, frame.body); err != nil {
				c.end(fmt.Errorf("%w: %w", ErrLost, err))
				return
			}
		}
	}
}

// read takes answers until the end.
func (c *Client) read(in *bufio.Reader) {
	for {
		header, body, err := readFrame(in, maxAnswer)
		if err == nil {
			var a answer
			if jsonErr := json.Unmarshal(header, &a); jsonErr != nil {
				err = protocolErrorf("answer is no JSON: %v", jsonErr)
			} else {
				err = c.take(a, body)
			}
		}
		if err != nil {
			c.end(fmt.Errorf("%w: %w", ErrLost, err))
			return
		}
	}
}
