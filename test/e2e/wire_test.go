package e2e

import (
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

// ackWire carries a mirror's connections to the source and sees each position that the mirror acknowledges before the source does.
type ackWire struct {
	listener net.Listener
	group    sync.WaitGroup

	mu   sync.Mutex
	to   string
	open []net.Conn
	seen func(flushed pglogrepl.LSN) (pass bool)
}

// newAckWire begins to carry connections to a server; seen is asked about each acknowledgement, by one goroutine at a time. When it
// says no, that message and all that the connection would send after it are lost.
func newAckWire(t testing.TB, pg *harness.Postgres, seen func(flushed pglogrepl.LSN) (pass bool)) *ackWire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &ackWire{listener: listener, seen: seen}
	w.lead(pg)
	w.group.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

// url is how the mirror's role reaches the source through the wire.
func (w *ackWire) url() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=postgres sslmode=disable", w.listener.Addr().(*net.TCPAddr).Port, mirrorRole)
}

func (w *ackWire) accept() {
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
// The first has no type. Inside CopyData, r is a standby status update: written, flushed, applied, each 8 bytes.
func (w *ackWire) watch(from io.Reader, to io.Writer) {
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
		if head == 5 && message[0] == 'd' && length >= 17 && message[5] == 'r' {
			w.mu.Lock()
			pass := w.seen(pglogrepl.LSN(binary.BigEndian.Uint64(message[14:])))
			w.mu.Unlock()
			if !pass {
				return
			}
		}
		if _, err := to.Write(message); err != nil {
			return
		}
	}
}

// lead ends all connections; later ones go to this server.
func (w *ackWire) lead(pg *harness.Postgres) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = net.JoinHostPort("127.0.0.1", strconv.Itoa(pg.Port()))
	for _, conn := range w.open {
		conn.Close()
	}
	w.open = nil
}

func (w *ackWire) close() {
	w.listener.Close()
	w.mu.Lock()
	for _, conn := range w.open {
		conn.Close()
	}
	w.mu.Unlock()
	w.group.Wait()
}
