package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pgmirror/readstate"
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

// compactor makes few files of many when a checkpoint has named them and the policy allows: one rewrite of a table, then one of the next that is due,
// so that with however few bytes a second no table waits longer than for one rewrite of each other.
type compactor struct {
	m    *Mirror
	wake chan struct{}
	last readstate.TableName // the table that it worked on last; the applier's
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

// compact compacts what is due, until nothing is.
func (c *compactor) compact(ctx context.Context) error {
	m := c.m
	for {
		var t *table
		_, err := m.rewriteFiles(ctx, func() *rewrite {
			rw := c.begin()
			if rw != nil {
				t = rw.table
			}
			return rw
		})
		if t == nil {
			return err
		}
		t.tidying.Unlock()
		if err == nil {
			err = c.rewritten(ctx, t)
		}
		if err := m.failDamaged(ctx, t, err); err != nil {
			return err
		}
	}
}

// begin begins the next rewrite, of the first table after the last one that is due and on whose files nobody works; nil when there is none, outside the
// window and when the disk is short. The caller gives the table's tidying back. The applier's turn.
func (c *compactor) begin() *rewrite {
	m, now := c.m, c.m.clock.Now()
	if !m.cfg.Compact.Window.Contains(now) || m.cfg.Disk.Paused() != "" { // what compaction would win it must write first
		return nil
	}
	first, found := slices.BinarySearchFunc(m.tables, c.last, func(t *table, name readstate.TableName) int { return t.name.Compare(name) })
	if found {
		first++
	}
	for i := range m.tables {
		t := m.tables[(first+i)%len(m.tables)]
		if !t.compactionDue(m, now) || !t.tidying.TryLock() { // a command may hold it for hours, and the window may be over then
			continue
		}
		if rw := m.beginCompaction(t, false); rw != nil {
			c.last = t.name
			return rw
		}
		t.tidying.Unlock()
	}
	return nil
}

// compactionDue says whether the last compaction of the table is long enough ago. The applier's turn.
func (t *table) compactionDue(m *Mirror, now time.Time) bool {
	return t.compactedAt.IsZero() || now.Sub(t.compactedAt) >= m.cfg.Compact.MinInterval
}

// rewritten notes when a table's compaction ended: with the rewrite after which there is nothing more to do.
func (c *compactor) rewritten(ctx context.Context, t *table) error {
	m := c.m
	signal(m.flusher.wake) // there is a new FileIndex, perhaps one too many
	return m.inAnyTurn(ctx, func() error {
		if len(t.compactable(m, m.marks.low(), false)) == 0 {
			t.compactedAt = m.clock.Now()
		}
		return nil
	})
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
