package mirror

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgmirror/readstate"
)

// TestSettledStateHoldsItsFilesAlone: LWM moves past a state that has settled, and the state goes on seeing its rows while tables are changed,
// truncated, compacted and copied again; its files, and no others, stay until its release.
func TestSettledStateHoldsItsFilesAlone(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, 5000+seed)
			w.faults, w.history, w.sound = 0, 0, true
			w.start()
			ctx := context.Background()
			for range 10 {
				w.transaction()
			}
			w.settle()
			w.check(w.m.checkpoint(ctx))
			for range 4 { // rows in memory too
				w.transaction()
			}
			w.settle()
			st, err := w.m.Pin(ctx, readstate.PinRequest{})
			w.check(err)
			var named []string
			for _, rt := range st.Tables {
				for _, f := range rt.Files {
					named = append(named, f.Path)
				}
			}
			p := pinnedState{State: st}
			w.settleState(&p)
			work := func() {
				for range 6 {
					w.transaction()
				}
				w.resync()
				w.settle()
				w.check(w.m.checkpoint(ctx))
				for _, table := range w.m.tables {
					_, err := w.m.compact(ctx, table, true)
					w.check(err)
				}
				w.check(w.m.checkpoint(ctx))
				w.check(w.m.fold(ctx))
				w.check(w.m.reap(ctx))
			}
			for range 5 {
				work()
				w.compareSettled(&p)
			}
			for _, other := range w.pinned {
				other.Release()
			}
			w.pinned = nil
			w.check(w.m.reap(ctx))
			if low, high := w.m.marks.low(), w.m.marks.high(); low != high || low <= st.LSN {
				w.fatal("LWM is %s and HWM %s; the settled state is at %s", low, high, st.LSN)
			}
			garbage := func() (n int) {
				w.check(w.m.inTurn(ctx, func() error {
					for _, g := range w.m.garbage {
						for _, path := range g.paths {
							if n++; !slices.Contains(named, path) {
								return fmt.Errorf("%s is kept for nobody", path)
							}
						}
					}
					for _, path := range w.m.discarded {
						if n++; !slices.Contains(named, path) {
							return fmt.Errorf("%s is kept for nobody", path)
						}
					}
					return nil
				}))
				return n
			}
			if n := garbage(); n != len(st.Kept()) {
				w.fatal("%d files are kept; the state says %v", n, st.Kept())
			}
			if n := w.m.pinned.Load(); n != 0 {
				w.fatal("%d bytes are counted for a state that has settled", n)
			}
			st.Release()
			w.check(w.m.reap(ctx))
			if n := garbage(); n != 0 {
				w.fatal("%d files are kept for nobody", n)
			}
			w.audit()
			w.end()
		})
	}
}
