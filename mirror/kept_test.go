package mirror

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgmirror/pgcdc"
)

// TestKeptRows: a table whose storage and catalogue rows both changed goes on if the source says that its rows were kept, and fails if
// not, found while the mirror runs or at its next start. The source is asked about the look that was judged last.
func TestKeptRows(t *testing.T) {
	b := newBank(8)
	shown := func(version string, filenode uint32, horizon uint64) {
		b.source.mu.Lock()
		defer b.source.mu.Unlock()
		b.source.catalog = slices.Clone(b.source.tables)
		for i := range b.source.catalog {
			if c := &b.source.catalog[i]; c.Name != "log" {
				c.Relfilenode, c.AttributeVersions, c.Horizon = filenode, version, horizon
			}
		}
		b.source.kept = map[uint32]pgcdc.Kept{1: pgcdc.KeptCertain, 2: pgcdc.KeptCertain}
		if version == "rewritten" {
			b.source.kept[2] = pgcdc.KeptUnknown
		}
		b.source.asked = nil
	}
	state := func(m *Mirror, name string) string {
		st, err := m.status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(st.Tables, func(ts TableStatus) bool { return ts.Name == "public."+name })
		return st.Tables[i].State + " " + st.Tables[i].Error
	}
	judged := func(m *Mirror) {
		t.Helper()
		b.transfer()
		if _, _, err := m.sourcePoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.transfer()
		if err := m.marks.wait(t.Context(), b.source.end()); err != nil {
			t.Fatal(err)
		}
	}
	shown("first", 1, 100)
	b.live(t, func(m *Mirror) {
		judged(m)
		shown("not null", 2, 200)
		judged(m)
		if a, asked := state(m, "a"), b.source.asked; a != "streaming " || len(asked) == 0 || asked[0] != 100 {
			t.Errorf("a is %s, the source was asked about %v", a, asked)
		}
	})
	shown("statistics", 3, 300)
	log := &logged{}
	rewrite := func(m *Mirror) {
		judged(m)
		if a, asked := state(m, "a"), b.source.asked; a != "streaming " || len(asked) == 0 || asked[0] != 200 {
			t.Errorf("after a restart a is %s, the source was asked about %v", a, asked)
		}
		shown("rewritten", 4, 400)
		judged(m)
		if a := state(m, "a"); a != "streaming " {
			t.Errorf("a is %s", a)
		}
	}
	m := b.mirror(t)
	m.cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	b.run(t, m, func() { rewrite(m) })
	if told, more := log.lines("public.b", reasonRewritten(&pgcdc.Table{})), log.lines("public.a", reasonRewritten(&pgcdc.Table{})); told == 0 || more != 0 {
		t.Errorf("that b was rewritten was told %d times, that a was, %d times", told, more)
	}
}

// logged is a log that a test reads.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// lines counts the lines that have all of the parts.
func (l *logged) lines(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			n++
		}
	}
	return n
}

// TestLogOfWhatIsLeftOutAndRebuilt: generated columns that are left out are told once a table, FileIndexes of another version by one
// line in all, and both as what they are: nothing to worry about.
func TestLogOfWhatIsLeftOutAndRebuilt(t *testing.T) {
	b := newBank(8)
	b.source.tables[0].Generated = []string{"twice", "thrice"}
	log := &logged{}
	life := func() {
		m := b.mirror(t)
		m.cfg.Log = slog.New(slog.NewTextHandler(log, nil))
		b.run(t, m, func() {
			for range 20 {
				b.transfer()
			}
			b.equal(t, m)
		})
	}
	life()
	if n := log.lines("level=INFO", "generated columns", "public.a", "twice, thrice"); n != 1 || log.lines("generated columns") != 1 {
		t.Errorf("the generated columns of one table were told %d times", n)
	}
	b.files.mu.Lock()
	for path := range b.files.files {
		b.files.files[path] = slices.Clone(b.files.files[path])
		b.files.files[path][8]++ // the version
	}
	indexes := len(b.files.files)
	b.files.mu.Unlock()
	life()
	if n := log.lines("level=INFO", "another version: rebuilding"); n != 1 || indexes < 2 || log.lines("level=WARN") != 0 {
		t.Errorf("%d indexes of another version: %d lines of information, %d warnings", indexes, n, log.lines("level=WARN"))
	}
}

// TestFlushOfTableThatFails: what a flush wrote for a table that failed meanwhile leaves no FileIndex behind, and no data file if all of its
// rows came after the table's last good LSN.
func TestFlushOfTableThatFails(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := newWorld(t, 1)
		w.faults, w.pressure = 0, false
		w.start()
		ctx := t.Context()
		tab := w.m.byOID[1]
		row := []cell{val("77")}
		for range w.table(1).def.Columns[1:] {
			row = append(row, nil)
		}
		w.planned(1, message{'I'}.u32(1).u8('N').tuple(row), func(c LSN) {
			w.table(1).versions = append(w.table(1).versions, &version{cells: row, created: c})
		})
		w.check(w.m.inTurn(ctx, func() error { return w.m.sealOpen(tab) }))
		before := len(w.ware.files)
		w.ware.writing = func() {
			w.ware.writing = nil
			w.check(w.m.inTurn(ctx, func() error {
				w.m.fail(tab, w.m.applied+1, &failure{Reason: "a test"})
				if late {
					tab.failure.Good = 1
				}
				return nil
			}))
		}
		w.check(w.m.flush(ctx, tab, maxLSN))
		if w.ware.writing != nil || tab.state != stateFailed {
			t.Fatal("nothing was flushed, or the table did not fail")
		}
		w.check(w.m.reap(ctx))
		if names, _ := w.files.List("/i"); slices.ContainsFunc(names, func(name string) bool {
			return slices.ContainsFunc(tab.files, func(s *segment) bool { return dataName(name) == s.file.data.Path[len("/w/keyed/"):] })
		}) {
			t.Errorf("file indexes of the failed table are left: %v", names)
		}
		kept := len(w.ware.files) - before
		if late && kept != 0 || !late && kept != 1 {
			t.Errorf("late: %v, %d data files are left", late, kept)
		}
		w.stop()
		<-w.ended
	}
}
