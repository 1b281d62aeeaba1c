package mirror

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"golang.org/x/sync/errgroup"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// bank is a source whose two tables of accounts always hold the same sum together, each transfer being one transaction, and
// which also has a table that is filled and truncated. The mirror runs with all its goroutines.
type bank struct {
	source *fakeSource
	ware   *fakeWarehouse
	files  *fakeFiles
	rng    *rand.Rand // the writer's
	// Of the mirror's Config.
	disk  *Disk
	limit int64
	drop  bool

	mu      sync.Mutex
	amounts [2][]int64 // by table and account
	logged  int        // rows of the third table
}

const (
	bankAccounts = 40
	bankSum      = 2 * bankAccounts * 100
)

func newBank(seed uint64) *bank {
	b := &bank{ware: newFakeWarehouse(), files: &fakeFiles{files: map[string][]byte{}}, rng: rand.New(rand.NewPCG(seed, 3))}
	b.source = newFakeSource([]pgcdc.Table{
		tableDef(1, "a", 'd', []int{0}, []int{0}, oidInt4, oidInt8, oidText),
		tableDef(2, "b", 'd', []int{0}, []int{0}, oidText, oidInt8, oidText),
		tableDef(3, "log", 'f', nil, []int{0, 1, 2}, oidInt4, oidInt8, oidText),
	})
	for i := range b.amounts {
		for range bankAccounts {
			b.amounts[i] = append(b.amounts[i], 100)
		}
	}
	b.source.rows = func(oid uint32, _ LSN) (rows [][]cell) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if oid == 3 {
			for range b.logged {
				rows = append(rows, []cell{val("1"), val("1"), nil})
			}
			return rows
		}
		for account, amount := range b.amounts[oid-1] {
			rows = append(rows, accountRow(account, amount))
		}
		return rows
	}
	return b
}

func accountRow(account int, amount int64) []cell {
	return []cell{val(strconv.Itoa(account)), val(strconv.FormatInt(amount, 10)), val("a long text that takes some memory")}
}

// transfer commits one transaction: money goes from an account of one table to one of the other, by updates or by deleting and
// inserting again, several times over.
func (b *bank) transfer() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var changes []message
	set := func(table, account int, amount int64) {
		b.amounts[table][account] = amount
		oid := uint32(table + 1)
		row := accountRow(account, amount)
		if b.rng.IntN(3) == 0 {
			changes = append(changes, message{'D'}.u32(oid).u8('K').tuple([]cell{row[0], nil, nil}), message{'I'}.u32(oid).u8('N').tuple(row))
			return
		}
		row[2] = unchanged
		changes = append(changes, message{'U'}.u32(oid).u8('N').tuple(row))
	}
	for range 1 + b.rng.IntN(6) {
		from := b.rng.IntN(2)
		x, y, amount := b.rng.IntN(bankAccounts), b.rng.IntN(bankAccounts), b.rng.Int64N(50)
		set(from, x, b.amounts[from][x]-amount)
		set(1-from, y, b.amounts[1-from][y]+amount)
	}
	if b.logged > 200 {
		changes = append(changes, message{'T'}.u32(1).u8(0).u32(3))
		b.logged = 0
	}
	changes = append(changes, message{'I'}.u32(3).u8('N').tuple([]cell{val("1"), val("1"), nil}))
	b.logged++
	b.source.commit(changes)
}

// mirror makes a mirror that does everything at a high rate.
func (b *bank) mirror(t *testing.T) *Mirror {
	t.Helper()
	m, err := New(Config{Slot: "m", Publications: []string{"p"}, IndexDir: "/i", BatchRows: 16, FoldInterval: 10 * time.Millisecond,
		CheckpointInterval: 100 * time.Millisecond, CatalogPoll: 10 * time.Millisecond, Disk: b.disk, MaxSlotWAL: b.limit, DropSlot: b.drop}, b.source, b.ware, b.files, SystemClock())
	if err != nil {
		t.Fatal(err)
	}
	m.cfg.Memory = 96 << 10
	m.cfg.CheckpointInterval, m.cfg.FoldInterval = 3*time.Millisecond, time.Millisecond
	return m
}

// sum adds up the second column of some tables of a state.
func (b *bank) sum(st *readstate.State, tables ...string) (sum int64, rows int, err error) {
	for _, name := range tables {
		rt, ok := st.Table(readstate.TableName{Schema: "public", Name: name})
		if !ok || rt.Err != "" {
			return 0, 0, fmt.Errorf("table %s: %s", name, rt.Err)
		}
		id, err := fieldID(rt.Schema.Field(1))
		if err != nil {
			return 0, 0, err
		}
		for _, f := range rt.Files {
			r, err := b.ware.OpenData(f.Path)
			if err != nil {
				return 0, 0, err
			}
			err = r.Columns(context.Background(), []int32{int32(id)}, func(rec arrow.RecordBatch, first int64) error {
				values := rec.Column(0).(*array.Int64)
				for i := range values.Len() {
					if !f.Deleted.Contains(uint32(first) + uint32(i)) {
						sum += values.Value(i)
						rows++
					}
				}
				return nil
			})
			if err != nil {
				return 0, 0, err
			}
		}
		for _, batch := range rt.Batches {
			arrays, err := batch.Columns.Read([]int{1}, 0, batch.Rows)
			if err != nil {
				return 0, 0, err
			}
			values := arrays[0].(*array.Int64)
			for i := range values.Len() {
				if !batch.Deleted.Contains(uint32(i)) {
					sum += values.Value(i)
					rows++
				}
			}
		}
	}
	return sum, rows, nil
}

// read pins a state and checks what holds at every LSN.
func (b *bank) read(ctx context.Context, m *Mirror, req readstate.PinRequest) error {
	st, err := m.Pin(ctx, req)
	if err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	defer st.Release()
	for range 2 { // a state gives the same answer again
		sum, rows, err := b.sum(st, "a", "b")
		if err != nil {
			return err
		}
		if sum != bankSum || rows != 2*bankAccounts {
			return fmt.Errorf("at %s the sum is %d over %d accounts, want %d over %d", st.LSN, sum, rows, bankSum, 2*bankAccounts)
		}
	}
	return nil
}

// readers read until done is closed.
func (b *bank) readers(ctx context.Context, g *errgroup.Group, m *Mirror, done <-chan struct{}) *atomic.Int64 {
	var reads atomic.Int64
	for range 4 {
		g.Go(func() error {
			for {
				select {
				case <-done:
					return nil
				default:
				}
				if err := b.read(ctx, m, readstate.PinRequest{}); err != nil {
					return err
				}
				reads.Add(1)
			}
		})
	}
	return &reads
}

// opened waits until the mirror answers.
func opened(t *testing.T, m *Mirror) {
	t.Helper()
	for m.Ready() != nil {
		select {
		case <-m.stopped:
			t.Fatal("the mirror ended before it was ready")
		case <-time.After(time.Millisecond):
		}
	}
}

// TestConcurrent: while everything runs at once (commits arrive, batches are flushed for want of memory, checkpoints, folds), every
// reader finds the sum over both tables unchanged, and afterwards, also for a second mirror that takes over, the tables
// are the source's.
func TestConcurrent(t *testing.T) {
	b := newBank(1)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m := b.mirror(t)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	opened(t, m)
	g, gctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	reads := b.readers(gctx, g, m, done)
	for range 2 {
		g.Go(func() error {
			for {
				select {
				case <-done:
					return nil
				default:
				}
				if _, err := m.Call(gctx, "checkpoint", nil, nil); err != nil {
					return err
				}
				if _, err := m.Status(gctx); err != nil {
					return err
				}
			}
		})
	}
	g.Go(func() error {
		defer close(done)
		for i := range concurrentTransfers {
			b.transfer()
			if i%16 == 0 { // read your writes
				if err := b.read(gctx, m, readstate.PinRequest{WaitSource: true}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	b.ware.mu.Lock()
	n := len(b.ware.history)
	b.ware.mu.Unlock()
	if n < 5 || reads.Load() < 20 {
		t.Errorf("only %d commits and %d reads: too little happened", n, reads.Load())
	}
	b.equal(t, m)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	ctx, stop = context.WithCancel(context.Background())
	defer stop()
	next := b.mirror(t)
	go func() { ended <- next.Run(ctx) }()
	opened(t, next)
	b.equal(t, next)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// equal compares the mirror, once it has caught up, with the accounts, and examines its insides.
func (b *bank) equal(t *testing.T, m *Mirror) {
	t.Helper()
	ctx := context.Background()
	rep, err := m.Verify(ctx, VerifyRequest{}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if !rep.Equal {
		t.Fatalf("the mirror differs from the source: %+v", rep)
	}
	if err := m.Check(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestStopInTheMiddle: a mirror that is stopped while changes arrive has made everything it showed durable and acknowledged just
// that; the next one goes on from there.
func TestStopInTheMiddle(t *testing.T) {
	b := newBank(2)
	for round := range 5 {
		ctx, stop := context.WithCancel(context.Background())
		m := b.mirror(t)
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		opened(t, m)
		var g errgroup.Group
		g.Go(func() error {
			for range 60 {
				b.transfer()
			}
			return nil
		})
		if err := b.read(ctx, m, readstate.PinRequest{}); err != nil {
			t.Fatal(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		slot, _, _ := b.source.Slot(context.Background())
		if cut, high := b.ware.lastCut(), m.marks.high(); cut != high || slot.ConfirmedFlush != cut {
			t.Fatalf("round %d: visible %s, durable %s, acknowledged %s", round, high, cut, slot.ConfirmedFlush)
		}
		if _, err := m.Pin(context.Background(), readstate.PinRequest{At: m.marks.high() + 1, Timeout: time.Millisecond}); err == nil {
			t.Fatal("a stopped mirror reached another LSN")
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m := b.mirror(t)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	opened(t, m)
	b.equal(t, m)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// TestLostConnection: a lost connection is made again, and what was sent before comes again without doing harm.
func TestLostConnection(t *testing.T) {
	b := newBank(3)
	var commits atomic.Int64
	b.source.fault = func(call string) error {
		if call == "commit" && commits.Add(1) == 40 {
			return &netError{}
		}
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m := b.mirror(t)
	m.clock = eagerClock{}
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	opened(t, m)
	for range 80 {
		b.transfer()
	}
	if err := m.marks.wait(ctx, b.source.end()); err != nil {
		t.Fatal(err)
	}
	opened(t, m)
	b.equal(t, m)
	if commits.Load() < 81 {
		t.Errorf("%d commits were sent: nothing came again", commits.Load())
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// netError is what a lost connection looks like.
type netError struct{}

func (*netError) Error() string   { return "connection reset" }
func (*netError) Timeout() bool   { return true }
func (*netError) Temporary() bool { return true }

// eagerClock never lets anybody wait for longer than a few milliseconds.
type eagerClock struct{}

func (eagerClock) Now() time.Time { return time.Now() }
func (eagerClock) After(d time.Duration) <-chan time.Time {
	return time.After(min(d, 3*time.Millisecond))
}

// TestApplierEndsDuringCheckpoint: an applier that ends by an error while a checkpoint is being committed ends the mirror too;
// the checkpoint does not wait for a turn for ever.
func TestApplierEndsDuringCheckpoint(t *testing.T) {
	b := newBank(4)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m := b.mirror(t)
	m.cfg.CheckpointInterval = time.Hour
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	opened(t, m)
	b.transfer()
	if err := m.marks.wait(ctx, b.source.end()); err != nil {
		t.Fatal(err)
	}
	b.source.mu.Lock() // a commit that another source would send, and at whose TRUNCATE the power goes
	last := *b.source.wal[len(b.source.wal)-1]
	b.source.mu.Unlock()
	last.commitLSN, last.end = last.end+8, last.end+64
	last.changes = []message{message{'I'}.u32(3).u8('N').tuple([]cell{val("1"), val("1"), nil}), message{'T'}.u32(1).u8(0).u32(3)}
	var dying atomic.Bool
	m.cfg.Effect = func(name string) error {
		if dying.Load() && name == "batch sealed" {
			return errPowerCut
		}
		return nil
	}
	msgs := slices.Insert(last.messages(), 1, relationMessages(b.source.tables)...)
	replay := pgcdc.NewReplay("", 0)
	b.ware.committing = func() error {
		dying.Store(true)
		for _, msg := range msgs {
			tx, err := replay.Message(msg)
			if err != nil {
				return err
			}
			if tx != nil {
				m.events <- pgcdc.Event{Transaction: tx}
			}
		}
		select {
		case <-m.stopped:
		case <-time.After(10 * time.Second):
			t.Error("nobody was told that the applier ended")
		}
		return nil
	}
	if _, err := m.Call(ctx, "checkpoint", nil, nil); !errors.Is(err, ErrStopped) && !errors.Is(err, errPowerCut) {
		t.Errorf("the checkpoint ended with %v", err)
	}
	if err := <-ended; !errors.Is(err, errPowerCut) {
		t.Fatalf("Run ended with %v", err)
	}
}
