package mirror

import (
	"context"
	"errors"
	"strings"
	"testing"

	"pgmirror/pgcdc"
)

// TestLooksOnANewTimeline: what a look at a server that is no more has seen does not hide what one at its successor sees, whose transactions have lower numbers.
func TestLooksOnANewTimeline(t *testing.T) {
	w := quietWorld(t, 8)
	for len(w.table(2).at(w.source.end())) == 0 {
		w.transaction()
	}
	w.settle()
	ctx := context.Background()
	w.check(w.m.checkpoint(ctx))
	w.check(w.m.inTurn(ctx, func() error {
		w.m.catalogSeen = 1 << 40
		for _, tab := range w.m.tables {
			tab.seen = 1 << 40
		}
		return nil
	}))
	id, _ := w.source.Identify(ctx)
	id.Timeline, id.History = 2, []pgcdc.TimelineSwitch{{Timeline: 1, End: w.m.shared.get().durable}}
	w.check(w.m.admit(ctx, id))
	w.alter(2)
	w.watched()
	if _, text := w.rowsAt("composite", 0); !strings.Contains(text, "definition changed") {
		t.Errorf("after a change: %q", text)
	}
	w.told = false
	w.joined()
	w.same(2)
	w.end()
}

// TestAdmit: only the server that the mirror follows is let in: same system and database, WAL not behind the mirror, and on our
// timeline or on one that left ours at or above what is durable.
func TestAdmit(t *testing.T) {
	w := newWorld(t, 1)
	w.faults, w.pressure = 0, false
	w.start()
	ctx := context.Background()
	w.check(w.m.checkpoint(ctx))
	durable := w.m.shared.get().durable
	good, _ := w.source.Identify(ctx)
	for _, c := range []struct {
		name    string
		change  func(*pgcdc.Identification)
		refused string // part of the reason; empty: let in
	}{
		{"the same server", func(*pgcdc.Identification) {}, ""},
		{"another system", func(id *pgcdc.Identification) { id.SystemID = "8" }, "system identifier 8"},
		{"another database", func(id *pgcdc.Identification) { id.Database = "e" }, `database is "e"`},
		{"WAL that ends below the mirror", func(id *pgcdc.Identification) { id.WALEnd = durable - 1 }, "gone back"},
		{"a timeline without ours in its history", func(id *pgcdc.Identification) { id.Timeline = 2 }, "does not contain ours"},
		{"a timeline that left ours below the mirror", func(id *pgcdc.Identification) {
			id.Timeline, id.History = 2, []pgcdc.TimelineSwitch{{Timeline: 1, End: durable - 1}}
		}, "left timeline 1"},
		{"a timeline that left ours where the mirror is", func(id *pgcdc.Identification) {
			id.Timeline, id.History = 2, []pgcdc.TimelineSwitch{{Timeline: 1, End: durable}}
		}, ""},
	} {
		id := good
		c.change(&id)
		err := w.m.admit(ctx, id)
		if c.refused == "" {
			w.check(err)
		} else if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), "pgmirror drop --warehouse") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	w.end()
}
