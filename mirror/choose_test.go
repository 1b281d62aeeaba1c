package mirror

import (
	"context"
	"slices"
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// choosing is a mirror with one table whose batches a test makes by hand.
func choosing(t *testing.T) (*Mirror, *table) {
	t.Helper()
	m, err := New(Config{Slot: "m", Publications: []string{"p"}, IndexDir: "/i"}, nil, nil, nil, SystemClock())
	if err != nil {
		t.Fatal(err)
	}
	def := tableDef(1, "t", 'd', []int{0}, []int{0}, oidInt4)
	tab := &table{oid: 1, name: readstate.TableName{Schema: "public", Name: "t"}, state: stateStreaming}
	tab.setShape(testShape(t, def))
	m.adopt(tab)
	tab.open = m.newBatchSegment(tab)
	return m, tab
}

// seal adds a sealed batch with a row created at each of the LSNs.
func (t *table) seal(m *Mirror, lsns ...LSN) *segment {
	for i, lsn := range lsns {
		b := t.open.batch
		b.cols[0].Int32(int32(i))
		b.lsns.push(uint64(lsn))
		b.rows++
	}
	m.sealOpen(t)
	return t.sealed[len(t.sealed)-1]
}

// TestChoose: what one file may take next: in order, nothing above the LSN asked for, nothing that an uncommitted cut would divide,
// and the rows of an unfinished transaction apart from all others.
func TestChoose(t *testing.T) {
	all := []int{0, 1, 2}
	for _, tc := range []struct {
		name    string
		batches [][]LSN
		dropped map[int]LSN
		applied LSN
		cut     LSN
		upTo    LSN
		failed  LSN // last good LSN; 0: streaming
		want    []int
	}{
		{name: "all that is applied", batches: [][]LSN{{10}, {20, 30}, {30, 40}}, applied: 40, upTo: maxLSN, want: all},
		{name: "up to an LSN", batches: [][]LSN{{10}, {20, 30}, {40}}, applied: 40, upTo: 30, want: []int{0, 1}},
		{name: "a batch that the LSN divides waits", batches: [][]LSN{{10}, {20, 40}}, applied: 40, upTo: 30, want: []int{0}},
		{name: "a cut ends the file", batches: [][]LSN{{10}, {20}, {30}}, applied: 30, cut: 20, upTo: maxLSN, want: []int{0, 1}},
		{name: "after the cut's rows are gone the others may go", batches: [][]LSN{{30}, {40}}, applied: 40, cut: 20, upTo: maxLSN, want: []int{0, 1}},
		{name: "a batch dropped before the cut does not hold it", batches: [][]LSN{{10}, {30}}, dropped: map[int]LSN{0: 15}, applied: 30, cut: 20, upTo: maxLSN, want: []int{1}},
		{name: "a batch dropped after the cut is in it", batches: [][]LSN{{10}, {30}}, dropped: map[int]LSN{0: 25}, applied: 30, cut: 20, upTo: maxLSN, want: []int{0}},
		{name: "dropped batches stay in memory", batches: [][]LSN{{10}, {20}, {30}}, dropped: map[int]LSN{0: 30, 1: 30}, applied: 30, upTo: maxLSN, want: []int{2}},
		{name: "an unfinished transaction waits for the finished", batches: [][]LSN{{10}, {20}, {50}}, applied: 20, upTo: maxLSN, want: []int{0, 1}},
		{name: "an unfinished transaction goes alone", batches: [][]LSN{{50}, {50, 50}}, applied: 20, upTo: maxLSN, want: []int{0, 1}},
		{name: "a batch of both waits", batches: [][]LSN{{10, 50}}, applied: 20, upTo: maxLSN, want: nil},
		{name: "a failed table up to its last good LSN", batches: [][]LSN{{10}, {20, 50}, {50}}, applied: 60, upTo: maxLSN, failed: 20, want: []int{0, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, tab := choosing(t)
			var made []*segment
			for _, lsns := range tc.batches {
				made = append(made, tab.seal(m, lsns...))
			}
			for i, lsn := range tc.dropped {
				made[i].droppedAt.Store(uint64(lsn))
			}
			m.applied, m.cut = tc.applied, tc.cut
			if tc.failed != 0 {
				tab.state, tab.failure = stateFailed, &failure{Good: tc.failed}
			}
			var want []*segment
			for _, i := range tc.want {
				want = append(want, made[i])
			}
			if got := tab.choose(m, tc.upTo); !slices.Equal(got, want) {
				t.Errorf("%d segments were chosen, want batches %v", len(got), tc.want)
			}
		})
	}
}

// TestRefusedRow: a row with a value that cannot be represented leaves nothing behind in the batch it was to go to: not in the columns
// before the faulty one, not in its half-read list.
func TestRefusedRow(t *testing.T) {
	m, tab := choosing(t)
	tab.setShape(testShape(t, tableDef(1, "t", 'd', []int{0}, []int{0}, oidInt4, oidText, oidNumericList)))
	tab.open = m.newBatchSegment(tab)
	row := func(id, list string) pgcdc.Tuple {
		text := func(s string) pgcdc.Value { return pgcdc.Value{Format: pgcdc.FormatText, Data: []byte(s)} }
		return pgcdc.Tuple{text(id), text("x"), text(list)}
	}
	for _, tc := range []struct {
		id, list string
		ok       bool
	}{{"1", "{1.50}", true}, {"2", "{2.50,NaN}", false}, {"3", "{3.50,NULL}", true}} {
		if err := tab.add(m, row(tc.id, tc.list), nil, location{}, 10); (err == nil) != tc.ok {
			t.Fatalf("row %s: %v", tc.id, err)
		}
	}
	b := tab.open.batch
	b.publish()
	arrays, err := b.read(b.shape, []int{0, 1, 2}, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := showRow(arrays, 0)+showRow(arrays, 1), "'1','x','[1.50]''3','x','[3.50 NULL]'"; got != want || b.rows != 2 || tab.rows != 2 || b.index.Len() != 2 {
		t.Errorf("the batch holds %s in %d rows, want %s", got, b.rows, want)
	}
}

// TestFailedTableLetsMemoryGo: what a table has in memory above its last good LSN is of no use once it has failed: a checkpoint leaves
// none of it behind.
func TestFailedTableLetsMemoryGo(t *testing.T) {
	w := newWorld(t, 5)
	w.faults, w.pressure, w.spill, w.history = 0, false, 1, 0
	w.start()
	ctx := context.Background()
	for range 5 {
		w.transaction()
	}
	w.settle()
	// A transaction of many rows, of which the last is refused.
	def := &w.table(1).def
	changes := []message{}
	for i := range 200 {
		row := []cell{val(string(rune('0'+i%10)) + "0" + string(rune('0'+i/10%10)) + string(rune('0'+i/100))), val("x"), nil}
		changes = append(changes, message{'I'}.u32(1).u8('N').tuple(row))
	}
	changes = append(changes, message{'D'}.u32(1).old(def, []cell{val("-999"), nil, nil}))
	c := w.source.commit(changes)
	w.table(1).faults = []*modelFault{{at: c.end, names: []string{"c0=-999"}}}
	w.send(c)
	w.settle()
	w.check(w.m.checkpoint(ctx))
	w.readSomewhere()
	w.check(w.m.inTurn(ctx, func() error {
		for _, tab := range w.m.tables {
			if tab.state == stateFailed && (len(tab.sealed) > 0 || tab.open != nil && tab.open.batch.rows > 0) {
				t.Errorf("table %s keeps %d batches", tab, len(tab.sealed))
			}
		}
		return nil
	}))
	var held int64
	w.check(w.m.inTurn(ctx, func() error {
		for _, tab := range w.m.tables {
			for _, s := range tab.version.Load().segments {
				if s.batch != nil {
					held += s.batch.weight
				}
			}
		}
		return nil
	}))
	if account := w.m.memory.Load(); account != held {
		t.Errorf("%d bytes are accounted, %d held", account, held)
	}
	w.end()
}

// TestCarry: the output of a rewrite has every deletion that its inputs got beyond what was left out, at the row's new place and with its LSN: those of
// before the rewrite began, those of the transaction in which it began, and later ones, carried over in one slice or many; a fold in between changes
// nothing. A TRUNCATE ends it as it ends the inputs.
func TestCarry(t *testing.T) {
	for _, slices := range []bool{false, true} {
		for _, truncated := range []bool{false, true} {
			m, tab := choosing(t)
			remove := func(s *segment, row uint32, at LSN) {
				t.Helper()
				if err := s.delete(row, at); err != nil {
					t.Fatal(err)
				}
			}
			a, b := tab.seal(m, 10, 10, 10, 10, 10), tab.seal(m, 20, 20)
			m.applied = 20
			m.marks.open(22, someTime, someTime)
			remove(a, 0, 15)
			remove(a, 3, 24) // above LWM
			remove(a, 4, 25)
			rw := m.begin(tab, maxLSN)
			rw.follow()
			remove(a, 2, 25) // in the same transaction
			if err := rw.leaveOut(); err != nil {
				t.Fatal(err)
			}
			if slices {
				if err := rw.carry(rw.log); err != nil {
					t.Fatal(err)
				}
				rw.log = nil
			}
			remove(b, 1, 30)
			a.vis.Fold(27)
			b.vis.Fold(27)
			if truncated {
				a.droppedAt.Store(40)
				b.droppedAt.Store(40)
			}
			rw.out = &segment{file: &file{}}
			if err := rw.carry(rw.log); err != nil {
				t.Fatal(err)
			}
			if err := rw.succeed(); err != nil {
				t.Fatal(err)
			}
			want := map[uint32]LSN{1: 25, 2: 24, 3: 25, 5: 30} // rows a1 to a4, b0, b1: a0 was left out
			for row := range uint32(6) {
				for _, x := range []LSN{20, 23, 24, 25, 29, 30, 50} {
					at, dead := want[row]
					if got := rw.out.vis.DeletedAt(row, x); got != (dead && at <= x) {
						t.Errorf("slices %v: row %d deleted at %s: %v", slices, row, x, got)
					}
				}
			}
			if got := rw.out.droppedAt.Load(); got != a.droppedAt.Load() {
				t.Errorf("the output ended at %d", got)
			}
			rw.unfollow()
			if remove(b, 0, 50); rw.log != nil {
				t.Error("the log does not end")
			}
		}
	}
}

// TestCarryPastAFold: what a fold took together before the rewrite has looked is left out.
func TestCarryPastAFold(t *testing.T) {
	m, tab := choosing(t)
	a := tab.seal(m, 10, 10, 10)
	m.applied = 20
	m.marks.open(20, someTime, someTime)
	rw := m.begin(tab, maxLSN)
	rw.follow()
	for row, at := range []LSN{25, 30} {
		if err := a.delete(uint32(row), at); err != nil {
			t.Fatal(err)
		}
	}
	a.vis.Fold(25)
	if err := rw.leaveOut(); err != nil {
		t.Fatal(err)
	}
	if err := rw.carry(rw.log); err != nil {
		t.Fatal(err)
	}
	if rw.dead[0].Cardinality() != 1 || !rw.vis.DeletedAt(0, 30) || rw.vis.DeletedAt(0, 29) || rw.vis.Deleted(1) {
		t.Errorf("%d rows are left out, and another place has their deletions", rw.dead[0].Cardinality())
	}
}

// TestFlushOfAJoin: a deletion that is replayed while the new content is flushed lies below LWM; the flush keeps it nevertheless.
func TestFlushOfAJoin(t *testing.T) {
	m, tab := choosing(t)
	tab.replayed = 10
	tab.open = m.newBatchSegment(tab)
	a := tab.seal(m, 10, 10)
	m.applied, tab.replayed = 20, 15
	m.marks.open(20, someTime, someTime)
	rw := m.begin(tab, maxLSN)
	rw.follow()
	if err := a.delete(0, 17); err != nil {
		t.Fatal(err)
	}
	if err := rw.leaveOut(); err != nil {
		t.Fatal(err)
	}
	if err := rw.carry(rw.log); err != nil {
		t.Fatal(err)
	}
	rw.out = &segment{file: &file{}, vis: rw.vis}
	if !rw.out.vis.DeletedAt(0, 17) || rw.out.vis.DeletedAt(0, 16) || rw.out.vis.DeletedAt(1, 20) {
		t.Error("the replayed deletion has another place or LSN in the file")
	}
}

// TestChooseLargeTransactionApart: a large transaction's rows are in batches of their own, which can be flushed before it ends; those of
// a small one share a batch with the rows before it.
func TestChooseLargeTransactionApart(t *testing.T) {
	for _, spill := range []int64{1, 0} {
		w := newWorld(t, 1)
		w.faults, w.pressure, w.spill = 0, false, spill
		w.start()
		insert := func(rows int) LSN {
			var changes []message
			for range rows {
				cells := []cell{val("1"), nil, val("x")}
				w.table(4).versions = append(w.table(4).versions, &version{cells: cells, created: w.source.end() + 64 + LSN(8*rows)})
				changes = append(changes, message{'I'}.u32(4).u8('N').tuple(cells))
			}
			c := w.source.commit(changes)
			w.send(c)
			w.settle()
			return c.end
		}
		w.check(w.m.inTurn(context.Background(), func() error { w.m.cfg.BatchRows = 8; return nil }))
		insert(1)
		end := insert(20)
		mixed := false
		w.check(w.m.inTurn(context.Background(), func() error {
			for _, s := range w.m.byOID[4].version.Load().segments {
				if s.batch != nil && s.batch.rows > 0 {
					first, last := s.batch.span()
					mixed = mixed || first < end && last == end
				}
			}
			return nil
		}))
		if mixed == (spill > 0) {
			t.Errorf("spilled from %d bytes on: a batch holds rows of both transactions: %v", spill, mixed)
		}
		w.readSomewhere()
		w.end()
	}
}
