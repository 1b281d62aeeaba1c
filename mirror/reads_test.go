package mirror

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"pgmirror/iceberg"
	"pgmirror/readstate"
)

// goodOf is the last good LSN of the tables that the mirror has failed, by name.
func (w *world) goodOf() map[string]*failure {
	failed := map[string]*failure{}
	for _, v := range w.m.shared.views() {
		if v.failure != nil {
			failed[v.table.name.Name] = v.failure
		}
	}
	return failed
}

// compare compares a state with the model. Tables that failed must say so above their last good LSN; with frozen, all others
// must refuse, since the state lies below the window.
func (w *world) compare(st *readstate.State, frozen bool) {
	w.t.Helper()
	w.compareAgain(st, frozen, nil)
}

// compareAgain is compare for a state that was compared before. refused are the errors that its tables had then: a table keeps its error, also when a
// commit that was under way raises its last good LSN.
func (w *world) compareAgain(st *readstate.State, frozen bool, refused map[string]string) {
	w.t.Helper()
	if len(st.Tables) != len(w.tables) {
		w.fatal("%d tables at %s, want %d", len(st.Tables), st.LSN, len(w.tables))
	}
	for _, mt := range w.tables {
		rt, ok := st.Table(readstate.TableName{Schema: "public", Name: mt.def.Name})
		if !ok {
			w.fatal("table %s is missing at %s", mt.def.Name, st.LSN)
		}
		v := w.viewAt(mt.def.Name, st.LSN)
		if mt.unheard(v, st.LSN) {
			continue
		}
		f, b := v.failure, mt.fault(v.table.uuid)
		if f != nil && mt.excused[v.table.uuid] && f.Remedy == remedyOutdated && (b == nil || f.LSN < b.at) {
			continue
		}
		if f != nil && f.Closed {
			b = &modelFault{} // the state may be older than that
		} else if f != nil {
			w.checkFailure(mt, b, f)
		} else if b != nil && st.LSN >= b.at {
			w.fatal("table %s did not fail at %s", mt.def.Name, b.at)
		}
		if was := refused[mt.def.Name]; was != "" {
			if rt.Err != was {
				w.fatal("the error of table %s at %s was %q, is %q", mt.def.Name, st.LSN, was, rt.Err)
			}
			continue
		}
		if f != nil && f.Closed && rt.Err == "" && !frozen { // pinned before; good are the rows of the last commit alone
			f = nil
		}
		if f != nil && st.LSN > f.Good || f == nil && frozen || frozen && f.Good != st.LSN {
			if rt.Err == "" {
				w.fatal("table %s can be read at %s", mt.def.Name, st.LSN)
			}
			if f != nil && !frozen {
				for _, name := range b.names {
					if !strings.Contains(rt.Err, name) {
						w.fatal("the error of table %s does not name %q: %s", mt.def.Name, name, rt.Err)
					}
				}
			}
			continue
		}
		if rt.Err != "" && frozen && w.folds(mt.def.Name, st.LSN) {
			continue
		}
		if rt.Err != "" && st.LSN == v.table.appears {
			continue // pinned in the moment before the table came back, at the same LSN
		}
		if rt.Err != "" {
			w.fatal("table %s at %s: %s", mt.def.Name, st.LSN, rt.Err)
		}
		if got, want := w.rowsOf(rt), w.expected(mt, rt.Schema, st.LSN); !slices.Equal(got, want) {
			w.fatal("table %s at %s:\n got %v\nwant %v", mt.def.Name, st.LSN, got, want)
		}
	}
}

// folds says that a table is closed, and a reader at an LSN has what it held in the end: only checkpoints show what it held at its last good LSN.
func (w *world) folds(name string, at LSN) bool {
	v := w.viewAt(name, at)
	return v.failure != nil && !v.holdsGood()
}

// viewAt is what a reader at an LSN has of a table.
func (w *world) viewAt(name string, at LSN) *tableView {
	for _, v := range w.m.shared.views() {
		if v.table.name.Name == name {
			v = v.at(at)
			w.noteBase(v.table)
			return v
		}
	}
	return nil
}

// checkFailure: the table fails where the model says, and is good up to the commit before.
func (w *world) checkFailure(mt *modelTable, b *modelFault, f *failure) {
	w.t.Helper()
	if b == nil {
		w.fatal("table %s failed: %+v", mt.def.Name, f)
	}
	if f.LSN != b.at || f.Good < w.lastCommitBefore(b.at) || f.Good >= b.at {
		w.fatal("table %s failed at %s, good up to %s; it must fail at %s", mt.def.Name, f.LSN, f.Good, b.at)
	}
}

// rowsOf reads a table of a state as a client does: files without their deleted rows, batches without theirs.
func (w *world) rowsOf(t *readstate.Table) []string {
	w.t.Helper()
	rows, err := w.tryRowsOf(t)
	w.check(err)
	return rows
}

// tryRowsOf is rowsOf; the error is that of a batch.
func (w *world) tryRowsOf(t *readstate.Table) (rows []string, err error) {
	w.t.Helper()
	columns := make([]int, t.Schema.NumFields())
	for i := range columns {
		columns[i] = i
	}
	for _, f := range t.Files {
		rows = append(rows, w.rowsOfFile(f.Path, f.Rows, t.Schema.Fields(), f.Deleted.Contains)...)
	}
	for _, b := range t.Batches {
		// Two reads, so that slices of columns are read too.
		half := b.Rows / 2
		for _, part := range [][2]int{{0, half}, {half, b.Rows}} {
			arrays, err := b.Columns.Read(columns, part[0], part[1])
			if err != nil {
				return nil, err
			}
			for row := part[0]; row < part[1]; row++ {
				if !b.Deleted.Contains(uint32(row)) {
					rows = append(rows, showRow(arrays, row-part[0]))
				}
			}
		}
	}
	slices.Sort(rows)
	return rows, nil
}

func (w *world) rowsOfFile(path string, n int64, fields []arrow.Field, deleted func(uint32) bool) (rows []string) {
	w.t.Helper()
	r, err := w.ware.OpenData(path)
	w.check(err)
	ids := make([]int32, len(fields))
	for i, f := range fields {
		id, err := fieldID(f)
		w.check(err)
		ids[i] = int32(id)
	}
	y, err := newYounger(r, path, fields, ids)
	w.check(err)
	w.check(r.Columns(context.Background(), y.ids, func(rec arrow.RecordBatch, first int64) error {
		columns, err := y.columns(rec)
		w.check(err)
		for row := range int(rec.NumRows()) {
			if !deleted(uint32(first) + uint32(row)) {
				rows = append(rows, showRow(columns, row))
			}
		}
		n -= rec.NumRows()
		return nil
	}))
	if n != 0 {
		w.fatal("%s does not have the rows it is said to have", path)
	}
	return rows
}

func showRow(arrays []arrow.Array, row int) string {
	var parts []string
	for _, a := range arrays {
		if a.IsNull(row) {
			parts = append(parts, "NULL")
		} else {
			parts = append(parts, "'"+showValue(a, row)+"'")
		}
	}
	return strings.Join(parts, ",")
}

func showValue(a arrow.Array, i int) string {
	if a.IsNull(i) {
		return "NULL"
	}
	switch a := a.(type) {
	case *array.Binary:
		return hex.EncodeToString(a.Value(i))
	case *array.FixedSizeBinary:
		return hex.EncodeToString(a.Value(i))
	case *array.Float64:
		return strconv.FormatFloat(a.Value(i), 'g', -1, 64)
	case *array.Decimal128:
		return a.Value(i).ToString(a.DataType().(*arrow.Decimal128Type).Scale)
	case *array.Date32:
		return strconv.Itoa(int(a.Value(i)))
	case *array.Timestamp:
		return strconv.FormatInt(int64(a.Value(i)), 10)
	case *array.List:
		from, to := a.ValueOffsets(i)
		var parts []string
		for j := from; j < to; j++ {
			parts = append(parts, showValue(a.ListValues(), int(j)))
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return a.ValueStr(i)
}

// snapshot compares what an outside reader finds after a commit with the model: every table's files without their vectors are
// its rows at the commit's LSN, or at its last good one.
func (w *world) snapshot(c iceberg.Commit) {
	w.t.Helper()
	doc, err := decodeDocument(c.Mirror)
	w.check(err)
	if doc.Phase != phaseStreaming {
		return
	}
	if doc.Cut != c.LSN {
		w.fatal("the commit at %s stores the cut %s", c.LSN, doc.Cut)
	}
	w.compareCommitted(doc, w.ware.tables)
	for _, r := range doc.Tables {
		if r.State != stateCopying && r.Failure != nil && r.Failure.Closed {
			w.closedSeen++
		}
	}
	if w.snapshots++; doc.Certain < doc.Cut {
		w.doubtfulSeen++
	}
}

// compareCommitted compares what a commit shows of each table, by uuid, with the model.
func (w *world) compareCommitted(doc *document, tables map[string]*iceberg.TableState) {
	w.t.Helper()
	for _, r := range doc.Tables {
		if r.State == stateCopying {
			continue
		}
		at := doc.Cut
		if r.Failure != nil {
			at = min(at, r.Failure.Good)
		}
		held := tables[r.UUID]
		if at == 0 {
			if held != nil && !r.Failure.Closed {
				w.fatal("table %s was never copied but is committed", r.Name.Name)
			}
			continue
		}
		if held == nil {
			w.fatal("table %s is not committed", r.Name.Name)
		}
		if held.LSN > at && (r.Failure == nil || !r.Failure.Doubtful) {
			w.fatal("the snapshot of %s is said to be at %s; it is at %s", r.Name.Name, held.LSN, at)
		}
		if (doc.Certain < doc.Cut || r.Failure != nil && r.Failure.Doubtful) && w.table(r.OID).silent[r.UUID] != 0 {
			continue
		}
		if held.LSN > at { // it was closed after a checkpoint that is doubtful: it has lost nothing itself, and is as that left it
			at = held.LSN
		}
		var got []string
		for _, f := range held.Files {
			got = append(got, w.rowsOfFile(f.Path, f.Rows, held.Schema.Fields(), f.Deleted.Contains)...)
		}
		slices.Sort(got)
		if want := w.expected(w.table(r.OID), held.Schema, at); !slices.Equal(got, want) {
			w.fatal("committed snapshot of %s at %s:\n got %v\nwant %v", r.Name.Name, at, got, want)
		}
	}
}

// pinnedState is a state that a reader keeps.
type pinnedState struct {
	*readstate.State
	checkpoints int               // how many there had been
	refused     map[string]string // the errors that its tables had when it was pinned
	settled     [][]string        // what it sees of each table, once it has settled
}

// refusedIn lists the errors of a state's tables.
func refusedIn(st *readstate.State) map[string]string {
	refused := map[string]string{}
	for _, rt := range st.Tables {
		if rt.Err != "" {
			refused[rt.Name.Name] = rt.Err
		}
	}
	return refused
}

// settleState lets a state go on without its LSN.
func (w *world) settleState(p *pinnedState) {
	w.t.Helper()
	w.note("the state at %s settles", p.LSN)
	w.compareAgain(p.State, false, p.refused)
	for _, rt := range p.Tables {
		p.settled = append(p.settled, w.rowsOf(rt))
	}
	p.Settle()
}

// compareSettled: whatever became of the tables, a settled state sees what it saw.
func (w *world) compareSettled(p *pinnedState) {
	w.t.Helper()
	for i, rt := range p.Tables {
		if got := w.rowsOf(rt); !slices.Equal(got, p.settled[i]) {
			w.fatal("table %s at %s, which settled:\n got %v\nwant %v", rt.Name, p.LSN, got, p.settled[i])
		}
	}
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
	w.compare(st, false)
	from := at + LSN(w.rng.Uint64N(uint64(high-at)+1))
	w.compareChanges(from, from+LSN(w.rng.Uint64N(uint64(high-from)+1)))
	if len(w.pinned) < 4 && w.rng.IntN(3) == 0 {
		w.pinned = append(w.pinned, pinnedState{State: st, checkpoints: w.snapshots, refused: refusedIn(st)})
		return
	}
	st.Release()
}

// readAgain reads a state that was pinned earlier, and now and then gives it up.
func (w *world) readAgain() {
	w.t.Helper()
	if len(w.pinned) == 0 {
		return
	}
	i := w.rng.IntN(len(w.pinned))
	w.note("read again at %s", w.pinned[i].LSN)
	switch p := &w.pinned[i]; {
	case p.settled != nil:
		w.compareSettled(p)
	case w.rng.IntN(4) == 0:
		w.settleState(p)
	default:
		w.compareAgain(p.State, false, p.refused)
	}
	w.longest = max(w.longest, w.snapshots-w.pinned[i].checkpoints)
	if w.rng.IntN(6) == 0 {
		w.pinned[i].Release()
		w.pinned = slices.Delete(w.pinned, i, i+1)
	}
}

// readOutside: what lies outside the window is refused, except the last good LSN of a failed table, for that table alone.
func (w *world) readOutside() {
	w.t.Helper()
	low, high := w.m.marks.low(), w.m.marks.high()
	ctx := context.Background()
	if _, err := w.m.Pin(ctx, readstate.PinRequest{At: high + 1, Timeout: time.Nanosecond}); !errors.Is(err, context.DeadlineExceeded) && err == nil {
		w.fatal("a read above HWM %s: %v", high, err)
	}
	failed := w.goodOf()
	at := low - 1 - LSN(w.rng.Uint64N(100))
	for _, f := range failed {
		if f.Good == at {
			return
		}
	}
	if _, err := w.m.Pin(ctx, readstate.PinRequest{At: at}); !errors.Is(err, ErrOutsideWindow) {
		w.fatal("a read at %s, below LWM %s: %v", at, low, err)
	}
	for _, mt := range w.tables {
		f := failed[mt.def.Name]
		if f == nil || f.Good == 0 {
			continue
		}
		st, err := w.m.Pin(ctx, readstate.PinRequest{At: f.Good})
		if errors.Is(err, ErrOutsideWindow) && f.Good < low && w.folds(mt.def.Name, f.Good) {
			continue
		}
		w.check(err)
		w.note("read the frozen content at %s", f.Good)
		w.compare(st, f.Good < low)
		st.Release()
	}
}
