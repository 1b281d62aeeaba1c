package pgcdc

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// A walsender sends each row change by itself, and a receiver that is fast enough is woken for each. Under load those wake-ups
// and reads cost more than all that is done with the changes (measured: two thirds of the CPU time of a drain), on cores that
// the walsender may need. So small reads are counted: readBurst of them go at once, enough for a transaction of a few rows on
// an idle stream, and then one each readPause, which finds what has gathered meanwhile.
const (
	readBurst = 16
	readPause = 2 * time.Millisecond
	// smallRead is below what comes in a pause when the network, not the server, sets the pace: 16 MB/s. Larger reads are free.
	smallRead = 32 << 10
)

// silenceConn ends a read that waits for longer than limit nanoseconds; 0, as it is at first, means any time. Once limited, it
// paces its reads. One goroutine reads.
type silenceConn struct {
	net.Conn
	limit atomic.Int64
	// beforeRead, if set, is called before each read, which may wait; its error ends the read. The reading goroutine's.
	beforeRead func() error

	// next is when the next small read would be due if they came readPause apart; it may lie readBurst of them in the past.
	next time.Time
}

// limitSilence bounds how long a read of a replication connection may wait.
func limitSilence(conn net.Conn, limit time.Duration) (*silenceConn, error) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	silent, ok := conn.(*silenceConn)
	if !ok {
		return nil, fmt.Errorf("limit the silence of a %T", conn)
	}
	silent.limit.Store(int64(limit))
	return silent, nil
}

func (c *silenceConn) Read(p []byte) (int, error) {
	limit := c.limit.Load()
	if limit == 0 {
		return c.Conn.Read(p)
	}
	if c.beforeRead != nil {
		if err := c.beforeRead(); err != nil {
			return 0, err
		}
	}
	now := time.Now()
	if early := c.next.Sub(now); early > 0 {
		time.Sleep(early)
		now = now.Add(early)
	}
	if err := c.SetReadDeadline(now.Add(time.Duration(limit))); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if n < smallRead {
		if floor := time.Now().Add(-readBurst * readPause); c.next.Before(floor) {
			c.next = floor
		}
		c.next = c.next.Add(readPause)
	}
	return n, err
}
