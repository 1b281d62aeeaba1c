package readstate

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"pgmirror/deletion"
)

var (
	soakClients = flag.Int("soak.clients", 8, "clients of TestManyStates")
	soakStates  = flag.Int("soak.states", 1000, "read states of TestManyStates, over all clients")
)

// settling is a server whose states settle at once, and its directory of files.
func settling(t testing.TB, p *fakeProvider, most int64) (server *Server, socket, dir string) {
	dir = filepath.Join(t.TempDir(), "reads")
	server, socket = startServer(t, p, ServerConfig{Dir: dir, Limit: time.Nanosecond, MaxBytes: most})
	return server, socket, dir
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(wait); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
	}
}

func filesIn(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// sameRows compares what a client's state shows with what its provider gave out.
func sameRows(got, want *State) error {
	for i, table := range want.Tables {
		mine, err := got.Tables[i].Complete(context.Background())
		if err != nil {
			return err
		}
		if mine.Err != table.Err || len(mine.Files) != len(table.Files) || len(mine.Batches) != len(table.Batches) {
			return fmt.Errorf("table %s has %d files and %d batches (%s), want %d and %d", table.Name, len(mine.Files), len(mine.Batches), mine.Err, len(table.Files), len(table.Batches))
		}
		for j, f := range table.Files {
			if !mine.Files[j].Deleted.Equal(f.Deleted) || mine.Files[j].Path != f.Path {
				return fmt.Errorf("file %d of table %s differs", j, table.Name)
			}
		}
		for j, b := range table.Batches {
			if !mine.Batches[j].Deleted.Equal(b.Deleted) || mine.Batches[j].Rows != b.Rows {
				return fmt.Errorf("batch %d of table %s differs", j, table.Name)
			}
			for c := range table.Schema.Fields() {
				from := b.Rows / 3
				x, err := mine.Batches[j].Columns.Read([]int{c}, from, b.Rows)
				if err != nil {
					return err
				}
				y, err := b.Columns.Read([]int{c}, from, b.Rows)
				if err != nil {
					return err
				}
				if !array.Equal(x[0], y[0]) {
					return fmt.Errorf("column %d of batch %d of table %s: %v, want %v", c, j, table.Name, x[0], y[0])
				}
			}
		}
	}
	return nil
}

// copyOf is a state that stays as it is when the server settles the other.
func copyOf(s *State) *State {
	out := *s
	out.Tables = nil
	for _, t := range s.Tables {
		table := *t
		out.Tables = append(out.Tables, &table)
	}
	return &out
}

// A state older than the limit gives its LSN up and shows the same rows from its file, which goes with its release or its connection.
func TestSettledStateShowsTheSame(t *testing.T) {
	for seed := range uint64(10) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		p := newFakeProvider(newFakeTable(rnd, "a", testTypes, 1+rnd.IntN(300), 1+rnd.IntN(300)), newFakeTable(rnd, "b", testTypes[:3]), newFakeTable(rnd, "c", testTypes, 0))
		var gaveUp atomic.Int64
		p.settled = func() { gaveUp.Add(1) }
		server, socket, dir := settling(t, p, 0)
		client := dialWithCache(t, socket, 1) // nothing stays with the client
		first, second := mustPin(t, client, PinRequest{VectorsLater: true}), mustPin(t, client, PinRequest{VectorsLater: true})
		until(t, "both states to settle", func() bool { return server.Stats().Settled == 2 })
		if n := gaveUp.Load(); n != 2 || len(filesIn(t, dir)) != 2 {
			t.Fatalf("%d states gave their LSN up, the files are %v", n, filesIn(t, dir))
		}
		p.mu.Lock()
		want := p.copies[0]
		p.mu.Unlock()
		if err := sameRows(first, want); err != nil {
			t.Fatal(err)
		}
		first.Release()
		until(t, "the file of a released state to go", func() bool { return len(filesIn(t, dir)) == 1 })
		if err := sameRows(second, want); err != nil {
			t.Fatal(err)
		}
		client.Close()
		until(t, "the file of a lost connection to go", func() bool { return len(filesIn(t, dir)) == 0 })
		if stats := server.Stats(); stats.Settled != 0 || stats.SettledBytes != 0 || p.open.Load() != 0 {
			t.Errorf("%+v, %d states open at the provider", stats, p.open.Load())
		}
	}
}

// What a killed life left behind is removed at the start, and nothing else.
func TestSettledLeftOvers(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{settledPrefix + "1", settledPrefix + "2", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, socket := startServer(t, newFakeProvider(), ServerConfig{Dir: dir})
	dial(t, socket)
	if names := filesIn(t, dir); !slices.Equal(names, []string{"other"}) {
		t.Errorf("left are %v", names)
	}
}

// A settled state whose file was damaged gives an error and no rows.
func TestSettledDamage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 7))
	p := newFakeProvider(newFakeTable(rnd, "a", testTypes, 200))
	server, socket, dir := settling(t, p, 0)
	state := mustPin(t, dial(t, socket), PinRequest{VectorsLater: true})
	until(t, "the state to settle", func() bool { return server.Stats().Settled == 1 })
	path := filepath.Join(dir, filesIn(t, dir)[0])
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] ^= 1
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	want := p.copies[0]
	p.mu.Unlock()
	if err := sameRows(state, want); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged file gave %v", err)
	}
}

// A state that holds more than it may is ended, whether its own file or the files kept for it are too much, and its client hears why without asking.
func TestStateThatHoldsTooMuchEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		most int64
		kept int64
		says string
	}{{"its own file", 100, 0, "rows in memory"}, {"files kept for it", 1 << 30, 1 << 30, "alone"}} {
		t.Run(c.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(3, 7))
			p := newFakeProvider(newFakeTable(rnd, "a", testTypes, 300))
			p.kept = func() map[string]int64 { return map[string]int64{"/w/a/1.parquet": c.kept} }
			server, socket, dir := settling(t, p, c.most)
			state := mustPin(t, dial(t, socket), PinRequest{VectorsLater: true})
			until(t, "the state to end", func() bool { return state.Ended() != nil })
			if err := state.Ended(); !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), "read_state_bytes") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it ended by %v", err)
			}
			if _, err := state.Tables[0].Complete(context.Background()); len(state.Tables[0].Files)+len(state.Tables[0].Batches) == 0 && !errors.Is(err, ErrEnded) {
				t.Errorf("a table of it gave %v", err)
			}
			until(t, "its files to go", func() bool { return len(filesIn(t, dir)) == 0 && p.open.Load() == 0 })
			if stats := server.Stats(); stats.Ended != 1 || stats.Settled != 0 || stats.SettledBytes != 0 {
				t.Errorf("%+v", stats)
			}
			state.Release()
			if err := state.Ended(); !errors.Is(err, ErrEnded) {
				t.Errorf("after its release it ended by %v", err)
			}
		})
	}
}

// What all settled states hold together is bounded. The client that holds the most loses its oldest state; a file that several states need counts once.
func TestStatesThatHoldTooMuchTogether(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 7))
	p := newFakeProvider(newFakeTable(rnd, "a", testTypes, 300))
	server, socket, dir := settling(t, p, 0)
	one, many := dial(t, socket), dial(t, socket)
	first := mustPin(t, one, PinRequest{VectorsLater: true})
	until(t, "the first state to settle", func() bool { return server.Stats().Settled == 1 })
	size := server.Stats().SettledBytes
	first.Release()
	one.Close()
	many.Close()

	const shared = 10_000
	p.kept = func() map[string]int64 { return map[string]int64{"/w/a/1.parquet": shared} }
	server, socket, dir = settling(t, p, shared+5*size)
	one, many = dial(t, socket), dial(t, socket)
	only := mustPin(t, one, PinRequest{VectorsLater: true})
	states := make([]*State, 20)
	for i := range states {
		states[i] = mustPin(t, many, PinRequest{VectorsLater: true})
	}
	until(t, "all but five states to end", func() bool { return server.Stats().Ended == 16 && server.Stats().Settled == 5 })
	if only.Ended() != nil {
		t.Errorf("the only state of a client ended: %v", only.Ended())
	}
	for i, state := range states {
		until(t, "the client to hear", func() bool { return i >= 16 || state.Ended() != nil })
		if err := state.Ended(); (err != nil) != (i < 16) || err != nil && !strings.Contains(err.Error(), "together (read_state_bytes)") {
			t.Errorf("state %d ended by %v", i, err)
		}
	}
	if names := filesIn(t, dir); len(names) != 5 {
		t.Errorf("left are %v", names)
	}
}

// States that weigh too much settle before the limit, the oldest first, until they do not.
func TestStatesThatWeighSettle(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 7))
	p := newFakeProvider(newFakeTable(rnd, "a", testTypes, 300))
	var settled atomic.Int64
	p.settled = func() { settled.Add(1) }
	dir := filepath.Join(t.TempDir(), "reads")
	limit := 16 * time.Hour
	server := NewServer(p, slog.New(slog.DiscardHandler), ServerConfig{Dir: dir, Limit: limit, Weigh: func() bool { return settled.Load() < 2 }})
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	session := newSession(server, nil)
	now := time.Now()
	for i, age := range []time.Duration{0, time.Minute, 2 * time.Minute} {
		state, err := p.Pin(t.Context(), PinRequest{})
		if err != nil {
			t.Fatal(err)
		}
		state.Pinned = now.Add(-age)
		held := newPin(state)
		held.session, held.id = session, uint64(i)
		session.pins[held.id] = held
		server.watch(held)
	}
	server.settleOld(t.Context())
	for id, held := range session.pins {
		if got := held.settled != nil; got != (id > 0) {
			t.Errorf("state %d has settled: %v", id, got)
		}
	}
	session.releaseAll()
	if names := filesIn(t, dir); len(names) != 0 || server.counters.settled.Load() != 0 {
		t.Errorf("left are %v", names)
	}
}

// While the disk is short of space a state is not written to it, and goes on holding its LSN.
func TestNothingSettlesWithoutRoom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 7))
	p := newFakeProvider(newFakeTable(rnd, "a", testTypes, 300))
	var short atomic.Bool
	asked := make(chan struct{}, 100)
	paused := func() string {
		select {
		case asked <- struct{}{}:
		default:
		}
		if short.Load() {
			return "too little is free"
		}
		return ""
	}
	short.Store(true)
	dir := filepath.Join(t.TempDir(), "reads")
	server, socket := startServer(t, p, ServerConfig{Dir: dir, Limit: time.Nanosecond, Paused: paused})
	state := mustPin(t, dial(t, socket), PinRequest{VectorsLater: true})
	for range 3 {
		receive(t, asked, "a look at the disk")
	}
	if names := filesIn(t, dir); len(names) != 0 || server.Stats().Settled != 0 || state.Ended() != nil {
		t.Errorf("there are %v", names)
	}
	short.Store(false)
	until(t, "the state to settle", func() bool { return server.Stats().Settled == 1 })
}

// A client that does not know of ended states loses its connection with one.
func TestOlderClientOfAnEndedState(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 7))
	p := newFakeProvider(newFakeTable(rnd, "a", testTypes, 300))
	server, socket, _ := settling(t, p, 100)
	conn := dialRaw(t, socket)
	out := bufio.NewWriter(conn)
	if err := errors.Join(writeHello(out, Version, hello{Program: "older"}), writeFrame(out, request{ID: 1, Op: opPin})); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readHello(conn); err != nil {
		t.Fatal(err)
	}
	for {
		header, _, err := readFrame(conn, maxAnswer)
		if err != nil {
			break
		}
		if strings.Contains(string(header), kindEnded) {
			t.Fatalf("it was sent %s", header)
		}
	}
	until(t, "the state to be released", func() bool { return server.Stats().Ended == 1 && p.open.Load() == 0 })
}

// Vectors take at most 0.95 bit a row while no more than a third of the rows, anywhere, are deleted.
func TestSettledVectorsAreSmall(t *testing.T) {
	const rows = 1 << 20
	for _, percent := range []int{1, 10, 20, 33} {
		rnd := rand.New(rand.NewPCG(uint64(percent), 7))
		v := deletion.NewVector(rows)
		for row := range uint32(rows) {
			if rnd.IntN(100) < percent {
				v.Set(row)
			}
		}
		v.Freeze()
		s, err := settle(t.TempDir(), map[uint64]*deletion.Vector{v.ID(): v}, nil, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		if bits := float64(s.size) * 8 / rows; bits > 0.95 {
			t.Errorf("%d %% deleted: %.3f bits a row", percent, bits)
		} else {
			t.Logf("%d %% deleted: %.3f bits a row", percent, bits)
		}
	}
}

// Many clients, each with many states that settle, are read, released, or lost with their connection: nothing is left of them.
// A soak: go test ./readstate -run TestManyStates -soak.clients 64 -soak.states 100000 -timeout 2h
func TestManyStates(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 7))
	p := newFakeProvider(newFakeTable(rnd, "a", testTypes[:4], 50), newFakeTable(rnd, "b", testTypes[:1], 20))
	p.released = make(chan struct{}, *soakStates)
	server, socket, dir := settling(t, p, 0)
	var pinned atomic.Int64
	var clients sync.WaitGroup
	for c := range *soakClients {
		clients.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 9))
			for pinned.Load() < int64(*soakStates) && !t.Failed() {
				client, err := Dial(context.Background(), socket)
				if err != nil {
					t.Error(err)
					return
				}
				var open []*State
				for range 1 + rnd.IntN(200) {
					if pinned.Add(1) > int64(*soakStates) {
						break
					}
					state, err := client.Pin(context.Background(), PinRequest{VectorsLater: true})
					if err != nil {
						t.Error(err)
						return
					}
					if open = append(open, state); len(open) > 32 || rnd.IntN(3) == 0 {
						i := rnd.IntN(len(open))
						p.mu.Lock()
						want := p.copies[0]
						p.mu.Unlock()
						if err := sameRows(open[i], want); err != nil {
							t.Error(err)
						}
						open[i].Release()
						open = slices.Delete(open, i, i+1)
					}
				}
				client.Close() // with states open
			}
		})
	}
	clients.Wait()
	until(t, "everything to be released", func() bool { return server.Stats().OpenStates == 0 && p.open.Load() == 0 })
	until(t, "all files to go", func() bool { return len(filesIn(t, dir)) == 0 })
	server.mu.Lock()
	defer server.mu.Unlock()
	if stats := server.Stats(); stats.StatesPinned != int64(*soakStates) || stats.Settled != 0 || stats.SettledBytes != 0 || len(server.watched) != 0 {
		t.Errorf("%+v, %d are watched", stats, len(server.watched))
	}
}
