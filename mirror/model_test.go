package mirror

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"pgmirror/readstate"
)

var (
	modelSeed  = flag.Uint64("model.seed", 0, "run the model test with this seed alone")
	modelSeeds = flag.Int("model.seeds", defaultSeeds, "number of seeds of the model test")
	modelSteps = flag.Int("model.steps", 250, "steps a seed")
)

// TestModel: whatever transactions come, and however flushes, folds, checkpoints, lost connections, crashes and recoveries fall
// between them, every read at an LSN of the window gives exactly the rows that the source had at that LSN, every committed
// snapshot holds exactly the rows at its cut, the changes of any range of the window are those of the source, a reader that stays sees its rows unchanged, and a table that meets something it
// cannot take fails alone and keeps its last good content.
func TestModel(t *testing.T) {
	first, last := uint64(1), uint64(*modelSeeds)
	if *modelSeed != 0 {
		first, last = *modelSeed, *modelSeed
	}
	longest, changes := 0, 0
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := runWorld(t, seed, func(*world) {})
			longest = max(longest, w.longest)
			changes += w.changesSeen
		})
	}
	if !t.Failed() && *modelSeed == 0 && changes < int(last) {
		t.Errorf("the feeds held %d changes", changes)
	}
	if *modelSeed == 0 && !t.Failed() && longest < 10 && last >= 50 {
		t.Errorf("no reader stayed for ten checkpoints: %d is the most", longest)
	}
}

func runWorld(t *testing.T, seed uint64, prepare func(*world)) *world {
	w := newWorld(t, seed)
	if w.ware.retains = seed%2 == 0; seed%3 == 0 {
		w.ware.grace = 3 * time.Second
	}
	prepare(w)
	for range w.rng.IntN(30) {
		w.transaction() // only the first copy will see it
	}
	w.start()
	for range *modelSteps {
		w.step()
	}
	w.settle()
	w.audit()
	w.check(w.m.checkpoint(context.Background()))
	w.crash()
	w.readSomewhere()
	w.audit()
	w.end()
	return w
}

// TestReaderOverManyCheckpoints: a reader that stays over many checkpoints, folds and reaps sees its rows unchanged and delays
// none of them.
func TestReaderOverManyCheckpoints(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, 1000+seed)
			w.faults = 0
			w.start()
			ctx := context.Background()
			for range 10 {
				w.transaction()
			}
			w.settle()
			st, err := w.m.Pin(ctx, readstate.PinRequest{})
			w.check(err)
			for range 12 {
				for range 3 {
					w.transaction()
				}
				w.settle()
				w.check(w.m.checkpoint(ctx))
				if cut := w.ware.lastCut(); cut != w.m.marks.high() {
					w.fatal("the checkpoint was delayed: it is at %s, visible is %s", cut, w.m.marks.high())
				}
				w.check(w.m.fold(ctx))
				w.check(w.m.reap(ctx))
				w.compare(st, false)
			}
			st.Release()
			w.audit()
			w.end()
		})
	}
}

// TestModelRepeats: the same seed gives the same run, so that a failing one can be run again.
func TestModelRepeats(t *testing.T) {
	run := func(seed uint64) []string {
		w := newWorld(t, seed)
		w.start()
		for range 100 {
			w.step()
		}
		w.settle()
		w.end()
		return w.trace
	}
	for seed := uint64(1); seed <= 5; seed++ {
		a, b := run(seed), run(seed)
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("seed %d, entry %d: %q and %q", seed, i, a[i], b[i])
			}
		}
		if len(a) != len(b) {
			t.Fatalf("seed %d: %d and %d entries", seed, len(a), len(b))
		}
	}
}
