package main

import (
	"testing"
	"time"

	"pgmirror/readstate"
)

// What is to be waited for, and how long, goes with every pin.
func TestSQLRequest(t *testing.T) {
	for _, c := range []struct {
		options sqlOptions
		want    readstate.PinRequest
	}{
		{sqlOptions{waitTimeout: time.Second}, readstate.PinRequest{Timeout: time.Second}},
		{sqlOptions{waitLSN: "source", waitTimeout: 5 * time.Minute}, readstate.PinRequest{WaitSource: true, Timeout: 5 * time.Minute}},
		{sqlOptions{waitLSN: "1/A", waitTimeout: time.Second}, readstate.PinRequest{WaitLSN: 1<<32 + 10, Timeout: time.Second}},
		{sqlOptions{at: "0/F", waitTimeout: time.Second}, readstate.PinRequest{At: 15, Timeout: time.Second}},
	} {
		if got, err := c.options.request(); err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v, want %+v", c.options, got, err, c.want)
		}
	}
}
