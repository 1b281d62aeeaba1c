package mirror

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// verified is a world that has caught up, with rows in files, in batches and deleted ones, ready to be compared.
func verified(t *testing.T) *world {
	w := newWorld(t, 31)
	w.faults, w.pressure = 0, false
	for range 40 {
		w.transaction()
	}
	w.start()
	w.m.shared.set(func(s *sharedState) { s.state = "streaming" })
	for range 30 {
		w.transaction()
	}
	w.settle()
	w.check(w.m.checkpoint(context.Background()))
	for range 30 {
		w.transaction()
	}
	w.settle()
	return w
}

func (w *world) verify(tables ...string) *VerifyReport {
	w.t.Helper()
	args, err := json.Marshal(VerifyRequest{Tables: tables})
	w.check(err)
	answer, err := w.m.Call(context.Background(), "verify", args, nil)
	w.check(err)
	rep := new(VerifyReport)
	w.check(json.Unmarshal(answer, rep))
	return rep
}

// TestVerifyEqual: every table is equal, with the source's number of rows, whatever its types and identity.
func TestVerifyEqual(t *testing.T) {
	w := verified(t)
	rep := w.verify()
	if !rep.Equal || rep.Moved || len(rep.Tables) != len(w.tables) {
		t.Errorf("the report is %+v", rep)
	}
	for _, r := range rep.Tables {
		i := slices.IndexFunc(w.tables, func(mt *modelTable) bool { return "public."+mt.def.Name == r.Name })
		if rows := int64(len(w.tables[i].at(w.source.end()))); r.SourceRows != rows || r.MirrorRows != rows {
			t.Errorf("table %s: %d and %d rows, want %d", r.Name, r.SourceRows, r.MirrorRows, rows)
		}
	}
	if rep := w.verify("wide", "public.equals"); !rep.Equal || len(rep.Tables) != 2 {
		t.Errorf("the report of two tables is %+v", rep)
	}
	if _, err := w.m.Call(context.Background(), "verify", []byte(`{"tables":["nowhere"]}`), nil); err == nil {
		t.Error("a table that is not there was compared")
	}
	w.end()
}

// TestVerifyDifferent: one wrong value, one row too many, one too few or a doubled one is found, in the table that has it and in no
// other; the report says whether the counts differ.
func TestVerifyDifferent(t *testing.T) {
	for name, tc := range map[string]struct {
		plant func(rows [][]cell) [][]cell
		says  string
	}{
		"value":         {func(rows [][]cell) [][]cell { rows[0] = append(slices.Clone(rows[0][:2]), val("other")); return rows }, "checksums"},
		"NULL":          {func(rows [][]cell) [][]cell { rows[0] = append(slices.Clone(rows[0][:2]), nil); return rows }, "checksums"},
		"row missing":   {func(rows [][]cell) [][]cell { return rows[1:] }, "row counts"},
		"row too many":  {func(rows [][]cell) [][]cell { return append(rows, rows[0]) }, "row counts"},
		"values change": {func(rows [][]cell) [][]cell { rows[0], rows[1] = swapLast(rows[0], rows[1]); return rows }, "checksums"},
	} {
		t.Run(name, func(t *testing.T) {
			w := verified(t)
			honest := w.source.rows
			// A table of its own for the fault: at least two rows with different last values.
			mt := w.table(2)
			for len(mt.at(w.source.end())) < 3 || mt.at(w.source.end())[0][2] == nil || mt.at(w.source.end())[1][2] == nil {
				w.transaction()
			}
			w.settle()
			w.source.rows = func(oid uint32, at LSN) [][]cell {
				if rows := honest(oid, at); oid != 2 {
					return rows
				} else {
					return tc.plant(rows)
				}
			}
			rep := w.verify()
			if rep.Equal || rep.Moved {
				t.Errorf("the report is %+v", rep)
			}
			for _, r := range rep.Tables {
				want := "equal"
				if r.Name == "public.composite" {
					want = "different"
					if !strings.Contains(r.Reason, tc.says) {
						t.Errorf("the reason is %q, want %q", r.Reason, tc.says)
					}
				}
				if r.Outcome != want {
					t.Errorf("table %s is %s (%s), want %s", r.Name, r.Outcome, r.Reason, want)
				}
			}
			w.end()
		})
	}
}

func swapLast(a, b []cell) (c, d []cell) {
	c, d = slices.Clone(a), slices.Clone(b)
	c[len(c)-1], d[len(d)-1] = b[len(b)-1], a[len(a)-1]
	return c, d
}

// TestVerifyMoved: a table that changes between the source's snapshot and the mirror's LSN is neither equal nor different, and is
// equal when it is compared again and keeps still.
func TestVerifyMoved(t *testing.T) {
	for _, keepsMoving := range []bool{false, true} {
		w := verified(t)
		moves := 0
		honest := w.source.rows
		compared := 0
		w.source.rows = func(oid uint32, at LSN) [][]cell {
			if oid != 1 {
				return honest(oid, at)
			}
			if compared++; compared == 1 || keepsMoving {
				// What the snapshot sees is older than what the mirror is compared at.
				moves++
				rows := honest(oid, at)
				return append(rows, rows...)[:max(0, len(rows)-1)]
			}
			return honest(oid, at)
		}
		for len(w.table(1).at(w.source.end())) == 0 {
			w.transaction()
			w.settle()
		}
		w.check(w.m.inTurn(context.Background(), func() error {
			w.m.byOID[1].lastChange = maxLSN // it is changed all the time
			return nil
		}))
		rep := w.verify("keyed")
		if rep.Moved != keepsMoving || !rep.Equal {
			t.Errorf("keeps moving %v: the report is %+v", keepsMoving, rep)
		}
		if want := map[bool]int{false: 1, true: verifyAttempts}[keepsMoving]; moves != want {
			t.Errorf("it moved %d times, want %d", moves, want)
		}
		w.end()
	}
}

// TestVerifyFailed: a failed table makes the report unequal and gives its reason.
func TestVerifyFailed(t *testing.T) {
	w := verified(t)
	w.check(w.m.inTurn(context.Background(), func() error {
		w.m.fail(w.m.byOID[1], w.m.applied, &failure{Reason: "planted"})
		return nil
	}))
	// A failed table can be read at its last good LSN, which is where the mirror stands until something else comes.
	w.source.idle()
	w.check(w.m.inTurn(context.Background(), func() error {
		w.m.applied = w.source.end()
		w.m.marks.publish(w.source.end(), w.clock.Now())
		return nil
	}))
	rep := w.verify()
	if rep.Equal {
		t.Errorf("the report is %+v", rep)
	}
	for _, r := range rep.Tables {
		if failed := r.Name == "public.keyed"; failed != (r.Outcome == "failed") || failed && !strings.Contains(r.Reason, "planted") {
			t.Errorf("table %s is %s: %s", r.Name, r.Outcome, r.Reason)
		}
	}
	w.end()
}
