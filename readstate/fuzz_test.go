package readstate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"pgmirror/deletion"
)

// scriptConn is a peer whose bytes are all there already and that takes whatever is written.
type scriptConn struct {
	net.Conn // nil: only the methods below are called
	in       *bytes.Reader
}

func (c *scriptConn) Read(b []byte) (int, error)       { return c.in.Read(b) }
func (c *scriptConn) Write(b []byte) (int, error)      { return len(b), nil }
func (c *scriptConn) Close() error                     { return nil }
func (c *scriptConn) SetDeadline(time.Time) error      { return nil }
func (c *scriptConn) SetReadDeadline(time.Time) error  { return nil }
func (c *scriptConn) SetWriteDeadline(time.Time) error { return nil }

func frames(write func(w *bufio.Writer)) []byte {
	var out bytes.Buffer
	write(bufio.NewWriter(&out))
	return out.Bytes()
}

// Whatever a client sends, its session ends without a panic and with every pin released.
func FuzzRequests(f *testing.F) {
	table := newFakeTable(rand.New(rand.NewPCG(1, 1)), "a", testTypes, 20, 30)
	batch := table.batches[0].id
	f.Add([]byte{})
	f.Add(frames(func(w *bufio.Writer) {
		_ = writeHello(w, Version, hello{Program: "fuzz"})
		_ = writeFrame(w, request{ID: 1, Op: opPin})
		_ = writeFrame(w, request{ID: 2, Op: opColumns, State: 1, Batch: batch, Columns: []int{0, 1, 13}, From: 3, To: 20})
		_ = writeFrame(w, request{ID: 3, Op: opVectors, State: 1, Vectors: []uint64{table.deleted[0].ID()}})
		_ = writeFrame(w, request{ID: 7, Op: opSchemas, State: 1, Tables: []int{0}})
		_ = writeFrame(w, request{ID: 4, Op: opCall, Command: "echo", Progress: true}, []byte(`{"x":1}`))
		_ = writeFrame(w, request{Op: opCancel, Target: 4})
		_ = writeFrame(w, request{ID: 5, Op: opStatus})
		_ = writeFrame(w, request{Op: opRelease, State: 1})
		_ = writeFrame(w, request{ID: 6, Op: opPin, At: 1, WaitLSN: 1 << 40, WaitSource: true, TimeoutUS: 5})
		when := int64(-1)
		_ = writeFrame(w, request{ID: 7, Op: opPin, AtTimeUS: &when})
		_ = writeFrame(w, request{ID: 8, Op: opPin, At: 9, Changes: &wireChanges{TableName{"public", "t"}, 1 << 40}})
	}))
	f.Add(frames(func(w *bufio.Writer) { _ = writeHello(w, Version+1, hello{}) }))
	f.Fuzz(func(t *testing.T, in []byte) {
		provider := newFakeProvider(table)
		server := NewServer(provider, slog.New(slog.DiscardHandler), ServerConfig{MaxInFlight: 8})
		newSession(server, &scriptConn{in: bytes.NewReader(in)}).run(context.Background())
		if open := provider.open.Load(); open != 0 || server.Stats().OpenStates != 0 {
			t.Errorf("%d states are open, the server counts %d", open, server.Stats().OpenStates)
		}
	})
}

// Whatever a server answers, the client's reader ends with its requests answered in full or not at all, and what they were
// answered is a value or an error.
func FuzzAnswers(f *testing.F) {
	rnd := rand.New(rand.NewPCG(2, 2))
	table := newFakeTable(rnd, "a", testTypes, 5, 9)
	f.Add([]byte{})
	f.Add(frames(func(w *bufio.Writer) { sendEverything(f, w, table) }))
	f.Add(frames(func(w *bufio.Writer) {
		_ = writeFrame(w, answer{ID: 1, Kind: kindError, Code: codeTimeout, Message: "too late"})
		_ = writeFrame(w, answer{ID: 9, Kind: kindDone})
	}))
	f.Fuzz(func(t *testing.T, in []byte) {
		client := &Client{
			conn: &scriptConn{}, slots: make(chan struct{}, 5), done: make(chan struct{}), wake: make(chan struct{}, 1),
			lives: map[uint64]*life{}, exchanges: map[uint64]*exchange{
				1: {op: opPin}, 2: {op: opVectors, maxParts: 2}, 3: {op: opColumns, maxParts: len(testTypes)}, 4: {op: opCall},
				5: {op: opSchemas, maxParts: 1},
			},
		}
		all := []*exchange{client.exchanges[1], client.exchanges[2], client.exchanges[3], client.exchanges[4], client.exchanges[5]}
		for _, e := range all {
			e.news, e.done = make(chan struct{}, 1), make(chan struct{})
			client.slots <- struct{}{}
		}
		client.read(bufio.NewReader(bytes.NewReader(in)))
		if !errors.Is(client.reason(), ErrLost) {
			t.Errorf("the reader ended with %v", client.reason())
		}
		answered := 0
		for i, e := range all {
			select {
			case <-e.done:
			default:
				continue
			}
			answered++
			if wantParts := []int{0, 2, len(testTypes), 0, 1}[i]; e.err == nil && len(e.parts) != wantParts {
				t.Errorf("%d parts for %d", len(e.parts), wantParts)
			}
		}
		if len(client.slots)+answered != 5 {
			t.Errorf("%d answers, %d slots in use", answered, len(client.slots))
		}
		readAnswers(all)
	})
}

// sendEverything answers the requests that FuzzAnswers has open.
func sendEverything(f *testing.F, w *bufio.Writer, table *fakeTable) {
	state, err := newFakeProvider(table).Pin(context.Background(), PinRequest{})
	if err != nil {
		f.Fatal(err)
	}
	wire, err := stateToWire(state, []string{"public"}, []uint64{1, 0})
	if err != nil {
		f.Fatal(err)
	}
	body, err := json.Marshal(wire)
	if err != nil {
		f.Fatal(err)
	}
	columns, err := schemaToWire(table.schema)
	if err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(columns)
	if err != nil {
		f.Fatal(err)
	}
	_ = writeFrame(w, answer{ID: 5, Kind: kindPart}, text)
	_ = writeFrame(w, answer{ID: 5, Kind: kindDone})
	_ = writeFrame(w, answer{ID: 4, Kind: kindProgress, Line: "half done"})
	_ = writeFrame(w, answer{ID: 1, Kind: kindDone, State: 5}, body)
	for range 2 {
		v := deletion.NewVector(9)
		v.SetRange(2, 5)
		blob, err := v.Freeze().MarshalBlob()
		if err != nil {
			f.Fatal(err)
		}
		_ = writeFrame(w, answer{ID: 2, Kind: kindPart}, blob)
	}
	for i, column := range table.batches[1].columns {
		encoded, err := encodeColumn(testTypes[i], column)
		if err != nil {
			f.Fatal(err)
		}
		_ = writeFrame(w, answer{ID: 3, Kind: kindPart}, encoded.pieces...)
	}
	_ = writeFrame(w, answer{ID: 3, Kind: kindDone})
	_ = writeFrame(w, answer{ID: 2, Kind: kindDone})
	_ = writeFrame(w, answer{ID: 4, Kind: kindDone}, []byte("{}"))
}

// readAnswers decodes what has come, as Pin and Read do.
func readAnswers(all []*exchange) {
	_, _ = parseState(all[0].body)
	for _, part := range all[4].parts {
		_, _ = schemaFromWire(part)
	}
	for _, part := range all[1].parts {
		_, _ = deletion.UnmarshalBlob(part, 9)
	}
	for i, part := range all[2].parts {
		if column, err := decodeColumn(testTypes[i], 9, part); err == nil {
			_ = column.String() // visits every value
		}
	}
}

// Any bytes give an array whose every value can be read, or an error.
func FuzzColumn(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for i, dt := range testTypes {
		for _, rows := range []int{0, 3, 70} {
			encoded, err := encodeColumn(dt, randomArray(rnd, dt, rows, rows > 3))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), uint16(rows), joined(encoded))
		}
	}
	f.Fuzz(func(t *testing.T, typ uint8, rows uint16, in []byte) {
		dt := testTypes[int(typ)%len(testTypes)]
		body := alignedBytes(len(in))
		copy(body, in)
		got, err := decodeColumn(dt, int(rows), body)
		if err != nil {
			return
		}
		_ = got.String()
		again, err := encodeColumn(dt, got)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeColumn(dt, got.Len(), joined(again))
		if err != nil || !array.ApproxEqual(got, back, array.WithNaNsEqual(true)) {
			t.Errorf("%v became %v, %v", got, back, err)
		}
	})
}
