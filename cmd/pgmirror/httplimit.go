package main

import (
	"net"
	"slices"
	"sync"
)

// httpConnections is how many connections the HTTP port has open at once.
const httpConnections = 128

// limited is a listener with at most so many connections open: for one more the oldest is closed, so that those who open many and ask nothing do
// not keep out who asks now. An answer takes milliseconds.
type limited struct {
	net.Listener
	most int

	mu   sync.Mutex
	open []*limitedConn // the oldest first
}

func limitConnections(l net.Listener, most int) net.Listener {
	return &limited{Listener: l, most: most}
}

func (l *limited) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{conn, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) == l.most {
		l.open[0].Conn.Close()
		l.open = slices.Delete(l.open, 0, 1)
	}
	l.open = append(l.open, c)
	return c, nil
}

type limitedConn struct {
	net.Conn
	of *limited
}

func (c *limitedConn) Close() error {
	c.of.mu.Lock()
	c.of.open = slices.DeleteFunc(c.of.open, func(o *limitedConn) bool { return o == c })
	c.of.mu.Unlock()
	return c.Conn.Close()
}
