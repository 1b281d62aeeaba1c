package readstate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"

	"pgmirror/deletion"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wait bounds what a test waits for; a test that passes never waits so long.
const wait = 10 * time.Second

// testTypes are the Arrow types that a mirrored table's columns have.
var testTypes = []arrow.DataType{
	arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float32,
	arrow.PrimitiveTypes.Float64, &arrow.Decimal128Type{Precision: 38, Scale: 7}, arrow.BinaryTypes.String, arrow.BinaryTypes.Binary,
	&arrow.FixedSizeBinaryType{ByteWidth: 16}, arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Time64us,
	&arrow.TimestampType{Unit: arrow.Microsecond}, &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"},
	listOf(arrow.FixedWidthTypes.Boolean), listOf(arrow.PrimitiveTypes.Int64), listOf(arrow.BinaryTypes.String), listOf(&arrow.FixedSizeBinaryType{ByteWidth: 16}),
}

func listOf(element arrow.DataType) arrow.DataType {
	return arrow.ListOfField(arrow.Field{Name: "element", Type: element, Nullable: true, Metadata: idMeta(1000)})
}

func idMeta(id int) arrow.Metadata {
	return arrow.NewMetadata([]string{FieldIDKey}, []string{strconv.Itoa(id)})
}

// randomArray builds rows values with Arrow's own builders.
func randomArray(rnd *rand.Rand, dt arrow.DataType, rows int, nulls bool) arrow.Array {
	b := array.NewBuilder(memory.NewGoAllocator(), dt)
	for range rows {
		appendRandom(rnd, b, nulls)
	}
	return b.NewArray()
}

func appendRandom(rnd *rand.Rand, builder array.Builder, nulls bool) {
	if nulls && rnd.IntN(4) == 0 {
		builder.AppendNull()
		return
	}
	switch b := builder.(type) {
	case *array.BooleanBuilder:
		b.Append(rnd.IntN(2) == 0)
	case *array.Int32Builder:
		b.Append(int32(rnd.Uint32()))
	case *array.Int64Builder:
		b.Append(int64(rnd.Uint64()))
	case *array.Float32Builder:
		b.Append(rnd.Float32())
	case *array.Float64Builder:
		b.Append(rnd.NormFloat64())
	case *array.Decimal128Builder:
		b.Append(decimal128.New(int64(rnd.Uint64()), rnd.Uint64()))
	case *array.StringBuilder:
		b.Append(fmt.Sprintf("%0*d é", rnd.IntN(40), rnd.Uint32()))
	case *array.BinaryBuilder:
		b.Append(make([]byte, rnd.IntN(5)))
	case *array.FixedSizeBinaryBuilder:
		b.Append([]byte(fmt.Sprintf("%016x", rnd.Uint64())))
	case *array.Date32Builder:
		b.Append(arrow.Date32(rnd.Int32()))
	case *array.Time64Builder:
		b.Append(arrow.Time64(rnd.Int64()))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(rnd.Uint64()))
	case *array.ListBuilder:
		b.Append(true)
		for range rnd.IntN(4) {
			appendRandom(rnd, b.ValueBuilder(), nulls)
		}
	default:
		panic(fmt.Sprintf("no values for %T", builder))
	}
}

// fakeBatch is a memory batch of which a state shows a prefix.
type fakeBatch struct {
	id      uint64
	columns []arrow.Array
	reads   atomic.Int64
}

func (b *fakeBatch) Read(columns []int, from, to int) ([]arrow.Array, error) {
	b.reads.Add(1)
	out := make([]arrow.Array, len(columns))
	for i, c := range columns {
		out[i] = array.NewSlice(b.columns[c], int64(from), int64(to))
	}
	return out, nil
}

// fakeTable has one column of each type and some batches of which the last is open.
type fakeTable struct {
	name    TableName
	schema  *arrow.Schema
	batches []*fakeBatch
	rows    []int
	files   []File
	deleted []*deletion.Vector // of the batches
}

func testSchema(types []arrow.DataType) *arrow.Schema {
	fields := make([]arrow.Field, len(types))
	for i, dt := range types {
		fields[i] = arrow.Field{Name: fmt.Sprintf("c%d", i), Type: dt, Nullable: i%2 == 0, Metadata: idMeta(i + 1)}
	}
	return arrow.NewSchema(fields, nil)
}

var lastFakeBatch atomic.Uint64

func newFakeTable(rnd *rand.Rand, name string, types []arrow.DataType, batchRows ...int) *fakeTable {
	t := &fakeTable{name: TableName{"public", name}, schema: testSchema(types)}
	for _, rows := range batchRows {
		b := &fakeBatch{id: lastFakeBatch.Add(1)}
		for _, dt := range types {
			b.columns = append(b.columns, randomArray(rnd, dt, rows, true))
		}
		t.batches = append(t.batches, b)
		t.rows = append(t.rows, rows)
		t.deleted = append(t.deleted, randomVector(rnd, uint32(rows)))
	}
	for i := range rnd.IntN(3) {
		rows := uint32(1 + rnd.IntN(100_000))
		t.files = append(t.files, File{Path: fmt.Sprintf("/w/%s/%d.parquet", name, i), Rows: int64(rows), Bytes: rnd.Int64(), Deleted: randomVector(rnd, rows)})
	}
	return t
}

// randomVector is nil now and then.
func randomVector(rnd *rand.Rand, rows uint32) *deletion.Vector {
	if rows == 0 || rnd.IntN(3) == 0 {
		return nil
	}
	v := deletion.NewVector(rows)
	for range rnd.IntN(200) {
		v.Set(rnd.Uint32N(rows))
	}
	return v.Freeze()
}

// fakeProvider serves its tables as they are at the time of the pin, and counts what is open.
type fakeProvider struct {
	faulty atomic.Bool // Status panics
	mu     sync.Mutex
	lsn    LSN
	tables []*fakeTable
	states []*State // every state it made
	copies []*State // the same, which no server has
	// Of the states it makes, if set.
	settled func()
	kept    func() map[string]int64

	open     atomic.Int64
	released chan struct{} // gets a token for each release
	waiting  chan struct{} // gets a token when a pin with WaitLSN begins to wait
	reached  chan struct{} // ends the wait
}

func newFakeProvider(tables ...*fakeTable) *fakeProvider {
	return &fakeProvider{lsn: 7, tables: tables, released: make(chan struct{}, 10_000), waiting: make(chan struct{}, 100), reached: make(chan struct{})}
}

var errBelowWindow = errors.New("0/1 is below the kept window")

func (p *fakeProvider) Pin(ctx context.Context, req PinRequest) (*State, error) {
	if req.At == 1 {
		return nil, errBelowWindow
	}
	if req.WaitLSN != 0 {
		p.waiting <- struct{}{}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", req.WaitLSN, ctx.Err())
		case <-p.reached:
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	state := &State{LSN: p.lsn, Pinned: time.Now()}
	for _, t := range p.tables {
		table := &Table{Name: t.name, Schema: t.schema, Files: t.files}
		for i, b := range t.batches {
			table.Batches = append(table.Batches, Batch{ID: b.id, Sealed: i < len(t.batches)-1, Rows: t.rows[i], Deleted: t.deleted[i], Columns: b})
		}
		state.Tables = append(state.Tables, table)
	}
	state.Tables = append(state.Tables, &Table{Name: TableName{"zzz", "copying"}, Err: "still being copied"})
	p.open.Add(1)
	state.Release = sync.OnceFunc(func() {
		p.open.Add(-1)
		p.released <- struct{}{}
	})
	state.Settle, state.Kept = p.settled, p.kept
	p.states = append(p.states, state)
	p.copies = append(p.copies, copyOf(state))
	return state, nil
}

func (p *fakeProvider) SearchPath() []string { return []string{"shop", "public"} }

func (p *fakeProvider) Status(context.Context) ([]byte, error) {
	if p.faulty.Load() {
		panic("planted")
	}
	return []byte(`{"state":"streaming"}`), nil
}

// Call: "echo" answers its arguments after three lines, "block" waits for the end of its context, "stay" for reached
// alone, "fail" fails.
func (p *fakeProvider) Call(ctx context.Context, command string, args []byte, progress func(string)) ([]byte, error) {
	switch command {
	case "echo":
		if progress != nil {
			for i := range 3 {
				progress(fmt.Sprintf("line %d", i))
			}
		}
		return args, nil
	case "block":
		p.waiting <- struct{}{}
		<-ctx.Done()
		p.released <- struct{}{}
		return nil, ctx.Err()
	case "stay":
		p.waiting <- struct{}{}
		<-p.reached
		return nil, nil
	}
	return nil, fmt.Errorf("unknown command %q", command)
}

// startServer serves p on a socket of its own and returns the data directory. The end of the test checks that Serve ends
// cleanly with nothing left open.
func startServer(t testing.TB, p *fakeProvider, config ServerConfig) (*Server, string) {
	dir := t.TempDir()
	listener, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(p, slog.New(slog.DiscardHandler), config)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-result; err != nil {
			t.Errorf("Serve ended with %v", err)
		}
		if stats := server.Stats(); stats.Connections != 0 || stats.OpenStates != 0 || p.open.Load() != 0 {
			t.Errorf("after Serve: %+v, %d states open at the provider", stats, p.open.Load())
		}
	})
	return server, dir
}

func dial(t testing.TB, dir string) *Client {
	t.Helper()
	client, err := Dial(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func dialWithCache(t testing.TB, dir string, bytes int64) *Client {
	t.Helper()
	conn, err := net.Dial("unix", dir+"/"+socketName)
	if err != nil {
		t.Fatal(err)
	}
	client, err := NewClient(context.Background(), conn, ClientConfig{CacheBytes: bytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// dialRaw is for tests that speak the protocol themselves; what they wait for in vain fails.
func dialRaw(t testing.TB, dir string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", dir+"/"+socketName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func mustPin(t testing.TB, c *Client, req PinRequest) *State {
	t.Helper()
	state, err := c.Pin(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(wait):
		t.Fatalf("waited for %s", what)
		panic("unreachable")
	}
}
