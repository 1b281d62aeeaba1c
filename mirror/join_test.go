package mirror

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// rowsAt are a table's rows as a reader at an LSN (0: now) has them, or its error.
func (w *world) rowsAt(name string, at LSN) ([]string, string) {
	w.t.Helper()
	st, err := w.m.Pin(context.Background(), readstate.PinRequest{At: at})
	w.check(err)
	defer st.Release()
	rt, ok := st.Table(readstate.TableName{Schema: "public", Name: name})
	if !ok {
		return nil, "no such table"
	}
	if rt.Err != "" {
		return nil, rt.Err
	}
	return w.rowsOf(rt), ""
}

// quietWorld is a world with rows in files and in memory, in which nothing goes wrong by itself.
func quietWorld(t *testing.T, seed uint64) *world {
	w := newWorld(t, seed)
	w.faults, w.pressure = 0, false
	for range 30 {
		w.transaction()
	}
	w.start()
	for range 30 {
		w.transaction()
	}
	w.settle()
	return w
}

// joined makes every join that is wanted, while transactions come, and makes the result durable.
func (w *world) joined() {
	w.t.Helper()
	ctx := context.Background()
	w.ware.writing = func() { w.transaction() }
	left, _, err := w.m.joinQueued(ctx)
	w.ware.writing = nil
	w.check(err)
	if left != 0 {
		w.fatal("%d tables were not copied", left)
	}
	w.settle()
	w.audit()
}

// TestTableJoinsThePublication: a table that a look shows for the first time is copied while its changes come, is an error until then,
// and is there after a restart; below the LSN at which it joined it cannot be read.
func TestTableJoinsThePublication(t *testing.T) {
	w := quietWorld(t, 5)
	ctx := context.Background()
	def := tableDef(77, "latecomer", 'd', []int{0}, []int{0}, oidInt4, oidText)
	mt := &modelTable{def: def}
	w.tables = append(w.tables, mt)
	w.source.tables = append(w.source.tables, def)
	w.told = false // the stream tells its shape with the first change
	for range 20 {
		w.transaction() // some of it is sent before the mirror knows of the table
	}
	w.settle()
	before := w.m.marks.high()
	hold, err := w.m.marks.register(before)
	w.check(err)
	_, err = w.m.look(ctx, true)
	w.check(err)
	w.settle()
	if _, text := w.rowsAt("latecomer", 0); !strings.Contains(text, "is being copied") {
		t.Errorf("before it is copied: %q", text)
	}
	w.check(w.m.checkpoint(ctx))
	for len(mt.at(w.source.end())) == 0 {
		w.transaction()
	}
	w.joined()
	for len(mt.at(w.source.end())) == 0 {
		w.transaction()
	}
	w.settle()
	if got, text := w.rowsAt("latecomer", 0); text != "" || !slices.Equal(got, mt.shown(w.m.marks.high())) || len(got) == 0 {
		t.Errorf("the rows are %v, want %v: %s", got, mt.shown(w.m.marks.high()), text)
	}
	if _, text := w.rowsAt("latecomer", before); !strings.Contains(text, "begins at") {
		t.Errorf("below the LSN at which it joined: %q", text)
	}
	w.m.marks.release(hold)
	w.check(w.m.checkpoint(ctx))
	w.crash()
	w.readSomewhere()
	w.audit()
	w.end()
}

// TestJoinSurvivesRestart: a table that waits to be copied when the mirror dies is copied by the next life.
func TestJoinSurvivesRestart(t *testing.T) {
	w := quietWorld(t, 4)
	ctx := context.Background()
	w.check(w.m.inTurn(ctx, func() error {
		w.m.outdated(w.m.byOID[1], 1, w.m.applied, "planted")
		return nil
	}))
	w.table(1).faults = []*modelFault{{at: w.m.applied, names: []string{"planted"}}}
	w.check(w.m.checkpoint(ctx))
	w.crash()
	if _, text := w.rowsAt("keyed", 0); !strings.Contains(text, "planted") {
		t.Errorf("after the restart: %q", text)
	}
	w.transaction()
	w.settle()
	gap := w.m.marks.high()
	hold, err := w.m.marks.register(gap)
	w.check(err)
	w.transaction()
	w.joined()
	if _, text := w.rowsAt("keyed", gap); !strings.Contains(text, "planted") || !strings.Contains(text, "on it can be read") {
		t.Errorf("at an LSN at which it waited: %q", text)
	}
	w.m.marks.release(hold)
	if got, text := w.rowsAt("keyed", 0); text != "" || !slices.Equal(got, w.table(1).shown(w.m.marks.high())) {
		t.Errorf("the rows are %v: %s", got, text)
	}
	w.end()
}

// TestJoinOfWhatCannotBeHeld: a copy that meets a value which cannot be represented is given up. A failed table then gives that
// reason, a healthy one goes on with what it has.
func TestJoinOfWhatCannotBeHeld(t *testing.T) {
	for _, healthy := range []bool{true, false} {
		w := quietWorld(t, 5)
		w.m.cfg.NullUnrepresentable = false
		ctx := context.Background()
		honest := w.source.rows
		w.source.rows = func(oid uint32, at LSN) [][]cell {
			rows := honest(oid, at)
			if oid == 4 {
				rows = append(rows, []cell{val("1"), {wire: "NaN", bad: true}, nil})
			}
			return rows
		}
		before, _ := w.rowsAt("inserts", 0)
		var j *join
		w.check(w.m.inTurn(ctx, func() error {
			tab := w.m.byOID[4]
			if !healthy {
				w.m.fail(tab, w.m.applied, &failure{Reason: "planted"})
			}
			j = w.m.wantJoin(4, tab, "asked for")
			return nil
		}))
		left, _, err := w.m.joinQueued(ctx)
		w.check(err)
		<-j.done
		if left != 0 || j.err == nil || !strings.Contains(j.err.Error(), "decimal") {
			t.Errorf("healthy %v: %d are left, error %v", healthy, left, j.err)
		}
		rows, text := w.rowsAt("inserts", 0)
		if healthy != slices.Equal(rows, before) || healthy == strings.Contains(text, "decimal") {
			t.Errorf("healthy %v: %d rows where there were %d: %q", healthy, len(rows), len(before), text)
		}
		if w.m.Check(ctx) != nil || len(w.m.joins) != 0 {
			t.Errorf("healthy %v: %d joins are left", healthy, len(w.m.joins))
		}
		w.end()
	}
}

// TestJoinBeginsAgain: when the table changes under its copy, or the connection is lost, the join waits for another attempt, nothing of the
// first one stays, and the old content is shown meanwhile.
func TestJoinBeginsAgain(t *testing.T) {
	lost := errors.New("lost")
	for name, plant := range map[string]func(w *world){
		"rewritten": func(w *world) { w.source.rewritten[2] = 1 },
		"lost": func(w *world) {
			w.source.copied = func(uint32) error { w.source.copied = nil; return lost }
		},
		"altered while its changes are kept": func(w *world) {
			other := w.table(2).def
			other.Columns = slices.Clone(other.Columns)
			other.Columns[1].Name = "renamed"
			w.ware.writing = func() {
				w.ware.writing = nil
				w.send(w.source.commit([]message{relationMessage(&other), message{'I'}.u32(2).u8('N').tuple([]cell{val("-100"), val("-100"), nil}), relationMessage(&w.table(2).def)}))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := quietWorld(t, 6)
			ctx := context.Background()
			for len(w.table(2).at(w.source.end())) == 0 {
				w.transaction()
			}
			w.settle()
			files := len(w.ware.files)
			w.check(w.m.inTurn(ctx, func() error { w.m.wantJoin(2, w.m.byOID[2], "asked for"); return nil }))
			plant(w)
			left, _, err := w.m.joinQueued(ctx)
			w.settle()
			if left != 1 || (err != nil) != (name == "lost") {
				t.Fatalf("%d are left: %v", left, err)
			}
			w.check(w.m.reap(ctx))
			if n := len(w.ware.files); n != files {
				t.Errorf("%d files stay of the attempt", n-files)
			}
			w.check(w.m.Check(ctx))
			w.end()
		})
	}
}

// TestJoinWaitsForItsSnapshot: a table whose snapshot lies above HWM joins only when HWM has reached it, with what came before in it once.
func TestJoinWaitsForItsSnapshot(t *testing.T) {
	w := quietWorld(t, 8)
	ctx := context.Background()
	var late []*commit
	w.source.snapshotting = func() {
		w.sending = false
		for range 5 {
			w.transaction()
		}
		w.sending = true
		late = w.source.after(w.sent)
	}
	var j *join
	w.check(w.m.inTurn(ctx, func() error { j = w.m.wantJoin(1, w.m.byOID[1], "asked for"); return nil }))
	ended := make(chan error, 1)
	go func() { _, _, err := w.m.joinQueued(ctx); ended <- err }()
	for copied := false; !copied; time.Sleep(time.Millisecond) {
		w.check(w.m.inTurn(ctx, func() error { copied = j.table != nil; return nil }))
	}
	for range 20 { // turns of the join
		time.Sleep(joinPause / 2)
		select {
		case <-j.done:
			t.Fatalf("the table joined at %s, its snapshot is at %s", j.joined, j.from)
		default:
		}
	}
	w.source.snapshotting = nil
	for _, c := range late {
		w.send(c)
	}
	w.check(<-ended)
	if j.joined < late[len(late)-1].end {
		t.Errorf("the table joined at %s, below its snapshot", j.joined)
	}
	w.settle()
	w.audit()
	w.readSomewhere()
	w.end()
}

// TestRenamedTables: two tables that swap their names come back with each other's, and a table whose name a new one has taken leaves
// it to that one.
func TestRenamedTables(t *testing.T) {
	w := quietWorld(t, 7)
	ctx := context.Background()
	swap := func(a, b int) {
		x, y := &w.source.tables[a], &w.source.tables[b]
		x.Name, y.Name = y.Name, x.Name
		for _, d := range []*pgcdc.Table{x, y} {
			d.Fingerprint += "'"
			w.table(d.OID).def = *d
		}
	}
	swap(0, 5)
	w.told = false // the stream tells the new names before the next changes
	_, err := w.m.look(ctx, true)
	w.check(err)
	w.settle()
	w.joined()
	for _, oid := range []uint32{1, 6} {
		mt := w.table(oid)
		if got, text := w.rowsAt(mt.def.Name, 0); text != "" || !slices.Equal(got, mt.shown(w.m.marks.high())) {
			t.Errorf("table %s: %v: %s", mt.def.Name, got, text)
		}
	}
	w.check(w.m.checkpoint(ctx))
	w.crash()
	w.readSomewhere()
	w.end()
}
