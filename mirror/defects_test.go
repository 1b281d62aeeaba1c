package mirror

import (
	"context"
	"strings"
	"testing"
	"time"

	"pgmirror/readstate"
)

// TestFilesStayForLaterReaders: a file that TRUNCATE ended and that no snapshot names any more stays for readers who come later but
// ask for an LSN at which it was there (model seed 2 of old: a file was deleted as soon as the readers of that moment had gone).
func TestFilesStayForLaterReaders(t *testing.T) {
	w := newWorld(t, 1)
	w.faults, w.pressure, w.history = 0, false, 10*time.Second
	w.start()
	ctx := context.Background()
	row := []cell{val("1"), val("x"), nil}
	w.planned(1, message{'I'}.u32(1).u8('N').tuple(row), func(c LSN) {
		w.table(1).versions = append(w.table(1).versions, &version{cells: row, created: c})
	})
	w.check(w.m.checkpoint(ctx))
	before := w.m.marks.high()
	w.planned(1, message{'T'}.u32(1).u8(0).u32(1), func(c LSN) {
		for _, v := range w.table(1).versions {
			v.deleted = c
		}
	})
	w.check(w.m.checkpoint(ctx))
	if w.ware.deleted != 0 {
		t.Errorf("%d files were deleted inside the kept window", w.ware.deleted)
	}
	st, err := w.m.Pin(ctx, readstate.PinRequest{At: before})
	w.check(err)
	w.compare(st, false)
	st.Release()
	// Once the window has passed, the file goes.
	w.clock.advance(time.Minute)
	for range 3 {
		w.planned(4, message{'I'}.u32(4).u8('N').tuple([]cell{val("1"), nil, nil}), func(c LSN) {
			w.table(4).versions = append(w.table(4).versions, &version{cells: []cell{val("1"), nil, nil}, created: c})
		})
		w.clock.advance(time.Minute)
	}
	w.check(w.m.checkpoint(ctx))
	if w.ware.deleted != 1 {
		t.Errorf("%d files were deleted after the kept window, want 1", w.ware.deleted)
	}
	w.end()
}

// planned commits one change, tells the model and waits until the mirror has it.
func (w *world) planned(oid uint32, change message, tell func(LSN)) {
	w.t.Helper()
	c := w.source.commit([]message{change})
	tell(c.end)
	w.note("commit %s: planned, table %d", c.end, oid)
	w.send(c)
	w.settle()
}

// TestMissingRowErrorNamesKey: the error of a table that failed for want of a row names the row's key (model seed 1 of old: only
// errors that name a column named the key).
func TestMissingRowErrorNamesKey(t *testing.T) {
	w := newWorld(t, 1)
	w.faults, w.pressure = 0, false
	w.start()
	w.planned(2, message{'D'}.u32(2).u8('K').tuple([]cell{val("-5"), val("gone"), nil}), func(c LSN) {
		w.table(2).faults = []*modelFault{{at: c}}
	})
	st, err := w.m.Pin(context.Background(), readstate.PinRequest{})
	w.check(err)
	rt, _ := st.Table(readstate.TableName{Schema: "public", Name: "composite"})
	if !strings.Contains(rt.Err, "(row c1=gone, c0=-5)") {
		t.Errorf("the error is %q", rt.Err)
	}
	st.Release()
	w.end()
}
