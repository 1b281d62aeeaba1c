package mirror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/deletion"
	"pgmirror/iceberg"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// rewrite lets another writer move the live rows of some of a table's data files to others, in an order of its own. With a row left out, or one
// that is not there twice, it is no rewrite.
func (w *fakeWarehouse) rewrite(uuid string, intn func(int) int) *iceberg.Foreign {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rewriteLocked(uuid, intn)
}

func (w *fakeWarehouse) rewriteLocked(uuid string, intn func(int) int) *iceberg.Foreign {
	t := w.tables[uuid]
	f := &iceberg.Foreign{Name: t.Name, UUID: uuid}
	type cell struct {
		rec arrow.RecordBatch
		row int
	}
	var rows []cell
	var schema *arrow.Schema
	for _, d := range t.Files {
		recs := w.files[d.Path]
		if intn(3) == 0 || schema != nil && !recs[0].Schema().Equal(schema) {
			continue
		}
		schema = recs[0].Schema()
		f.Removed = append(f.Removed, d)
		first := uint32(0)
		for _, rec := range recs {
			for row := range int(rec.NumRows()) {
				if !d.Deleted.Contains(first + uint32(row)) {
					rows = append(rows, cell{rec, row})
				}
			}
			first += uint32(rec.NumRows())
		}
	}
	for i := len(rows) - 1; i > 0; i-- {
		j := intn(i + 1)
		rows[i], rows[j] = rows[j], rows[i]
	}
	for len(rows) > 0 {
		part := rows[:1+intn(len(rows))]
		rows = rows[len(part):]
		data := iceberg.DataFile{Rows: int64(len(part))}
		if intn(3) == 0 { // one that it deletes itself
			v := deletion.NewVector(uint32(len(part)) + 1)
			v.Set(uint32(len(part)))
			data.Deleted = v.Freeze()
			part = append(slices.Clone(part), part[0])
			data.Rows++
		}
		columns := make([]arrow.Array, schema.NumFields())
		for c := range columns {
			values := make([]arrow.Array, len(part))
			for i, r := range part {
				values[i] = array.NewSlice(r.rec.Column(c), int64(r.row), int64(r.row)+1)
			}
			joined, err := array.Concatenate(values, memory.DefaultAllocator)
			if err != nil {
				panic(err)
			}
			columns[c] = joined
		}
		lsns := columns[len(columns)-1].(*array.Int64).Int64Values()
		data.MinLSN, data.MaxLSN = LSN(slices.Min(lsns)), LSN(slices.Max(lsns))
		w.serial++
		data.Path = fmt.Sprintf("/w/%s/00000-%d-other.parquet", t.Name.Name, w.serial)
		w.files[data.Path] = []arrow.RecordBatch{array.NewRecordBatch(schema, columns, data.Rows)}
		f.Added = append(f.Added, data)
	}
	if !w.mixed { // writers look at it
		w.mixed = true
	}
	w.foreign[uuid] = f
	return f
}

// anotherCommits lets another engine commit to a table: mostly a rewrite.
func (w *world) anotherCommits() {
	w.t.Helper()
	w.ware.mu.Lock()
	defer w.ware.mu.Unlock()
	byName := slices.SortedFunc(maps.Values(w.ware.tables), func(a, b *iceberg.TableState) int { return a.Name.Compare(b.Name) })
	if len(byName) == 0 {
		return
	}
	t := byName[w.rng.IntN(len(byName))]
	if w.ware.foreign[t.UUID] != nil || w.ware.crashing[t.UUID] != nil {
		return
	}
	f := w.ware.rewriteLocked(t.UUID, w.rng.IntN)
	what := "rewrites"
	switch w.rng.IntN(12) {
	case 0:
		f.Reason, f.Removed, f.Added, what = "snapshot 1 (append by spark 4.0) was committed", nil, nil, "appends to"
	case 1:
		if len(f.Added) > 0 {
			f.Added, what = f.Added[1:], "loses rows in" // the mirror must find it
		}
	case 2:
		f.Removed, f.Added, what = nil, nil, "tags"
	}
	w.note("another engine %s %s: %d files become %d", what, t.Name.Name, len(f.Removed), len(f.Added))
	if what != "rewrites" && what != "tags" {
		w.spoiled[t.UUID] = true
	}
}

// TestModelWithAnotherWriter: whatever another engine does to the Iceberg tables, and whenever, the mirror goes on; rows that it has moved to other
// files are neither lost nor doubled, for readers, in the snapshots that follow, and after a crash; a table of which it has done more fails alone, with what
// it held at the last commit.
func TestModelWithAnotherWriter(t *testing.T) {
	first, last := uint64(1), uint64(max(1, *modelSeeds/4))
	if *modelSeed != 0 {
		first, last = *modelSeed, *modelSeed
	}
	taken, failed := 0, 0
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := runWorld(t, 5000+seed, func(w *world) { w.others = true })
			for _, line := range w.trace {
				if strings.Contains(line, "another engine rewrites") && !strings.Contains(line, ": 0 files") {
					taken++
				} else if strings.Contains(line, "another engine") {
					failed++
				}
			}
		})
	}
	if !t.Failed() && *modelSeed == 0 && (taken == 0 || failed == 0) {
		t.Errorf("%d rewrites, %d other commits", taken, failed)
	}
}

// TestModelWithAnotherWriterAndAlters: the same while columns come and go.
func TestModelWithAnotherWriterAndAlters(t *testing.T) {
	for seed := uint64(1); seed <= uint64(max(1, *modelSeeds/8)); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			runWorld(t, 6000+seed, func(w *world) { w.others = true; w.allowAlters() })
		})
	}
}

// TestForeignChangeFailsOneTable: what another writer has written to a table stops it alone, with what was done and what to do, while the mirror runs and
// when it was down; the run goes on, the slot moves, what the last commit held can be read, and a resync brings the table back.
func TestForeignChangeFailsOneTable(t *testing.T) {
	const did = "snapshot 7 (append by spark 4.0: added-records 3) was committed"
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprintf("down %v", down), func(t *testing.T) {
			b := newBank(9)
			strike := func() {
				b.ware.mu.Lock()
				defer b.ware.mu.Unlock()
				for uuid, ts := range b.ware.tables {
					if ts.Name.Name == "b" {
						b.ware.foreign[uuid] = &iceberg.Foreign{Name: ts.Name, UUID: uuid, Reason: did}
					}
				}
			}
			var good LSN
			var held int64
			checkpoint := func(m *Mirror) {
				t.Helper()
				if _, err := m.Pin(t.Context(), readstate.PinRequest{WaitLSN: b.source.end()}); err != nil {
					t.Fatal(err)
				}
				if _, err := m.Call(t.Context(), "checkpoint", nil, nil); err != nil {
					t.Fatal(err)
				}
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
					} else if ts.State != "failed" || !strings.Contains(ts.Error, did) || !strings.Contains(ts.Remedy, "pgmirror resync") || ts.DurableLSN != good.String() {
						t.Errorf("the table is %+v, want good at %s", ts, good)
					}
				}
				if slot, _, _ := b.source.Slot(t.Context()); slot.ConfirmedFlush <= good {
					t.Errorf("the slot is held back at %s", slot.ConfirmedFlush)
				}
				if sum, text := b.readB(t, m, 0); !strings.Contains(text, did) {
					t.Errorf("it is read: %d, %q", sum, text)
				}
				if sum, text := b.readB(t, m, good); sum != held || text != "" {
					t.Errorf("at %s it holds %d, %q, want %d", good, sum, text, held)
				}
				if err := m.Check(t.Context()); err != nil {
					t.Error(err)
				}
			}
			b.live(t, func(m *Mirror) {
				for range 50 {
					b.transfer()
				}
				checkpoint(m)
				good, held = b.ware.lastCut(), b.total(1)
				for range 10 {
					b.transfer()
				}
				if !down {
					strike()
					checkpoint(m)
					failed(m)
				} else {
					checkpoint(m)
					good, held = b.ware.lastCut(), b.total(1)
				}
			})
			if down {
				strike()
			}
			b.live(t, func(m *Mirror) {
				until(t, m, stands("failed"))
				for range 10 {
					b.transfer()
				}
				checkpoint(m)
				failed(m)
			})
			b.live(t, func(m *Mirror) {
				failed(m)
				if _, err := m.Resync(t.Context(), ResyncRequest{Tables: []string{"b"}}, func(string) {}); err != nil {
					t.Fatal(err)
				}
				checkpoint(m)
				b.equal(t, m)
			})
			b.live(t, func(m *Mirror) { b.equal(t, m) })
		})
	}
}

// total is what a table's accounts hold.
func (b *bank) total(table int) (sum int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, amount := range b.amounts[table] {
		sum += amount
	}
	return sum
}

// TestForeignNameIsTaken: when another table has taken the name in the catalog, a resync does not take it back: the table fails again, alone, until the
// name is free.
func TestForeignNameIsTaken(t *testing.T) {
	b := newBank(10)
	b.live(t, func(m *Mirror) {
		b.ware.mu.Lock()
		for uuid, ts := range b.ware.tables {
			if ts.Name.Name == "b" {
				b.ware.foreign[uuid] = &iceberg.Foreign{Name: ts.Name, UUID: uuid, Reason: "the catalog has another table in its place"}
				b.ware.taken = &ts.Name
			}
		}
		b.ware.mu.Unlock()
		if err := m.lookForForeign(t.Context()); err != nil {
			t.Fatal(err)
		}
		resync := func() {
			t.Helper()
			if _, err := m.Resync(t.Context(), ResyncRequest{Tables: []string{"b"}}, func(string) {}); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Call(t.Context(), "checkpoint", nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			resync()
			until(t, m, stands("failed"))
			if _, text := b.readB(t, m, 0); !strings.Contains(text, "drop or rename the other table in the catalog") {
				t.Errorf("it is read: %q", text)
			}
			for range 5 {
				b.transfer()
			}
		}
		b.ware.mu.Lock()
		b.ware.taken = nil
		b.ware.mu.Unlock()
		resync()
		b.equal(t, m)
	})
	b.live(t, func(m *Mirror) { b.equal(t, m) })
}

// TestForeignAgainAndAgain: a writer that changes a table in every moment does not keep the checkpoint from being made.
func TestForeignAgainAndAgain(t *testing.T) {
	w := newWorld(t, 12)
	w.faults = 0
	w.start()
	for range 10 {
		w.transaction()
	}
	w.settle()
	meets := 0
	w.ware.committing = func() error {
		w.ware.mu.Lock()
		defer w.ware.mu.Unlock()
		meets++
		for uuid, ts := range w.ware.tables {
			if w.ware.foreign[uuid] == nil {
				w.ware.foreign[uuid] = &iceberg.Foreign{Name: ts.Name, UUID: uuid}
			}
		}
		return nil
	}
	w.check(w.m.checkpoint(context.Background()))
	w.ware.committing = nil
	if meets != foreignAgain+1 {
		t.Errorf("%d attempts", meets)
	}
	n := 0
	for _, v := range w.m.shared.views() {
		if v.failure != nil && strings.Contains(v.failure.Reason, "it keeps changing it") {
			n++
		}
	}
	if n == 0 {
		t.Error("no table has failed")
	}
	w.readSomewhere()
	w.end()
}

// rewritten is a world with a table whose rows another engine has moved to other files, many more rows than are sorted in memory.
func rewritten(t *testing.T, seed uint64) (w *world, f *iceberg.Foreign) {
	t.Helper()
	w = newWorld(t, seed)
	w.faults, w.pressure, w.sound = 0, false, true
	w.start()
	w.m.sortRows = 4
	name := []string{"keyed", "inserts", "equals"}[seed%3]
	tab := w.tables[slices.IndexFunc(w.tables, func(t *modelTable) bool { return t.def.Name == name })]
	for range 4 {
		w.insert(tab, 15)
		w.settle()
		w.check(w.m.checkpoint(t.Context()))
	}
	uuid := ""
	for id, ts := range w.ware.tables {
		if ts.Name.Name == name {
			uuid = id
		}
	}
	left := len(w.ware.tables[uuid].Files) // to be chosen: all are
	f = w.ware.rewrite(uuid, func(n int) int {
		if left--; left >= 0 {
			return n - 1
		}
		return w.rng.IntN(n)
	})
	if rows := liveRows(f.Removed); rows < 20 {
		t.Fatalf("%d rows were moved", rows)
	}
	return w, f
}

// insert is a transaction of new rows of one table.
func (w *world) insert(t *modelTable, rows int) { w.replaceRow(t, nil, rows) }

// replaceRow is a transaction that deletes a row of a table, unless that is nil, and then brings new ones.
func (w *world) replaceRow(t *modelTable, old *version, rows int) {
	d := &draft{gone: map[*version]bool{}}
	if old != nil {
		d.kill(old)
		d.changes = append(d.changes, message{'D'}.u32(t.def.OID).old(&t.def, old.now(t)))
	}
	for range rows {
		cells, _ := w.freshRow(t, nil, nil)
		for i := range cells {
			if w.serial++; t.def.Key != nil && isKey(&t.def, i) { // more than the few that the model has
				cells[i] = val(fmt.Sprint(1000 + w.serial))
			}
		}
		if !slices.ContainsFunc(cells, func(c cell) bool { return c != nil && c.bad }) {
			d.bear(t, cells)
			d.changes = append(d.changes, message{'I'}.u32(t.def.OID).u8('N').tuple(cells))
		}
	}
	c := w.source.commit(d.changes)
	for _, v := range d.born {
		v.created = c.end
	}
	for _, v := range d.died {
		v.deleted = c.end
	}
	w.send(c)
}

// streams says whether the mirror's table is alive.
func (w *world) streams(uuid string) (alive bool) {
	w.t.Helper()
	w.check(w.m.inTurn(context.Background(), func() error {
		alive = slices.ContainsFunc(w.m.tables, func(t *table) bool { return t.uuid == uuid && t.state == stateStreaming })
		return nil
	}))
	return alive
}

// TestForeignRewriteIsReadOnce: however many more rows a rewrite has than are sorted in memory, each file of either side is read once; the new files' keys are read
// once more for their FileIndexes. Checkpoints are made while it is read, and neither these nor what is deleted meanwhile have it read again.
func TestForeignRewriteIsReadOnce(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		w, f := rewritten(t, seed)
		runs, cuts := 0, 0
		w.files.merging = func() { runs++ }
		w.ware.opening = func(string) {
			counted := w.ware.reads
			w.ware.opening, w.ware.reads = nil, nil
			defer func() { w.ware.reads = counted }()
			end := w.source.idle()
			w.deliver(pgcdc.Event{WALEnd: end})
			w.passed(end)
			w.check(w.m.drain(t.Context()))
			w.check(w.m.checkpoint(t.Context()))
			if w.ware.lastCut() < end {
				t.Errorf("the cut is %s, not %s", w.ware.lastCut(), end)
			}
			cuts++
			for range 20 {
				w.transaction()
			}
			w.settle()
		}
		w.ware.reads = map[string]map[int32]int64{}
		w.check(w.m.lookForForeign(t.Context()))
		reads := w.ware.reads
		w.ware.reads, w.files.merging = nil, nil
		w.noRuns()
		if !w.streams(f.UUID) || len(w.ware.foreign) > 0 || cuts != 1 {
			w.fatal("it was not taken over, with %d checkpoints meanwhile", cuts)
		}
		if runs < 10 {
			t.Errorf("%d runs", runs)
		}
		var keys []int32
		for _, tab := range w.m.tables {
			if tab.uuid == f.UUID && tab.shape.mode != insertOnly {
				keys = tab.shape.keyFieldIDs()
			}
		}
		for i, data := range slices.Concat(f.Removed, f.Added) {
			if reads[data.Path] == nil {
				t.Errorf("%s was not read", data.Path)
			}
			for id, rows := range reads[data.Path] {
				want := data.Rows
				if i >= len(f.Removed) && slices.Contains(keys, id) {
					want *= 2
				}
				if rows != want {
					t.Errorf("seed %d: of %s with %d rows %d were read of the column %d", seed, data.Path, data.Rows, rows, id)
				}
			}
		}
		w.check(w.m.checkpoint(t.Context()))
		w.audit()
		w.end()
	}
}

// TestForeignRewriteOfOtherRows: a rewrite that changes one value, leaves one row out or has one twice is none, wherever it does so: its table fails.
func TestForeignRewriteOfOtherRows(t *testing.T) {
	for name, change := range map[string]func(w *world, f *iceberg.Foreign, file int){
		"value": func(w *world, f *iceberg.Foreign, file int) {
			rec := w.ware.files[f.Added[file].Path][0]
			for row := range int(f.Added[file].Rows) {
				if f.Added[file].Deleted.Contains(uint32(row)) {
					continue
				}
				for c := range int(rec.NumCols()) {
					for from := range int(rec.NumRows()) {
						if rec.Column(c).ValueStr(row) != rec.Column(c).ValueStr(from) {
							columns := slices.Clone(rec.Columns())
							columns[c] = picked(columns[c], row, from)
							w.ware.files[f.Added[file].Path][0] = array.NewRecordBatch(rec.Schema(), columns, rec.NumRows())
							return
						}
					}
				}
			}
		},
		"left out": func(w *world, f *iceberg.Foreign, file int) {
			data := &f.Added[file]
			rec := w.ware.files[data.Path][0]
			data.Rows, data.Deleted = data.Rows-int64(data.Deleted.Cardinality())-1, nil // what it deletes itself is its last row
			w.ware.files[data.Path][0] = rec.NewSlice(0, data.Rows)
		},
		"left out, but not of the count": func(w *world, f *iceberg.Foreign, file int) {
			data := &f.Added[file]
			w.ware.files[data.Path][0] = w.ware.files[data.Path][0].NewSlice(0, data.Rows-1-int64(data.Deleted.Cardinality()))
		},
		"twice": func(w *world, f *iceberg.Foreign, file int) {
			f.Added = append(f.Added, f.Added[file])
		},
		"twice, in the place of another": func(w *world, f *iceberg.Foreign, file int) {
			rec := w.ware.files[f.Added[file].Path][0]
			columns := slices.Clone(rec.Columns())
			for c := range columns {
				columns[c] = picked(columns[c], 0, 1)
			}
			w.ware.files[f.Added[file].Path][0] = array.NewRecordBatch(rec.Schema(), columns, rec.NumRows())
		},
	} {
		t.Run(name, func(t *testing.T) {
			tried := 0
			for seed := uint64(1); seed <= 6; seed++ {
				w, f := rewritten(t, seed)
				file := w.rng.IntN(len(f.Added))
				rec := w.ware.files[f.Added[file].Path][0]
				if rec.NumRows()-int64(f.Added[file].Deleted.Cardinality()) < 2 || allAlike(rec) {
					w.end()
					continue
				}
				tried++
				change(w, f, file)
				w.check(w.m.lookForForeign(t.Context()))
				w.noRuns()
				if w.streams(f.UUID) {
					t.Errorf("seed %d: it was taken over", seed)
				}
				w.end()
			}
			if tried < 2 {
				t.Errorf("%d were tried", tried)
			}
		})
	}
}

// picked is a column with the value of another of its rows in one row.
func picked(column arrow.Array, row, from int) arrow.Array {
	at := func(from, to int) arrow.Array { return array.NewSlice(column, int64(from), int64(to)) }
	joined, err := array.Concatenate([]arrow.Array{at(0, row), at(from, from+1), at(row+1, column.Len())}, memory.DefaultAllocator)
	if err != nil {
		panic(err)
	}
	return joined
}

// allAlike says whether the first two rows are the same.
func allAlike(rec arrow.RecordBatch) bool {
	return !slices.ContainsFunc(rec.Columns(), func(c arrow.Array) bool { return c.ValueStr(0) != c.ValueStr(1) })
}

// TestForeignRewriteAndTheMachine: a disk that takes no more, or fails, and too many open files fail no table; what was written is removed, and the rewrite is taken
// over when it can be.
func TestForeignRewriteAndTheMachine(t *testing.T) {
	for _, fault := range []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EMFILE} {
		for at := range 12 {
			w, f := rewritten(t, 3)
			calls := 0
			fails := func() error {
				if calls++; calls > at {
					return fmt.Errorf("the machine: %w", fault)
				}
				return nil
			}
			if fault == syscall.EMFILE {
				w.ware.unreadable = func(string) error { return fails() }
			} else {
				w.files.writing = fails
			}
			if err := w.m.lookForForeign(t.Context()); !errors.Is(err, fault) && calls > at {
				w.fatal("%s, call %d: %v", fault, at, err)
			}
			w.noRuns()
			w.files.writing, w.ware.unreadable = nil, nil
			w.check(w.m.lookForForeign(t.Context()))
			if !w.streams(f.UUID) || len(w.ware.foreign) > 0 {
				w.fatal("it was not taken over")
			}
			w.noRuns()
			w.check(w.m.checkpoint(t.Context()))
			w.end()
		}
	}
}

// TestForeignRewriteOfClosedFiles: files that the other engine does not let us read fail their table alone.
func TestForeignRewriteOfClosedFiles(t *testing.T) {
	w, f := rewritten(t, 3)
	w.ware.unreadable = func(path string) error {
		if strings.HasSuffix(path, "-other.parquet") {
			return &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES}
		}
		return nil
	}
	w.check(w.m.lookForForeign(t.Context()))
	w.noRuns()
	if w.streams(f.UUID) {
		t.Error("the table streams")
	}
	w.end()
}

// TestForeignRewriteAtAStop: a stop does not wait until a rewrite is read that no checkpoint has met.
func TestForeignRewriteAtAStop(t *testing.T) {
	w, f := rewritten(t, 1)
	opened := 0
	w.ware.opening = func(string) {
		opened++
		w.m.stopOne.Do(func() { close(w.m.stop) })
	}
	w.check(w.m.lookForForeign(t.Context()))
	w.noRuns()
	if opened != 1 || w.ware.foreign[f.UUID] == nil || w.ware.refused[f.UUID] {
		t.Errorf("%d files were opened; what is left of it: %v", opened, w.ware.foreign)
	}
	w.end()
}

// TestForeignRewriteInsideATransaction: a rewrite is taken over between two transactions, although one waits for memory: what that has deleted is so in the new
// files too. The table is flushed meanwhile.
func TestForeignRewriteInsideATransaction(t *testing.T) {
	w, f := rewritten(t, 3)
	tab := w.tables[slices.IndexFunc(w.tables, func(t *modelTable) bool { return t.def.Name == "keyed" })]
	w.setPressure(true)
	w.replaceRow(tab, tab.versions[3], 60)
	for len(w.chooseToFlush(true)) == 0 { // the applier does not wait for memory yet
		runtime.Gosched()
	}
	taken := make(chan error, 1)
	go func() { taken <- w.m.lookForForeign(context.Background()) }()
	select {
	case err := <-taken:
		t.Errorf("it did not wait for the transaction's end: %v", err)
		taken <- err
	case <-time.After(200 * time.Millisecond): // it is about to
	}
	w.pressure = true
	w.settle()
	w.check(<-taken)
	if !w.streams(f.UUID) || len(w.ware.foreign) > 0 {
		w.fatal("it was not taken over")
	}
	w.pressure = false
	w.setPressure(false)
	w.audit()
	w.readSomewhere()
	w.check(w.m.checkpoint(t.Context()))
	w.end()
}

// examined runs once before what another writer made of a table is looked at.
type examined struct {
	*fakeWarehouse
	before func()
}

func (w *examined) Examine(ctx context.Context, moved iceberg.MovedTable) (*iceberg.Foreign, error) {
	if before := w.before; before != nil {
		w.before = nil
		before()
	}
	return w.fakeWarehouse.Examine(ctx, moved)
}

// TestForeignChangeOfAReplacedTable: a table that is copied again while what another writer did to it is looked at goes on with its new content.
func TestForeignChangeOfAReplacedTable(t *testing.T) {
	w, f := rewritten(t, 3)
	w.ware.mu.Lock()
	f.Reason, f.Removed, f.Added = "snapshot 1 (append by spark 4.0) was committed", nil, nil
	w.ware.mu.Unlock()
	ware := &examined{fakeWarehouse: w.ware}
	w.m.warehouse = ware
	replaced := w.table(1)
	rejoin := func() {
		w.check(w.m.inTurn(t.Context(), func() error {
			w.m.wantJoin(replaced.def.OID, w.m.byOID[replaced.def.OID], "asked for")
			return nil
		}))
		end := w.source.idle()
		w.deliver(pgcdc.Event{WALEnd: end})
		w.passed(end)
		w.joined()
	}
	moved, err := ware.Moved(t.Context())
	w.check(err)
	ware.before = rejoin
	w.m.checkpointing.Lock()
	err = w.m.settleForeign(t.Context(), moved, "")
	w.m.checkpointing.Unlock()
	w.check(err)
	for range 2 {
		w.transaction()
		w.settle()
		w.audit()
		w.readSomewhere()
		w.check(w.m.checkpoint(t.Context()))
		rejoin()
	}
	w.check(w.m.inTurn(t.Context(), func() error {
		if n := len(w.m.tables); n != len(w.tables) {
			return fmt.Errorf("the mirror has %d tables, the source %d", n, len(w.tables))
		}
		return nil
	}))
	w.end()
}
