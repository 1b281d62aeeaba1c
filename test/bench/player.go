package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/jackc/pglogrepl"

	"pgmirror/iceberg"
	"pgmirror/mirror"
	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

// player is a mirror in this process that has copied its tables and then follows a tape.
type player struct {
	mirror *mirror.Mirror
	source *tapeSource
	slot   string
	stop   func() error // may be called again
}

// startPlayer makes one, with a slot of that name, and waits until it has copied.
func (b *bench) startPlayer(ctx context.Context, pg *harness.Postgres, slot string, config mirror.Config) (p *player, err error) {
	dir, err := b.dataDir(slot)
	if err != nil {
		return nil, err
	}
	src, err := pgcdc.New(pgcdc.Config{Source: pg.URL(mirrorRole, "postgres"), Publications: []string{publication}, Slot: slot})
	if err != nil {
		return nil, err
	}
	p = &player{slot: slot, source: &tapeSource{Source: src, waiting: make(chan struct{}), begin: make(chan play, 1), points: make(chan pglogrepl.LSN, 16)}}
	config.Effect = func(name string) error {
		if name == "acknowledged" {
			p.source.checkpoints.Add(1)
		}
		return nil
	}
	run, err := runInside(ctx, src, p.source, slot, dir, config)
	if err != nil {
		return nil, err
	}
	p.mirror, p.stop = run.mirror, run.stop
	select {
	case <-p.source.waiting:
		return p, nil
	case <-run.ended:
		return nil, fmt.Errorf("the mirror %s ended: %w", slot, run.stop())
	}
}

// inside is a mirror that runs in this process.
type inside struct {
	mirror *mirror.Mirror
	ended  chan struct{}
	stop   func() error // ends it and what it uses; again, it gives the same error
}

// dataDir makes a data directory for a mirror in this process. Sections may use a slot's name again, on servers of their own.
func (b *bench) dataDir(slot string) (string, error) { return os.MkdirTemp(b.dir, slot) }

// runInside runs the engine over src, or over what stands before it, in a data directory.
func runInside(ctx context.Context, src *pgcdc.Source, before mirror.Source, slot, dir string, config mirror.Config) (*inside, error) {
	warehouse, err := iceberg.Open(ctx, iceberg.Config{Dir: dir})
	if err != nil {
		src.Close()
		return nil, err
	}
	config.Slot, config.Publications, config.IndexDir = slot, []string{publication}, filepath.Join(dir, "index")
	m, err := mirror.New(config, before, mirror.Over(warehouse), mirror.OSFiles(), mirror.SystemClock())
	if err != nil {
		src.Close()
		return nil, errors.Join(err, warehouse.Close())
	}
	running, cancel := context.WithCancel(ctx)
	run := &inside{mirror: m, ended: make(chan struct{})}
	var result error
	go func() {
		result = m.Run(running)
		close(run.ended)
	}()
	run.stop = sync.OnceValue(func() error {
		cancel()
		<-run.ended
		if errors.Is(result, context.Canceled) {
			result = nil
		}
		src.Close()
		return errors.Join(result, warehouse.Close())
	})
	return run, nil
}

// play gives transactions to take, whose they are.
type play func(take func(*pgcdc.Transaction) error) error

// tapeSource is a real source whose stream comes from tapes.
type tapeSource struct {
	*pgcdc.Source
	waiting     chan struct{} // closed when the first copy is done
	begin       chan play
	points      chan pglogrepl.LSN // for keepalives
	received    atomic.Uint64
	checkpoints atomic.Int64
}

// Stream waits for a tape, plays it, and then says how far the source is when asked.
func (s *tapeSource) Stream(ctx context.Context, _ pglogrepl.LSN, _ bool, out chan<- pgcdc.Event) error {
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
			if err := tape(func(tx *pgcdc.Transaction) error {
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

func (s *tapeSource) Received() pglogrepl.LSN { return pglogrepl.LSN(s.received.Load()) }

func (s *tapeSource) WaitPoint(ctx context.Context) (pglogrepl.LSN, error) {
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
