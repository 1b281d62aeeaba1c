package main

import (
	"net"
	"sync"
)

// httpConnections is how many connections the HTTP port has open at once; more wait in the system's queue.
const httpConnections = 128

// limited is a listener with at most so many connections open.
type limited struct {
	net.Listener
	slots chan struct{}
	ended chan struct{}
	end   func()
}

func limitConnections(l net.Listener, most int) net.Listener {
	x := &limited{Listener: l, slots: make(chan struct{}, most), ended: make(chan struct{})}
	x.end = sync.OnceFunc(func() { close(x.ended) })
	return x
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.ended:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{conn, sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limited) Close() error {
	l.end()
	return l.Listener.Close()
}

// limitedConn gives its place back when it is closed.
type limitedConn struct {
	net.Conn
	leave func()
}

func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
