package mirror

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgmirror/readstate"
)

var someTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestPinHoldsLow: LWM is the smallest pinned LSN, or HWM without pins, and never goes back.
func TestPinHoldsLow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		w := newWatermarks(0)
		w.open(100, time.Time{}, someTime)
		high, low := LSN(100), LSN(100) // the model's
		held := map[*pin]LSN{}
		for range 100 {
			switch rng.IntN(4) {
			case 0:
				high += LSN(rng.IntN(10))
				w.publish(high, someTime)
				w.publish(high-1, someTime) // never goes back
			case 1:
				at := low + LSN(rng.Uint64N(uint64(high-low)+1))
				p, err := w.register(at)
				if err != nil {
					t.Fatal(err)
				}
				held[p] = at
			case 2:
				for p := range held {
					w.release(p)
					w.release(p) // does nothing
					delete(held, p)
					break
				}
			case 3:
				for _, at := range []LSN{low - 1, high + 1} {
					if _, err := w.register(at); !errors.Is(err, ErrOutsideWindow) {
						t.Fatalf("register %s in [%s, %s]: %v", at, low, high, err)
					}
				}
			}
			lowest := high
			for _, at := range held {
				lowest = min(lowest, at)
			}
			low = max(low, lowest)
			if w.low() != low || w.high() != high {
				t.Fatalf("[%s, %s], want [%s, %s]", w.low(), w.high(), low, high)
			}
			if n, _ := w.readerCount(); n != len(held) {
				t.Fatalf("%d readers, want %d", n, len(held))
			}
		}
	}
}

// TestOldestRegistration: readerCount names the oldest registration still held, whatever its LSN, or the next one's.
func TestOldestRegistration(t *testing.T) {
	w := newWatermarks(time.Hour)
	w.open(100, time.Time{}, someTime)
	w.publish(200, someTime)
	late, _ := w.register(200)
	early, _ := w.register(150)
	if n, oldest := w.readerCount(); n != 2 || oldest != 1 || w.lastSerial() != 2 {
		t.Errorf("%d readers, oldest %d, last %d", n, oldest, w.lastSerial())
	}
	w.release(late)
	if n, oldest := w.readerCount(); n != 1 || oldest != 2 {
		t.Errorf("%d readers, oldest %d", n, oldest)
	}
	w.release(early)
	if n, oldest := w.readerCount(); n != 0 || oldest != 3 {
		t.Errorf("%d readers, oldest %d", n, oldest)
	}
}

// TestHistory: what was visible up to history ago can be registered, and little more than that; publishing often keeps few
// marks.
func TestHistory(t *testing.T) {
	const history = 10 * time.Second
	w := newWatermarks(history)
	now := someTime
	w.open(100, time.Time{}, now)
	var published []mark
	rng := rand.New(rand.NewPCG(2, 2))
	for lsn := LSN(101); lsn < 5000; lsn++ {
		now = now.Add(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
		w.publish(lsn, now)
		published = append(published, mark{lsn, now})
		low := w.low()
		for _, m := range published {
			if m.lsn < low && now.Sub(m.at) < history-history/100 {
				// It was replaced as visible by lsn m.lsn+1 at or before now−history only if that came so early.
				if next := published[m.lsn-101+1]; now.Sub(next.at) < history {
					t.Fatalf("%s was visible %s ago, but LWM is %s", m.lsn, now.Sub(m.at), low)
				}
			}
			if m.lsn >= low {
				if age := now.Sub(m.at); age > history+3*trailStep {
					t.Fatalf("%s is still readable after %s", m.lsn, age)
				}
				break
			}
		}
	}
	if most := int(history/trailStep) * 2; len(w.trail) > most {
		t.Errorf("%d marks are kept, want at most %d", len(w.trail), most)
	}
}

// TestLongHistory: a long window has no more marks than a short one, and is longer than asked for by a small part.
func TestLongHistory(t *testing.T) {
	const history, pause = 720 * time.Hour, 10 * time.Second
	w := newWatermarks(history)
	w.open(100, time.Time{}, someTime)
	now, most := someTime, 0
	for lsn := LSN(101); now.Before(someTime.Add(3 * history)); lsn++ {
		now = now.Add(pause)
		w.publish(lsn, now)
		most = max(most, len(w.trail))
		floor := someTime.Add(time.Duration(w.low()-100) * pause)
		if age := now.Sub(floor); floor.After(someTime) && (age < history || age > history+history/trailMost*3) {
			t.Fatalf("the window reaches back %s", age)
		}
	}
	if most > 2*trailMost {
		t.Errorf("%d marks were kept", most)
	}
}

// TestWait: a wait ends when HWM reaches its LSN, and no earlier, or by its context with the cause and both LSNs.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatermarks(0)
		w.open(100, time.Time{}, time.Now())
		if err := w.wait(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		reached := make(chan error, 1)
		go func() { reached <- w.wait(t.Context(), 200) }()
		w.publish(199, time.Now())
		synctest.Wait()
		select {
		case err := <-reached:
			t.Fatalf("the wait for 200 ended at 199: %v", err)
		default:
		}
		w.publish(200, time.Now())
		synctest.Wait()
		select {
		case err := <-reached:
			if err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatal("the wait for 200 did not end at 200")
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		began := time.Now()
		if err := w.wait(ctx, 300); !errors.Is(err, cause) || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if len(w.waiting) != 0 {
			t.Error("a waiter that gave up is still known")
		}
	})
}

// TestRegisterAndLow: while commits are published and LWM is asked for at once, no reader that registers at HWM is ever passed
// by LWM.
func TestRegisterAndLow(t *testing.T) {
	w := newWatermarks(0)
	w.open(1, time.Time{}, someTime)
	var readers, others sync.WaitGroup
	done := make(chan struct{})
	others.Go(func() {
		for lsn := LSN(2); ; lsn++ {
			select {
			case <-done:
				return
			default:
				w.publish(lsn, someTime)
				w.low()
			}
		}
	})
	for range 4 {
		readers.Go(func() {
			for range 20000 {
				p, err := w.register(0)
				if err != nil {
					t.Error(err)
					return
				}
				if low := w.low(); low > p.LSN {
					t.Errorf("LWM %s has passed a reader at %s", low, p.LSN)
					return
				}
				w.release(p)
			}
		})
	}
	readers.Wait()
	close(done)
	others.Wait()
}

// TestReadYourWrites: a read that waits for a commit sees it, and all that came before, also when batches were sealed and flushed
// meanwhile.
func TestReadYourWrites(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		w := newWorld(t, 2000+seed)
		w.faults = 0
		w.start()
		for range 10 {
			// The reader asks for more than there is, and stands waiting before more comes.
			type answer struct {
				st  *readstate.State
				err error
			}
			answers := make(chan answer, 1)
			w.settle()
			next := w.m.marks.high() + 1
			go func() {
				st, err := w.m.Pin(context.Background(), readstate.PinRequest{WaitLSN: next})
				answers <- answer{st, err}
			}()
			for waiting := 0; waiting == 0; {
				w.m.marks.mu.Lock()
				waiting = len(w.m.marks.waiting)
				w.m.marks.mu.Unlock()
			}
			w.transactionOf(40)
			a := <-answers
			w.check(a.err)
			if a.st.LSN < next {
				w.fatal("the read is at %s, it was to wait for %s", a.st.LSN, next)
			}
			w.settle()
			w.compare(a.st, false)
			a.st.Release()
		}
		w.end()
	}
}
