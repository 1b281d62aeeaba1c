package readstate

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

// answerWith is a client whose server answers each request with the next of the given scripts.
func answerWith(t *testing.T, scripts ...func(w *bufio.Writer, id uint64)) *Client {
	ours, theirs := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w := bufio.NewWriter(theirs)
		if _, _, err := readHello(theirs); err != nil || writeHello(w, Version, hello{MaxInFlight: 8}) != nil {
			return
		}
		for _, script := range scripts {
			header, _, err := readFrame(theirs, maxArgs)
			if err != nil {
				return
			}
			req, err := parseRequest(header)
			if err != nil {
				return
			}
			script(w, req.ID)
		}
	}()
	t.Cleanup(func() {
		theirs.Close()
		<-ended
	})
	client, err := NewClient(context.Background(), ours, ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// Answers that break the protocol end the client's connection with a reason.
func TestHostileAnswers(t *testing.T) {
	for name, a := range map[string]answer{
		"unknown request": {ID: 99, Kind: kindDone},
		"unknown kind":    {ID: 1, Kind: "perhaps"},
		"part too many":   {ID: 1, Kind: kindPart},
		"progress":        {ID: 1, Kind: kindProgress},
	} {
		t.Run(name, func(t *testing.T) {
			client := answerWith(t, func(w *bufio.Writer, _ uint64) { _ = writeFrame(w, a) })
			if _, err := client.Status(context.Background()); !errors.Is(err, ErrLost) || !errors.Is(err, ErrProtocol) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A state that contradicts itself is an error of the pin, and what was pinned is released.
func TestHostileStates(t *testing.T) {
	vector := func(w *bufio.Writer, id uint64) {
		_ = writeFrame(w, answer{ID: id, Kind: kindPart}, []byte("no blob"))
		_ = writeFrame(w, answer{ID: id, Kind: kindDone})
	}
	schema := func(w *bufio.Writer, id uint64) {
		_ = writeFrame(w, answer{ID: id, Kind: kindPart}, []byte(`[{"name":"c","type":"int64","meta_keys":["PARQUET:field_id"],"meta_values":["1"]}]`))
		_ = writeFrame(w, answer{ID: id, Kind: kindDone})
	}
	missing := func(w *bufio.Writer, id uint64) { _ = writeFrame(w, answer{ID: id, Kind: kindDone}) }
	table := func(rest string) string {
		return `{"lsn":"0/7","tables":[{"schema":"s","name":"t","schema_id":1,` + rest + `}]}`
	}
	for name, c := range map[string]struct {
		body string
		then []func(*bufio.Writer, uint64)
	}{
		"no JSON":           {body: `{`},
		"no LSN":            {body: `{"lsn":"7"}`},
		"order":             {body: `{"tables":[{"schema":"b","name":"t"},{"schema":"a","name":"t"}]}`},
		"rows, no schema":   {body: `{"tables":[{"schema":"a","name":"t","files":[{"path":"p"}]}]}`},
		"no path":           {body: table(`"files":[{"rows":1}]`)},
		"negative rows":     {body: table(`"files":[{"path":"p","rows":-1}]`)},
		"negative batch":    {body: table(`"batches":[{"id":1,"rows":-1}]`)},
		"huge batch":        {body: table(`"batches":[{"id":1,"rows":2147483648}]`)},
		"batch twice":       {body: table(`"batches":[{"id":1},{"id":1}]`)},
		"vector of 2 sizes": {body: table(`"batches":[{"id":1,"deleted":{"id":1,"rows":1}},{"id":2,"deleted":{"id":1,"rows":2}}]`), then: []func(*bufio.Writer, uint64){schema}},
		"bad vector":        {body: table(`"files":[{"path":"p","rows":9,"deleted":{"id":1,"rows":9}}]`), then: []func(*bufio.Writer, uint64){schema, vector}},
		"bad schema":        {body: table(`"files":[]`), then: []func(*bufio.Writer, uint64){vector}},
		"missing schema":    {body: table(`"files":[]`), then: []func(*bufio.Writer, uint64){missing}},
	} {
		t.Run(name, func(t *testing.T) {
			released := make(chan struct{}, 1)
			scripts := []func(*bufio.Writer, uint64){func(w *bufio.Writer, id uint64) {
				_ = writeFrame(w, answer{ID: id, Kind: kindDone, State: 3}, []byte(c.body))
			}}
			scripts = append(append(scripts, c.then...), func(*bufio.Writer, uint64) { released <- struct{}{} })
			client := answerWith(t, scripts...)
			_, err := client.Pin(context.Background(), PinRequest{})
			if !errors.Is(err, ErrProtocol) || !strings.HasPrefix(err.Error(), "pin a read state: ") {
				t.Errorf("got %v", err)
			}
			if name != "missing schema" { // that one ends the connection
				receive(t, released, "the release")
			}
		})
	}
}
