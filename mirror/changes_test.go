package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// compareChanges compares the change feed of every table above from and at or below to with the model. The caller holds LWM at or below from.
func (w *world) compareChanges(from, to LSN) {
	w.t.Helper()
	w.note("changes from %s to %s", from, to)
	for _, mt := range w.tables {
		name := readstate.TableName{Schema: "public", Name: mt.def.Name}
		v := w.viewAt(mt.def.Name, to)
		if mt.unheard(v, to) {
			continue
		}
		st, err := w.m.Pin(context.Background(), readstate.PinRequest{At: to, Changes: &readstate.Changes{Table: name, From: from}})
		if f := v.failure; f != nil && to > f.Good || v.state == stateCopying || from < v.table.appears {
			if err == nil {
				w.fatal("changes of table %s from %s to %s are no error", name, from, to)
			}
			continue
		}
		if err != nil && from < v.table.version.Load().at(to).moved {
			continue
		}
		w.check(err)
		w.changesSeen += w.compareFeed(mt, st.Tables[0], w.rowsOf(st.Tables[0]), from, to)
		st.Release()
	}
}

// compareFeed compares the rows of a change feed, above from and at or below to, with the model, and says how many there are.
func (w *world) compareFeed(mt *modelTable, rt *readstate.Table, rows []string, from, to LSN) int {
	w.t.Helper()
	want := mt.changes(from, to, w.columnsShown(mt, arrow.NewSchema(rt.Schema.Fields()[changeColumns:], nil), to))
	if mt.def.Identity == pgcdc.IdentityFull {
		rows, want = settled(rows), settled(want)
	}
	if !slices.Equal(rows, want) {
		w.fatal("changes of table %s from %s to %s:\n got %v\nwant %v", rt.Name, from, to, rows, want)
	}
	return len(rows)
}

// changes prints what a feed must list: versions that were visible at some LSN.
func (t *modelTable) changes(from, to LSN, attNums []int16) (list []string) {
	add := func(v *version, what string, at LSN) {
		if at > from && at <= to {
			list = append(list, fmt.Sprintf("'%s','%d',%s", what, uint64(at), showCells(v.in(t, attNums))))
		}
	}
	for _, v := range t.versions {
		if v.created != 0 && v.created != v.deleted {
			add(v, "insert", v.created)
			add(v, "delete", v.deleted)
		}
	}
	slices.Sort(list)
	return list
}

// settled leaves out what one commit deleted and inserted alike: of equal rows nobody knows which one a commit deleted, that of before or its own.
func settled(sorted []string) (left []string) {
	for _, line := range sorted {
		if deleted, ok := strings.CutPrefix(line, "'insert'"); ok {
			if i := slices.Index(left, "'delete'"+deleted); i >= 0 {
				left = slices.Delete(left, i, i+1)
				continue
			}
		}
		left = append(left, line)
	}
	return left
}

// A range that reaches below the window names the floor; one that ends before it begins, or names no table, is an error too; without ends it is
// the whole window.
func TestChangesRange(t *testing.T) {
	w := newWorld(t, 7)
	w.faults, w.history = 0, 0
	w.start()
	ctx := context.Background()
	w.grow(0, 5)
	w.settle()
	hold, err := w.m.Pin(ctx, readstate.PinRequest{})
	w.check(err)
	floor := hold.LSN
	w.grow(5, 3)
	w.settle()
	high := w.m.marks.high()
	name := readstate.TableName{Schema: "public", Name: "keyed"}
	pin := func(name readstate.TableName, from, to LSN) (*readstate.State, error) {
		return w.m.Pin(ctx, readstate.PinRequest{At: to, Changes: &readstate.Changes{Table: name, From: from}})
	}
	if _, err := pin(name, floor-1, 0); !errors.Is(err, ErrOutsideWindow) || !strings.Contains(err.Error(), "from "+floor.String()) {
		t.Errorf("below the floor: %v", err)
	}
	if _, err := pin(name, high, floor); err == nil {
		t.Error("a range that ends before it begins is no error")
	}
	if _, err := pin(readstate.TableName{Schema: "public", Name: "no"}, 0, 0); err == nil || !strings.Contains(err.Error(), "public.no") {
		t.Errorf("a table that is not there: %v", err)
	}
	st, err := pin(name, 0, 0)
	w.check(err)
	if rows := w.rowsOf(st.Tables[0]); st.LSN != high || len(rows) != 3 {
		t.Errorf("the whole window, to %s: %v", st.LSN, rows)
	}
	hold.Release()
	if low := w.m.marks.low(); low != floor {
		t.Errorf("an open feed does not hold its beginning: LWM is %s", low)
	}
	st.Release()
	w.audit()
	w.end()
}

// The lists of open feeds have one bound, which a single feed may exceed; who closes one makes room. A pin that is given up ends.
func TestChangesAreBounded(t *testing.T) {
	w := newWorld(t, 7)
	w.faults, w.history = 0, 0
	w.start()
	hold, err := w.m.Pin(t.Context(), readstate.PinRequest{})
	w.check(err)
	w.grow(0, 8)
	w.settle()
	memory := w.m.cfg.Memory
	w.m.cfg.Memory = 100 // six changes
	pin := func(ctx context.Context) (*readstate.State, error) {
		return w.m.Pin(ctx, readstate.PinRequest{Changes: &readstate.Changes{Table: readstate.TableName{Schema: "public", Name: "keyed"}, From: hold.LSN}})
	}
	first, err := pin(t.Context())
	w.check(err)
	if _, err := pin(t.Context()); err == nil || !strings.Contains(err.Error(), "more than the setting memory") {
		t.Errorf("a feed too many: %v", err)
	}
	first.Release()
	first.Release()
	second, err := pin(t.Context())
	w.check(err)
	second.Settle()
	third, err := pin(t.Context()) // the rows of the second are elsewhere
	w.check(err)
	second.Release()
	third.Release()
	if left := w.m.feeds.Load(); left != 0 {
		t.Errorf("%d bytes are counted of no feed", left)
	}
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pin(given); !errors.Is(err, context.Canceled) {
		t.Errorf("a pin that was given up: %v", err)
	}
	w.m.cfg.Memory = memory
	hold.Release()
	w.end()
}
