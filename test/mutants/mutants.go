package main

// mutant is one way to break the engine.
type mutant struct {
	name  string
	edits []edit
	// tests is the expression for -test.run; empty is the model test alone.
	tests string
}

// edit replaces text that is in a file of package mirror exactly once.
type edit struct{ file, old, new string }

var mutants = []mutant{
	{name: "deletes before inserts of a transaction", edits: []edit{{"apply.go", `	err := tx.Changes(func(ch *pgcdc.Change) error {
		n, err := m.change(ch, lsn)`, `	if err := tx.Changes(func(ch *pgcdc.Change) error {
		if ch.Op != pgcdc.OpDelete {
			return nil
		}
		n, err := m.change(ch, lsn)
		rows += n
		return err
	}); err != nil {
		return err
	}
	err := tx.Changes(func(ch *pgcdc.Change) error {
		if ch.Op == pgcdc.OpDelete {
			return nil
		}
		n, err := m.change(ch, lsn)`}}},
	{name: "keys looked up before inserts", edits: []edit{
		{"apply.go", `	err := tx.Changes(func(ch *pgcdc.Change) error {
		n, err := m.change(ch, lsn)`, `	early = nil
	_ = tx.Changes(func(ch *pgcdc.Change) error {
		if ch.Op != pgcdc.OpUpdate && ch.Op != pgcdc.OpDelete {
			return nil
		}
		t := m.live(ch.Relation.OID)
		if t == nil || t.shape.mode == insertOnly {
			return nil
		}
		old := ch.Old
		if ch.OldKind == 0 {
			old = ch.New
		}
		var loc location
		var ok bool
		if t.seek(old, m.cfg.NullUnrepresentable && t.shape.mode == wholeRow) == nil {
			loc, ok, _ = t.find(m)
		}
		early = append(early, earlyLookup{loc, ok})
		return nil
	})
	err := tx.Changes(func(ch *pgcdc.Change) error {
		n, err := m.change(ch, lsn)`},
		{"apply.go", `	loc, ok, err := t.find(m)
	if err != nil {
		return err
	}
`, `	loc, ok := early[0].loc, early[0].ok
	early = early[1:]
`},
		{"apply.go", "// change applies one step", `type earlyLookup struct {
	loc location
	ok  bool
}

var early []earlyLookup

// change applies one step`}}},
	{name: "LWM computed outside the lock", tests: "^TestRegisterAndLow$", edits: []edit{
		{"watermarks.go", `	high, low := w.high(), w.lowLocked()
`, `	high, low := w.high(), w.lowLocked()
	w.mu.Unlock()
	runtime.Gosched()
	w.mu.Lock()
`}, {"watermarks.go", `	"fmt"
`, `	"fmt"
	"runtime"
`}}},
	{name: "LWM ignores readers", edits: []edit{{"watermarks.go", "if first := w.readers.Front(); first != nil {", "if first := w.readers.Front(); first != nil && w.serial == 0 {"}}},
	{name: "fold past a reader", edits: []edit{{"checkpoint.go", `			low := m.marks.low()
			for _, s := range t.version`, `			low := m.marks.high()
			for _, s := range t.version`}}},
	{name: "acknowledge before the commit", edits: []edit{{"checkpoint.go", "	result, err := m.warehouse.Commit(", "	m.source.Acknowledge(cp.cut)\n	result, err := m.warehouse.Commit("}}},
	{name: "file index not checked against the catalog", edits: []edit{
		{"recover.go", "		home, ok := homes[f.Path]\n", "		home, ok := homes[dataName(filepath.Base(x.path))]\n"},
		{"recover.go", "		if want.Files[0] != f || want.KeyKind", "		if want.KeyKind"},
		{"recover.go", "	if t == nil || rows != h.Entries {", "	if t == nil {"},
		{"recover.go", "dataName(name) != h.Files[0].Path {", "name == \"\" {"},
	}},
	{name: "merged files in another order", tests: "^TestIndexesStayFew$|^TestModel$", edits: []edit{{"mergeindex.go", "j.out.segments = append(j.out.segments, x.segments...)", "j.out.segments = append(slices.Clone(x.segments), j.out.segments...)"}}},
	{name: "an index unmapped while a merge reads it", tests: "^TestTruncateDuringMerge$", edits: []edit{{"mergeindex.go", "	if x.busy {\n", "	if x.busy && x.path == \"\" {\n"}}},
	{name: "a merged index outlives its truncated files", tests: "^TestTruncateDuringMerge$", edits: []edit{
		{"mergeindex.go", "	if at < 0 {\n", "	if at < -1 {\n"},
		{"mergeindex.go", "	t.indexes = slices.Replace(t.indexes, at, at+len(j.inputs), j.out)\n", "	t.indexes = append(t.indexes, j.out)\n"},
	}},
	{name: "version loaded before the pin", tests: "^TestReadYourWrites$", edits: versionBefore(`	timeout := req.Timeout
`)},
	{name: "version loaded just before the pin", tests: "^TestConcurrent$", edits: versionBefore(`	p, err := m.marks.register(req.At)
`)},
	{name: "a cut inside a transaction", edits: []edit{{"checkpoint.go", "if err := m.inTurn(ctx, func() error { return m.beginCheckpoint(&cp) })", "if err := m.inAnyTurn(ctx, func() error { return m.beginCheckpoint(&cp) })"}}},

	{name: "carry-over omitted", edits: []edit{{"rewrite.go", "deletion.Carry(rw.floor, base, later)", "deletion.Carry(rw.floor, base, later[:0])"}}},
	{name: "folded bits not carried over", edits: []edit{{"rewrite.go", "			if int(row) < rw.rows[i] {", "			if int(row) < rw.rows[i] && at > s.vis.Base() {"}}},
	{name: "dropped_at ignored in the carry-over", edits: []edit{{"rewrite.go", "	rw.out.droppedAt.Store(dropped)\n", ""}}},
	{name: "dropped_at of some inputs ignored", tests: "^TestCarry$", edits: []edit{{"rewrite.go", "d != 0 && dropped == 0 {", "d != 0 && dropped != 0 {"}}},
	{name: "rows not counted back by the dead before", edits: []edit{{"rewrite.go", "row - dead.Rank(row) }", "row }"}}},
	{name: "flush leaves out what is deleted at HWM", edits: []edit{{"rewrite.go", "floor: m.marks.low(),", "floor: m.marks.high(),"}}},
	{name: "flushed batches stay in the index no more", edits: []edit{{"rewrite.go", "				t.indexes = append(t.indexes, rw.index)\n", ""}}},
	{name: "a file spans the cut", edits: []edit{{"rewrite.go", "	if m.cut != 0 && upTo > m.cut &&", "	if m.cut == 1 && upTo > m.cut &&"}}},
	{name: "unfinished rows share a file", tests: "^TestChoose$|^TestModel$", edits: []edit{{"rewrite.go", "		if last > m.applied && !ended {", "		if last > maxLSN-1 && !ended {"}}},
	{name: "a large transaction shares batches", tests: "^TestChoose|^TestModel$", edits: []edit{{"apply.go", "	if tx.Spilled {", "	if tx.Spilled && lsn == 0 {"}}},
	{name: "cut-offs dropped at once", edits: []edit{{"rewrite.go", "	f.cuts.Store(&rw.cuts)\n", ""}}},
	{name: "cut-offs dropped too early", edits: []edit{{"checkpoint.go", "cuts != nil && (*cuts)[len(*cuts)-1].lsn <= low {", "cuts != nil {"}}},
	{name: "rows not cut off by create LSN", edits: []edit{{"batch.go", "	return sort.Search(n, func(i int) bool { return lsns[i] > uint64(x) })", "	return n - 0*sort.Search(n, func(i int) bool { return lsns[i] > uint64(x) })"}}},
	{name: "publish before all tables are done", edits: []edit{{"apply.go", "	var rows int64\n	err := tx.Changes(", "	var rows int64\n	m.marks.publish(lsn, m.clock.Now())\n	err := tx.Changes("}}},
	{name: "fork guard off", tests: "^TestForkGuard$", edits: []edit{{"fork.go", "	if g.due {", "	if g.due && g.last.XID == 0 {"}}},
	{name: "fork guard takes another commit for ours", tests: "^TestForkGuard$", edits: []edit{{"fork.go", "if !c.equal(g.last) {", "if c.EndLSN != g.last.EndLSN {"}}},
	{name: "replay filter off", edits: []edit{
		{"mirror.go", "	if tx.EndLSN <= m.applied {\n", "	if tx.EndLSN == 0 {\n"},
		{"apply.go", "	if lsn <= m.applied {\n", "	if lsn == 0 {\n"}}},
	{name: "vectors at HWM instead of the cut", edits: []edit{{"checkpoint.go", "f.segment.vis.At(f.at, uint32(data.Rows))", "f.segment.vis.At(maxLSN, uint32(data.Rows))"}}},
	{name: "the cut is not registered", edits: []edit{{"checkpoint.go", "	m.cut = cp.cut\n", "	m.cut = cp.cut\n	m.marks.release(cp.pin)\n"}}},
	{name: "the document is newer than the cut", edits: []edit{{"checkpoint.go", "	cp.commit = iceberg.Commit{\n", "	cp.doc = m.document(cp.cut)\n	cp.commit = iceberg.Commit{\n"}}},
	{name: "an unfinished table is not dirty again", edits: []edit{{"apply.go", "	t.dirty = true\n	if !t.touched {\n", "	t.dirty = t.dirty || !t.touched && len(t.files) == 0\n	if !t.touched {\n"}}},
	{name: "recovered vectors dropped", edits: []edit{{"recover.go", "vis: deletion.FromVector(data.Deleted, at),", "vis: deletion.NewVisibility(at),"}}},
	{name: "failed table good up to the failure", edits: []edit{{"apply.go", "f.LSN, f.Good = lsn, m.applied", "f.LSN, f.Good = lsn, lsn"}}},
	{name: "failed table committed at the cut", edits: []edit{{"checkpoint.go", "			at = min(at, t.failure.Good)\n", "			at = max(at, t.failure.Good)\n"}}},
	{name: "failed table flushed whole", edits: []edit{{"rewrite.go", "	if good, ended := t.ended(m); ended {\n		upTo, rw.floor = min(upTo, good), min(rw.floor, good)\n", "	if good, ended := t.ended(m); ended {\n		rw.floor = min(rw.floor, good)\n"}}},
	{name: "failed table folded", edits: []edit{{"checkpoint.go", "			if t.state != stateStreaming {\n				return nil\n			}\n			low", "			if t.version.Load() == nil {\n				return nil\n			}\n			low"}}},
	{name: "failed table reaped", edits: []edit{{"checkpoint.go", "		low = min(low, t.failure.Good)\n", "		low = max(low, t.failure.Good)\n"}}},
	{name: "a missing row ignored", edits: []edit{{"apply.go", "		return errMissingRow\n", "		return nil\n"}}},
	{name: "equal hashes taken for equal keys in files", edits: []edit{{"table.go", "		if err != nil || same {\n", "		if err != nil || !same || same {\n			same = true\n"}}},
	{name: "equal hashes taken for equal keys in memory", edits: []edit{{"table.go", "		if string(t.encoded) == string(t.compared) {\n", "		if len(t.encoded) > 0 {\n"}}},
	{name: "a deleted candidate is taken", edits: []edit{{"table.go", "			if s.vis.Deleted(c.Row) {\n", "			if s.vis.Deleted(c.Row) && s.file.data.Rows < 0 {\n"}}},
	{name: "an unchanged value becomes NULL", edits: []edit{{"table.go", "			kept = append(kept, i)\n", "			c.Null()\n"}}},
	{name: "half a value stays after an error", edits: []edit{{"table.go", "			c.truncate(rows)\n			c.Null()\n			t.unrepresentable++\n", "			c.Null()\n			t.unrepresentable++\n"}}},
	{name: "half a row stays after an error", tests: "^TestRefusedRow|^TestModel$", edits: []edit{{"table.go", "		b.truncate(row)\n", ""}}},
	{name: "truncate reaches the rows after it", edits: []edit{{"apply.go", "lsn LSN) error {\n	if err := m.sealOpen(t); err != nil {\n		return err\n	}\n", "lsn LSN) error {\n	t.open.droppedAt.Store(uint64(lsn))\n"}}},
	{name: "truncated segments reaped at once", edits: []edit{{"checkpoint.go", "return d != 0 && d <= low &&", "return d != 0 &&"}}},
	{name: "files deleted under a later reader", edits: []edit{{"checkpoint.go", "if low >= g.cut && oldest > g.serial {", "if oldest > g.serial {"}}},
	{name: "files deleted under an earlier reader", edits: []edit{{"checkpoint.go", "if low >= g.cut && oldest > g.serial {", "if oldest > 0 {"}}},
	{name: "the kept window forgotten", edits: []edit{{"watermarks.go", "	if w.history > 0 && len(w.trail) > 0 {", "	if w.history > 0 && len(w.trail) == 0 {"}}},
	{name: "the kept window too short", edits: []edit{{"watermarks.go", "now.Sub(w.trail[drop+1].at) >= w.history {", "now.Sub(w.trail[drop+1].at) >= w.history/2 {"}}},
	{name: "a waiter is not woken", tests: "^TestWait$|^TestReadYourWrites$", edits: []edit{{"watermarks.go", "		if wt.lsn <= to {\n", "		if wt.lsn < to {\n"}}},
	{name: "NULLs written as values", tests: "^TestColumn", edits: []edit{{"column.go", "		validity, nulls = packBits(c.valid.read(to)[from:])\n", "		validity, nulls = packBits(c.valid.read(to)[:to-from])\n"}}},
	{name: "the rows grow under a reader", tests: "^TestColumn", edits: []edit{{"column.go", "		return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends[from-1 : to])), int(ends[to-1])\n", "		return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends[from:to])), int(ends[to-1])\n"}}},
}

// versionBefore makes Pin load the tables' versions before the given place instead of after the reader is registered.
func versionBefore(place string) []edit {
	return []edit{
		{"read.go", place, `	early := map[*table]*tableVersion{}
	for _, v := range m.shared.views() {
		early[v.table] = v.table.version.Load()
	}
	runtime.Gosched()
	ctx = context.WithValue(ctx, earlyKey{}, early)
` + place},
		{"read.go", "	return m.stateAt(p.LSN, func() { m.marks.release(p) }, how)\n", "	return m.stateOf(ctx.Value(earlyKey{}).(map[*table]*tableVersion), p.LSN, func() { m.marks.release(p) }, how)\n"},
		{"read.go", "func (m *Mirror) stateAt(at LSN, release func(), how reading) (*readstate.State, error) {\n", `func (m *Mirror) stateAt(at LSN, release func(), how reading) (*readstate.State, error) {
	early := map[*table]*tableVersion{}
	for _, v := range m.shared.views() {
		early[v.table] = v.table.version.Load()
	}
	return m.stateOf(early, at, release, how)
}

type earlyKey struct{}

func (m *Mirror) stateOf(early map[*table]*tableVersion, at LSN, release func(), how reading) (*readstate.State, error) {
`},
		{"read.go", "v.table.version.Load().fill(rt, at)", "early[v.table].fill(rt, at)"},
		{"read.go", `	"fmt"
`, `	"fmt"
	"runtime"
`},
	}
}
