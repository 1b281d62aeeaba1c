package main

import (
	"errors"
	"net"
	"testing"
)

// No more connections are open than may be: for one more the oldest is closed. One that is closed by itself makes room.
func TestLimitConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitConnections(listener, 2)
	defer l.Close()
	connect := func() (client, server net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	alive := func(client, server net.Conn) bool {
		_, err := server.Write([]byte("x"))
		if err == nil {
			_, err = client.Read(make([]byte, 1))
		}
		return err == nil
	}
	firstClient, first := connect()
	secondClient, second := connect()
	thirdClient, third := connect()
	if alive(firstClient, first) || !alive(secondClient, second) || !alive(thirdClient, third) {
		t.Error("of three connections not the first alone is closed")
	}
	first.Close()
	second.Close()
	second.Close()
	fourthClient, fourth := connect()
	if !alive(thirdClient, third) || !alive(fourthClient, fourth) {
		t.Error("a connection that was closed made no room")
	}
	third.Close()
	fourth.Close()
	if n := len(l.(*limited).open); n != 0 {
		t.Errorf("%d connections are held", n)
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept ends with %v", err)
	}
}
