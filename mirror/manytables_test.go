package mirror

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgmirror/pgcdc"
)

// Of many tables that come at once, few are copied at a time, those that were tried least first, and all of them join.
func TestManyTablesJoin(t *testing.T) {
	w := quietWorld(t, 11)
	ctx := context.Background()
	const newcomers, together = 5, 2
	for i := range newcomers {
		def := tableDef(uint32(80+i), fmt.Sprintf("newcomer%d", i), 'd', []int{0}, []int{0}, oidInt4, oidText)
		w.tables = append(w.tables, &modelTable{def: def})
		w.source.tables = append(w.source.tables, def)
	}
	w.told = false
	for range 20 {
		w.transaction()
	}
	w.settle()
	w.m.joinsTogether = together
	_, err := w.m.look(ctx, false)
	w.check(err)
	w.settle()
	copies, logs := 0, 0
	w.source.copied = func(uint32) error {
		copies++
		return w.m.inAnyTurn(ctx, func() error {
			n := 0
			for _, j := range w.m.joins {
				if j.log != nil {
					n++
				}
			}
			logs = max(logs, n)
			return nil
		})
	}
	for _, want := range []struct {
		left  int
		fresh bool
	}{{3, true}, {1, true}, {0, false}} {
		left, fresh, err := w.m.joinQueued(ctx)
		w.check(err)
		if left != want.left || fresh != want.fresh {
			t.Fatalf("%d tables are left, some not tried: %v; want %+v", left, fresh, want)
		}
	}
	w.source.copied = nil
	if logs != together || copies < newcomers {
		t.Errorf("%d logs were open at once, %d copies", logs, copies)
	}
	w.settle()
	for i := range newcomers {
		w.same(uint32(80 + i))
	}
	w.end()
}

// While the stream is behind, looks at the catalogue do not pile up. Those that a reader waits for stay, the oldest too, so that something is judged
// soon, and the newest.
func TestLooksAreThinned(t *testing.T) {
	m := &Mirror{}
	var awaited []LSN
	for i := range LSN(1000) {
		wanted := i%100 == 7
		if wanted {
			awaited = append(awaited, i)
		}
		m.looks = append(m.looks, look{catalog: &pgcdc.Catalog{LSN: i}, awaited: wanted})
		m.thinLooks()
		if last := m.looks[len(m.looks)-1].catalog.LSN; last != i && !m.looks[len(m.looks)-1].awaited {
			t.Fatalf("the newest look is %s, want %s", last, i)
		}
	}
	if first := m.looks[0].catalog.LSN; first != 0 {
		t.Errorf("the oldest look is %s", first)
	}
	if n := len(m.looks); n > maxLooks+len(awaited) {
		t.Errorf("%d looks are kept", n)
	}
	if !slices.IsSortedFunc(m.looks, func(a, b look) int { return int(a.catalog.LSN) - int(b.catalog.LSN) }) {
		t.Error("the looks are out of order")
	}
	for _, lsn := range awaited {
		if !slices.ContainsFunc(m.looks, func(l look) bool { return l.catalog.LSN == lsn }) {
			t.Errorf("the look at %s is awaited, and gone", lsn)
		}
	}
}

// A large state is not stored every second just because the source's WAL goes on.
func TestStorePause(t *testing.T) {
	for bytes, want := range map[int64]time.Duration{0: 0, 1 << 10: time.Second / 64, storeRate: time.Second, 3 << 20: 48 * time.Second} {
		if got := storePause(bytes); got != want {
			t.Errorf("%d bytes: %s, want %s", bytes, got, want)
		}
	}
}
