package mirror

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestRebuildIndexes (S-P2, with make bench-size): FileIndexes that are missing at the start are built several at once, but within half of the bound of memory, and status shows how far that is.
func TestRebuildIndexes(t *testing.T) {
	for _, c := range []struct {
		name     string
		memory   int64
		together int
	}{{"room for all", 1 << 30, max(2, runtime.GOMAXPROCS(0))}, {"room for one", 2, 1}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.faults, w.pressure = 0, false
				for range 30 {
					w.transaction()
				}
				w.start() // whose first copy makes many small files
				w.check(w.m.checkpoint(t.Context()))
				files := len(w.files.files)
				w.end()
				clear(w.files.files)

				m, err := New(Config{Slot: "m", Publications: []string{"p"}, IndexDir: w.dir}, w.source, w.ware, w.files, w.clock)
				w.check(err)
				m.cfg.Memory = c.memory
				var mu sync.Mutex
				now, most := 0, 0
				var told []string
				w.files.writing = func() error {
					mu.Lock()
					now++
					most = max(most, now)
					told = append(told, m.Ready().Error())
					mu.Unlock()
					time.Sleep(time.Millisecond) // whoever can goes on
					mu.Lock()
					now--
					mu.Unlock()
					return nil
				}
				w.check(m.recover(context.Background()))
				if most != c.together {
					t.Errorf("%d indexes were built at once, not %d", most, c.together)
				}
				if len(w.files.files) < files || files < 4 {
					t.Errorf("there were %d indexes, now there are %d", files, len(w.files.files))
				}
				if last := fmt.Sprintf("starting: building file indexes that are missing: %d of %d files", len(told)-1, len(told)); c.together == 1 && !strings.HasPrefix(told[len(told)-1], last) {
					t.Errorf("while the last one was built, status showed %q", told[len(told)-1])
				}
				if left := m.shared.get().reason; left != "" {
					t.Errorf("afterwards status shows %q", left)
				}
				m.release()
			})
		})
	}
}
