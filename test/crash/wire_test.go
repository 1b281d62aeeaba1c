package crash

import (
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
)

// wire is the network between one life of a mirror and PostgreSQL. Once it is cut, nothing more comes through in either
// direction, not even what was on the way: a dead process says no goodbye.
type wire struct {
	listener net.Listener
	to       string
	group    sync.WaitGroup

	mu   sync.Mutex
	cut  bool
	open []net.Conn
}

// newWire begins to carry connections to a port of 127.0.0.1.
func newWire(t *testing.T, port int) *wire {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, to: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	w.group.Go(w.accept)
	return w
}

func (w *wire) port() int { return w.listener.Addr().(*net.TCPAddr).Port }

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.to)
		if err != nil {
			near.Close()
			continue
		}
		if w.keep(near, far) {
			w.group.Go(func() { carry(near, far) })
			w.group.Go(func() { carry(far, near) })
		}
	}
}

// keep notes a pair of connections; after the cut it closes them.
func (w *wire) keep(near, far net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		near.Close()
		far.Close()
		return false
	}
	w.open = append(w.open, near, far)
	return true
}

func carry(from, to net.Conn) {
	io.Copy(to, from)
	from.Close()
	to.Close()
}

// sever cuts the wire. It does not wait.
func (w *wire) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	w.listener.Close()
	for _, conn := range w.open {
		conn.Close()
	}
}

// close cuts the wire and joins its goroutines.
func (w *wire) close() {
	w.sever()
	w.group.Wait()
}
