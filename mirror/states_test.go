package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// standings are all states that a table can be in. Each makes the second table of a bank so; it returns the running mirror, which is
// made afresh with mirror, and what Inspect says of the table; empty when it can say nothing yet.
var standings = map[string]struct {
	inspect string
	make    func(t *testing.T, b *bank) *Mirror
}{
	"in the first copy": {"", func(t *testing.T, b *bank) *Mirror {
		b.hold(2)
		m := b.begin(t)
		until(t, m, func(st *Status) bool { return len(st.Tables) == 3 && st.State == "copying" })
		return m
	}},
	"failed in the first copy, which goes on": {"", func(t *testing.T, b *bank) *Mirror {
		b.spoil(2)
		b.hold(3)
		m := b.begin(t)
		until(t, m, func(st *Status) bool { return len(st.Tables) == 3 && st.State == "copying" })
		return m
	}},
	"failed in the first copy": {"failed", func(t *testing.T, b *bank) *Mirror {
		b.spoil(2)
		return b.failing(t)
	}},
	"failed in the first copy of an earlier life": {"failed", func(t *testing.T, b *bank) *Mirror {
		b.spoil(2)
		b.live(t, func(*Mirror) {})
		return b.failing(t)
	}},
	"of a type that is not mirrored": {"failed", func(t *testing.T, b *bank) *Mirror {
		b.source.tables[1].Unsupported = "a type that is not mirrored"
		return b.failing(t)
	}},
	"streaming": {"streaming", func(t *testing.T, b *bank) *Mirror {
		m := b.begin(t)
		opened(t, m)
		return m
	}},
	"failed in the stream": {"failed", func(t *testing.T, b *bank) *Mirror {
		m := b.begin(t)
		opened(t, m)
		b.source.commit([]message{message{'I'}.u32(2).u8('N').tuple([]cell{val("no number"), val("x"), nil})})
		until(t, m, stands("failed"))
		return m
	}},
	"damaged": {"failed", func(t *testing.T, b *bank) *Mirror {
		b.live(t, func(*Mirror) {})
		b.ware.faulty = map[string]error{"b": fmt.Errorf("%w: a file is cut", iceberg.ErrCorrupt)}
		return b.failing(t)
	}},
	"waiting to join": {"copying", func(t *testing.T, b *bank) *Mirror {
		m := b.late(t)
		until(t, m, stands("copying"))
		return m
	}},
	"copied again": {"streaming", func(t *testing.T, b *bank) *Mirror {
		m := b.begin(t)
		opened(t, m)
		b.hold(2)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		m.Resync(ctx, ResyncRequest{Tables: []string{"b"}}, func(string) {})
		until(t, m, stands("resyncing"))
		return m
	}},
	"gone": {"gone", func(t *testing.T, b *bank) *Mirror {
		m := b.begin(t)
		opened(t, m)
		b.show(1, 3)
		until(t, m, stands("gone"))
		return m
	}},
}

// TestCommandsInEveryState: whatever state a table is in, each command gives an answer about it or says why it cannot, and the mirror
// goes on.
func TestCommandsInEveryState(t *testing.T) {
	for name, standing := range standings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := standing.make(t, newBank(6))
			for _, command := range []string{"inspect", "verify", "compact", "checkpoint", "resync", "forget"} {
				for _, args := range []string{`{"table": "b", "tables": ["b"]}`, `{"table": "public.b"}`} {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					answer, err := m.Call(ctx, command, []byte(args), nil)
					cancel()
					if (err == nil) == (len(answer) == 0) || err != nil && (err.Error() == "" || errors.Is(err, errPanicked)) {
						t.Errorf("%s %s: %q, %v", command, args, answer, err)
					}
					if command != "inspect" {
						continue
					}
					var rep InspectReport
					if err == nil {
						err = json.Unmarshal(answer, &rep)
					}
					if rep.State != standing.inspect || (err == nil) != (standing.inspect != "") {
						t.Errorf("inspect: state %q, want %q: %v", rep.State, standing.inspect, err)
					}
				}
			}
			for _, at := range []LSN{0, 1, m.marks.high(), m.marks.high() + 1} {
				st, err := m.Pin(t.Context(), readstate.PinRequest{At: at, Timeout: time.Millisecond})
				if err != nil {
					continue
				}
				if rt, ok := st.Table(readstate.TableName{Schema: "public", Name: "b"}); ok && rt.Err == "" && rt.Schema.NumFields() != 3 {
					t.Errorf("at %s the table has neither columns nor an error", at)
				}
				st.Release()
			}
			if _, err := m.Status(t.Context()); err != nil {
				t.Errorf("status: %v", err)
			}
			if err := m.Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReadingTurnPanics: a fault in work that only reads ends that work, not the mirror.
func TestReadingTurnPanics(t *testing.T) {
	b := newBank(6)
	b.live(t, func(m *Mirror) {
		err := m.inReadingTurn(t.Context(), func() error { panic("planted") })
		if !errors.Is(err, errPanicked) || !strings.Contains(err.Error(), "planted") {
			t.Errorf("the error is %v", err)
		}
		b.transfer()
		b.equal(t, m)
	})
}

// begin starts a mirror that ends with the test.
func (b *bank) begin(t *testing.T) *Mirror {
	t.Helper()
	m := b.mirror(t)
	b.going(t, m)
	return m
}

// going runs a mirror until the test ends.
func (b *bank) going(t *testing.T, m *Mirror) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the mirror ended with %v", err)
		}
	})
}

// failing starts a mirror whose second table fails at its start.
func (b *bank) failing(t *testing.T) *Mirror {
	t.Helper()
	m := b.begin(t)
	opened(t, m)
	until(t, m, stands("failed"))
	return m
}

// late starts a mirror that hears of the second table only later; its copy does not end.
func (b *bank) late(t *testing.T) *Mirror {
	t.Helper()
	b.show(1, 3)
	m := b.begin(t)
	opened(t, m)
	b.hold(2)
	b.show(1, 2, 3)
	return m
}

// show lets looks at the catalogue show these tables and no others.
func (b *bank) show(oids ...uint32) {
	b.source.mu.Lock()
	b.source.catalog = []pgcdc.Table{}
	for _, oid := range oids {
		b.source.catalog = append(b.source.catalog, b.source.tables[oid-1])
	}
	b.source.mu.Unlock()
	b.source.idle() // the look is judged when the stream has passed it
}

// hold lets copies of a table not end.
func (b *bank) hold(oid uint32) {
	b.source.mu.Lock()
	defer b.source.mu.Unlock()
	b.source.held = oid
}

// spoil gives a table a row that the mirror cannot hold.
func (b *bank) spoil(oid uint32) {
	honest := b.source.rows
	b.source.rows = func(asked uint32, at LSN) [][]cell {
		rows := honest(asked, at)
		if asked == oid {
			rows = append(rows, []cell{val("-1"), val("no number"), nil})
		}
		return rows
	}
}

// until waits for what status shows.
func until(t *testing.T, m *Mirror, holds func(*Status) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		st, err := m.status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if holds(st) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("status stays %+v", st)
		}
	}
}

// stands says that the second table is in a state.
func stands(state string) func(*Status) bool {
	return func(st *Status) bool {
		for _, ts := range st.Tables {
			if ts.Name == "public.b" {
				return ts.State == state
			}
		}
		return false
	}
}
