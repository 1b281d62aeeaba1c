package mirror

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
)

// flusher writes sealed batches to files, the largest table first, when there are many or memory runs short, and merges FileIndexes.
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
	if len(t.sealed)%flushBatches == 0 {
		signal(f.wake)
	}
	f.weighed()
}

// weighed wakes the flusher when memory runs short. The applier's turn.
func (f *flusher) weighed() {
	if f.m.short() {
		signal(f.wake)
	}
}

// withMemory lists the tables that hold batches, those that are about to join and those that only readers still see included. The
// applier's turn.
func (m *Mirror) withMemory() []*table {
	if len(m.joins)+len(m.past) == 0 {
		return m.tables
	}
	return slices.Concat(m.tables, m.joinings(), m.past)
}

// busy reports whether waiting for the flusher can win memory; it wakes it.
func (f *flusher) busy() bool {
	signal(f.wake)
	return slices.ContainsFunc(f.m.withMemory(), func(t *table) bool { return t.flushable(f.m) > 0 || t.sealable(f.m) > 0 })
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
		if err := f.m.untilWritten(ctx, "flush", func() error { return f.flush(ctx) }); err != nil {
			return ignoreStop(ctx, err)
		}
		if f.m.cfg.Disk.Paused() != "" {
			continue // what a merge would win it must write first
		}
		if err := laterIfFull(f.m, f.merge(ctx)); err != nil {
			return ignoreStop(ctx, err)
		}
	}
}

// laterIfFull is err, unless the disk was full: what could not be made smaller is due again when there is room.
func laterIfFull(m *Mirror, err error) error {
	if isDiskFull(err) {
		m.cfg.Log.Error("the disk takes no more: files are made fewer later", "err", err)
		return nil
	}
	return err
}

// flush writes what is due.
func (f *flusher) flush(ctx context.Context) error {
	for {
		var chosen []*table
		err := f.m.inAnyTurn(ctx, func() (err error) { chosen, err = f.choose(); return err })
		if err != nil || len(chosen) == 0 {
			return err
		}
		var g errgroup.Group
		for _, t := range chosen {
			g.Go(func() error { return f.m.flush(ctx, t, maxLSN) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		signal(f.progress)
	}
}

// merge brings the FileIndexes of every table into tiers, those whose files are being compacted included. A table on which another job is at work, which may
// put another in its place, has its turn after a flush of it.
func (f *flusher) merge(ctx context.Context) error {
	for {
		var due []*table
		err := f.m.inAnyTurn(ctx, func() error {
			due = slices.DeleteFunc(slices.Clone(f.m.tables), func(t *table) bool { return len(t.mergeable(f.m)) == 0 })
			return nil
		})
		if err != nil || len(due) == 0 {
			return err
		}
		idle := true
		for _, t := range due {
			if !t.merging.TryLock() {
				continue
			}
			idle = false
			err := f.m.mergeIndexesOf(ctx, t)
			t.merging.Unlock()
			if err != nil {
				return err
			}
		}
		if idle {
			return nil
		}
	}
}

// maxLSN is above every LSN.
const maxLSN = LSN(1<<64 - 1)

// choose picks the tables to flush now, at most one a worker. The applier's turn.
func (f *flusher) choose() ([]*table, error) {
	short := f.m.short()
	var chosen []*table
	for len(chosen) < f.m.cfg.FlushWorkers {
		var best *table
		var most int64
		for _, t := range f.m.withMemory() {
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
	if !short || len(chosen) > 0 {
		return chosen, nil
	}
	if t, err := f.sealLargest(); t != nil || err != nil {
		return []*table{t}, err
	}
	return nil, nil
}

// sealLargest ends the open batch that takes the most memory, when memory is short and no full batch is left to flush. The
// applier's turn.
func (f *flusher) sealLargest() (*table, error) {
	var best *table
	var most int64
	for _, t := range f.m.withMemory() {
		if size := t.sealable(f.m); size > most {
			best, most = t, size
		}
	}
	if best == nil {
		return nil, nil
	}
	return best, f.m.sealOpen(best)
}

// sealable is the memory that sealing and flushing the table's open batch would free now, in bytes: none while it holds both
// rows that are visible and rows of the transaction that is being applied. The applier's turn.
func (t *table) sealable(m *Mirror) int64 {
	if t.state != stateStreaming || t.open.batch.rows == 0 {
		return 0
	}
	if first, last := t.open.batch.span(); first <= m.applied && last > m.applied {
		return 0
	}
	if w := t.open.batch.weight; w >= m.sealLeast() {
		return w
	}
	return 0
}

// An open batch below sealLeast is not worth a file of its own. Of very many tables a smaller one is, for all that are left together must stay below half of
// the bound; one below sealNever wins nothing.
const (
	sealLeast = 64 << 10
	sealNever = 4 << 10
)

// sealLeast is the size from which an open batch is sealed when memory is short. The applier's turn.
func (m *Mirror) sealLeast() int64 {
	return min(sealLeast, max(sealNever, m.cfg.Memory/2/int64(max(1, len(m.tables)))))
}

// flushable is the memory that a flush of the table would free now, in bytes. The applier's turn.
func (t *table) flushable(m *Mirror) (bytes int64) {
	for _, s := range t.choose(m, maxLSN) {
		bytes += s.batch.weight
	}
	return bytes
}
