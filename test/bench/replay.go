package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"pgmirror/iceberg"
	"pgmirror/mirror"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

const (
	replayBase = 0.2       // of the rows of the live section
	replayRows = 1_500_000 // row changes captured
	// replayCheckpoints is short, so that a run of a few seconds has some.
	replayCheckpoints = 2 * time.Second
)

// replays runs the engine in this process on a captured stream: no server and no network take part.
func (b *bench) replays(ctx context.Context) (err error) {
	pg, err := b.startServer("replay")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(pg)) }()
	base, err := loadBank(pg, b.scale*replayBase)
	if err != nil {
		return err
	}
	var visible, durable, decoded, cpu []float64
	checkpoints := 0
	for round := range b.rounds {
		profile := ""
		if round == b.rounds-1 {
			profile = b.profile
		}
		r, err := b.replayOnce(ctx, pg, fmt.Sprintf("replay%d", round), profile)
		if err != nil {
			return err
		}
		rows := float64(r.rows)
		visible = append(visible, rows/r.visible.Seconds())
		durable = append(durable, rows/r.durable.Seconds())
		decoded = append(decoded, rows/r.decoded.Seconds())
		cpu = append(cpu, r.cpu/rows*1e6)
		checkpoints = max(checkpoints, r.checkpoints)
		b.say("round %d: %d rows, visible %s, durable %s, decoded %s, %.0f ns CPU a row, %d checkpoints", round+1, r.rows,
			rate(visible[round]), rate(durable[round]), rate(decoded[round]), cpu[round]*1000, r.checkpoints)
	}
	note := fmt.Sprintf("binary pgoutput of the HyBench mix, %.1fM row changes onto %.1fM rows, a checkpoint every %s (%d)", b.scaleOf(replayRows)/1e6, float64(base)/1e6, replayCheckpoints, checkpoints)
	b.report.add(line{"replay of a captured stream, to visible", spread(visible, rate), "the same bytes, staged and decoded only, one core: " + spread(decoded, rate), spread(ratios(visible, decoded), times), nil, note})
	b.report.add(line{"the same, until all of it is durable", spread(durable, rate), "Retina, 16 cores: 201k rows/s", "", goals{atLeast(median(durable)/1e3, 400, "%gk rows/s")}, "Parquet, FileIndex, vectors, Iceberg commits, fsync"})
	seconds := func(v float64) string { return fmt.Sprintf("%.2f s", v) }
	b.report.add(line{"CPU per 1M row changes of it", spread(cpu, seconds), "Retina: 17 s (1.73 % of a core for each 1k rows/s), 62 s with its base load", "", nil, "all of the engine, GC and encoding included"})
	return nil
}

// replayed is one replay.
type replayed struct {
	rows                      int
	visible, durable, decoded time.Duration
	cpu                       float64 // seconds
	checkpoints               int
}

func (b *bench) replayOnce(ctx context.Context, pg *harness.Postgres, slot, profile string) (r replayed, err error) {
	src, err := pgcdc.New(pgcdc.Config{Source: pg.URL(mirrorRole, "postgres"), Publications: []string{publication}, Slot: slot})
	if err != nil {
		return r, err
	}
	defer src.Close()
	dir := filepath.Join(b.dir, slot)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return r, err
	}
	warehouse, err := iceberg.Open(ctx, iceberg.Config{Dir: dir})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, warehouse.Close()) }()
	source := &capturedSource{Source: src, waiting: make(chan struct{}), begin: make(chan *capture, 1), points: make(chan pglogrepl.LSN, 16)}
	m, err := mirror.New(mirror.Config{Slot: slot, Publications: []string{publication}, IndexDir: filepath.Join(dir, "index"), CheckpointInterval: replayCheckpoints,
		Effect: func(name string) error {
			if name == "acknowledged" {
				source.checkpoints.Add(1)
			}
			return nil
		}}, source, mirror.Over(warehouse), mirror.OSFiles(), mirror.SystemClock())
	if err != nil {
		return r, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(running) }()
	select {
	case <-source.waiting:
	case err := <-ended:
		return r, fmt.Errorf("the mirror ended: %w", err)
	}
	tape, err := b.record(ctx, pg, slot)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, tape.close()) }()
	r.rows = tape.rows
	if r.decoded, err = decodeTape(tape); err != nil {
		return r, err
	}
	finish, err := startProfile(profile)
	if err != nil {
		return r, err
	}
	if err := errors.Join(r.replay(ctx, m, source, tape), finish()); err != nil {
		return r, err
	}
	report, err := m.Verify(ctx, mirror.VerifyRequest{}, func(string) {})
	if err == nil && !report.Equal {
		err = fmt.Errorf("the mirror differs from the source:\n%s", report)
	}
	stop()
	return r, errors.Join(err, <-ended)
}

// record copies the mirror's slot, writes, and captures what the copy sends.
func (b *bench) record(ctx context.Context, pg *harness.Postgres, slot string) (*capture, error) {
	if err := pg.Exec(fmt.Sprintf("SELECT pg_copy_logical_replication_slot('%s', 'captured')", slot)); err != nil {
		return nil, err
	}
	rows, err := writeBacklog(ctx, pg, b.scaled(replayRows))
	if err != nil {
		return nil, err
	}
	end, err := walEnd(ctx, pg)
	if err != nil {
		return nil, err
	}
	tape, err := recordTape(ctx, pg, "captured", filepath.Join(b.dir, slot+".tape"), end)
	if err != nil {
		return nil, err
	}
	tape.rows = rows
	return tape, dropSlot(ctx, pg, "captured")
}

// decodeTape measures the decoder alone.
func decodeTape(tape *capture) (time.Duration, error) {
	began := time.Now()
	err := tape.decode(func(tx *pgcdc.Transaction) error {
		defer tx.Release()
		return tx.Changes(func(*pgcdc.Change) error { return nil })
	})
	return time.Since(began), err
}

// replay measures the engine.
func (r *replayed) replay(ctx context.Context, m *mirror.Mirror, source *capturedSource, tape *capture) error {
	before, cpu, began := source.checkpoints.Load(), ownCPUSeconds(), time.Now()
	source.begin <- tape
	state, err := m.Pin(ctx, readstate.PinRequest{WaitLSN: tape.end, Timeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	state.Release()
	r.visible = time.Since(began)
	if _, err := m.Call(ctx, "checkpoint", nil, nil); err != nil {
		return err
	}
	r.durable = time.Since(began)
	r.cpu = ownCPUSeconds() - cpu
	r.checkpoints = int(source.checkpoints.Load() - before)
	return nil
}

// startProfile begins a CPU profile; no path makes none.
func startProfile(path string) (finish func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// capturedSource is a real source whose stream comes from a tape.
type capturedSource struct {
	*pgcdc.Source
	waiting     chan struct{} // closed when the first copy is done
	begin       chan *capture
	points      chan pglogrepl.LSN // for keepalives
	received    atomic.Uint64
	checkpoints atomic.Int64
}

// Stream waits for the tape, plays it, and then says how far the source is when asked.
func (s *capturedSource) Stream(ctx context.Context, _ pglogrepl.LSN, _ bool, out chan<- pgcdc.Event) error {
	close(s.waiting)
	send := func(e pgcdc.Event) error {
		select {
		case out <- e:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		select {
		case tape := <-s.begin:
			if err := tape.decode(func(tx *pgcdc.Transaction) error {
				s.received.Store(uint64(tx.EndLSN))
				return send(pgcdc.Event{Transaction: tx})
			}); err != nil {
				return err
			}
		case at := <-s.points:
			if err := send(pgcdc.Event{WALEnd: at}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *capturedSource) Received() pglogrepl.LSN { return pglogrepl.LSN(s.received.Load()) }

func (s *capturedSource) WaitPoint(ctx context.Context) (pglogrepl.LSN, error) {
	at, err := s.Source.WaitPoint(ctx)
	if err != nil {
		return 0, err
	}
	select {
	case s.points <- at:
		return at, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
