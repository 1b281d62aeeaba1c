package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pglogrepl"

	"pgmirror/test/harness"
)

// wire carries a mirror's connections to the source and sees each message that the mirror sends before the source does.
type wire struct {
	listener net.Listener
	group    sync.WaitGroup
	pass     func(message []byte) bool // asked by one goroutine for each connection
	closed   chan struct{}

	mu   sync.Mutex
	to   string
	open []net.Conn
}

// newWire begins to carry connections to a server. pass is asked about each message; when it says no, that and all that the connection
// would send after it are lost.
func newWire(t testing.TB, pg *harness.Postgres, pass func(message []byte) bool) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, pass: pass, closed: make(chan struct{})}
	w.lead(pg)
	w.group.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

// newAckWire is a wire that asks about each position that the mirror acknowledges, one after the other.
func newAckWire(t testing.TB, pg *harness.Postgres, seen func(flushed pglogrepl.LSN) (pass bool)) *wire {
	t.Helper()
	var mu sync.Mutex
	return newWire(t, pg, func(message []byte) bool {
		// Inside CopyData, r is a standby status update: written, flushed, applied, each 8 bytes.
		if message[0] != 'd' || len(message) < 22 || message[5] != 'r' {
			return true
		}
		mu.Lock()
		defer mu.Unlock()
		return seen(pglogrepl.LSN(binary.BigEndian.Uint64(message[14:])))
	})
}

// copyGate is a wire that holds back the first command to copy a table until it is opened.
type copyGate struct {
	*wire
	reached chan struct{}
	open    func()
}

// newCopyGate begins to carry connections to a server.
func newCopyGate(t testing.TB, pg *harness.Postgres, table string) *copyGate {
	t.Helper()
	open := make(chan struct{})
	g := &copyGate{reached: make(chan struct{}), open: sync.OnceFunc(func() { close(open) })}
	reach := sync.OnceFunc(func() { close(g.reached) })
	g.wire = newWire(t, pg, func(message []byte) bool {
		if bytes.Contains(message, []byte("COPY (")) && bytes.Contains(message, []byte(`"`+table+`"`)) {
			reach()
			select {
			case <-open:
			case <-g.closed:
			}
		}
		return true
	})
	return g
}

func (g *copyGate) isReached() bool {
	select {
	case <-g.reached:
		return true
	default:
		return false
	}
}

// url is how the mirror's role reaches the source through the wire.
func (w *wire) url() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=postgres sslmode=disable", w.listener.Addr().(*net.TCPAddr).Port, mirrorRole)
}

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		to := w.to
		w.mu.Unlock()
		far, err := net.Dial("tcp", to)
		if err != nil {
			near.Close()
			continue
		}
		w.mu.Lock()
		w.open = append(w.open, near, far)
		w.mu.Unlock()
		w.group.Go(func() {
			io.Copy(near, far)
			near.Close()
			far.Close()
		})
		w.group.Go(func() {
			w.watch(near, far)
			near.Close()
			far.Close()
		})
	}
}

// watch carries what the mirror sends, message by message: https://www.postgresql.org/docs/current/protocol-message-formats.html.
// The first has no type.
func (w *wire) watch(from io.Reader, to io.Writer) {
	for head := 4; ; head = 5 {
		message := make([]byte, head, 1024)
		if _, err := io.ReadFull(from, message); err != nil {
			return
		}
		length := int(binary.BigEndian.Uint32(message[head-4:])) - 4
		if length < 0 || length > 1<<24 {
			return
		}
		message = append(message, make([]byte, length)...)
		if _, err := io.ReadFull(from, message[head:]); err != nil {
			return
		}
		if head == 5 && !w.pass(message) {
			return
		}
		if _, err := to.Write(message); err != nil {
			return
		}
	}
}

// lead ends all connections; later ones go to this server.
func (w *wire) lead(pg *harness.Postgres) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = net.JoinHostPort("127.0.0.1", strconv.Itoa(pg.Port()))
	for _, conn := range w.open {
		conn.Close()
	}
	w.open = nil
}

func (w *wire) close() {
	w.listener.Close()
	close(w.closed)
	w.mu.Lock()
	for _, conn := range w.open {
		conn.Close()
	}
	w.mu.Unlock()
	w.group.Wait()
}
