package main

import (
	"context"
	"testing"

	"pgmirror/deletion"
	"pgmirror/readstate"
)

// threeOfFour is a file of four rows, 400 bytes, one of which is deleted.
func threeOfFour() readstate.File {
	v := deletion.NewVector(4)
	v.Set(2)
	return readstate.File{Rows: 4, Bytes: 400, Deleted: v.Freeze()}
}

// A still state without its vectors leaves the one with them as it is, and neither is given up by who reads it.
func TestUnmasked(t *testing.T) {
	released := false
	state := &readstate.State{LSN: 7, Tables: []*readstate.Table{{Files: []readstate.File{threeOfFour()}}}, Release: func() { released = true }}
	masked := still{nil, state}
	for _, c := range []struct {
		what    string
		source  still
		deleted bool
	}{{"without", masked.unmasked(), false}, {"with", masked, true}} {
		got, err := c.source.Pin(context.Background(), readstate.PinRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got.Release()
		if has := got.Tables[0].Files[0].Deleted != nil; has != c.deleted || got.LSN != 7 || released {
			t.Errorf("%s vectors: a vector %v, at %s, released %v", c.what, has, got.LSN, released)
		}
	}
}

// A file's bytes are divided over its rows; what a vector takes comes on top.
func TestStorage(t *testing.T) {
	file := threeOfFour()
	blob, err := file.Deleted.MarshalBlob()
	if err != nil {
		t.Fatal(err)
	}
	var s storage
	for _, f := range []readstate.File{file, {Rows: 10, Bytes: 700}} {
		if err := s.add(f); err != nil {
			t.Fatal(err)
		}
	}
	vectors := float64(len(blob))
	if want := (storage{live: 1000, dead: 100, vectors: vectors, rows: 13, deadRows: 1}); s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
	if got, want := s.stale(), (100+vectors)/1000; got != want {
		t.Errorf("stale %v, want %v", got, want)
	}
}
