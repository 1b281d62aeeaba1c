package main

import (
	"bufio"
	"io"
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
		if got, err := c.options.request(time.Now()); err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v, want %+v", c.options, got, err, c.want)
		}
	}
}

// A piped statement runs when it is there, not when the input ends.
func TestPipedStatementRunsAtOnce(t *testing.T) {
	data := serveFake(t, &fakeProvider{})
	input, typed := io.Pipe()
	shown, output := io.Pipe()
	code := make(chan int)
	go func() {
		code <- execute(t.Context(), []string{"sql", "--format", "csv", "--data", data}, program{stdin: input, stdout: output, stderr: io.Discard})
	}()
	lines := bufio.NewScanner(shown)
	for _, n := range []string{"1", "2"} {
		if _, err := io.WriteString(typed, "select "+n+" as a;\n"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"a", n} {
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("%q, want %q: %v", lines.Text(), want, lines.Err())
			}
		}
	}
	typed.Close()
	if c := <-code; c != exitOK {
		t.Errorf("exit code %d", c)
	}
}
