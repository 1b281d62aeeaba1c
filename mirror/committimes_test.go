package mirror

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// A time is answered with the state after the last commit, in the order of the WAL, that was made at or before it, though commit times go back now and then; what lies
// below LWM is refused, and what lies in the future.
func TestReadAtTime(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		w := newWatermarks(0)
		begun := someTime
		w.open(100, begun, begun)
		hold, err := w.register(0)
		if err != nil {
			t.Fatal(err)
		}
		type commit struct {
			lsn LSN
			at  time.Time
		}
		commits, last, now := []commit{{100, begun}}, LSN(100), begun
		for range 60 {
			last += LSN(1 + rng.IntN(20))
			now = now.Add(time.Duration(rng.IntN(5)) * time.Millisecond)
			if rng.IntN(4) == 0 {
				w.publish(last, now)
				continue
			}
			at := now.Add(-time.Duration(rng.IntN(3)*rng.IntN(4)) * time.Millisecond).Add(time.Duration(rng.IntN(2)) * 300 * time.Microsecond)
			commits = append(commits, commit{last, at})
			w.publishCommit(last, at, now)
		}
		if rng.IntN(2) == 0 { // the floor moves up
			higher, err := w.register(100 + LSN(rng.IntN(int(last-100)+1)))
			if err != nil {
				t.Fatal(err)
			}
			w.release(hold)
			hold = higher
		}
		low := w.low()
		for asked := begun.Add(-2 * time.Millisecond); !asked.After(now); asked = asked.Add(time.Millisecond) {
			found := -1
			for i, c := range commits {
				if !c.at.After(asked) {
					found = i
				}
			}
			readable := found >= 0 && (commits[found].lsn >= low || found+1 == len(commits) || commits[found+1].lsn > low)
			p, err := w.registerTime(asked, now)
			if !readable {
				if !errors.Is(err, ErrOutsideWindow) {
					t.Fatalf("%s: pinned %+v, %v; the state lies below %s", asked, p, err, low)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", asked, err)
			}
			if p.LSN < commits[found].lsn || found+1 < len(commits) && p.LSN >= commits[found+1].lsn || p.LSN < low {
				t.Fatalf("%s: pinned %s, but the commit is %+v, LWM %s", asked, p.LSN, commits[found], low)
			}
			w.release(p)
		}
		if _, err := w.registerTime(now.Add(time.Second), now); !errors.Is(err, ErrOutsideWindow) {
			t.Errorf("the future: %v", err)
		}
	}
}
