package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"pgmirror/iceberg"
	"pgmirror/mirror"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// patience bounds every wait for something that must happen.
const patience = 3 * time.Minute

// life is one life of a mirror: the real engine, with everything that outlives a process behind effects.
type life struct {
	t         *testing.T
	effects   *Effects
	files     *FS
	wire      *wire
	source    *pgcdc.Source
	warehouse *iceberg.Warehouse // nil if it died before that was open
	mirror    *mirror.Mirror
	stop      context.CancelFunc
	ended     chan struct{} // closed when Run has returned err
	err       error
	held      []*readstate.State
}

// The steps that watchedSource names: those of the first copy alone, those of every copy, and those of the copy of a table that joins.
var (
	firstEffects = []string{"drop slot", "slot dropped", "create slot", "slot created"}
	copyEffects  = []string{"copy table", "rows copied"}
	joinEffects  = []string{"take snapshot", "snapshot taken"}
)

// watchedSource names what the mirror does to PostgreSQL beside streaming.
type watchedSource struct {
	*pgcdc.Source
	effect func(string) error
}

func (s watchedSource) DropSlot(ctx context.Context) error {
	if err := s.effect("drop slot"); err != nil {
		return err
	}
	if err := s.Source.DropSlot(ctx); err != nil {
		return err
	}
	return s.effect("slot dropped")
}

func (s watchedSource) CreateSlot(ctx context.Context) (pgcdc.ExportedSnapshot, error) {
	if err := s.effect("create slot"); err != nil {
		return pgcdc.ExportedSnapshot{}, err
	}
	snapshot, err := s.Source.CreateSlot(ctx)
	if err == nil {
		err = s.effect("slot created")
	}
	return snapshot, err
}

func (s watchedSource) Snapshot(ctx context.Context, patience time.Duration, waiting func(string)) (pgcdc.ExportedSnapshot, func(), error) {
	if err := s.effect("take snapshot"); err != nil {
		return pgcdc.ExportedSnapshot{}, nil, err
	}
	snapshot, release, err := s.Source.Snapshot(ctx, patience, waiting)
	if err != nil {
		return snapshot, release, err
	}
	if err := s.effect("snapshot taken"); err != nil {
		release()
		return pgcdc.ExportedSnapshot{}, nil, err
	}
	return snapshot, release, nil
}

// Extents makes every table large, so that a copy has several ranges.
func (s watchedSource) Extents(ctx context.Context, tables []*pgcdc.Table) ([]pgcdc.Extent, error) {
	extents, err := s.Source.Extents(ctx, tables)
	for i := range extents {
		extents[i].Bytes = int64(extents[i].Blocks) << 30
	}
	return extents, err
}

func (s watchedSource) CopyRange(ctx context.Context, snapshot pgcdc.ExportedSnapshot, table *pgcdc.Table, blocks pgcdc.Range, row func(pgcdc.Tuple) error) error {
	if err := s.effect("copy table"); err != nil {
		return err
	}
	rows := 0
	return s.Source.CopyRange(ctx, snapshot, table, blocks, func(tuple pgcdc.Tuple) error {
		if rows++; rows%50 == 1 {
			if err := s.effect("rows copied"); err != nil {
				return err
			}
		}
		return row(tuple)
	})
}

// recovered is the effect at which a mirror has all that files give it, and neither works on it nor follows the source yet.
const recovered = "recovered"

// recoveryHook finds recovered in a mirror's log.
type recoveryHook struct{ effects *Effects }

func (recoveryHook) Enabled(context.Context, slog.Level) bool { return true }
func (h recoveryHook) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h recoveryHook) WithGroup(string) slog.Handler          { return h }

func (h recoveryHook) Handle(_ context.Context, r slog.Record) error {
	if r.Message == recovered {
		return h.effects.Hook(recovered)
	}
	return nil
}

// begin starts a life over the chain's directory and slot, with settings that its random numbers choose: little memory, small
// batches, short intervals.
func (c *chain) begin(effects *Effects) *life {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{t: c.t, effects: effects, files: NewFS(c.t.TempDir(), effects), wire: newWire(c.t, c.server.Port()), stop: cancel,
		ended: make(chan struct{})}
	effects.AtDeath(l.wire.sever)
	url := fmt.Sprintf("host=127.0.0.1 port=%d user=mirror dbname=postgres sslmode=disable", l.wire.port())
	var err error
	l.source, err = pgcdc.New(pgcdc.Config{Source: url, Publications: []string{"p"}, Slot: c.slot,
		SpillDir: filepath.Join(c.dir, "spill"), SpillBytes: pick[int64](c.random, 2<<10, 0)})
	c.check(err)
	l.warehouse, err = iceberg.Open(ctx, iceberg.Config{Dir: c.dir, Files: l.files, Effect: effects.Hook, KeepSnapshots: pick(c.random, 1, 3)})
	if err != nil {
		l.end(err)
		return l
	}
	l.mirror, err = mirror.New(mirror.Config{
		Version: "test", Slot: c.slot, Publications: []string{"p"}, Database: "postgres", IndexDir: filepath.Join(c.dir, "index"),
		BatchRows: pick(c.random, 3, 20, 100), FlushWorkers: pick(c.random, 1, 3), CopyWorkers: pick(c.random, 1, 3), Memory: 1 << 20,
		CheckpointInterval: 100 * time.Millisecond, FoldInterval: 20 * time.Millisecond, CatalogPoll: 100 * time.Millisecond,
		History: pick(c.random, 0, 50*time.Millisecond), Effect: effects.Hook, Log: slog.New(recoveryHook{effects}),
	}, watchedSource{l.source, effects.Hook}, mirror.Over(l.warehouse), mirror.FilesOver(l.files), mirror.SystemClock())
	c.check(err)
	go func() { l.end(l.mirror.Run(ctx)) }()
	return l
}

func pick[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

func (l *life) end(err error) {
	l.err = err
	close(l.ended)
}

// over says whether the process is dead. A mirror that ends without that is a fault. What follows from a death is never seen
// before over is true.
func (l *life) over() bool {
	l.t.Helper()
	if _, died := l.effects.Crashed(); died {
		return true
	}
	select {
	case <-l.ended:
		l.t.Fatalf("the mirror ended by itself: %v", l.err)
	default:
	}
	return false
}

// fatal ends the test for an error of a living mirror; when that was only the mirror's end, it says why it ended.
func (l *life) fatal(what string, err error) {
	l.t.Helper()
	if errors.Is(err, mirror.ErrStopped) {
		select {
		case <-l.ended:
			l.over()
		case <-time.After(patience):
		}
	}
	l.t.Fatalf("%s: %v", what, err)
}

// streaming reports whether the mirror follows the source, and reads are open.
func (l *life) streaming() bool {
	if l.mirror == nil {
		return false
	}
	text, err := l.mirror.Status(context.Background())
	var status mirror.Status
	return err == nil && json.Unmarshal(text, &status) == nil && status.State == "streaming"
}

// wait waits a moment, or less if the process dies meanwhile.
func (l *life) wait(deadline time.Time) {
	l.t.Helper()
	if time.Now().After(deadline) {
		stacks := make([]byte, 1<<20)
		l.t.Fatalf("nothing happens any more:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
	select {
	case <-l.effects.Died():
	case <-l.ended:
	case <-time.After(2 * time.Millisecond):
	}
}

// read pins the newest state and keeps it for a while: it holds files and deletions back.
func (l *life) read() {
	if state, err := l.mirror.Pin(context.Background(), readstate.PinRequest{}); err == nil {
		l.held = append(l.held, state)
	}
	if len(l.held) > 2 {
		l.held[0].Release()
		l.held = l.held[1:]
	}
}

// abandon ends a life whose process is dead: everything that could still write has ended, and the disk is as a power loss
// leaves it.
func (l *life) abandon(seed uint64) {
	l.t.Helper()
	l.close()
	if err := l.files.Crash(seed); err != nil {
		l.t.Fatal(err)
	}
}

// shutDown ends a life in order.
func (l *life) shutDown() {
	l.t.Helper()
	l.close()
	if l.err != nil {
		l.t.Fatalf("the mirror did not stop in order: %v", l.err)
	}
}

func (l *life) close() {
	l.t.Helper()
	for _, state := range l.held {
		state.Release()
	}
	l.stop()
	select {
	case <-l.ended:
	case <-time.After(patience):
		stacks := make([]byte, 1<<20)
		l.t.Fatalf("the mirror does not end:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
	l.source.Close()
	l.wire.close()
	if l.warehouse != nil {
		if err := l.warehouse.Close(); err != nil {
			l.t.Fatal(err)
		}
	}
}
