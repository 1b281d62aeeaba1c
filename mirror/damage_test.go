package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgmirror/iceberg"
	"pgmirror/readstate"
)

// live runs a mirror for one life, from its start until do returns.
func (b *bank) live(t *testing.T, do func(*Mirror)) {
	t.Helper()
	m := b.mirror(t)
	b.run(t, m, func() { do(m) })
}

// run is live for a mirror that is made already.
func (b *bank) run(t *testing.T, m *Mirror, do func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	defer func() { // also when do gives up, perhaps because the mirror has ended
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the mirror ended with %v", err)
		}
	}()
	opened(t, m)
	do()
}

// TestDamageFailsOneTable: a table whose files are damaged, or whose index must be built again from a data file that is, fails
// alone: it names the file, the other tables run on, and the slot is not held back. It stays failed in later lives; when the files
// are restored, what it held can be read.
func TestDamageFailsOneTable(t *testing.T) {
	const file = "/w/b/000007.parquet"
	metadata := func(b *bank) {
		b.ware.faulty = map[string]error{"b": fmt.Errorf("%w: %s is cut", iceberg.ErrCorrupt, file)}
	}
	content := func(b *bank) {
		clear(b.files.files)
		b.ware.unreadable = func(path string) error {
			if strings.HasPrefix(path, "/w/b/") {
				return fmt.Errorf("%w: %s is cut", iceberg.ErrCorrupt, file)
			}
			return nil
		}
	}
	for name, damage := range map[string]func(*bank){"metadata": metadata, "data file": content} {
		t.Run(name, func(t *testing.T) {
			b := newBank(5)
			b.live(t, func(m *Mirror) {
				for range 50 {
					b.transfer()
				}
				b.equal(t, m)
			})
			good := b.ware.lastCut()
			held := int64(0)
			for _, amount := range b.amounts[1] {
				held += amount
			}
			failed := func(m *Mirror) {
				t.Helper()
				st, err := m.status(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, ts := range st.Tables {
					if ts.Name != "public.b" {
						if ts.State != "streaming" {
							t.Errorf("%s is %s: %s", ts.Name, ts.State, ts.Error)
						}
					} else if ts.State != "failed" || !strings.Contains(ts.Error, file) || ts.Remedy == "" || ts.DurableLSN != good.String() {
						t.Errorf("the damaged table is %+v", ts)
					}
				}
			}
			read := func(m *Mirror, at LSN) string {
				t.Helper()
				state, err := m.Pin(t.Context(), readstate.PinRequest{At: at})
				if err != nil {
					return err.Error()
				}
				defer state.Release()
				rt, _ := state.Table(readstate.TableName{Schema: "public", Name: "b"})
				if rt.Err != "" {
					return rt.Err
				}
				sum, _, err := b.sum(state, "b")
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprint(sum)
			}
			damage(b)
			for range 2 {
				b.live(t, func(m *Mirror) {
					failed(m)
					for range 20 {
						b.transfer()
					}
					if _, err := m.Pin(t.Context(), readstate.PinRequest{WaitLSN: b.source.end()}); err != nil {
						t.Fatal(err)
					}
					if _, err := m.Call(t.Context(), "checkpoint", nil, nil); err != nil {
						t.Fatal(err)
					}
					if slot, _, _ := b.source.Slot(t.Context()); slot.ConfirmedFlush <= good {
						t.Errorf("the slot is held back at %s", slot.ConfirmedFlush)
					}
					failed(m)
					if text := read(m, 0); !strings.Contains(text, file) {
						t.Errorf("reading the damaged table: %s", text)
					}
					if err := m.Check(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			b.ware.faulty, b.ware.unreadable = nil, nil
			b.live(t, func(m *Mirror) {
				failed(m)
				if text := read(m, good); text != fmt.Sprint(held) {
					t.Errorf("restored, it holds %s at %s, want %d", text, good, held)
				}
			})
		})
	}
}

// TestDamageFoundByCompaction: a file that compaction cannot read fails its table alone; a resync brings that back.
func TestDamageFoundByCompaction(t *testing.T) {
	for _, asked := range []bool{false, true} {
		w := newWorld(t, 12)
		w.faults, w.pressure, w.history = 0, false, 0
		w.start()
		ctx := t.Context()
		w.m.compactRows, w.m.compactRun = 1000, 2
		tab := w.flushed(1, 4)
		w.ware.unreadable = func(path string) error {
			if slices.ContainsFunc(tab.files, func(s *segment) bool { return s.file.data.Path == path }) {
				return fmt.Errorf("%w: %s is cut", iceberg.ErrCorrupt, path)
			}
			return nil
		}
		if asked {
			committed := w.ware.committed
			w.ware.committed = nil // it reads the files
			if _, err := w.m.Compact(ctx, CompactRequest{}, func(string) {}); !errors.Is(err, iceberg.ErrCorrupt) {
				t.Errorf("compaction that was asked for: %v", err)
			}
			w.ware.committed = committed
		} else {
			w.check((&compactor{m: w.m}).compact(ctx))
		}
		w.check(w.m.inTurn(ctx, func() error {
			for _, other := range w.m.tables {
				if failed := other.state == stateFailed; failed != (other == tab) {
					t.Errorf("%s is %s: %+v", other, other.state, other.failure)
				}
			}
			if f := tab.failure; f == nil || !strings.Contains(f.Reason, "is cut") || f.Remedy != remedyDamaged {
				t.Errorf("the failure is %+v", f)
			}
			w.m.wantJoin(tab.oid, tab, "asked for")
			return nil
		}))
		w.ware.unreadable = nil // commits compare what the files hold
		w.check(w.m.checkpoint(ctx))
		w.joined()
		w.end()
	}
}
