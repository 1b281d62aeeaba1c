package mirror

import (
	"context"
	"errors"
	"testing"

	"pgmirror/pgcdc"
)

// TestCheckpointGivenUp: a checkpoint that its caller gives up while files are written, or that cannot be committed, takes
// nothing from the next one: after that and a crash every row is there.
func TestCheckpointGivenUp(t *testing.T) {
	errFull := errors.New("disk full")
	for name, stop := range map[string]func(w *world, cancel func()){
		"caller":   func(w *world, cancel func()) { w.ware.writing = cancel },
		"no space": func(w *world, _ func()) { w.ware.committing = func() error { return errFull } },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.start()
			for range 20 {
				w.transaction()
			}
			w.settle()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			stop(w, cancel)
			if err := w.m.checkpoint(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, errFull) {
				t.Fatalf("the checkpoint was to fail, but: %v", err)
			}
			w.ware.writing, w.ware.committing = nil, nil
			w.deliver(pgcdc.Event{WALEnd: w.source.idle()})
			w.settle()
			w.check(w.m.checkpoint(context.Background()))
			w.crash()
			w.settle()
			w.readSomewhere()
			w.check(w.m.Check(context.Background()))
			w.stop()
			<-w.ended
		})
	}
}
