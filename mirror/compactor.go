package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Compaction says when files are made fewer by themselves. The zero value of a field means its documented default.
type Compaction struct {
	// Off leaves all files as they were written.
	Off bool
	// DeadRatio is the part of a file's rows, above 0 and at most 1, from which on it is written anew by itself when so many are deleted for every
	// reader. Default 0.5.
	DeadRatio float64
	// Files is how many files a table may have before neighbours are joined that are not worth it otherwise. Default 64.
	Files int
	// MinInterval is the least time between two compactions of one table. Default 0.
	MinInterval time.Duration
	// Window is the part of the day in which compactions begin. The zero value is all of it.
	Window DayWindow
	// BytesPerSecond bounds what compaction, that asked for included, reads and writes in a second. Default 0: no bound.
	BytesPerSecond int64
}

// validate reports every fault and sets the defaults.
func (c *Compaction) validate() error {
	var faults []error
	if c.DeadRatio == 0 {
		c.DeadRatio = 0.5
	}
	if c.Files == 0 {
		c.Files = 64
	}
	if c.DeadRatio < 0 || c.DeadRatio > 1 {
		faults = append(faults, fmt.Errorf("compact: dead ratio %g is not between 0 and 1", c.DeadRatio))
	}
	if c.Files < 8 {
		faults = append(faults, fmt.Errorf("compact: %d files are less than 8", c.Files))
	}
	if c.MinInterval < 0 || c.BytesPerSecond < 0 {
		faults = append(faults, errors.New("compact: the interval or the bytes per second are negative"))
	}
	return errors.Join(faults...)
}

// DayWindow is a part of every day in UTC, from From up to To since midnight; it passes midnight when To is less. From and To alike mean always.
type DayWindow struct{ From, To time.Duration }

// Contains says whether a time lies in the window.
func (w DayWindow) Contains(at time.Time) bool {
	at = at.UTC()
	since := at.Sub(at.Truncate(24 * time.Hour)) // Truncate counts from a midnight in UTC
	if w.From <= w.To {
		return w.From == w.To || w.From <= since && since < w.To
	}
	return w.From <= since || since < w.To
}

// compactor makes few files of many, a table at a time, when a checkpoint has named them and the policy allows.
type compactor struct {
	m    *Mirror
	wake chan struct{}
}

// compactorLook is the time after which it looks by itself: a window may have opened, an interval be over.
const compactorLook = time.Minute

func (c *compactor) run(ctx context.Context) error {
	if c.m.cfg.Compact.Off {
		return nil
	}
	for {
		select {
		case <-c.wake:
		case <-c.m.clock.After(compactorLook):
		case <-ctx.Done():
			return nil
		}
		if err := laterIfFull(c.m, c.compact(ctx)); err != nil {
			return ignoreStop(ctx, err)
		}
	}
}

// compact compacts what is due.
func (c *compactor) compact(ctx context.Context) error {
	m := c.m
	for {
		now := m.clock.Now()
		if !m.cfg.Compact.Window.Contains(now) || m.cfg.Disk.Paused() != "" { // what compaction would win it must write first
			return nil
		}
		var due *table
		err := m.inAnyTurn(ctx, func() error {
			low := m.marks.low()
			if i := slices.IndexFunc(m.tables, func(t *table) bool { return t.compactionDue(m, now) && len(t.compactable(m, low, false)) > 0 }); i >= 0 {
				due = m.tables[i]
			}
			return nil
		})
		if err != nil || due == nil {
			return err
		}
		if err := m.failDamaged(ctx, due, c.compactTable(ctx, due)); err != nil {
			return err
		}
	}
}

// compactionDue says whether the last compaction of the table is long enough ago. The applier's turn.
func (t *table) compactionDue(m *Mirror, now time.Time) bool {
	return t.compactedAt.IsZero() || now.Sub(t.compactedAt) >= m.cfg.Compact.MinInterval
}

// compactTable compacts a table until there is nothing more to do.
func (c *compactor) compactTable(ctx context.Context, t *table) error {
	m := c.m
	for m.cfg.Disk.Paused() == "" {
		rw, err := m.compact(ctx, t, false)
		if err != nil {
			return err
		}
		if rw == nil {
			break
		}
	}
	signal(m.flusher.wake) // its FileIndexes were not merged meanwhile
	return m.inAnyTurn(ctx, func() error { t.compactedAt = m.clock.Now(); return nil })
}

// pace makes work wait so that it takes no more than so many bytes a second. Any goroutine may call it.
type pace struct {
	perSecond int64 // 0: any number

	mu  sync.Mutex
	due time.Time // when what was spent so far is paid for
}

// paceStep is the least time to wait for.
const paceStep = 20 * time.Millisecond

// spend waits until bytes more may be read or written. What was not used earlier is lost: nobody saves up for a rush.
func (p *pace) spend(ctx context.Context, clock Clock, bytes int64) error {
	if p.perSecond == 0 {
		return nil
	}
	p.mu.Lock()
	now := clock.Now()
	if p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(time.Duration(float64(bytes) / float64(p.perSecond) * float64(time.Second)))
	wait := p.due.Sub(now)
	p.mu.Unlock()
	if wait < paceStep {
		return nil
	}
	select {
	case <-clock.After(wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
