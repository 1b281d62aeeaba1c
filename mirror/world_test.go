package mirror

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// version is one row version of the model: visible at x when created ≤ x < deleted.
type version struct {
	cells            []cell
	created, deleted LSN // 0: not yet
}

// modelTable is what PostgreSQL holds: every version that ever was.
type modelTable struct {
	def      pgcdc.Table
	versions []*version
}

// at lists the rows visible at x.
func (t *modelTable) at(x LSN) (rows [][]cell) {
	for _, v := range t.versions {
		if v.created != 0 && v.created <= x && (v.deleted == 0 || x < v.deleted) {
			rows = append(rows, v.cells)
		}
	}
	return rows
}

// world is a mirror between a source and a warehouse in memory, and the model of what it must hold. Everything happens on
// the test's goroutine or while it waits, in an order that the seed decides.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	source *fakeSource
	ware   *fakeWarehouse
	files  *fakeFiles
	tables []*modelTable

	m      *Mirror
	replay *pgcdc.Replay
	told   bool // the session has sent its Relation messages
	stop   context.CancelFunc
	ended  chan error
	pinned []*readstate.State
	cuts   []LSN // ends of commits
	depth  int   // of operations inside operations

	sending bool // commits go to the mirror at once

	effectErr map[string]error
	serial    int
	trace     []string
}

func builtin(oid uint32) *pgcdc.Type { return pgcdc.BuiltinType(oid, -1) }

// modelTables has one table of every kind of identity.
func modelTables() []pgcdc.Table {
	const int4, text, int8 = 23, 25, 20
	table := func(oid uint32, name string, identity pgcdc.Identity, key, identityKey []int, types ...uint32) pgcdc.Table {
		t := pgcdc.Table{OID: oid, Schema: "public", Name: name, Kind: 'r', Persistence: 'p', Identity: identity, Key: key, IdentityKey: identityKey, Fingerprint: "1"}
		for i, typ := range types {
			t.Columns = append(t.Columns, pgcdc.Column{AttNum: int16(i + 1), Name: "c" + strconv.Itoa(i), Type: builtin(typ)})
		}
		return t
	}
	return []pgcdc.Table{
		table(1, "keyed", 'd', []int{0}, []int{0}, int4, text, int8),
		table(2, "composite", 'd', []int{1, 0}, []int{1, 0}, int4, text, text),
		table(3, "whole", 'f', nil, []int{0, 1}, int4, text),
		table(4, "inserts", 'n', nil, nil, int4, text),
		table(5, "fullkey", 'f', []int{0}, []int{0, 1, 2}, int8, text, text),
		table(6, "textkey", 'd', []int{0}, []int{0}, text, int4, text),
		table(7, "byindex", 'i', []int{0}, []int{1}, int4, int4, text),
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), ware: newFakeWarehouse(), files: &fakeFiles{files: map[string][]byte{}},
		effectErr: map[string]error{}}
	defs := modelTables()
	for _, d := range defs {
		w.tables = append(w.tables, &modelTable{def: d})
	}
	w.source = newFakeSource(defs)
	w.source.rows = func(oid uint32, at LSN) [][]cell { return w.table(oid).at(at) }
	return w
}

func (w *world) table(oid uint32) *modelTable {
	return w.tables[slices.IndexFunc(w.tables, func(t *modelTable) bool { return t.def.OID == oid })]
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, strings.Repeat("  ", w.depth)+fmt.Sprintf(format, args...))
}

func (w *world) fatal(format string, args ...any) {
	w.t.Helper()
	tail := w.trace[max(0, len(w.trace)-60):]
	w.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(tail, "\n"))
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.fatal("%v", err)
	}
}

// start begins a life of the mirror: recovery, or the first copy, then the stream from the slot's confirmed LSN.
func (w *world) start() {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cfg := Config{Slot: "m", Publications: []string{"p"}, IndexDir: "/i", BatchRows: 1 + w.rng.IntN(12), FlushWorkers: 1, CopyWorkers: 1,
		Effect: func(name string) error { return w.effectErr[name] }}
	m, err := New(cfg, w.source, w.ware, w.files, SystemClock())
	w.check(err)
	w.check(m.recover(ctx))
	w.m, w.stop, w.ended, w.sending = m, stop, make(chan error, 1), true
	go func() { w.ended <- m.applyLoop(ctx) }()
	if m.doc.Phase != phaseStreaming {
		id, _ := w.source.Identify(ctx)
		w.check(m.firstCopy(ctx, id))
	}
	w.connect()
}

// connect begins a session: the server sends everything above the slot's confirmed LSN, Relation messages anew.
func (w *world) connect() {
	w.t.Helper()
	ctx := context.Background()
	w.check(w.m.drain(ctx))
	catalog, _ := w.source.Look(ctx)
	slot, _, _ := w.source.Slot(ctx)
	w.check(w.m.inTurn(ctx, func() error {
		w.m.resolve(catalog)
		w.m.guard.begin(w.m.lastCommit, slot.ConfirmedFlush)
		return nil
	}))
	w.m.setState("streaming", "")
	w.replay, w.told = pgcdc.NewReplay(w.t.TempDir(), 0), false
	for _, c := range w.source.after(slot.ConfirmedFlush) {
		w.send(c)
	}
	w.settle()
}

// send puts a commit on the stream.
func (w *world) send(c *commit) {
	w.t.Helper()
	msgs := c.messages()
	if !w.told {
		w.told = true
		var all []message
		all = append(all, msgs[0])
		for i := range w.tables {
			all = append(all, relationMessage(&w.tables[i].def))
		}
		msgs = append(all, msgs[1:]...)
	}
	for _, msg := range msgs {
		tx, err := w.replay.Message(msg)
		w.check(err)
		if tx != nil {
			w.deliver(pgcdc.Event{Transaction: tx})
		}
	}
}

func (w *world) deliver(ev pgcdc.Event) {
	w.t.Helper()
	select {
	case w.m.events <- ev:
	case err := <-w.ended:
		w.fatal("the applier ended: %v", err)
	}
}

// settle waits until everything sent is applied.
func (w *world) settle() {
	w.t.Helper()
	done := make(chan error, 1)
	go func() { done <- w.m.drain(context.Background()) }()
	select {
	case err := <-done:
		w.check(err)
	case err := <-w.ended:
		w.fatal("the applier ended: %v", err)
	}
}

// crash ends the life without notice. What is not committed is gone; now and then index files are lost or torn with it.
func (w *world) crash() {
	w.t.Helper()
	w.note("crash")
	w.stop()
	<-w.ended
	close(w.m.stopped)
	w.pinned = nil
	clear(w.effectErr)
	w.ware.writing, w.ware.committing = nil, nil
	for path, data := range w.files.files {
		switch w.rng.IntN(8) {
		case 0:
			delete(w.files.files, path)
		case 1:
			w.files.files[path] = data[:w.rng.IntN(len(data)+1)]
		}
	}
	w.start()
}

// transaction makes a random transaction on the source, told to the model, and sends it.
func (w *world) transaction() {
	w.t.Helper()
	var changes []message
	var born, died []*version
	gone := map[*version]bool{}
	kill := func(v *version) {
		died = append(died, v)
		gone[v] = true
	}
	for range 1 + w.rng.IntN(7) {
		t := w.tables[w.rng.IntN(len(w.tables))]
		live := slices.DeleteFunc(slices.Clone(t.versions), func(v *version) bool { return v.deleted != 0 || gone[v] })
		switch op := w.rng.IntN(20); {
		case op == 0:
			msg, emptied := w.truncate(t)
			for _, e := range emptied {
				for _, v := range e.versions {
					if v.deleted == 0 && !gone[v] {
						kill(v)
					}
				}
			}
			changes = append(changes, msg)
		case op < 8 || len(live) == 0 || t.def.IdentityKey == nil:
			cells, ok := w.freshRow(t, live, nil)
			if !ok {
				continue
			}
			v := &version{cells: cells}
			t.versions = append(t.versions, v)
			born = append(born, v)
			changes = append(changes, message{'I'}.u32(t.def.OID).u8('N').tuple(cells))
		case op < 14:
			old := live[w.rng.IntN(len(live))]
			msg, cells, ok := w.update(t, live, old)
			if !ok {
				continue
			}
			v := &version{cells: cells}
			t.versions = append(t.versions, v)
			born = append(born, v)
			kill(old)
			changes = append(changes, msg)
		default:
			old := live[w.rng.IntN(len(live))]
			kill(old)
			changes = append(changes, message{'D'}.u32(t.def.OID).old(&t.def, old.cells))
		}
	}
	c := w.source.commit(changes)
	for _, v := range born {
		v.created = c.end
	}
	for _, v := range died {
		v.deleted = c.end
	}
	w.cuts = append(w.cuts, c.end)
	w.note("commit %s: %d changes", c.end, len(changes))
	if w.sending {
		w.send(c)
	}
}

// old appends the old tuple that the table's identity sends.
func (m message) old(t *pgcdc.Table, cells []cell) message {
	if t.Identity == pgcdc.IdentityFull {
		return m.u8('O').tuple(cells)
	}
	key := make([]cell, len(cells))
	for _, k := range t.IdentityKey {
		key[k] = cells[k]
	}
	return m.u8('K').tuple(key)
}

func (w *world) truncate(t *modelTable) (message, []*modelTable) {
	emptied := []*modelTable{t}
	if other := w.tables[w.rng.IntN(len(w.tables))]; other != t && w.rng.IntN(2) == 0 {
		emptied = append(emptied, other)
	}
	msg := message{'T'}.u32(uint32(len(emptied))).u8(0)
	for _, e := range emptied {
		msg = msg.u32(e.def.OID)
	}
	return msg, emptied
}

// freshRow makes a row whose keys (primary and identity) no live row has, except the one that it replaces.
func (w *world) freshRow(t *modelTable, live []*version, replaces *version) ([]cell, bool) {
	cells := make([]cell, len(t.def.Columns))
	for i, c := range t.def.Columns {
		w.serial++
		switch {
		case slices.Contains(t.def.Key, i) || slices.Contains(t.def.IdentityKey, i):
			n := w.rng.IntN(12)
			if c.Type.OID == 25 && t.def.Key == nil && n == 0 {
				cells[i] = nil
				continue
			}
			cells[i] = val(strconv.Itoa(n - 4))
		case w.rng.IntN(5) == 0:
			cells[i] = nil
		case c.Type.OID == 25:
			cells[i] = val(fmt.Sprintf("v%d", w.serial))
		default:
			cells[i] = val(strconv.Itoa(w.serial))
		}
	}
	if t.def.Key == nil {
		return cells, true
	}
	for _, v := range live {
		if v != replaces && (sameCells(t.def.Key, v.cells, cells) || t.def.Identity == 'i' && sameCells(t.def.IdentityKey, v.cells, cells)) {
			return nil, false
		}
	}
	return cells, true
}

func sameCells(columns []int, a, b []cell) bool {
	for _, k := range columns {
		if show(a[k]) != show(b[k]) {
			return false
		}
	}
	return true
}

func show(c cell) string {
	if c == nil {
		return "NULL"
	}
	return "'" + *c + "'"
}

// update changes a row: its key now and then, and leaves a long value out as TOAST does now and then.
func (w *world) update(t *modelTable, live []*version, old *version) (message, []cell, bool) {
	cells, ok := w.freshRow(t, live, old)
	if !ok {
		return nil, nil, false
	}
	if w.rng.IntN(3) > 0 {
		for _, k := range slices.Concat(t.def.Key, t.def.IdentityKey) {
			if t.def.Key != nil && !(t.def.Identity == 'f' && !slices.Contains(t.def.Key, k)) {
				cells[k] = old.cells[k]
			}
		}
	}
	sent := slices.Clone(cells)
	if last := len(cells) - 1; t.def.Columns[last].Type.OID == 25 && old.cells[last] != nil && w.rng.IntN(2) == 0 {
		cells[last] = old.cells[last]
		sent[last] = unchanged
	}
	msg := message{'U'}.u32(t.def.OID)
	if t.def.Identity == pgcdc.IdentityFull || !sameCells(t.def.IdentityKey, old.cells, cells) {
		msg = msg.old(&t.def, old.cells)
	}
	return msg.u8('N').tuple(sent), cells, true
}

// read compares a state with the model.
func (w *world) compare(st *readstate.State) {
	w.t.Helper()
	if len(st.Tables) != len(w.tables) {
		w.fatal("%d tables at %s, want %d", len(st.Tables), st.LSN, len(w.tables))
	}
	for _, mt := range w.tables {
		rt, ok := st.Table(readstate.TableName{Schema: "public", Name: mt.def.Name})
		if !ok || rt.Err != "" {
			w.fatal("table %s at %s: %v %s", mt.def.Name, st.LSN, ok, rt.Err)
		}
		var want []string
		for _, r := range mt.at(st.LSN) {
			var parts []string
			for _, c := range r {
				parts = append(parts, show(c))
			}
			want = append(want, strings.Join(parts, ","))
		}
		got := w.rowsOf(rt)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			w.fatal("table %s at %s:\n got %v\nwant %v", mt.def.Name, st.LSN, got, want)
		}
	}
}

// rowsOf reads a table of a state as a client does: files without their deleted rows, batches without theirs.
func (w *world) rowsOf(t *readstate.Table) (rows []string) {
	w.t.Helper()
	columns := make([]int, t.Schema.NumFields())
	ids := make([]int32, len(columns))
	for i := range columns {
		id, err := fieldID(t.Schema.Field(i))
		w.check(err)
		columns[i], ids[i] = i, int32(id)
	}
	for _, f := range t.Files {
		r, err := w.ware.OpenData(f.Path)
		w.check(err)
		for pos := range f.Rows {
			if f.Deleted.Contains(uint32(pos)) {
				continue
			}
			rec, err := r.Row(pos, ids)
			w.check(err)
			var parts []string
			for _, a := range rec.Columns() {
				parts = append(parts, showValue(a.IsNull(0), a.ValueStr(0)))
			}
			rows = append(rows, strings.Join(parts, ","))
		}
	}
	for _, b := range t.Batches {
		arrays, err := b.Columns.Read(columns, 0, b.Rows)
		w.check(err)
		for row := range b.Rows {
			if b.Deleted.Contains(uint32(row)) {
				continue
			}
			var parts []string
			for _, a := range arrays {
				parts = append(parts, showValue(a.IsNull(row), a.ValueStr(row)))
			}
			rows = append(rows, strings.Join(parts, ","))
		}
	}
	return rows
}

func showValue(null bool, text string) string {
	if null {
		return "NULL"
	}
	return "'" + text + "'"
}

// readSomewhere reads at a random LSN of the window.
func (w *world) readSomewhere() {
	w.t.Helper()
	low, high := w.m.marks.low(), w.m.marks.high()
	at := high
	if high > low && w.rng.IntN(2) == 0 {
		at = low + LSN(w.rng.Uint64N(uint64(high-low)+1))
	}
	st, err := w.m.Pin(context.Background(), readstate.PinRequest{At: at})
	w.check(err)
	w.note("read at %s", at)
	w.compare(st)
	if len(w.pinned) < 4 && w.rng.IntN(3) == 0 {
		w.pinned = append(w.pinned, st)
		return
	}
	st.Release()
}

// step does one random thing. Inside a flush or a commit it does things that may happen meanwhile.
func (w *world) step() {
	w.t.Helper()
	ctx := context.Background()
	switch n := w.rng.IntN(100); {
	case n < 45:
		w.transaction()
	case n < 50:
		end := w.source.idle()
		w.note("keepalive %s", end)
		w.deliver(pgcdc.Event{WALEnd: end})
	case n < 75:
		w.settle()
		w.readSomewhere()
	case n < 80:
		if len(w.pinned) > 0 {
			i := w.rng.IntN(len(w.pinned))
			w.note("read again at %s", w.pinned[i].LSN)
			w.compare(w.pinned[i])
			if w.rng.IntN(2) == 0 {
				w.pinned[i].Release()
				w.pinned = slices.Delete(w.pinned, i, i+1)
			}
		}
	case n < 84:
		w.note("fold")
		w.check(w.m.fold(ctx))
		w.check(w.m.reap(ctx))
	case n < 86:
		w.settle()
		w.check(w.m.Check(ctx))
	case w.depth > 0:
		// Flushes, checkpoints and crashes do not happen inside one another.
	case n < 92:
		w.during("flush", func() error {
			t := w.m.tables[w.rng.IntN(len(w.m.tables))]
			if w.rng.IntN(2) == 0 {
				w.check(w.m.inTurn(ctx, func() error { return w.m.sealOpen(t) }))
			}
			return w.m.flush(ctx, t, maxLSN)
		})
	case n < 98:
		w.during("checkpoint", func() error { return w.m.checkpoint(ctx) })
	default:
		w.crash()
	}
}

// during runs a job that writes files while other things happen, and now and then lets it fail at one of its effects, which
// is a crash.
func (w *world) during(name string, job func() error) {
	w.t.Helper()
	w.note("%s", name)
	w.ware.writing = func() {
		w.depth++
		for range w.rng.IntN(4) {
			w.step()
		}
		w.depth--
	}
	w.ware.committing = func() error {
		w.ware.writing()
		return w.effectErr["commit"]
	}
	if w.rng.IntN(6) == 0 {
		effects := []string{"file index", "version installed", "commit", "acknowledge"}
		w.effectErr[effects[w.rng.IntN(len(effects))]] = errPowerCut
	}
	err := job()
	w.ware.writing, w.ware.committing = nil, nil
	w.note("%s done: %v", name, err)
	if errors.Is(err, errPowerCut) {
		w.crash()
		return
	}
	clear(w.effectErr)
	w.check(err)
}
