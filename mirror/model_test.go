package mirror

import (
	"context"
	"flag"
	"fmt"
	"testing"
)

var (
	modelSeed  = flag.Uint64("model.seed", 0, "run the model test with this seed alone")
	modelSeeds = flag.Int("model.seeds", 150, "number of seeds of the model test")
	modelSteps = flag.Int("model.steps", 250, "steps a seed")
)

// TestModel: whatever transactions come, and however flushes, folds, checkpoints, crashes and recoveries fall between them,
// every read at an LSN of the window gives exactly the rows that the source had at that LSN, and a reader that stays sees
// its rows unchanged.
func TestModel(t *testing.T) {
	first, last := uint64(1), uint64(*modelSeeds)
	if *modelSeed != 0 {
		first, last = *modelSeed, *modelSeed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range w.rng.IntN(30) {
				w.transaction() // only the first copy will see it
			}
			w.start()
			for range *modelSteps {
				w.step()
			}
			w.settle()
			w.check(w.m.Check(context.Background()))
			w.check(w.m.checkpoint(context.Background()))
			w.crash()
			w.readSomewhere()
			w.stop()
			<-w.ended
		})
	}
}
