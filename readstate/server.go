package readstate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ServerConfig bounds what clients may hold. Zero or less means the default.
type ServerConfig struct {
	MaxConnections int           // open at once; default 256
	MaxInFlight    int           // requests of a connection that are not answered yet; default 64
	MaxPins        int           // states a connection holds; default 1024
	WriteStall     time.Duration // a client that takes no byte for so long is cut off; default 30 s
	HelloTimeout   time.Duration // for the client's first bytes; default 10 s

	// Dir is a directory of the server's own for what states older than Limit see; empty: they go on holding their LSN. What an earlier
	// life left there is removed.
	Dir      string
	Limit    time.Duration // default 5 min
	Weigh    func() bool   // states take so much memory that they settle whatever their age
	Paused   func() string // why nothing is to be written to the disk now; empty: it can be
	MaxBytes int64         // that states older than Limit may hold on disk together, their files and files kept for them; default 16 GiB
}

func (c ServerConfig) withDefaults() ServerConfig {
	setDefault(&c.MaxConnections, 256)
	setDefault(&c.MaxInFlight, 64)
	setDefault(&c.MaxPins, 1024)
	setDefault(&c.WriteStall, 30*time.Second)
	setDefault(&c.HelloTimeout, 10*time.Second)
	setDefault(&c.Limit, DefaultLimit)
	setDefault(&c.MaxBytes, DefaultMaxBytes)
	if c.Weigh == nil {
		c.Weigh = func() bool { return false }
	}
	if c.Paused == nil {
		c.Paused = func() string { return "" }
	}
	return c
}

// Defaults of ServerConfig.
const (
	DefaultLimit    = 5 * time.Minute
	DefaultMaxBytes = 16 << 30
)

func setDefault[T int | int64 | time.Duration](value *T, otherwise T) {
	if *value <= 0 {
		*value = otherwise
	}
}

// Server serves a Provider's read states to any number of clients.
type Server struct {
	provider Provider
	log      *slog.Logger
	config   ServerConfig
	counters counters
	cutOffs  cutOffs

	mu      sync.Mutex // before a session's
	watched map[*pin]struct{}
}

type counters struct {
	connections, openStates                     atomic.Int64
	statesPinned, columnBytes, columns, vectors atomic.Int64
	settled, settledBytes, ended                atomic.Int64
}

// Stats counts a server's work since it was made.
type Stats struct {
	Connections  int64 // open now
	OpenStates   int64 // pinned now, over all connections
	StatesPinned int64
	Columns      int64 // memory columns sent
	ColumnBytes  int64 // their bytes
	Vectors      int64 // deletion vectors sent
	Settled      int64 // open states whose vectors and memory rows are in a file now
	SettledBytes int64 // of these files
	Ended        int64 // states that held too much
}

// NewServer returns a server that Serve starts.
func NewServer(provider Provider, log *slog.Logger, config ServerConfig) *Server {
	return &Server{provider: provider, log: log, config: config.withDefaults(), cutOffs: cutOffs{log: log}, watched: map[*pin]struct{}{}}
}

// Stats may be called at any time.
func (s *Server) Stats() Stats {
	return Stats{
		Connections:  s.counters.connections.Load(),
		OpenStates:   s.counters.openStates.Load(),
		StatesPinned: s.counters.statesPinned.Load(),
		Columns:      s.counters.columns.Load(),
		ColumnBytes:  s.counters.columnBytes.Load(),
		Vectors:      s.counters.vectors.Load(),
		Settled:      s.counters.settled.Load(),
		SettledBytes: s.counters.settledBytes.Load(),
		Ended:        s.counters.ended.Load(),
	}
}

// acceptPause is waited after an accept for which the process had no file descriptor.
const acceptPause = 100 * time.Millisecond

// Serve answers clients until ctx ends or the listener fails, and closes the listener. When it returns, every connection
// is closed, every pin released and every goroutine ended. The end of ctx is no error.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer func() {
		running.Wait()
		s.cutOffs.end()
	}()
	defer cancel()
	defer listener.Close()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	if s.config.Dir != "" {
		if err := removeSettled(s.config.Dir); err != nil {
			return fmt.Errorf("files of read states: %w", err)
		}
		running.Go(func() { s.settleLoop(ctx) })
	}

	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE):
			s.log.Warn("accept on the read-state socket", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		default:
			return fmt.Errorf("accept on %s: %w", listener.Addr(), err)
		}
		if s.counters.connections.Add(1) > int64(s.config.MaxConnections) {
			s.turnAway(conn, fmt.Sprintf("%d clients are connected already", s.config.MaxConnections))
			s.counters.connections.Add(-1)
			continue
		}
		running.Go(func() {
			defer s.counters.connections.Add(-1)
			newSession(s, conn).run(ctx)
		})
	}
}

// turnAway tells a client why it is not served, and closes. It does not wait: a hello fits into any socket's buffer.
func (s *Server) turnAway(conn net.Conn, reason string) {
	defer conn.Close()
	w := bufio.NewWriter(stallWriter{conn, time.Second})
	if err := writeHello(w, Version, hello{Program: "pgmirror", Error: reason}); err != nil {
		s.log.Debug("turn a client away", "err", err)
	}
}
