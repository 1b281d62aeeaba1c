package readstate

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// A connection that ends gives back everything it pinned, and releases after Close do nothing.
func TestLostConnectionReleases(t *testing.T) {
	provider := newFakeProvider()
	server, dir := startServer(t, provider, ServerConfig{})
	client := dial(t, dir)
	states := []*State{mustPin(t, client, PinRequest{}), mustPin(t, client, PinRequest{}), mustPin(t, client, PinRequest{})}
	states[0].Release()
	receive(t, provider.released, "the release")
	if open := server.Stats().OpenStates; open != 2 {
		t.Errorf("%d states are open, want 2", open)
	}
	client.conn.Close() // as if the process had died
	receive(t, provider.released, "a release by the server")
	receive(t, provider.released, "a release by the server")
	receive(t, client.Done(), "the client to notice")
	if _, err := client.Pin(context.Background(), PinRequest{}); !errors.Is(err, ErrLost) {
		t.Errorf("a pin over a lost connection gave %v", err)
	}
	if err := states[1].Lost(); !errors.Is(err, ErrLost) {
		t.Errorf("a state over a lost connection: %v", err)
	}
	client.Close()
	client.Close()
	states[0].Release()
	states[1].Release()
}

// A pin or call that waits ends when its context ends, when its connection ends, and when the server ends.
func TestWaitingEnds(t *testing.T) {
	provider := newFakeProvider()
	_, dir := startServer(t, provider, ServerConfig{})
	client := dial(t, dir)
	start := func(ctx context.Context, f func(context.Context) error) chan error {
		result := make(chan error, 1)
		go func() { result <- f(ctx) }()
		receive(t, provider.waiting, "the wait to begin")
		return result
	}
	pin := func(ctx context.Context) error {
		_, err := client.Pin(ctx, PinRequest{WaitLSN: 9})
		return err
	}
	call := func(ctx context.Context) error {
		_, err := client.Call(ctx, "block", nil, nil)
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	results := []chan error{start(ctx, pin), start(ctx, call)}
	cancel()
	for _, result := range results {
		if err := receive(t, result, "a cancelled request"); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled request gave %v", err)
		}
	}
	receive(t, provider.released, "the call to end in the server")

	results = []chan error{start(context.Background(), pin), start(context.Background(), call)}
	client.Close()
	for _, result := range results {
		if err := receive(t, result, "a request of a closed client"); !errors.Is(err, ErrClosed) {
			t.Errorf("a request of a closed client gave %v", err)
		}
	}
	receive(t, provider.released, "the call to end in the server")

	client = dial(t, dir)
	start(context.Background(), pin) // the test's end stops the server under it
}

// A state that was pinned although its caller had given up is released.
func TestLatePinIsReleased(t *testing.T) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	go func() {
		w := bufio.NewWriter(theirs)
		if _, _, err := readHello(theirs); err == nil {
			_ = writeHello(w, Version, hello{MaxInFlight: 1})
		}
	}()
	client, err := NewClient(context.Background(), ours, ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() {
		_, err := client.Pin(ctx, PinRequest{})
		result <- err
	}()
	next := func(op string) request {
		header, _, err := readFrame(theirs, maxArgs)
		if err != nil {
			t.Fatal(err)
		}
		req, err := parseRequest(header)
		if err != nil || req.Op != op {
			t.Fatalf("request %+v, %v, want %s", req, err, op)
		}
		return req
	}
	pin := next(opPin)
	cancel()
	if err := receive(t, result, "the pin to end"); !errors.Is(err, context.Canceled) {
		t.Errorf("the pin ended with %v", err)
	}
	if target := next(opCancel).Target; target != pin.ID {
		t.Errorf("cancelled %d, want %d", target, pin.ID)
	}
	if err := writeFrame(bufio.NewWriter(theirs), answer{ID: pin.ID, Kind: kindDone, State: 77}, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if state := next(opRelease).State; state != 77 {
		t.Errorf("released %d, want 77", state)
	}
}

// Errors keep their meaning over the socket.
func TestTimeoutKeepsItsMeaning(t *testing.T) {
	err := error(&RemoteError{Code: errorCode(context.DeadlineExceeded)})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Error("a timeout is not seen as one")
	}
	if errors.Is(&RemoteError{Code: errorCode(io.EOF)}, context.DeadlineExceeded) {
		t.Error("another error is seen as a timeout")
	}
}

// Each side tells clearly when the other speaks another version.
func TestVersionMismatch(t *testing.T) {
	_, dir := startServer(t, newFakeProvider(), ServerConfig{})
	conn := dialRaw(t, dir)
	if err := writeHello(bufio.NewWriter(conn), Version+1, hello{}); err != nil {
		t.Fatal(err)
	}
	version, theirs, err := readHello(conn)
	if err != nil || version != Version || theirs.Error != "client speaks version 2, this pgmirror speaks 1" {
		t.Errorf("the server answered version %d, %+v, %v", version, theirs, err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the refusal came %v", err)
	}

	ours, other := net.Pipe()
	defer other.Close()
	go func() {
		if _, _, err := readHello(other); err == nil {
			_ = writeHello(bufio.NewWriter(other), Version+1, hello{MaxInFlight: 1, Error: "client speaks version 1"})
		}
	}()
	if _, err := NewClient(context.Background(), ours, ClientConfig{}); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "speaks 2") {
		t.Errorf("a newer server gave %v", err)
	}
}

// A greeting that never comes ends with its context.
func TestSilentServer(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go io.Copy(io.Discard, theirs)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := NewClient(ctx, ours, ClientConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a silent server gave %v", err)
	}
}

// A client that says nothing is let go.
func TestSilentClient(t *testing.T) {
	_, dir := startServer(t, newFakeProvider(), ServerConfig{HelloTimeout: time.Millisecond})
	if _, err := dialRaw(t, dir).Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a silent client read %v", err)
	}
}

// Bytes that break the protocol end their own connection, give back its pins, and leave other clients alone.
func TestHostileBytesEndTheirConnection(t *testing.T) {
	frame := func(headerLen uint32, bodyLen uint64, rest string) string {
		return string(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, headerLen), bodyLen)) + rest
	}
	text := func(header string) string { return frame(uint32(len(header)), 0, header) }
	for name, bytes := range map[string]string{
		"huge header":     frame(1<<31, 0, ""),
		"empty header":    frame(0, 0, ""),
		"huge body":       frame(2, 1<<62, "{}"),
		"no JSON":         text("{"),
		"no operation":    text(`{"id":1}`),
		"no id":           text(`{"op":"pin"}`),
		"id on a release": text(`{"op":"release","id":4}`),
		"id in use":       text(`{"op":"pin","id":4,"wait_lsn":"0/9"}`) + text(`{"op":"pin","id":4,"wait_lsn":"0/9"}`),
		"bad LSN":         text(`{"op":"pin","id":4,"at":"0/9 "}`),
		"too many":        text(`{"op":"call","command":"block","id":4}`) + text(`{"op":"call","command":"block","id":5}`) + text(`{"op":"call","command":"block","id":6}`),
	} {
		t.Run(name, func(t *testing.T) {
			provider := newFakeProvider()
			_, dir := startServer(t, provider, ServerConfig{MaxInFlight: 2})
			bystander := dial(t, dir)
			conn := dialRaw(t, dir)
			if err := writeHello(bufio.NewWriter(conn), Version, hello{}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := readHello(conn); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte(text(`{"op":"pin","id":1}`))); err != nil {
				t.Fatal(err)
			}
			if _, _, err := readFrame(conn, maxAnswer); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte(bytes)); err != nil {
				t.Fatal(err)
			}
			receive(t, provider.released, "the pin to be released")
			if _, err := bystander.Status(context.Background()); err != nil {
				t.Errorf("another client's request gave %v", err)
			}
		})
	}
}

// Requests that make no sense are answered with an error and leave the connection alone.
func TestSenselessRequestsAreAnswered(t *testing.T) {
	table := newFakeTable(rand.New(rand.NewPCG(1, 1)), "a", testTypes[:2], 10)
	_, dir := startServer(t, newFakeProvider(table), ServerConfig{})
	client := dial(t, dir)
	state := mustPin(t, client, PinRequest{})
	defer state.Release()
	id := table.batches[0].id
	for _, req := range []request{
		{Op: "dance"},
		{Op: opPin, TimeoutUS: -1},
		{Op: opPin, TimeoutUS: 1 << 62},
		{Op: opVectors, State: 1, Vectors: []uint64{1 << 60}},
		{Op: opSchemas, State: 9, Tables: []int{0}},
		{Op: opSchemas, State: 1, Tables: []int{-1}},
		{Op: opSchemas, State: 1, Tables: []int{1}}, // a table that is still being copied
		{Op: opSchemas, State: 1, Tables: []int{2}},
		{Op: opVectors, State: 9, Vectors: []uint64{1}},
		{Op: opColumns, State: 9, Batch: id},
		{Op: opColumns, State: 1, Batch: id + 1},
		{Op: opColumns, State: 1, Batch: id, Columns: []int{2}, To: 10},
		{Op: opColumns, State: 1, Batch: id, Columns: []int{-1}, To: 10},
		{Op: opColumns, State: 1, Batch: id, Columns: []int{0}, To: 11},
		{Op: opColumns, State: 1, Batch: id, Columns: []int{0}, From: 5, To: 4},
		{Op: opColumns, State: 1, Batch: id, Columns: []int{0}, From: -1, To: 4},
		{Op: opColumns, State: 1, Batch: id, Columns: make([]int, maxColumns+1), To: 4},
	} {
		var remote *RemoteError
		if _, err := client.do(context.Background(), req, nil, nil); !errors.As(err, &remote) {
			t.Errorf("%+v gave %v", req, err)
		}
	}
	if _, err := client.Status(context.Background()); err != nil {
		t.Error(err)
	}
}

// The bounds on connections and pins hold and are told.
func TestBounds(t *testing.T) {
	_, dir := startServer(t, newFakeProvider(), ServerConfig{MaxConnections: 2, MaxPins: 1})
	one := dial(t, dir)
	dial(t, dir)
	if _, err := Dial(context.Background(), dir); err == nil || !strings.Contains(err.Error(), "2 clients are connected already") {
		t.Errorf("a third client got %v", err)
	}
	state := mustPin(t, one, PinRequest{})
	if _, err := one.Pin(context.Background(), PinRequest{}); err == nil || !strings.Contains(err.Error(), "holds 1 read states already") {
		t.Errorf("a second pin gave %v", err)
	}
	state.Release()
	mustPin(t, one, PinRequest{})
}

// More requests than the server takes at once wait for their turn in the client.
func TestRequestsQueue(t *testing.T) {
	provider := newFakeProvider()
	_, dir := startServer(t, provider, ServerConfig{MaxInFlight: 2})
	client := dial(t, dir)
	results := make(chan error, 50)
	for range cap(results) {
		go func() {
			_, err := client.Pin(context.Background(), PinRequest{WaitLSN: 3})
			results <- err
		}()
	}
	receive(t, provider.waiting, "the first pin")
	receive(t, provider.waiting, "the second pin")
	close(provider.reached)
	for range cap(results) {
		if err := receive(t, results, "a pin"); err != nil {
			t.Fatal(err)
		}
	}
}

// A client that asks and does not read is cut off; its pins are released.
func TestStalledClientIsCutOff(t *testing.T) {
	table := newFakeTable(rand.New(rand.NewPCG(1, 1)), "a", []arrow.DataType{&arrow.FixedSizeBinaryType{ByteWidth: 16}}, 200_000)
	provider := newFakeProvider(table)
	_, dir := startServer(t, provider, ServerConfig{WriteStall: 50 * time.Millisecond})
	client := dial(t, dir)
	mustPin(t, client, PinRequest{})
	client.mu.Lock() // the client's reader stops at the next answer
	w := bufio.NewWriter(client.conn)
	for id := range uint64(4) {
		if err := writeFrame(w, request{ID: 100 + id, Op: opColumns, State: 1, Batch: table.batches[0].id, Columns: []int{0}, To: 200_000}); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, provider.released, "the pin to be released")
	client.mu.Unlock()
}

// A panic in a request that only reads is that client's error; the server and the connection go on.
func TestPanicIsAnError(t *testing.T) {
	provider := newFakeProvider()
	provider.faulty.Store(true)
	_, dir := startServer(t, provider, ServerConfig{})
	client := dial(t, dir)
	if _, err := client.Status(context.Background()); err == nil || !strings.Contains(err.Error(), "planted") {
		t.Errorf("the error is %v", err)
	}
	mustPin(t, client, PinRequest{}).Release()
}

// The states of a client that is gone are released although a command of it goes on.
func TestStatesEndBeforeCommands(t *testing.T) {
	p := newFakeProvider()
	server, socket := startServer(t, p, ServerConfig{})
	client := dial(t, socket)
	mustPin(t, client, PinRequest{})
	go func() { _, _ = client.Call(context.Background(), "stay", nil, nil) }()
	receive(t, p.waiting, "the command to begin")
	client.Close()
	receive(t, p.released, "the state's release")
	if stats := server.Stats(); stats.Connections != 1 || stats.OpenStates != 0 {
		t.Errorf("while the command goes on: %+v", stats)
	}
	close(p.reached)
	until(t, "the connection's end", func() bool { return server.Stats().Connections == 0 })
}
