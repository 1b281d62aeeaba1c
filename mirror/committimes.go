package mirror

import (
	"fmt"
	"slices"
	"time"
	"unsafe"
)

// commitTimes finds the state that the source had at a time: that after the last commit, in the order of the WAL, whose commit time is not
// above it. Commit times may go back from one commit to the next (they are taken before the record is written, and clocks are set), so that state may hold a
// commit with a later time, but never lacks one with an earlier.
//
// Times count in whole milliseconds: those of commits are rounded up, those that are asked for down. So a commit that is answered for lies at or
// before the time asked for, and an hour of many commits takes no more than 3.6 million entries of 24 bytes.
type commitTimes struct {
	list []timedState // LSNs and times rise; never empty once begun
}

// timedState is the state after a commit. Commits below it in the WAL with a time at or above its own have left the list: no time leads to them.
type timedState struct {
	ms         int64 // Unix time
	from, upTo LSN   // a read at any of these sees just that commit and those before
}

// begin sets the floor: the state at an LSN, and the time of the newest commit in it.
func (c *commitTimes) begin(at LSN, committed time.Time) {
	c.list = append(c.list[:0], timedState{roundUp(committed), at, at})
}

// commit adds a commit that ends at lsn, above all before it.
func (c *commitTimes) commit(lsn LSN, committed time.Time) {
	ms := roundUp(committed)
	n := len(c.list)
	if n > 0 {
		c.list[n-1].upTo = lsn - 1
	}
	for n > 0 && c.list[n-1].ms >= ms {
		n--
	}
	c.list = append(c.list[:n], timedState{ms, lsn, lsn})
}

// passed says that up to lsn there is no further commit.
func (c *commitTimes) passed(lsn LSN) {
	if n := len(c.list); n > 0 {
		c.list[n-1].upTo = max(c.list[n-1].upTo, lsn)
	}
}

// trim forgets states that lie below low as a whole.
func (c *commitTimes) trim(low LSN) {
	drop := 0
	for drop+1 < len(c.list) && c.list[drop].upTo < low {
		drop++
	}
	c.list = c.list[drop:]
}

// bytes is its size.
func (c *commitTimes) bytes() int64 { return int64(len(c.list)) * int64(unsafe.Sizeof(timedState{})) }

// at is the LSN to read for a time; not ok when its state lies below low.
func (c *commitTimes) at(t time.Time, low LSN) (at LSN, ok bool) {
	ms := t.UnixMilli()
	i, _ := slices.BinarySearchFunc(c.list, ms+1, func(s timedState, ms int64) int { return int(min(max(s.ms-ms, -1), 1)) })
	if i == 0 || c.list[i-1].upTo < low {
		return 0, false
	}
	return max(c.list[i-1].from, low), true
}

// floor is the first time that at answers for when nothing below low is read.
func (c *commitTimes) floor(low LSN) time.Time {
	for _, s := range c.list {
		if s.upTo >= low {
			return time.UnixMilli(s.ms).UTC()
		}
	}
	return time.Time{}
}

// newest is the time of the newest commit.
func (c *commitTimes) newest() time.Time {
	if n := len(c.list); n > 0 {
		return time.UnixMilli(c.list[n-1].ms)
	}
	return time.Time{}
}

func roundUp(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

// timesBytes is the memory of the commit times.
func (w *watermarks) timesBytes() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.times.bytes()
}

// registerTime pins the state of a time. The time may not lie above both now and the newest commit's: what will be committed by then is not known.
func (w *watermarks) registerTime(t, now time.Time) (*pin, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	low := w.lowLocked()
	if t.After(now) && t.After(w.times.newest()) {
		return nil, fmt.Errorf("%w: %s lies in the future", ErrOutsideWindow, t.UTC().Format(time.RFC3339Nano))
	}
	at, ok := w.times.at(t, low)
	if !ok {
		return nil, fmt.Errorf("%w: the mirror can be read from %s (%s) to %s now, not at %s", ErrOutsideWindow,
			w.times.floor(low).Format(time.RFC3339Nano), low, w.high(), t.UTC().Format(time.RFC3339Nano))
	}
	return w.registerLocked(at)
}

// registerRange pins the LSN from which a change feed begins, the window's floor when that is 0, and says where it ends: at to, or at HWM when that is 0.
func (w *watermarks) registerRange(from, to LSN) (p *pin, end LSN, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	low, high := w.lowLocked(), w.high()
	if from == 0 {
		from = low
	}
	if to == 0 {
		to = high
	}
	switch {
	case from < low || to > high:
		return nil, 0, fmt.Errorf("%w: changes are known from %s to %s now, not from %s to %s", ErrOutsideWindow, low, high, from, to)
	case from > to:
		return nil, 0, fmt.Errorf("changes from %s to %s: the range ends before it begins", from, to)
	}
	p, err = w.registerLocked(from)
	return p, to, err
}

// floor is LWM and the time of the newest commit at or below it.
func (w *watermarks) floor() (LSN, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	low := w.lowLocked()
	return low, w.times.floor(low)
}
