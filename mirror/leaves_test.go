package mirror

import (
	"context"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pgmirror/pgcdc"
)

// TestLeavesLost: which looks at a partitioned table leave it open whether the stream told everything.
func TestLeavesLost(t *testing.T) {
	before := pgcdc.Table{Kind: 'p', Leaves: []pgcdc.Leaf{{OID: 1, Relfilenode: 11, Path: "9@5 "}, {OID: 2, Relfilenode: 12, Path: "9@6 ", WrittenBy: 700}}}
	certain := map[uint32]pgcdc.Kept{2: pgcdc.KeptCertain, 3: pgcdc.KeptCertain}
	truncated := map[uint32]pgcdc.Kept{2: pgcdc.KeptIfTruncated, 3: pgcdc.KeptIfTruncated}
	other := func(now *pgcdc.Table) { now.Leaves[1].Relfilenode = 13 }
	arrives := func(fresh bool) func(*pgcdc.Table) {
		return func(now *pgcdc.Table) {
			now.Leaves = append(now.Leaves, pgcdc.Leaf{OID: 3, Relfilenode: 3, Path: "9@8 ", Fresh: fresh, WrittenBy: 700})
		}
	}
	for name, c := range map[string]struct {
		change      func(now *pgcdc.Table)
		kept        map[uint32]pgcdc.Kept
		truncatedBy []uint32
		lost        bool
	}{
		"one leaves, deletes are not sent":     {func(now *pgcdc.Table) { now.NoDeletes = true; now.Leaves = now.Leaves[:1] }, nil, nil, false},
		"all leave, deletes are not sent":      {func(now *pgcdc.Table) { now.NoDeletes = true; now.Leaves = nil }, nil, nil, false},
		"one leaves, truncates are not sent":   {func(now *pgcdc.Table) { now.NoTruncates = true; now.Leaves = now.Leaves[:1] }, truncated, nil, true},
		"one was away, deletes are not sent":   {func(now *pgcdc.Table) { now.NoDeletes = true; now.Leaves[0].Path = "9@7 " }, truncated, nil, true},
		"one comes, nothing else is sent":      {func(now *pgcdc.Table) { now.NoDeletes, now.NoTruncates = true, true; arrives(false)(now) }, truncated, nil, true},
		"truncated, and that is not sent":      {func(now *pgcdc.Table) { now.NoTruncates = true; other(now) }, truncated, nil, false},
		"truncated, deletes are not sent":      {func(now *pgcdc.Table) { now.NoDeletes = true; other(now) }, truncated, nil, true},
		"written anew, truncates are not sent": {func(now *pgcdc.Table) { now.NoTruncates = true; other(now) }, nil, nil, true},
		"written anew with the columns":        {func(now *pgcdc.Table) { now.NoTruncates, now.AttributeVersions = true, "8"; other(now) }, truncated, nil, true},
		"nothing":                              {func(*pgcdc.Table) {}, nil, nil, false},
		"a new one":                            {arrives(true), nil, nil, false},
		"one comes, perhaps with rows":         {arrives(false), nil, []uint32{700}, true},
		"one comes empty":                      {arrives(false), certain, nil, false},
		"one leaves":                           {func(now *pgcdc.Table) { now.Leaves = now.Leaves[:1] }, certain, []uint32{700}, true},
		"all leave":                            {func(now *pgcdc.Table) { now.Leaves = nil }, certain, nil, true},
		"one is another":                       {func(now *pgcdc.Table) { now.Leaves = now.Leaves[:1]; arrives(true)(now) }, certain, nil, true},
		"one was away":                         {func(now *pgcdc.Table) { now.Leaves[0].Path = "9@7 " }, certain, nil, true},
		"one was away and has other rows":      {func(now *pgcdc.Table) { now.Leaves[1].Path = "9@7 "; other(now) }, certain, []uint32{700}, true},
		"other storage":                        {other, nil, nil, true},
		"other storage, kept":                  {other, certain, nil, false},
		"other storage, truncated as one":      {other, nil, []uint32{699, 700}, false},
		"other storage since":                  {other, nil, []uint32{699}, true},
		"truncated as one, and one came":       {func(now *pgcdc.Table) { other(now); arrives(true)(now) }, nil, []uint32{700}, false},
	} {
		tab, now := &table{storage: storageOf(&before), truncatedBy: c.truncatedBy}, before
		now.Leaves = slices.Clone(before.Leaves)
		c.change(&now)
		if lost := tab.rowsLost(&now, c.kept); lost != c.lost {
			t.Errorf("%s: %v", name, lost)
		}
		if tab.storage.same(storageOf(&now)) != (name == "nothing") {
			t.Errorf("%s: two looks of which one shows it are taken for the same", name)
		}
	}
}

// TestLeavesWatched: a table is copied again when a look shows that a leaf came with rows, also one that then lost a row which the mirror never had; a leaf that came empty
// costs nothing, and one whose updates cannot be followed is what the table says it failed for.
func TestLeavesWatched(t *testing.T) {
	w := quietWorld(t, 7)
	const oid = 2
	i := slices.IndexFunc(w.source.tables, func(d pgcdc.Table) bool { return d.OID == oid })
	now := &w.source.tables[i]
	arrive := func(leaf pgcdc.Leaf) {
		w.source.idle()
		leaf.Path = "2@9 "
		now.Kind, now.Leaves = 'p', append(slices.Clone(now.Leaves), leaf)
	}
	standing := func() string {
		tab := w.m.byOID[oid]
		text := string(tab.state)
		if tab.failure != nil {
			text += ": " + tab.failure.Reason
		}
		if tab.joining != nil {
			text += "; joins: " + tab.joining.why
		}
		return text
	}
	expect := func(what string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if got := standing(); !strings.Contains(got, part) || (part == "streaming") != (got == "streaming") {
				t.Errorf("%s: the table is %q, want %q", what, got, part)
			}
		}
	}
	missing := func() {
		w.planned(oid, message{'D'}.u32(oid).u8('K').tuple([]cell{val("-5"), val("gone"), nil}), func(c LSN) {
			w.table(oid).faults = append(w.table(oid).faults, &modelFault{at: c})
		})
	}
	again := func(what string) {
		t.Helper()
		w.table(oid).faults = nil
		w.joined()
		expect(what, "streaming")
		w.same(oid)
	}
	arrive(pgcdc.Leaf{OID: 901, Relfilenode: 901, Fresh: true})
	w.watched()
	expect("a new leaf", "streaming")
	arrive(pgcdc.Leaf{OID: 902, Relfilenode: 902})
	w.source.kept = map[uint32]pgcdc.Kept{902: pgcdc.KeptCertain}
	w.watched()
	expect("an empty leaf", "streaming")
	arrive(pgcdc.Leaf{OID: 903, Relfilenode: 903})
	w.watched()
	expect("a leaf with rows", "failed: a partition came with rows", "joins: a partition came with rows")
	again("copied with its leaf")
	arrive(pgcdc.Leaf{OID: 904, Relfilenode: 904})
	missing()
	expect("a row that came with a leaf is deleted", "failed: the source changed a row")
	w.watched()
	expect("the look finds the leaf", "joins: ")
	again("copied after a row was missing")
	missing()
	now.Unsupported = "a leaf is no good"
	w.watched()
	expect("the look finds the reason", "failed: a leaf is no good")
	now.Unsupported = ""
	w.watched()
	expect("it is repaired", "joins: a leaf is no good, and that has changed")
	again("copied after the repair")
	w.check(w.m.checkpoint(context.Background()))
	w.crash()
	w.watched()
	expect("after a restart", "streaming")
	now.Leaves = now.Leaves[1:]
	w.watched()
	expect("a leaf left", "joins: a partition came with rows, left")
	again("copied without its leaf")
	w.check(w.m.checkpoint(context.Background()))
	now.Leaves = slices.Clone(now.Leaves)
	now.Leaves[0].Relfilenode++
	w.source.kept = nil
	w.crash()
	w.watched()
	expect("a leaf was truncated while the mirror was stopped", "joins: a partition came with rows, left, was emptied")
	again("copied at last")
	w.end()
}

// TestCutTable: the pieces of a partitioned table hold each of its leaves exactly once, from the first block to an open end, and only small leaves share one.
func TestCutTable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var e pgcdc.Extent
		for leaf := range rapid.IntRange(1, 40).Draw(rt, "leaves") {
			blocks := rapid.Uint32Range(0, rapid.SampledFrom([]uint32{0, 10, 5000, 500_000}).Draw(rt, "scale")).Draw(rt, "blocks")
			e.Leaves = append(e.Leaves, pgcdc.LeafExtent{Leaf: uint32(leaf + 1), Extent: pgcdc.Extent{Blocks: blocks, Bytes: int64(blocks) * 8192}})
			e.Bytes += int64(blocks) * 8192
		}
		next := map[uint32]uint32{} // where the next range of a leaf must begin
		done := map[uint32]bool{}
		var bytes int64
		for _, p := range cutTable(e, rapid.IntRange(1, 8).Draw(rt, "workers")) {
			bytes += p.bytes
			if len(p.blocks) == 0 || len(p.blocks) > 1 && p.bytes > rangeBytesMin {
				rt.Fatalf("%d ranges of %d bytes are one piece", len(p.blocks), p.bytes)
			}
			for _, r := range p.blocks {
				if done[r.Leaf] || r.From != next[r.Leaf] || len(p.blocks) > 1 && r != (pgcdc.Range{Leaf: r.Leaf}) {
					rt.Fatalf("%+v comes after block %d, done %v", r, next[r.Leaf], done[r.Leaf])
				}
				next[r.Leaf], done[r.Leaf] = r.To, r.To == 0
			}
		}
		if len(done) != len(e.Leaves) || slices.ContainsFunc(e.Leaves, func(l pgcdc.LeafExtent) bool { return !done[l.Leaf] }) {
			rt.Fatalf("%d leaves of %d are copied", len(done), len(e.Leaves))
		}
		if bytes > e.Bytes || bytes < e.Bytes-int64(len(e.Leaves))*1000 {
			rt.Fatalf("the pieces have %d bytes of %d", bytes, e.Bytes)
		}
	})
	if got := cutTable(pgcdc.Extent{Blocks: 10, Bytes: 100}, 2); len(got) != 1 || len(got[0].blocks) != 1 || got[0].blocks[0] != (pgcdc.Range{}) {
		t.Errorf("a plain table: %+v", got)
	}
	if got := cutTable(pgcdc.Extent{}, 2); len(got) != 1 || got[0].blocks[0] != (pgcdc.Range{}) {
		t.Errorf("a table without leaves: %+v", got)
	}
}
