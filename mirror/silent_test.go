package mirror

import (
	"fmt"
	"slices"
	"testing"

	"pgmirror/pgcdc"
)

// allowSilence lets rows of tables go from now on without a word on the stream, as those of a partition do that is detached.
func (w *world) allowSilence() {
	w.silence = true
	for i, t := range w.tables {
		t.silent = map[string]LSN{}
		t.def.Kind = 'p'
		w.source.tables[i] = t.def
	}
	w.leaf()
}

// leaf gives every table of the source another leaf, or one of them.
func (w *world) leaf(of ...*modelTable) {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	for i, t := range w.tables {
		if len(of) == 0 || slices.Contains(of, t) {
			w.serial++
			t.def.Leaves = []pgcdc.Leaf{{OID: uint32(w.serial), Relfilenode: uint32(w.serial), Path: fmt.Sprint(w.serial)}}
			w.source.tables[i] = t.def
		}
	}
}

// silently takes rows out of a table.
func (w *world) silently() {
	w.t.Helper()
	w.settle()
	t := w.tables[w.rng.IntN(len(w.tables))]
	at, gone := w.source.idle(), 0
	for _, v := range t.versions {
		if v.deleted == 0 && w.rng.IntN(2) == 0 {
			v.deleted = at
			gone++
		}
	}
	w.leaf(t)
	w.note("%d rows of %s leave silently at %s", gone, t.def.Name, at)
	if v := w.viewAt(t.def.Name, maxLSN); v != nil && t.silent[v.table.uuid] == 0 {
		t.silent[v.table.uuid] = at
	}
}

// unheard says that a content which is shown at an LSN may have rows that had left silently.
func (t *modelTable) unheard(v *tableView, at LSN) bool {
	since := t.silent[v.table.uuid]
	return since != 0 && at >= since
}

// TestModelSilence is TestModel with rows that go without a word on the stream, and looks at the catalogue that show it. Reads may see them until
// then; no checkpoint has them, unless it says that it is doubtful.
func TestModelSilence(t *testing.T) {
	first, last := uint64(1), uint64(*modelSeeds)
	if *modelSeed != 0 {
		first, last = *modelSeed, *modelSeed
	}
	closed, doubtful := 0, 0
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := runWorld(t, seed+2<<32, (*world).allowSilence)
			closed += w.closedSeen
			doubtful += w.doubtfulSeen
		})
	}
	if *modelSeed == 0 && !t.Failed() && (closed < int(last) || doubtful == 0) {
		t.Errorf("checkpoints had %d closed tables, and %d were doubtful", closed, doubtful)
	}
}

// TestGoodOfAFailedTable: a table that fails after rows have left silently, before a look has shown that, has nothing good but what the last commit has; one that
// a look showed unchanged after its failure keeps what it had then, whatever changes later.
func TestGoodOfAFailedTable(t *testing.T) {
	for _, c := range []struct{ silent, looked bool }{{true, false}, {false, false}, {false, true}} {
		w := newWorld(t, 4)
		w.faults, w.pressure, w.history = 0, false, 0
		w.allowSilence()
		w.transaction()
		w.start()
		w.settle()
		ctx := t.Context()
		_, err := w.m.look(ctx, true)
		w.check(err)
		w.check(w.m.checkpoint(ctx))
		committed := w.m.durable
		w.transaction()
		w.settle()
		mt := w.table(1)
		if c.silent {
			w.leaf(mt)
		}
		w.transaction()
		w.settle()
		var good LSN
		w.check(w.m.inTurn(ctx, func() error {
			good = w.m.applied
			w.m.fail(w.m.byOID[1], good+1, &failure{Reason: "planted", Remedy: remedyRow})
			return nil
		}))
		if c.looked {
			_, err := w.m.look(ctx, true)
			w.check(err)
			w.transaction()
			w.settle()
		}
		if !c.silent {
			w.transaction()
			w.settle()
			w.leaf(mt)
		}
		_, err = w.m.look(ctx, true)
		w.check(err)
		w.transaction()
		w.settle()
		w.check(w.m.inTurn(ctx, func() error {
			f := w.m.byOID[1].failure
			if f == nil || f.Reason != "planted" || f.Closed == c.looked || f.Good != map[bool]LSN{true: good, false: committed}[c.looked] {
				t.Errorf("%+v: the failure is %+v; the last commit is at %s, the failure was after %s", c, f, committed, good)
			}
			return nil
		}))
		w.stop()
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
	}
}
