package mirror

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"pgregory.net/rapid"

	"pgmirror/pgcdc"
)

// drawTuple is any tuple, or none. Values that were not sent have no bytes.
func drawTuple(t *rapid.T, label string) pgcdc.Tuple {
	n := rapid.IntRange(0, 5).Draw(t, label)
	if n == 0 {
		return nil
	}
	tuple := make(pgcdc.Tuple, n)
	for i := range tuple {
		tuple[i].Format = rapid.SampledFrom([]pgcdc.Format{pgcdc.FormatNull, pgcdc.FormatUnchanged, pgcdc.FormatText, pgcdc.FormatBinary}).Draw(t, "format")
		if f := tuple[i].Format; f == pgcdc.FormatText || f == pgcdc.FormatBinary {
			tuple[i].Data = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value")
		}
	}
	return tuple
}

func sameTuple(a, b pgcdc.Tuple) bool {
	if len(a) != len(b) || (a == nil) != (b == nil) {
		return false
	}
	for i := range a {
		if a[i].Format != b[i].Format || !bytes.Equal(a[i].Data, b[i].Data) {
			return false
		}
	}
	return true
}

// TestChangeLog: a log gives back what was added, in its order, wherever its memory ends, and leaves no file.
func TestChangeLog(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		l := newChangeLog(dir)
		l.limit = rapid.IntRange(0, 2000).Draw(t, "limit")
		relations := []*pgcdc.Relation{nil, {OID: 1}, {OID: 2}}
		type added struct {
			change pgcdc.Change
			lsn    LSN
		}
		var list []added
		for i := range rapid.IntRange(0, 40).Draw(t, "changes") {
			a := added{pgcdc.Change{
				Op:       rapid.SampledFrom([]pgcdc.Op{pgcdc.OpInsert, pgcdc.OpUpdate, pgcdc.OpDelete, pgcdc.OpTruncate, pgcdc.OpRelation}).Draw(t, "op"),
				OldKind:  rapid.SampledFrom([]byte{0, 'K', 'O'}).Draw(t, "kind"),
				Relation: rapid.SampledFrom(relations).Draw(t, "relation"), Old: drawTuple(t, "old"), New: drawTuple(t, "new"),
			}, LSN(i)}
			list = append(list, a)
			l.add(&a.change, a.lsn)
		}
		if l.err != nil || l.changes != len(list) {
			t.Fatalf("%d changes of %d: %v", l.changes, len(list), l.err)
		}
		r, err := l.reader()
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range list {
			got, lsn, err := r.next()
			if err != nil {
				t.Fatal(err)
			}
			if lsn != want.lsn || got.Op != want.change.Op || got.OldKind != want.change.OldKind || got.Relation != want.change.Relation ||
				!sameTuple(got.Old, want.change.Old) || !sameTuple(got.New, want.change.New) {
				t.Fatalf("change %d is %+v at %s, want %+v", i, got, lsn, want)
			}
		}
		if r.left != 0 {
			t.Fatalf("%d are left", r.left)
		}
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	})
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("files are left: %v %v", names, err)
	}
}

// TestChangeLogsShareMemory: however many tables are copied at once, their logs keep an eighth of the bound of memory.
func TestChangeLogsShareMemory(t *testing.T) {
	m := &Mirror{joins: map[uint32]*join{}, joinsTogether: joinsTogether, cfg: Config{Memory: 1 << 20}}
	for n := range uint32(500) {
		m.joins[n] = &join{oid: n}
		if all := min(len(m.joins), joinsTogether) * m.logMemory(); all > 1<<17 || len(m.joins) > joinsTogether && all < 1<<16 {
			t.Fatalf("the logs of %d joins keep %d bytes", len(m.joins), all)
		}
	}
	m.cfg.Memory = 1 << 40
	if got := fmt.Sprint(m.logMemory()); got != fmt.Sprint(16<<20) {
		t.Errorf("with much memory each keeps %s", got)
	}
}
