package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// filled is a world whose source has rows in every table before the first copy.
func filled(t *testing.T) *world {
	w := newWorld(t, 77)
	w.faults, w.pressure, w.nullBad = 0, false, false
	for range 60 {
		w.transaction()
	}
	return w
}

// firstLife tries a first copy; it returns what ended it.
func (w *world) firstLife() error {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m, err := New(Config{Slot: "m", Publications: []string{"p"}, IndexDir: "/i", CopyWorkers: 2}, w.source, w.ware, w.files, w.clock)
	w.check(err)
	w.check(m.recover(ctx))
	ended := make(chan error, 1)
	go func() { ended <- m.applyLoop(ctx) }()
	id, _ := w.source.Identify(ctx)
	err = m.firstCopy(ctx, id)
	stop()
	<-ended
	m.release()
	return err
}

// TestFirstCopyCrash: a crash in whatever stage of the first copy makes the next start begin again with a new slot; nothing is there
// twice, nothing is lost, and no file of the broken copy stays.
func TestFirstCopyCrash(t *testing.T) {
	for _, stage := range []string{"store intent", "create slot", "store copying", "copy the first table", "copy the last table", "store streaming"} {
		t.Run(stage, func(t *testing.T) {
			w := filled(t)
			commits := 0
			var copies atomic.Int64
			w.ware.committing = func() error {
				commits++
				if stage == "store intent" && commits == 1 || stage == "store copying" && commits == 2 || stage == "store streaming" && commits == 3 {
					return errPowerCut
				}
				return nil
			}
			w.source.fault = func(call string) error {
				if stage == "create slot" && call == stage {
					return errPowerCut
				}
				return nil
			}
			w.source.copied = func(oid uint32) error {
				if stage == "copy the first table" && copies.Add(1) == 1 || stage == "copy the last table" && oid == w.tables[len(w.tables)-1].def.OID {
					return errPowerCut
				}
				return nil
			}
			if err := w.firstLife(); !errors.Is(err, errPowerCut) {
				t.Fatalf("the copy ended with %v", err)
			}
			w.ware.committing, w.source.fault, w.source.copied = nil, nil, nil
			w.transaction() // is in the next snapshot
			slots := w.source.slots
			w.start()
			if w.source.slots != slots+1 {
				t.Errorf("%d slots were made since", w.source.slots-slots)
			}
			named := 0
			for _, held := range w.ware.tables {
				named += len(held.Files)
			}
			if len(w.ware.tables) != len(w.tables) || named != len(w.ware.files) {
				t.Errorf("%d tables of %d, %d files of %d are named", len(w.ware.tables), len(w.tables), named, len(w.ware.files))
			}
			for range 20 {
				w.transaction()
			}
			w.settle()
			w.readSomewhere()
			w.audit()
			w.check(w.m.checkpoint(context.Background()))
			w.end()
		})
	}
}

// TestFirstCopyForeignSlot: a slot that exists although the data directory knows nothing of it is refused and left alone.
func TestFirstCopyForeignSlot(t *testing.T) {
	w := filled(t)
	w.source.slot, w.source.confirmed = true, 0x1000
	if err := w.firstLife(); !errors.Is(err, ErrRefused) {
		t.Fatalf("the copy ended with %v", err)
	}
	if !w.source.slot || len(w.ware.history) != 0 {
		t.Error("something was done all the same")
	}
}

// TestCopyRewritten: a table that is rewritten before it is copied keeps no other one waiting. It is an error until it has joined, which it
// does, however often it is rewritten, by itself, and also if the mirror ends before.
func TestCopyRewritten(t *testing.T) {
	for times := 1; times <= 4; times++ {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			w := filled(t)
			ctx := context.Background()
			w.source.rewritten[3] = times
			w.ware.committed = nil // the model does not know of tables that are not there yet
			w.start()
			if w.source.slots != 1 {
				t.Errorf("%d slots were made", w.source.slots)
			}
			st, err := w.m.Pin(ctx, readstate.PinRequest{})
			w.check(err)
			for _, rt := range st.Tables {
				if absent := rt.Err != ""; absent != (rt.Name.Name == "whole") || absent && !strings.Contains(rt.Err, "copied") {
					t.Errorf("table %s: %s", rt.Name.Name, rt.Err)
				}
			}
			st.Release()
			if times%2 == 0 {
				w.crash()
			}
			for i := range times - 1 {
				if left, _, err := w.m.joinQueued(ctx); err != nil || left != 1 {
					t.Errorf("after attempt %d, %d tables wait: %v", i+1, left, err)
				}
				w.transaction()
			}
			w.settle()
			w.joined()
			w.same(3)
			w.end()
		})
	}
}

// TestCopyFailsAlone: a table that cannot be mirrored, or holds a value that cannot, fails with its reason, column and key; the others
// are copied. A table without identity is marked as taking inserts only, and takes them.
func TestCopyFailsAlone(t *testing.T) {
	w := filled(t)
	bad := w.table(8)
	cells, ok := w.freshRow(bad, nil, nil)
	if !ok {
		t.Fatal("no row")
	}
	cells[0], cells[2] = val("4711"), w.badValue(oidNumeric)
	bad.versions = append(bad.versions, &version{cells: cells, created: w.source.end()})
	w.source.tables = slices.Clone(w.source.tables)
	w.source.tables[0].Unsupported = "the table is partitioned"
	w.source.tables[1].Columns = slices.Clone(w.source.tables[1].Columns)
	w.source.tables[1].Columns[2].Type = &pgcdc.Type{OID: 600, Name: "point3d", Unsupported: "composite types are not mirrored yet"}
	w.start()
	ctx := context.Background()
	st, err := w.m.Pin(ctx, readstate.PinRequest{})
	w.check(err)
	says := map[string][]string{"keyed": {"partitioned"}, "composite": {"c2", "composite types"}, "wide": {"column c2", "c0=4711"}}
	for _, rt := range st.Tables {
		if (rt.Err != "") != (says[rt.Name.Name] != nil) {
			t.Errorf("table %s: %q", rt.Name.Name, rt.Err)
		}
		for _, part := range says[rt.Name.Name] {
			if !strings.Contains(rt.Err, part) {
				t.Errorf("the error of %s does not name %q: %s", rt.Name.Name, part, rt.Err)
			}
		}
	}
	st.Release()
	status, err := w.m.status(ctx)
	w.check(err)
	for _, ts := range status.Tables {
		if ts.InsertOnly != (ts.Name == "public.inserts") {
			t.Errorf("table %s: insert only is %v", ts.Name, ts.InsertOnly)
		}
		if want := map[bool]string{true: "failed", false: "streaming"}[says[strings.TrimPrefix(ts.Name, "public.")] != nil]; ts.State != want {
			t.Errorf("table %s is %s, want %s", ts.Name, ts.State, want)
		}
	}
	// All that is left goes on, over a checkpoint and a crash.
	for range 20 {
		w.transaction()
	}
	w.settle()
	w.check(w.m.Check(ctx))
	w.ware.committed = nil // the model does not know of the tables that failed
	w.check(w.m.checkpoint(ctx))
	w.crash()
	st, err = w.m.Pin(ctx, readstate.PinRequest{})
	w.check(err)
	for _, mt := range w.tables {
		rt, _ := st.Table(readstate.TableName{Schema: "public", Name: mt.def.Name})
		if says[mt.def.Name] != nil {
			if rt.Err == "" {
				t.Errorf("table %s is back", mt.def.Name)
			}
			continue
		}
		if got, want := w.rowsOf(rt), mt.shown(st.LSN); !slices.Equal(got, want) {
			t.Errorf("table %s:\n got %v\nwant %v", mt.def.Name, got, want)
		}
	}
	st.Release()
	w.end()
}
