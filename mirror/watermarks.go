package mirror

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// watermarks is the mirror's clock. HWM is the LSN up to which every commit is applied; LWM is the smallest LSN that any
// reader may still use: everything that was deleted at or below it is gone for good.
//
// Reading HWM, registering a reader and computing LWM are one critical section, so LWM can never pass a reader that is
// just about to register (defect X3 of the Retina code). LWM never goes back.
type watermarks struct {
	hwm atomic.Uint64 // written under mu

	mu      sync.Mutex
	lwm     LSN
	readers *list.List // of *pin, by LSN
	serial  uint64     // counts registrations
	waiting map[*waiter]struct{}

	history time.Duration
	trail   []mark // of HWM, by time, as far back as history goes
	times   commitTimes
}

// mark says that HWM was lsn at the time.
type mark struct {
	lsn LSN
	at  time.Time
}

type waiter struct {
	lsn  LSN
	done chan struct{}
}

// pin holds LWM at or below LSN until it is released.
type pin struct {
	LSN    LSN
	serial uint64 // order of registration
	at     *list.Element
}

func newWatermarks(history time.Duration) *watermarks {
	return &watermarks{readers: list.New(), waiting: map[*waiter]struct{}{}, history: history}
}

// open sets both watermarks at start. committed is the time of the newest commit at or below at; now when there was none.
func (w *watermarks) open(at LSN, committed, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if committed.IsZero() {
		committed = now
	}
	w.times.begin(at, committed)
	w.hwm.Store(uint64(at))
	w.lwm = max(w.lwm, at)
	w.trail = append(w.trail[:0], mark{at, now})
}

// high is HWM.
func (w *watermarks) high() LSN { return LSN(w.hwm.Load()) }

// publish moves HWM to the end of a keepalive's WAL. It never goes back.
func (w *watermarks) publish(to LSN, now time.Time) { w.publishCommit(to, time.Time{}, now) }

// publishCommit moves HWM to the end of a commit, or of a keepalive's WAL, which has no time.
func (w *watermarks) publishCommit(to LSN, committed, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if to <= w.high() {
		return
	}
	w.hwm.Store(uint64(to))
	if committed.IsZero() {
		w.times.passed(to)
	} else {
		w.times.commit(to, committed)
	}
	defer func() { w.times.trim(w.lowLocked()) }()
	if w.history > 0 {
		w.extendTrailLocked(to, now)
	}
	for wt := range w.waiting {
		if wt.lsn <= to {
			close(wt.done)
			delete(w.waiting, wt)
		}
	}
}

// Between two marks lies about trailStep or a trailMost-th of the window, whichever is more. The window is at most so much longer than asked for.
const (
	trailStep = 100 * time.Millisecond
	trailMost = 10_000
)

func (w *watermarks) extendTrailLocked(to LSN, now time.Time) {
	if n := len(w.trail); n > 1 && now.Sub(w.trail[n-2].at) < max(trailStep, w.history/trailMost) {
		w.trail[n-1] = mark{to, now}
	} else {
		w.trail = append(w.trail, mark{to, now})
	}
	// The last mark at least history old is the window's floor; those before it are of no use.
	drop := 0
	for drop+1 < len(w.trail) && now.Sub(w.trail[drop+1].at) >= w.history {
		drop++
	}
	w.trail = w.trail[drop:] // append moves the rest when the array is full
}

// low is LWM now.
func (w *watermarks) low() LSN {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lowLocked()
}

func (w *watermarks) lowLocked() LSN {
	low := w.high()
	if w.history > 0 && len(w.trail) > 0 {
		low = min(low, w.trail[0].lsn)
	}
	if first := w.readers.Front(); first != nil {
		low = min(low, first.Value.(*pin).LSN)
	}
	w.lwm = max(w.lwm, low)
	return w.lwm
}

// register pins LSN at, or HWM when at is 0.
func (w *watermarks) register(at LSN) (*pin, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.registerLocked(at)
}

func (w *watermarks) registerLocked(at LSN) (*pin, error) {
	high, low := w.high(), w.lowLocked()
	if at == 0 {
		at = high
	}
	if at < low || at > high {
		return nil, fmt.Errorf("%w: the mirror can be read from %s to %s now, not at %s", ErrOutsideWindow, low, high, at)
	}
	w.serial++
	p := &pin{LSN: at, serial: w.serial}
	after := w.readers.Back()
	for after != nil && after.Value.(*pin).LSN > at {
		after = after.Prev()
	}
	if after == nil {
		p.at = w.readers.PushFront(p)
	} else {
		p.at = w.readers.InsertAfter(p, after)
	}
	return p, nil
}

// release gives a pin up; releasing it again does nothing.
func (w *watermarks) release(p *pin) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.at != nil {
		w.readers.Remove(p.at)
		p.at = nil
	}
}

// readerCount counts the pins held, and says which registration is the oldest still held (or the next one's, if none is).
func (w *watermarks) readerCount() (n int, oldest uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest = w.serial + 1
	for e := w.readers.Front(); e != nil; e = e.Next() {
		oldest = min(oldest, e.Value.(*pin).serial)
	}
	return w.readers.Len(), oldest
}

// lastSerial is the number of the newest registration.
func (w *watermarks) lastSerial() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.serial
}

// wait blocks until HWM reaches lsn.
func (w *watermarks) wait(ctx context.Context, lsn LSN) error {
	w.mu.Lock()
	if w.high() >= lsn {
		w.mu.Unlock()
		return nil
	}
	wt := &waiter{lsn: lsn, done: make(chan struct{})}
	w.waiting[wt] = struct{}{}
	w.mu.Unlock()
	select {
	case <-wt.done:
		return nil
	case <-ctx.Done():
		w.mu.Lock()
		delete(w.waiting, wt)
		w.mu.Unlock()
		return fmt.Errorf("wait for %s (visible is %s): %w", lsn, w.high(), context.Cause(ctx))
	}
}
