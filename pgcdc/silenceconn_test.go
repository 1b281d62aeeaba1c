package pgcdc

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// readyConn always has size bytes to read.
type readyConn struct {
	net.Conn
	size int
}

func (c *readyConn) Read([]byte) (int, error)        { return c.size, nil }
func (c *readyConn) SetReadDeadline(time.Time) error { return nil }

// Small reads go at once up to a burst and one each pause from there on; large reads never wait; an idle time earns a burst
// anew, and no more than one.
func TestReadsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &readyConn{size: 100}
		c := &silenceConn{Conn: conn}
		took := func(reads int) time.Duration {
			began := time.Now()
			for range reads {
				if n, err := c.Read(nil); n != conn.size || err != nil {
					t.Fatalf("read %d bytes: %v", n, err)
				}
			}
			return time.Since(began)
		}
		expect := func(what string, reads int, want time.Duration) {
			if got := took(reads); got != want {
				t.Errorf("%s: %d reads took %s, want %s", what, reads, got, want)
			}
		}
		expect("before the stream begins", 1000, 0)
		c.limit.Store(int64(time.Minute))
		expect("a burst", readBurst, 0)
		expect("after a burst", 100, 99*readPause)
		conn.size = smallRead
		expect("the pause of the last small read", 1, readPause)
		expect("large reads", 1000, 0)
		conn.size = 100
		time.Sleep(time.Hour)
		expect("a burst after an idle time", readBurst, 0)
		expect("after that burst", 10, 9*readPause)
	})
}
