package mirror

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgmirror/pgcdc"
)

// want asks for a table to be copied again.
func (w *world) want(oid uint32) *join {
	w.t.Helper()
	var j *join
	w.check(w.m.inTurn(context.Background(), func() error { j = w.m.wantJoin(oid, w.m.byOID[oid], "asked for"); return nil }))
	return j
}

// alter changes a table's definition without a row event. It writes WAL.
func (w *world) alter(oid uint32) {
	w.source.idle()
	i := slices.IndexFunc(w.source.tables, func(d pgcdc.Table) bool { return d.OID == oid })
	w.source.tables[i].Fingerprint += "'"
	w.table(oid).def = w.source.tables[i]
}

// watched takes a look and lets HWM pass it.
func (w *world) watched() {
	w.t.Helper()
	_, err := w.m.look(context.Background(), true)
	w.check(err)
	end := w.source.idle()
	w.deliver(pgcdc.Event{WALEnd: end})
	w.passed(end)
	w.check(w.m.drain(context.Background()))
}

// same says that readers see the table as the source has it.
func (w *world) same(oid uint32) {
	w.t.Helper()
	mt := w.table(oid)
	if got, text := w.rowsAt(mt.def.Name, 0); text != "" || !slices.Equal(got, mt.shown(w.m.marks.high())) {
		w.t.Errorf("table %s: %v, want %v: %s", mt.def.Name, got, mt.shown(w.m.marks.high()), text)
	}
}

// once runs do the n-th time that the returned function is called.
func once(n int, do func()) func() {
	return func() {
		if n--; n == 0 {
			do()
		}
	}
}

// TestAlteredWhileItIsCopied: a change of the definition that sends no row event stops the old content at once, though a copy is under
// way, and the copy, which has the old definition, never takes its place.
func TestAlteredWhileItIsCopied(t *testing.T) {
	w := quietWorld(t, 8)
	for len(w.table(2).at(w.source.end())) == 0 {
		w.transaction()
	}
	w.settle()
	w.want(2)
	w.source.copied = func(uint32) error {
		w.source.copied = nil
		w.alter(2)
		w.watched()
		if _, text := w.rowsAt("composite", 0); !strings.Contains(text, "definition changed") {
			t.Errorf("while it is copied: %q", text)
		}
		return nil
	}
	left, _, err := w.m.joinQueued(context.Background())
	w.check(err)
	if left != 1 {
		t.Errorf("a copy of the old definition has joined")
	}
	if _, text := w.rowsAt("composite", 0); !strings.Contains(text, "definition changed") {
		t.Errorf("after the first copy: %q", text)
	}
	w.told = false
	w.joined()
	w.same(2)
	w.end()
}

// TestAlteredBetweenSnapshotAndLook: a definition that came after the snapshot is not taken for the snapshot's.
func TestAlteredBetweenSnapshotAndLook(t *testing.T) {
	w := quietWorld(t, 9)
	w.want(2)
	w.source.looking = once(2, func() { w.alter(2) })
	left, _, err := w.m.joinQueued(context.Background())
	w.check(err)
	if left != 1 {
		t.Error("the table has joined with a definition younger than its rows")
	}
	w.end()
}

// TestSwapFoundBeforeTheSecondCopy: between the joins of two tables that swapped their names, looks find the second table
// without a name of its own here. It joins nevertheless.
func TestSwapFoundBeforeTheSecondCopy(t *testing.T) {
	w := quietWorld(t, 7)
	x, y := &w.source.tables[0], &w.source.tables[5]
	x.Name, y.Name = y.Name, x.Name
	w.alter(x.OID)
	w.alter(y.OID)
	w.told = false
	for len(w.table(x.OID).at(w.source.end())) == 0 || len(w.table(y.OID).at(w.source.end())) == 0 {
		w.transaction()
	}
	w.settle()
	w.watched()
	done := map[uint32]bool{}
	w.source.copied = func(oid uint32) error {
		if len(done) == 1 && !done[oid] {
			for range 3 {
				w.watched()
			}
		}
		done[oid] = true
		return nil
	}
	left, _, err := w.m.joinQueued(context.Background())
	w.check(err)
	if left != 0 || len(w.m.joins) != 0 {
		t.Errorf("%d are left", left)
	}
	w.settle()
	w.same(1)
	w.same(6)
	w.audit()
	w.end()
}

// TestResyncOfRecreatedTable: resync of a table that was dropped and made anew shows the dropped one's rows no more, from the command on.
func TestResyncOfRecreatedTable(t *testing.T) {
	w := quietWorld(t, 10)
	def := w.source.tables[0]
	def.OID = 78
	w.source.tables[0], w.tables[0] = def, &modelTable{def: def}
	w.told = false
	asked := make(chan error, 1)
	go func() {
		_, err := w.m.Resync(context.Background(), ResyncRequest{Tables: []string{"keyed"}}, func(string) {})
		asked <- err
	}()
	<-w.m.joinWake
	w.transaction()
	w.settle()
	if rows, text := w.rowsAt("keyed", 0); text == "" {
		t.Errorf("the dropped table's rows are shown: %v", rows)
	}
	w.joined()
	w.check(<-asked)
	w.same(78)
	w.end()
}

// TestResyncOfReplacedTable: a table that another one replaces while resync looks at the source is not brought back by it.
func TestResyncOfReplacedTable(t *testing.T) {
	w := quietWorld(t, 11)
	ctx := context.Background()
	w.watched()
	replaced := make(chan struct{})
	w.source.looking = once(1, func() {
		defer close(replaced)
		w.want(1)
		if _, _, err := w.m.joinQueued(ctx); err != nil {
			t.Error(err)
		}
	})
	asked := make(chan error, 1)
	go func() {
		_, err := w.m.Resync(ctx, ResyncRequest{Tables: []string{"keyed"}}, func(string) {})
		asked <- err
	}()
	<-replaced
	for waits := true; waits; {
		w.check(w.m.inTurn(ctx, func() error { waits = len(w.m.queuedJoins()) == 0; return nil }))
		select {
		case err := <-asked:
			t.Fatal(err)
		default:
		}
	}
	w.joined()
	w.check(<-asked)
	w.same(1)
	w.end()
}

// TestOneCopyFails: a table that cannot be copied now keeps no other one waiting.
func TestOneCopyFails(t *testing.T) {
	w := quietWorld(t, 12)
	for len(w.table(2).at(w.source.end())) < 2 || len(w.table(6).at(w.source.end())) == 0 {
		w.transaction()
	}
	w.settle()
	w.m.cfg.FileRows = 1
	w.want(2)
	j := w.want(6)
	files, indexes := len(w.ware.files), len(w.files.files)
	w.source.copiedRow = func(oid uint32, row int) error {
		if oid == 2 && row == 1 {
			return errors.New("cannot be read")
		}
		return nil
	}
	left, _, err := w.m.joinQueued(context.Background())
	if left != 1 || err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("%d are left: %v", left, err)
	}
	select {
	case <-j.done:
	default:
		t.Fatal("the table after it was not copied")
	}
	for _, s := range w.m.byOID[6].files {
		files++
		if s.file.index != "" {
			indexes++
		}
	}
	if len(w.ware.files) != files || len(w.files.files) != indexes {
		t.Errorf("%d data files and %d indexes stay of the copy that failed", len(w.ware.files)-files, len(w.files.files)-indexes)
	}
	w.end()
}

// TestLogOnAFullDisk: a log that cannot be written costs its join the attempt, and nothing else.
func TestLogOnAFullDisk(t *testing.T) {
	w := quietWorld(t, 13)
	for len(w.table(2).at(w.source.end())) == 0 {
		w.transaction()
	}
	w.settle()
	w.m.cfg.IndexDir, w.m.cfg.Memory = w.dir+"/full", 1
	j := w.want(2)
	w.source.copied = func(uint32) error {
		w.m.inTurn(context.Background(), func() error { w.m.cfg.Memory = 1 << 40; return nil })
		for range 30 {
			w.transaction()
		}
		return w.m.drain(context.Background())
	}
	left, _, err := w.m.joinQueued(context.Background())
	if left != 1 || err == nil || !strings.Contains(err.Error(), "keep the changes") || j.trouble == "" {
		t.Errorf("%d are left: %v", left, err)
	}
	w.m.cfg.IndexDir = w.dir
	w.joined()
	w.same(2)
	w.audit()
	w.end()
}

// replaying is a join of a table whose log holds changes and whose copy is done.
func (w *world) replaying(oid uint32) *join {
	w.t.Helper()
	ctx := context.Background()
	j := w.want(oid)
	c := w.m.newCopy(&w.table(oid).def, w.m.marks.high())
	w.check(w.m.inTurn(ctx, func() error { j.log = newChangeLog(w.dir); j.log.limit = logMemory; return nil }))
	w.check(w.m.copyTables(ctx, pgcdc.ExportedSnapshot{ConsistentPoint: w.m.marks.high()}, []*tableCopy{c}))
	for j.log.changes < 3*replaySlice {
		w.transaction()
		w.settle()
	}
	w.check(w.m.inTurn(ctx, func() error { j.copied(w.m, c); return nil }))
	return j
}

// TestReplayOvertakesTheLog: a turn replays more than came since the last one, so that the log ends under any load.
func TestReplayOvertakesTheLog(t *testing.T) {
	w := quietWorld(t, 14)
	w.m.cfg.BatchRows = 10000
	j := w.replaying(1)
	var done bool
	w.check(w.m.inTurn(context.Background(), func() (err error) { done, err = j.catchUp(w.m); return err }))
	if !done {
		t.Errorf("%d changes are left after one turn", j.kept.left)
	}
	w.same(1)
	w.audit()
	w.end()
}

// TestReplayedDeletes: rows of batches that are begun during the replay are deleted by what is replayed after them, below HWM.
func TestReplayedDeletes(t *testing.T) {
	w := quietWorld(t, 14)
	w.check(w.m.inTurn(context.Background(), func() error { w.m.cfg.BatchRows = 3; return nil }))
	j := w.replaying(1)
	for done := false; !done; {
		w.check(w.m.inTurn(context.Background(), func() (err error) { done, err = j.catchUp(w.m); return err }))
	}
	if j.table == nil || len(j.table.sealed) == 0 {
		t.Error("the copy was given up, or nothing was deleted in a batch that was begun after it")
	}
	w.same(1)
	w.audit()
	w.end()
}

// TestGivenUpDuringFlush: a flush of the new content that is under way when the join is given up leaves nothing behind: no memory, no data
// file, no index.
func TestGivenUpDuringFlush(t *testing.T) {
	w := quietWorld(t, 15)
	ctx := context.Background()
	for range 3 {
		w.check(w.m.checkpoint(ctx))
	}
	w.m.cfg.BatchRows = 10000
	files, indexes := len(w.ware.files), len(w.files.files)
	j := w.replaying(1)
	memory := w.m.memory.Load()
	c := j.table
	var rw *rewrite
	w.check(w.m.inTurn(ctx, func() error {
		r, err := j.log.reader()
		for err == nil && r.left > 0 {
			var ch *pgcdc.Change
			var lsn LSN
			if ch, lsn, err = r.next(); err == nil {
				err = j.replay(w.m, ch, lsn)
			}
		}
		if err == nil {
			err = w.m.sealOpen(c)
		}
		if err == nil {
			rw = w.m.begin(c, maxLSN)
			rw.follow()
		}
		j.log = newChangeLog(w.dir)
		j.giveBack(w.m, nil)
		return err
	}))
	w.check(rw.leaveOut())
	w.check(rw.write(ctx, w.m))
	if rw.index == nil {
		t.Fatal("nothing was flushed")
	}
	unmapped := false
	unmap := rw.index.unmap
	rw.index.unmap = func() error { unmapped = true; return unmap() }
	w.check(w.m.inTurn(ctx, func() error { return rw.install(w.m) }))
	w.check(w.m.reap(ctx))
	if len(w.ware.files) != files || len(w.files.files) != indexes || !unmapped || w.m.memory.Load() != memory {
		t.Errorf("%d data files, %d indexes (unmapped: %t) and %d bytes stay", len(w.ware.files)-files, len(w.files.files)-indexes, unmapped, w.m.memory.Load()-memory)
	}
	w.end()
}

// TestRowMissedAfterAnAlteration: a change that gives old rows another text (an enum's labels, a composite's attributes) is known here later than the
// rows that the source names by it. A table that fails for such a row is copied again once a look shows the change, also in another life, and not
// before.
func TestRowMissedAfterAnAlteration(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		w := quietWorld(t, 12)
		for len(w.table(1).at(w.source.end())) == 0 {
			w.transaction()
		}
		w.settle()
		row := make([]cell, len(w.table(1).def.Columns))
		for i := range row {
			row[i] = val("-999")
		}
		w.planned(1, message{'D'}.u32(1).old(&w.table(1).def, row), func(c LSN) {
			w.table(1).faults = []*modelFault{{at: c, names: []string{"does not hold"}}}
		})
		w.watched()
		if len(w.m.joins) != 0 {
			t.Fatal("the table is copied again though nothing explains the missing row")
		}
		w.alter(1)
		if restarted {
			w.check(w.m.checkpoint(context.Background()))
			w.crash()
			w.transaction()
		}
		w.watched()
		if len(w.m.joins) != 1 {
			t.Fatal("the table is not copied again though its definition changed")
		}
		w.told = false
		w.joined()
		w.same(1)
		w.end()
	}
}
