package readstate

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"pgregory.net/rapid"
)

// A state that crossed the socket equals the provider's in every part: tables, schemas, files, vectors, and any rows of any
// columns of its batches, also when the client may keep next to nothing.
func TestStateCrossesTheSocket(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	provider := newFakeProvider(newFakeTable(rnd, "a", testTypes, 100, 1, 333), newFakeTable(rnd, "b", testTypes[:3], 0, 8192), newFakeTable(rnd, "c", testTypes))
	_, dir := startServer(t, provider, ServerConfig{})
	roomy := dial(t, dir)
	tight := dialWithCache(t, dir, 1)
	rapid.Check(t, func(rt *rapid.T) {
		client := rapid.SampledFrom([]*Client{roomy, tight}).Draw(rt, "client")
		last := len(provider.tables[0].rows) - 1
		provider.tables[0].rows[last] = rapid.IntRange(0, 333).Draw(rt, "rows of the open batch")
		provider.tables[0].deleted[last] = randomVector(rnd, uint32(provider.tables[0].rows[last]))
		later := rapid.Bool().Draw(rt, "vectors later")
		got := mustPin(t, client, PinRequest{VectorsLater: later})
		defer got.Release()
		want := provider.states[len(provider.states)-1]
		for i, table := range got.Tables {
			full, err := table.Complete(t.Context())
			if err != nil || !later && full != table {
				rt.Fatalf("complete table %s: %v", table.Name, err)
			}
			got.Tables[i] = full
		}
		compareStates(rt, got, want)
		for range rapid.IntRange(0, 8).Draw(rt, "reads") {
			table := rapid.IntRange(0, 1).Draw(rt, "table")
			batch := rapid.IntRange(0, len(want.Tables[table].Batches)-1).Draw(rt, "batch")
			columns := rapid.SliceOfN(rapid.IntRange(0, want.Tables[table].Schema.NumFields()-1), 0, 5).Draw(rt, "columns")
			to := rapid.IntRange(0, want.Tables[table].Batches[batch].Rows).Draw(rt, "to")
			from := rapid.IntRange(0, to).Draw(rt, "from")
			compareReads(rt, got.Tables[table].Batches[batch], want.Tables[table].Batches[batch], columns, from, to)
		}
		if tight.cache.bytes > 1 {
			rt.Fatalf("a cache of 1 byte holds %d", tight.cache.bytes)
		}
	})
	if want := []string{"shop", "public"}; !slices.Equal(roomy.SearchPath(), want) {
		t.Errorf("search path %v, want %v", roomy.SearchPath(), want)
	}
}

func compareStates(t *rapid.T, got, want *State) {
	if got.LSN != want.LSN || !got.Pinned.Equal(want.Pinned) || len(got.Tables) != len(want.Tables) {
		t.Fatalf("state %s of %v with %d tables, want %s of %v with %d", got.LSN, got.Pinned, len(got.Tables), want.LSN, want.Pinned, len(want.Tables))
	}
	for i, w := range want.Tables {
		g, ok := got.Table(w.Name)
		if !ok || g != got.Tables[i] || g.Err != w.Err || (g.Schema == nil) != (w.Schema == nil) {
			t.Fatalf("table %v, want %v", g, w)
		}
		if w.Schema != nil && (!g.Schema.Equal(w.Schema) || g.Schema.String() != w.Schema.String()) {
			t.Fatalf("schema %s, want %s", g.Schema, w.Schema)
		}
		for j, file := range w.Files {
			gf := g.Files[j]
			if !gf.Deleted.Equal(file.Deleted) || gf.Deleted.Rows() != file.Deleted.Rows() {
				t.Fatalf("file %s has another vector", file.Path)
			}
			if gf.Deleted = file.Deleted; gf != file {
				t.Fatalf("file %+v, want %+v", gf, file)
			}
		}
		for j, batch := range w.Batches {
			gb := g.Batches[j]
			if gb.Sealed != batch.Sealed || gb.Rows != batch.Rows || !gb.Deleted.Equal(batch.Deleted) || gb.Deleted.Rows() != batch.Deleted.Rows() {
				t.Fatalf("batch %+v, want %+v", gb, batch)
			}
		}
		if len(g.Files) != len(w.Files) || len(g.Batches) != len(w.Batches) {
			t.Fatalf("%d files and %d batches, want %d and %d", len(g.Files), len(g.Batches), len(w.Files), len(w.Batches))
		}
	}
}

func compareReads(t rapid.TB, got, want Batch, columns []int, from, to int) {
	t.Helper()
	g, err := got.Columns.Read(columns, from, to)
	if err != nil {
		t.Fatal(err)
	}
	w, err := want.Columns.Read(columns, from, to)
	if err != nil {
		t.Fatal(err)
	}
	if len(g) != len(w) {
		t.Fatalf("%d arrays, want %d", len(g), len(w))
	}
	for i := range w {
		if !arrow.TypeEqual(g[i].DataType(), w[i].DataType(), arrow.CheckMetadata()) || !array.Equal(g[i], w[i]) {
			t.Fatalf("column %d, rows %d to %d: %v, want %v", columns[i], from, to, g[i], w[i])
		}
	}
}

// A scan moves only the columns it asks for; repeated over the same batches it moves no bytes, and over an open batch that
// grew only the new rows. Arrays handed out before stay as they were.
func TestRepeatedScanMovesOnlyNewRows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	table := newFakeTable(rnd, "a", testTypes, 1000, 1000)
	server, dir := startServer(t, newFakeProvider(table), ServerConfig{})
	client := dial(t, dir)
	all := make([]int, len(testTypes))
	for i := range all {
		all[i] = i
	}
	scan := func(state *State, columns []int) [][]arrow.Array {
		var out [][]arrow.Array
		for _, batch := range state.Tables[0].Batches {
			arrays, err := batch.Columns.Read(columns, 0, batch.Rows)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, arrays)
		}
		return out
	}
	moved := func(what string, f func()) (columns, bytes int64) {
		t.Helper()
		before := server.Stats()
		f()
		after := server.Stats()
		t.Logf("%s: %d columns, %d bytes", what, after.Columns-before.Columns, after.ColumnBytes-before.ColumnBytes)
		return after.Columns - before.Columns, after.ColumnBytes - before.ColumnBytes
	}

	table.rows[1] = 10
	state := mustPin(t, client, PinRequest{})
	if columns, bytes := moved("two int64 columns", func() { scan(state, []int{2, 2, 4}) }); columns != 4 || bytes < 2*8*1010 || bytes > 2*8*1010*12/10 {
		t.Errorf("two columns of 1010 rows in two batches moved %d columns and %d bytes", columns, bytes)
	}
	first := map[int][][]arrow.Array{}
	_, whole := moved("all columns", func() { first[10] = scan(state, all) })
	if _, bytes := moved("again", func() { scan(state, all) }); bytes != 0 {
		t.Errorf("a repeated scan moved %d bytes", bytes)
	}
	for _, rows := range []int{11, 40, 41, 600, 1000} {
		table.rows[1] = rows
		state.Release()
		state = mustPin(t, client, PinRequest{})
		_, bytes := moved("grown", func() { first[rows] = scan(state, all) })
		if rows < 50 && bytes > whole/5 {
			t.Errorf("growing to %d rows moved %d bytes, all of the first 1010 rows took %d", rows, bytes, whole)
		}
		if _, bytes := moved("again", func() { scan(state, all) }); bytes != 0 {
			t.Errorf("a repeated scan moved %d bytes", bytes)
		}
	}
	state.Release()
	for rows, scans := range first {
		for i, batchRows := range []int{1000, rows} {
			for column, got := range scans[i] {
				if want := array.NewSlice(table.batches[i].columns[column], 0, int64(batchRows)); !array.Equal(got, want) {
					t.Errorf("column %d of batch %d at %d rows has changed", column, i, rows)
				}
			}
		}
	}
}

// A vector and a schema are sent once however many states name them, and are the same value in all of them.
func TestVectorsAndSchemasAreSentOnce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	table := newFakeTable(rnd, "a", testTypes[:1], 10)
	for table.deleted[0] == nil {
		table.deleted[0] = randomVector(rnd, 10)
	}
	table.files = nil
	server, dir := startServer(t, newFakeProvider(table), ServerConfig{})
	client := dial(t, dir)
	one, two := mustPin(t, client, PinRequest{}), mustPin(t, client, PinRequest{})
	if one.Tables[0].Batches[0].Deleted != two.Tables[0].Batches[0].Deleted || server.Stats().Vectors != 1 {
		t.Errorf("%d vectors were sent for one", server.Stats().Vectors)
	}
	if one.Tables[0].Schema != two.Tables[0].Schema {
		t.Error("an unchanged schema was sent twice")
	}
	if one.Tables[0].Batches[0].ID != two.Tables[0].Batches[0].ID {
		t.Error("a batch has two IDs")
	}
	if _, err := one.Tables[0].Batches[0].Columns.Read([]int{0}, 0, 1); err != nil { // from the cache from now on
		t.Error(err)
	}
	one.Release()
	one.Release()
	if _, err := one.Tables[0].Batches[0].Columns.Read([]int{0}, 0, 1); !errors.Is(err, ErrReleased) {
		t.Errorf("a read after the release gave %v", err)
	}
	two.Release()
}

// With VectorsLater a pin brings no vector, a table says so instead of showing too many rows, and completing it brings its own ones
// once; what the client has then, the next pin's table has from the beginning.
func TestVectorsLater(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	a, b := newFakeTable(rnd, "a", testTypes[:1], 10), newFakeTable(rnd, "b", testTypes[:1], 10)
	for _, table := range []*fakeTable{a, b} {
		table.files = nil
		for table.deleted[0] == nil {
			table.deleted[0] = randomVector(rnd, 10)
		}
	}
	server, dir := startServer(t, newFakeProvider(a, b), ServerConfig{})
	client := dial(t, dir)
	later := PinRequest{VectorsLater: true}
	state := mustPin(t, client, later)
	if sent := server.Stats().Vectors; sent != 0 {
		t.Errorf("a pin sent %d vectors", sent)
	}
	for _, table := range state.Tables {
		if table.Err == "" || table.Files != nil || table.Batches != nil {
			t.Errorf("table %s looks complete: %+v", table.Name, table)
		}
	}
	for range 2 {
		full, err := state.Tables[1].Complete(t.Context())
		if err != nil || full.Err != "" || !full.Batches[0].Deleted.Equal(b.deleted[0]) || server.Stats().Vectors != 1 {
			t.Fatalf("completed to %+v, %v, with %d vectors sent", full, err, server.Stats().Vectors)
		}
	}
	next := mustPin(t, client, later)
	if next.Tables[0].Err == "" || next.Tables[1].Err != "" || !next.Tables[1].Batches[0].Deleted.Equal(b.deleted[0]) || server.Stats().Vectors != 1 {
		t.Errorf("the next pin gave %+v and %+v, with %d vectors sent", next.Tables[0], next.Tables[1], server.Stats().Vectors)
	}
	next.Release()
	state.Release()
	if _, err := state.Tables[0].Complete(t.Context()); !errors.Is(err, ErrReleased) {
		t.Errorf("completing a table after the release gave %v", err)
	}
}

// The same column is fetched once under two schemas that differ only in names and order, and again once its type differs.
func TestColumnsAreCachedByFieldID(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	table := newFakeTable(rnd, "a", []arrow.DataType{arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String}, 50)
	old := table.schema
	server, dir := startServer(t, newFakeProvider(table), ServerConfig{})
	client := dial(t, dir)
	state := mustPin(t, client, PinRequest{})
	compareReads(t, state.Tables[0].Batches[0], Batch{Columns: table.batches[0]}, []int{0, 1}, 0, 50)
	state.Release()

	a, b := old.Field(0), old.Field(1)
	a.Name, b.Name = b.Name, a.Name
	table.schema = arrow.NewSchema([]arrow.Field{b, a}, nil)
	slices.Reverse(table.batches[0].columns)
	state = mustPin(t, client, PinRequest{})
	compareReads(t, state.Tables[0].Batches[0], Batch{Columns: table.batches[0]}, []int{0, 1}, 0, 50)
	state.Release()
	if sent := server.Stats().Columns; sent != 2 {
		t.Errorf("%d columns were sent for 2", sent)
	}

	a.Type = arrow.PrimitiveTypes.Int64
	table.schema = arrow.NewSchema([]arrow.Field{b, a}, nil)
	table.batches[0].columns[1] = randomArray(rnd, a.Type, 50, true)
	state = mustPin(t, client, PinRequest{})
	compareReads(t, state.Tables[0].Batches[0], Batch{Columns: table.batches[0]}, []int{1, 0}, 0, 50)
	state.Release()
	if sent := server.Stats().Columns; sent != 3 {
		t.Errorf("%d columns were sent for 3", sent)
	}
}

// What no open or recent state names leaves the cache, and before the rest when room is short.
func TestOldBatchesLeaveTheCacheFirst(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	table := newFakeTable(rnd, "a", []arrow.DataType{arrow.PrimitiveTypes.Int64}, 100, 100)
	server, dir := startServer(t, newFakeProvider(table), ServerConfig{})
	client := dial(t, dir)
	read := func(batch int) {
		t.Helper()
		state := mustPin(t, client, PinRequest{})
		defer state.Release()
		if _, err := state.Tables[0].Batches[batch].Columns.Read([]int{0}, 0, 100); err != nil {
			t.Fatal(err)
		}
	}
	read(0)
	read(1)
	old := table.batches[0]
	table.batches, table.rows, table.deleted = table.batches[1:], table.rows[1:], table.deleted[1:]
	for range recentPins {
		read(0)
	}
	if _, kept := client.cache.batches[old.id]; kept {
		t.Errorf("a batch is kept that the last %d states did not name", recentPins)
	}
	if sent := server.Stats().Columns; sent != 2 || len(client.cache.batches) != 1 {
		t.Errorf("%d columns were sent for 2, %d batches are kept", sent, len(client.cache.batches))
	}
}

// Room for two batches keeps the two read last.
func TestCacheKeepsWhatWasReadLast(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 14))
	table := newFakeTable(rnd, "a", []arrow.DataType{arrow.PrimitiveTypes.Int64}, 1024, 1024, 1024)
	server, dir := startServer(t, newFakeProvider(table), ServerConfig{})
	client := dialWithCache(t, dir, 2*9*1024)
	state := mustPin(t, client, PinRequest{})
	defer state.Release()
	for i, step := range []struct{ batch, sent int64 }{{0, 1}, {1, 2}, {0, 2}, {2, 3}, {0, 3}, {2, 3}, {1, 4}, {2, 4}, {0, 5}} {
		if _, err := state.Tables[0].Batches[step.batch].Columns.Read([]int{0}, 0, 1024); err != nil {
			t.Fatal(err)
		}
		if sent := server.Stats().Columns; sent != step.sent {
			t.Errorf("after read %d %d columns were sent, want %d", i, sent, step.sent)
		}
	}
}

// Goroutines that read the same columns at the same time cause one fetch.
func TestConcurrentReadsFetchOnce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(15, 16))
	table := newFakeTable(rnd, "a", testTypes, 500)
	server, dir := startServer(t, newFakeProvider(table), ServerConfig{})
	client := dial(t, dir)
	state := mustPin(t, client, PinRequest{})
	defer state.Release()
	var running sync.WaitGroup
	for i := range 16 {
		running.Go(func() {
			columns := rand.New(rand.NewPCG(uint64(i), 0)).Perm(len(testTypes))
			compareReads(failer{t}, state.Tables[0].Batches[0], Batch{Columns: table.batches[0]}, columns, i, 500-i)
		})
	}
	running.Wait()
	if sent := server.Stats().Columns; sent != int64(len(testTypes)) {
		t.Errorf("%d columns were sent for %d", sent, len(testTypes))
	}
}

// Many clients, each with several goroutines, pin, read and release at once; every read is right.
func TestManyClients(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	provider := newFakeProvider(newFakeTable(rnd, "a", testTypes, 200, 300))
	server, dir := startServer(t, provider, ServerConfig{})
	const clients = 64
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			client, err := Dial(context.Background(), dir)
			if err != nil {
				t.Error(err)
				return
			}
			defer client.Close()
			var threads sync.WaitGroup
			for thread := range 3 {
				threads.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(i), uint64(thread)))
					for range 4 {
						state, err := client.Pin(context.Background(), PinRequest{})
						if err != nil {
							t.Error(err)
							return
						}
						for b, batch := range state.Tables[0].Batches {
							columns := rnd.Perm(len(testTypes))[:6]
							compareReads(failer{t}, batch, Batch{Columns: provider.tables[0].batches[b]}, columns, 0, 1+rnd.IntN(batch.Rows))
						}
						if rnd.IntN(3) > 0 { // the others are left to Close
							state.Release()
						}
					}
				})
			}
			threads.Wait()
		})
	}
	running.Wait()
	for range clients * 3 * 4 {
		receive(t, provider.released, "a release")
	}
	if open := server.Stats().OpenStates; open != 0 {
		t.Errorf("%d states are open", open)
	}
}

// failer lets a goroutine that is not the test's report.
type failer struct{ *testing.T }

func (f failer) Fatal(args ...any)                 { f.Error(args...) }
func (f failer) Fatalf(format string, args ...any) { f.Errorf(format, args...) }

// Status and Call carry bytes, progress and errors.
func TestStatusAndCall(t *testing.T) {
	_, dir := startServer(t, newFakeProvider(), ServerConfig{})
	client := dial(t, dir)
	if status, err := client.Status(context.Background()); err != nil || string(status) != `{"state":"streaming"}` {
		t.Errorf("status %q, %v", status, err)
	}
	var lines []string
	for _, progress := range []func(string){nil, func(line string) { lines = append(lines, line) }} {
		body, err := client.Call(context.Background(), "echo", []byte(`{"x":1}`), progress)
		if err != nil || string(body) != `{"x":1}` {
			t.Errorf("call answered %q, %v", body, err)
		}
	}
	if want := []string{"line 0", "line 1", "line 2"}; !reflect.DeepEqual(lines, want) {
		t.Errorf("progress %q, want %q", lines, want)
	}
	var remote *RemoteError
	if _, err := client.Call(context.Background(), "nothing", nil, nil); !errors.As(err, &remote) || remote.Message != `unknown command "nothing"` {
		t.Errorf("an unknown command gave %v", err)
	}
	if _, err := client.Pin(context.Background(), PinRequest{At: 1}); !errors.As(err, &remote) || remote.Message != errBelowWindow.Error() {
		t.Errorf("a refused pin gave %v", err)
	}
	if _, err := client.Call(context.Background(), "echo", make([]byte, maxArgs+1), nil); err == nil {
		t.Error("arguments past the limit were taken")
	}
}
