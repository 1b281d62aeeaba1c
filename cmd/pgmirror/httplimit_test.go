package main

import (
	"errors"
	"net"
	"testing"
)

// No more connections are open than may be; one that waits is taken when another ends, and Close ends the wait.
func TestLimitConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitConnections(listener, 2)
	defer l.Close()
	accepted, ended := make(chan net.Conn, 3), make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- conn
		}
	}()
	for range 3 {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	first, second := <-accepted, <-accepted
	if n := len(l.(*limited).slots); n != 2 || len(accepted) != 0 {
		t.Errorf("%d connections are open, %d more were taken", n, len(accepted))
	}
	first.Close()
	first.Close()
	third := <-accepted
	if n := len(l.(*limited).slots); n > 2 {
		t.Errorf("%d connections are open", n)
	}
	l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept ends with %v", err)
	}
	second.Close()
	third.Close()
	if n := len(l.(*limited).slots); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}
