package mirror

import (
	"context"
	"slices"
	"testing"

	"pgmirror/pgcdc"
)

// TestRowsLost: which looks leave it open whether the stream told everything.
func TestRowsLost(t *testing.T) {
	before := pgcdc.Table{Relfilenode: 1, Toast: 10, AttributeVersions: "a", StaysLogged: true, WrittenBy: 700}
	for name, c := range map[string]struct {
		change      func(now *pgcdc.Table)
		kept        pgcdc.Kept
		truncatedBy []uint32
		lost        bool
	}{
		"nothing":                         {func(*pgcdc.Table) {}, 0, nil, false},
		"columns":                         {func(now *pgcdc.Table) { now.AttributeVersions = "b" }, 0, nil, false},
		"storage":                         {func(now *pgcdc.Table) { now.Relfilenode = 2 }, 0, nil, false},
		"storage and columns":             {func(now *pgcdc.Table) { now.Relfilenode, now.AttributeVersions = 2, "b" }, 0, nil, false},
		"all":                             {func(now *pgcdc.Table) { now.Relfilenode, now.AttributeVersions, now.Toast = 2, "b", 11 }, 0, nil, true},
		"all, certain":                    {func(now *pgcdc.Table) { now.Relfilenode, now.AttributeVersions, now.Toast = 2, "b", 11 }, pgcdc.KeptCertain, nil, false},
		"perhaps unlogged":                {func(now *pgcdc.Table) { now.Relfilenode, now.StaysLogged, now.Toast = 2, false, 11 }, 0, []uint32{700}, true},
		"perhaps unlogged, certain":       {func(now *pgcdc.Table) { now.Relfilenode, now.StaysLogged, now.Toast = 2, false, 11 }, pgcdc.KeptCertain, nil, false},
		"perhaps unlogged, truncated":     {func(now *pgcdc.Table) { now.Relfilenode, now.StaysLogged, now.Toast = 2, false, 0 }, pgcdc.KeptIfTruncated, []uint32{700}, false},
		"perhaps unlogged, and truncated": {func(now *pgcdc.Table) { now.Relfilenode, now.StaysLogged, now.Toast = 2, false, 0 }, pgcdc.KeptIfTruncated, []uint32{699, 700, 701}, false},
		"perhaps unlogged, other":         {func(now *pgcdc.Table) { now.Relfilenode, now.StaysLogged, now.Toast = 2, false, 0 }, pgcdc.KeptIfTruncated, []uint32{699, 701}, true},
		"perhaps unlogged, never emptied": {func(now *pgcdc.Table) { now.Relfilenode, now.StaysLogged, now.WrittenBy = 2, false, 0; now.Toast = 0 }, pgcdc.KeptIfTruncated, nil, true},
		"perhaps unlogged, same TOAST":    {func(now *pgcdc.Table) { now.Relfilenode, now.StaysLogged = 2, false }, 0, nil, false},
	} {
		tab, now := &table{storage: storageOf(&before), truncatedBy: c.truncatedBy}, before
		c.change(&now)
		if lost := tab.rowsLost(&now, map[uint32]pgcdc.Kept{0: c.kept}); lost != c.lost {
			t.Errorf("%s: %v", name, lost)
		}
	}
}

// TestTruncatedWhileItIsCopied: a TRUNCATE that came while the table was copied explains the table's new storage afterwards, and so does one
// that an earlier life applied.
func TestTruncatedWhileItIsCopied(t *testing.T) {
	w := quietWorld(t, 13)
	ctx := context.Background()
	for len(w.table(1).at(w.source.end())) == 0 {
		w.transaction()
	}
	w.settle()
	truncate := func() {
		w.planned(1, message{'T'}.u32(1).u8(0).u32(1), func(c LSN) {
			for _, v := range w.table(1).versions {
				if v.deleted == 0 {
					v.deleted = c
				}
			}
		})
		now := &w.source.tables[0]
		now.Relfilenode++
		now.WrittenBy = w.source.xid
		w.source.kept = map[uint32]pgcdc.Kept{1: pgcdc.KeptIfTruncated}
	}
	w.want(1)
	w.source.copied = func(uint32) error {
		w.source.copied = nil
		truncate()
		return nil
	}
	w.joined()
	w.watched()
	w.same(1)
	if len(w.m.joins) != 0 {
		t.Errorf("after the join: %s", w.m.joins[1].why)
	}
	// A look may be older than the newest of them.
	truncate()
	look := slices.Clone(w.source.tables)
	truncate()
	w.source.catalog = look
	w.watched()
	w.source.catalog = nil
	if len(w.m.joins) != 0 {
		t.Errorf("after two: %s", w.m.joins[1].why)
	}
	w.check(w.m.checkpoint(ctx))
	w.crash()
	w.watched()
	w.same(1)
	if len(w.m.joins) != 0 {
		t.Errorf("after the restart: %s", w.m.joins[1].why)
	}
	w.end()
}
