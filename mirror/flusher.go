package mirror

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
)

// flusher writes sealed batches to files, the largest table first, when there are many or memory runs short.
type flusher struct {
	m        *Mirror
	wake     chan struct{}
	progress chan struct{} // something was flushed
}

// flushBatches is the number of sealed batches at which a table is flushed: a lookup probes one MemIndex for each.
const flushBatches = 64

func newFlusher(m *Mirror) *flusher {
	return &flusher{m: m, wake: make(chan struct{}, 1), progress: make(chan struct{}, 1)}
}

// sealed tells the flusher that a batch of t is full. The applier's turn.
func (f *flusher) sealed(t *table) {
	if len(t.sealed)%flushBatches == 0 || f.m.memory.Load() > f.m.cfg.Memory/2 {
		signal(f.wake)
	}
}

// busy reports whether waiting for the flusher can win memory; it wakes it.
func (f *flusher) busy() bool {
	signal(f.wake)
	return slices.ContainsFunc(f.m.tables, func(t *table) bool { return t.flushable(f.m) > 0 })
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (f *flusher) run(ctx context.Context) error {
	for {
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil
		}
		for {
			var chosen []*table
			err := f.m.inAnyTurn(ctx, func() error { chosen = f.choose(); return nil })
			if err != nil {
				return ignoreStop(ctx, err)
			}
			if len(chosen) == 0 {
				break
			}
			g, gctx := errgroup.WithContext(ctx)
			for _, t := range chosen {
				g.Go(func() error { return f.m.flush(gctx, t, maxLSN) })
			}
			if err := g.Wait(); err != nil {
				return ignoreStop(ctx, err)
			}
			signal(f.progress)
		}
	}
}

// maxLSN is above every LSN.
const maxLSN = LSN(1<<64 - 1)

// choose picks the tables to flush now, at most one a worker. The applier's turn.
func (f *flusher) choose() []*table {
	short := f.m.memory.Load() > f.m.cfg.Memory/2
	var chosen []*table
	for len(chosen) < f.m.cfg.FlushWorkers {
		var best *table
		var most int64
		for _, t := range f.m.tables {
			if !short && len(t.sealed) < flushBatches || slices.Contains(chosen, t) {
				continue
			}
			if size := t.flushable(f.m); size > most {
				best, most = t, size
			}
		}
		if best == nil {
			break
		}
		chosen = append(chosen, best)
	}
	return chosen
}

// flushable is the memory that a flush of the table would free now, in bytes. The applier's turn.
func (t *table) flushable(m *Mirror) (bytes int64) {
	for _, s := range t.choose(m, maxLSN) {
		bytes += s.batch.weight
	}
	return bytes
}
