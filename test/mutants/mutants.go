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
	{name: "deletes before inserts of a transaction", edits: []edit{{"apply.go", `	if m.worthProbing(tx) {
		err = m.applyInWindows(tx, apply)
	} else {
		err = tx.Changes(apply)
	}
`, `	for _, deletes := range []bool{true, false} {
		if err == nil {
			err = tx.Changes(func(ch *pgcdc.Change) error {
				if (ch.Op == pgcdc.OpDelete) != deletes {
					return nil
				}
				return apply(ch)
			})
		}
	}
`}}},
	{name: "keys looked up before inserts", edits: []edit{
		{"apply.go", `	if m.worthProbing(tx) {
`, `	early = map[*table][]earlyLookup{}
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
		var found earlyLookup
		if t.seek(old, m.cfg.NullUnrepresentable && t.shape.mode == wholeRow) == nil {
			found.loc, found.ok, _ = t.find(m)
		}
		early[t] = append(early[t], found)
		return nil
	})
	if m.worthProbing(tx) {
`},
		{"apply.go", `	loc, ok, err := t.find(m)
	if err != nil {
		return err
	}
`, `	loc, ok, err := t.find(m)
	if err != nil {
		return err
	}
	if t.state == stateStreaming {
		loc, ok = early[t][0].loc, early[t][0].ok
		early[t] = early[t][1:]
	}
`},
		{"apply.go", "// change applies one step", `type earlyLookup struct {
	loc location
	ok  bool
}

var early map[*table][]earlyLookup

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
	{name: "files deleted within the grace period", edits: []edit{{"expire.go", " && now.Sub(g.since) >= grace", ""}}},
	{name: "what an earlier life left is deleted at once", edits: []edit{{"expire.go", "		since := f.Since\n", "		since := f.Since.Add(-m.cfg.Grace)\n"}}},
	{name: "acknowledge before the commit", edits: []edit{{"checkpoint.go", "	result, err := m.warehouse.Commit(", "	m.source.Acknowledge(cp.cut)\n	result, err := m.warehouse.Commit("}}},
	{name: "file index not checked against the catalog", tests: "^TestIndexesOfOtherFiles$", edits: []edit{
		{"recover.go", "		home, ok := homes[f.Path]\n", "		home, ok := homes[dataName(filepath.Base(x.path))]\n"},
		{"recover.go", "		if want.Files[0] != f || want.KeyKind", "		if want.KeyKind"},
		{"recover.go", "	if t == nil || rows != h.Entries {", "	if t == nil {"},
		{"recover.go", "dataName(name) != h.Files[0].Path {", "name == \"\" {"},
	}},
	{name: "merged files in another order", tests: "^TestIndexesStayFew$|^TestModel$", edits: []edit{{"mergeindex.go", "j.covered = append(j.covered, coveredFile{x, file})", "j.covered = append([]coveredFile{{x, file}}, j.covered...)"}}},
	{name: "an index unmapped while a merge reads it", tests: "^TestTruncateDuringMerge$", edits: []edit{{"mergeindex.go", "	if x.busy {\n", "	if x.busy && x.path == \"\" {\n"}}},
	{name: "a merged index outlives its truncated files", tests: "^TestTruncateDuringMerge$", edits: []edit{
		{"mergeindex.go", "	if len(left) == 0 {\n", "	if false {\n"},
		{"mergeindex.go", "	at := slices.Index(t.indexes, left[0])\n	t.indexes = slices.Replace(t.indexes, at, at+len(left), j.out)\n", "	t.indexes = append(t.indexes, j.out)\n"},
	}},
	{name: "a merge brings back what was compacted meanwhile", tests: "^TestCompactionDuringMerge$", edits: []edit{{"mergeindex.go", "		s := c.segment()\n", `		s := c.segment()
		for _, was := range t.compacted {
			if filepath.Base(was.file.data.Path) == j.header.Files[len(j.out.segments)].Path {
				s = was
			}
		}
`}}},
	{name: "a merge takes the place of as many as it began with", tests: "^TestCompactionDuringMerge$", edits: []edit{{"mergeindex.go", "slices.Replace(t.indexes, at, at+len(left), j.out)", "slices.Replace(t.indexes, at, min(len(t.indexes), at+len(j.inputs)), j.out)"}}},
	{name: "no merge while files are compacted", tests: "^TestMergeDuringCompaction$", edits: []edit{{"flusher.go", "			if !t.merging.TryLock() {\n", "			if !t.tidying.TryLock() {\n"},
		{"flusher.go", "			t.merging.Unlock()\n", "			t.tidying.Unlock()\n"}}},
	{name: "a table that has been replaced is stopped for another engine's change", tests: "^TestForeignChangeOfAReplacedTable$", edits: []edit{{"foreign.go", "	if !slices.Contains(m.tables, t) {\n		return\n	}\n	why :=", "	why :="}}},
	{name: "a fault of the machine fails a table that another engine has rewritten", tests: "^TestForeignRewriteAndTheMachine$", edits: []edit{{"foreign.go", "	if context.Cause(ctx) != nil || !errors.Is(fault, iceberg.ErrCorrupt) {\n", "	if context.Cause(ctx) != nil {\n"}}},
	{name: "what was good of a failed table is more after another engine's change", tests: "^TestModelWithAnotherWriter|^TestSimulation$", edits: []edit{{"foreign.go", "why.Good, why.Doubtful = min(why.Good, good), doubtful", "why.Good, why.Doubtful = good, doubtful"}}},
	{name: "missing indexes are built all at once", tests: "^TestRebuildIndexes$", edits: []edit{{"recover.go", "		weight := min(most, home.segment.file.data.Rows*buildBytes)\n", "		weight := int64(0)\n"}}},
	{name: "commit times do not count", tests: "^TestMemoryAccount$", edits: []edit{{"memory.go", "m.visible.Store(n + m.marks.timesBytes())", "m.visible.Store(n)"}}},
	{name: "version loaded before the pin", tests: "^TestReadYourWrites$", edits: versionBefore(`	timeout := req.Timeout
`)},
	{name: "version loaded just before the pin", tests: "^TestConcurrent$", edits: versionBefore(`	p, err := m.marks.register(at)
`)},
	{name: "a cut inside a transaction", edits: []edit{{"checkpoint.go", "if err := m.inTurn(ctx, func() error { return m.beginCheckpoint(&cp) })", "if err := m.inAnyTurn(ctx, func() error { return m.beginCheckpoint(&cp) })"}}},

	{name: "a column that came and went is not noticed", tests: "^TestEvolved$", edits: []edit{{"evolve.go", "	case now.LastDropped > t.lastAttNum: // a column came and went meanwhile\n		return nil\n", ""}}},
	{name: "rewritten rows are not noticed", tests: "^TestEvolved$", edits: []edit{{"evolve.go", "	case now.Relfilenode != t.storage.Relfilenode: // what the rows show in a new column may be lost\n		return nil\n", ""}}},
	{name: "a leaf that left is not noticed", tests: "^TestLeaves", edits: []edit{{"leaves.go", "return left || len(known) > 0 && !now.NoDeletes, changes", "return left, changes"}}},
	{name: "a leaf whose rows stay is copied again", tests: "^TestLeaves", edits: []edit{{"leaves.go", "case !c.arrived && now.NoTruncates && kept", "case !c.arrived && now.NoTruncates && now.OID == 1<<32-1 && kept"}}},
	{name: "an ALTER TABLE of a whole is taken for a TRUNCATE", tests: "^TestLeaves", edits: []edit{{"leaves.go", " && s.Attributes == now.AttributeVersions", ""}}},
	{name: "a leaf that came with rows is not noticed", tests: "^TestLeaves", edits: []edit{{"leaves.go", "case !was && leaf.Fresh:", "case !was:"}}},
	{name: "a leaf that was truncated alone is not noticed", tests: "^TestLeaves", edits: []edit{{"leaves.go", "certain, by = pgcdc.KeptIfTruncated, append(by, c.leaf.WrittenBy)", "certain = pgcdc.KeptIfTruncated"}}},
	{name: "columns come and go at once", tests: "^TestEvolved$", edits: []edit{{"evolve.go", "	if added > 0 && dropped > 0 || ", "	if "}}},
	{name: "a name that another table takes is not noticed", tests: "^TestNameTaken$", edits: []edit{{"apply.go", "		m.nameTaken(ch.Relation, lsn)\n", ""}}},
	{name: "a read takes no second look", tests: "^TestReadAmongCatalogChanges$", edits: []edit{{"read.go", "err == nil && sameTables(before, after)", "err == nil && (sameTables(before, after) || true)"}}},
	{name: "a look need not agree with the Relation", tests: "^TestLookDisagrees$", edits: []edit{{"evolve.go", "if s == nil || s.differs(t, r) != \"\" {", "if s == nil {"}}},
	{name: "a file has batches of two shapes", tests: "^TestModelAlters$", edits: []edit{{"rewrite.go", "if len(inputs) > 0 && s.batch.shape != inputs[0].batch.shape {", "if len(inputs) > 1<<20 {"}}},
	{name: "readers below a change of columns see the new ones", tests: "^TestModelAlters$", edits: []edit{{"evolve.go", "	t.earlier, t.since = t.version.Load(), lsn\n", ""}}},
	{name: "the version before a change of columns is dropped at once", tests: "^TestModelAlters$", edits: []edit{{"checkpoint.go", "if t.earlier != nil && t.since <= low {", "if t.earlier != nil {"}}},
	{name: "a checkpoint commits columns that came after its cut", tests: "^TestModelAlters$", edits: []edit{{"checkpoint.go", "	if s := cp.shapes[t]; !t.created", "	if s := t.shape; !t.created"}}},
	{name: "the catalog does not get new columns", tests: "^TestModelAlters$", edits: []edit{{"checkpoint.go", "!t.created || s != t.committed {", "!t.created {"}}},
	{name: "field ids are given again", tests: "^TestModelAlters$", edits: []edit{{"evolve.go", "iceberg.AssignFieldIDs(arrow.NewSchema(fields, nil), t.lastFieldID)", "iceberg.AssignFieldIDs(arrow.NewSchema(fields, nil), 1)"}}},
	{name: "a flush of some shapes is taken for all", tests: "^TestModelAlters$", edits: []edit{{"rewrite.go", "if more, err := m.flushShape(ctx, t, upTo); err != nil || !more {", "if _, err := m.flushShape(ctx, t, upTo); err != nil || true {"}}},

	{name: "a cut is not confirmed", tests: "^TestModelSilence$", edits: []edit{{"closed.go", "	if !sure && m.shared.get().state == \"streaming\" {\n", "	if sure = true; !sure {\n"}}},
	{name: "a look that shows other rows confirms", tests: "^TestModelSilence$", edits: []edit{{"table.go", "return now.Fingerprint == t.fingerprint && !t.storage.rewritten(now)", "return now.Fingerprint == t.fingerprint"}}},
	{name: "a look from before the cut confirms", tests: "^TestModelSilence$", edits: []edit{{"closed.go", "sure = m.catalogLSN >= cp.cut || ", "sure = m.catalogLSN > 0 || "}}},
	{name: "a cut goes on with tables that were closed", tests: "^TestModelSilence$", edits: []edit{
		{"closed.go", "	if changed && cp.attempt < confirmAgain {\n", "	if changed && cp.attempt < 0 {\n"},
		{"checkpoint.go", "	if m.closures != cp.closures { ", "	if m.closures > 1<<60 { "}}},
	{name: "a closed table is committed", tests: "^TestModelSilence$", edits: []edit{{"apply.go", "&failure{Reason: why, Remedy: remedyOutdated, Closed: true}", "&failure{Reason: why, Remedy: remedyOutdated}"}}},
	{name: "a doubtful commit is good", tests: "^TestModelSilence$", edits: []edit{{"closed.go", "f.Good, f.Doubtful = m.certain, m.certain < m.durable", "f.Good, f.Doubtful = m.durable, false"}}},
	{name: "what a doubtful commit has is read", tests: "^TestModelSilence$", edits: []edit{{"closed.go", "	if f.Doubtful { ", "	if f.Doubtful && f.Good == 1 { "}}},
	{name: "doubt is forgotten by a restart", tests: "^TestModelSilence$", edits: []edit{{"recover.go", "m.catalogLSN, m.certain = doc.Certain, doc.Certain", "m.catalogLSN, m.certain = doc.Cut, doc.Cut"}}},
	{name: "doubt is forgotten by the next look", tests: "^TestDoubtEnds$", edits: []edit{{"watch.go", "c.CheckedLSN); m.catalogLSN >= m.durable {", "c.CheckedLSN); m.catalogLSN >= 0 {"}}},
	{name: "a table closed during its commit keeps its old last good LSN", tests: "^TestModelSilence$", edits: []edit{{"checkpoint.go", "			m.goodUpToCommit(t, &f)\n", ""}}},
	{name: "a closed table shows what it held in the end", tests: "^TestModelSilence$", edits: []edit{{"closed.go", "left.hold(m, files, f.Good)", "left.files = t.files"}}},
	{name: "what a closed table held is read below the window", tests: "^TestModel", edits: []edit{
		{"read.go", "v.failure.Good == at && v.holdsGood() {", "v.failure.Good == at {"},
		{"read.go", " || !v.holdsGood()) {", ") {"}}},

	{name: "batches are buried under a reader", tests: "^TestModel$", edits: []edit{{"dead.go", "n < len(m.deaths) && m.deaths[n].at <= low; n++", "n < len(m.deaths) && low > 0; n++"}, {"dead.go", "s.dead() && s.vis.Last() <= low &&", "s.dead() &&"}}},
	{name: "batches with a live row are buried", tests: "^TestModel$", edits: []edit{{"dead.go", "s.vis.Count() == s.batch.rows", "s.vis.Count()+1 >= s.batch.rows"}}},
	{name: "dead batches of a failed table are buried", tests: "^TestDeadBatchesOfAFailedTable$", edits: []edit{{"dead.go", "low = min(low, t.failure.Good)", "low = max(low, t.failure.Good)"}}},
	{name: "dead batches that a flush moves are buried", tests: "^TestModelAlters$", edits: []edit{{"dead.go", " && s.moving.to == nil", ""}}},
	{name: "dead batches stay", tests: "^TestDeadBatches$", edits: []edit{{"dead.go", "		m.letGo(s.batch)\n		return true\n", "		return false\n"}}},

	{name: "carry-over omitted", edits: []edit{{"carry.go", "if err := rw.carry(rw.log); err != nil {", "if err := rw.carry(rw.log[:0]); err != nil {"}}},
	{name: "slices not carried over", edits: []edit{{"carry.go", "if err := rw.carry(slice); err != nil {", "if err := rw.carry(slice[:0]); err != nil {"}}},
	{name: "deletions before the log not carried over", tests: "^TestCarry$", edits: []edit{{"carry.go", "deletion.Carry(rw.floor, before)", "deletion.Carry(rw.floor, before[:0])"}}},
	{name: "deletions of the transaction in which the log begins carried over twice", tests: "^TestCarry$", edits: []edit{{"carry.go", "if d.at <= rw.began && rw.vis.Deleted(row) {", "if d.at == 0 {"}}},
	{name: "rows that are left out are carried over", tests: "^TestCarryPastAFold$", edits: []edit{{"carry.go", " || rw.dead[d.input].Contains(d.row) {", " {"}}},
	{name: "dropped_at ignored in the carry-over", edits: []edit{{"rewrite.go", "	rw.out.droppedAt.Store(dropped)\n", ""}}},
	{name: "rows not counted back by the dead before", edits: []edit{{"carry.go", "row - rw.dead[input].Rank(row)", "row"}}},
	{name: "flush leaves out what is deleted at HWM", edits: []edit{{"rewrite.go", "floor: m.marks.low(),", "floor: m.marks.high(),"}}},
	{name: "flushed batches stay in the index no more", edits: []edit{{"rewrite.go", "				t.indexes = append(t.indexes, rw.index)\n", ""}}},
	{name: "a file spans the cut", edits: []edit{{"rewrite.go", "	if m.cut != 0 && upTo > m.cut &&", "	if m.cut == 1 && upTo > m.cut &&"}}},
	{name: "unfinished rows share a file", tests: "^TestChoose$|^TestModel$", edits: []edit{{"rewrite.go", "		if last > m.applied && !ended {", "		if last > maxLSN-1 && !ended {"}}},
	{name: "a large transaction shares batches", tests: "^TestChoose|^TestModel$", edits: []edit{{"apply.go", "	if tx.Spilled {", "	if tx.Spilled && lsn == 0 {"}}},
	{name: "cut-offs dropped at once", edits: []edit{{"rewrite.go", "	f.cuts.Store(&cuts)\n", "	_ = cuts\n"}}},
	{name: "cut-offs dropped too early", edits: []edit{{"checkpoint.go", "cuts != nil && (*cuts)[len(*cuts)-1].lsn <= low {", "cuts != nil {"}}},
	{name: "rows not cut off by create LSN", edits: []edit{{"segment.go", "		return s.batch.visible(x)\n", "		return int(s.batch.published.Load())\n"}}},
	{name: "publish before all tables are done", edits: []edit{{"apply.go", "	var rows int64\n	apply :=", "	var rows int64\n	m.marks.publish(lsn, m.clock.Now())\n	apply :="}}},
	{name: "rows are masked with another segment's deletions", edits: []edit{{"read.go", "dead, err := s.vis.At(at, uint32(rows))", "dead, err := v.segments[0].vis.At(at, uint32(rows))"}}},
	{name: "fork guard off", tests: "^TestForkGuard$", edits: []edit{{"fork.go", "	if g.due {", "	if g.due && g.last.XID == 0 {"}}},
	{name: "fork guard takes another commit for ours", tests: "^TestForkGuard$", edits: []edit{{"fork.go", "if !c.equal(g.last) {", "if c.EndLSN != g.last.EndLSN {"}}},
	{name: "replay filter off", edits: []edit{
		{"mirror.go", "	if tx.EndLSN <= m.applied {\n", "	if tx.EndLSN == 0 {\n"},
		{"apply.go", "	if lsn <= m.applied {\n", "	if lsn == 0 {\n"}}},
	{name: "vectors at HWM instead of the cut", edits: []edit{{"checkpoint.go", "f.segment.vis.At(f.at, uint32(data.Rows))", "f.segment.vis.At(maxLSN, uint32(data.Rows))"}}},
	{name: "the cut is not registered", edits: []edit{{"checkpoint.go", "	m.cut = cp.cut\n", "	m.cut = cp.cut\n	m.marks.release(cp.pin)\n"}}},
	{name: "the document is newer than the cut", edits: []edit{{"checkpoint.go", "	cp.commit = iceberg.Commit{\n", "	cp.doc = m.document(cp.cut)\n	cp.commit = iceberg.Commit{\n"}}},
	{name: "an unfinished table is not dirty again", edits: []edit{{"apply.go", "	t.dirty = true\n	if !t.touched {\n", "	t.dirty = t.dirty || !t.touched && len(t.files) == 0\n	if !t.touched {\n"}}},
	{name: "recovered vectors dropped", edits: []edit{{"closed.go", "vis: deletion.FromVector(data.Deleted, at),", "vis: deletion.NewVisibility(at),"}}},
	{name: "failed table good up to the failure", edits: []edit{{"apply.go", "f.LSN, f.Good = lsn, m.applied", "f.LSN, f.Good = lsn, lsn"}}},
	{name: "failed table committed at the cut", edits: []edit{{"checkpoint.go", "			at = min(at, t.failure.Good)\n", "			at = max(at, t.failure.Good)\n"}}},
	{name: "failed table flushed whole", edits: []edit{{"rewrite.go", "	if good, ended := t.ended(m); ended {\n		upTo, rw.floor = min(upTo, good), min(rw.floor, good)\n", "	if good, ended := t.ended(m); ended {\n		rw.floor = min(rw.floor, good)\n"}}},
	{name: "failed table folded", edits: []edit{{"checkpoint.go", "			if t.state != stateStreaming {\n				return nil\n			}\n			low", "			if t.version.Load() == nil {\n				return nil\n			}\n			low"}}},
	{name: "failed table reaped", edits: []edit{{"checkpoint.go", "		low = min(low, t.failure.Good)\n", "		low = max(low, t.failure.Good)\n"}}},
	{name: "a missing row ignored", edits: []edit{{"apply.go", "		return errMissingRow\n", "		return nil\n"}}},
	{name: "equal hashes taken for equal keys in files", edits: []edit{{"find.go", "	return string(t.encoded) == string(t.compared), nil\n", "	return true, nil\n"}}},
	{name: "equal hashes taken for equal keys in memory", edits: []edit{{"find.go", "			if string(t.encoded) != string(t.compared) {\n", "			if len(t.encoded) == 0 {\n"}}},
	{name: "a deleted candidate is taken", edits: []edit{{"find.go", "			if seg == nil || seg.vis.Deleted(c.Row) {", "			if seg == nil || seg.vis.Deleted(c.Row) && seg.file.data.Rows < 0 {"}}},
	{name: "an unchanged value becomes NULL", edits: []edit{{"table.go", "			kept = append(kept, i)\n", "			c.Null()\n"}}},
	{name: "half a value stays after an error", edits: []edit{{"table.go", "			c.truncate(rows)\n			c.Null()\n			t.unrepresentable++\n", "			c.Null()\n			t.unrepresentable++\n"}}},
	{name: "half a row stays after an error", tests: "^TestRefusedRow|^TestModel$", edits: []edit{{"table.go", "		b.truncate(row)\n", ""}}},
	{name: "truncate reaches the rows after it", edits: []edit{{"apply.go", "lsn LSN) error {\n	if err := m.sealOpen(t); err != nil {\n		return err\n	}\n", "lsn LSN) error {\n	t.open.droppedAt.Store(uint64(lsn))\n"}}},
	{name: "truncated segments reaped at once", edits: []edit{{"checkpoint.go", "return d != 0 && d <= low &&", "return d != 0 &&"}}},
	{name: "files deleted under a later reader", edits: []edit{{"expire.go", "low >= g.cut && oldest > g.serial &&", "oldest > g.serial &&"}}},
	{name: "files deleted under an earlier reader", edits: []edit{{"expire.go", "low >= g.cut && oldest > g.serial &&", "oldest > 0 &&"}}},
	{name: "the kept window forgotten", edits: []edit{{"watermarks.go", "	if w.history > 0 && len(w.trail) > 0 {", "	if w.history > 0 && len(w.trail) == 0 {"}}},
	{name: "the kept window too short", edits: []edit{{"watermarks.go", "now.Sub(w.trail[drop+1].at) >= w.history {", "now.Sub(w.trail[drop+1].at) >= w.history/2 {"}}},
	{name: "a waiter is not woken", tests: "^TestWait$|^TestReadYourWrites$", edits: []edit{{"watermarks.go", "		if wt.lsn <= to {\n", "		if wt.lsn < to {\n"}}},
	{name: "NULLs written as values", tests: "^TestColumn", edits: []edit{{"column.go", "		validity, nulls = packBits(c.valid.read(to)[from:])\n", "		validity, nulls = packBits(c.valid.read(to)[:to-from])\n"}}},
	{name: "the rows grow under a reader", tests: "^TestColumn", edits: []edit{{"column.go", "		return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends[from-1 : to])), int(ends[to-1])\n", "		return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends[from:to])), int(ends[to-1])\n"}}},

	{name: "a deleted candidate of a probe is taken", edits: []edit{{"find.go", "seg != nil && !seg.vis.Deleted(c.Row)", "seg != nil"}}},
	{name: "live rows are passed over as deleted ones", tests: "^TestLiveRowsAreNotPassedOver$", edits: []edit{{"find.go", "				if !alive {\n", "				if !alive || alive {\n"}}},
	{name: "candidates used after the indexes changed", edits: []edit{{"probe.go", " && p.epoch == t.epoch", ""}}},
	{name: "some candidates taken for all", edits: []edit{
		{"probe.go", "				p.whole = false\n", ""},
		{"probe.go", "p.whole = p.whole && p.n < probeMost", "p.whole = true"}}},
	{name: "lent values used after their turn", edits: []edit{{"probe.go", "			v.Data = w.bytes[at:len(w.bytes):len(w.bytes)]\n", "			_ = at\n"}}},
	{name: "probed before the changes that came first", edits: []edit{{"probe.go", "			if err := w.apply(apply); err != nil {\n				return err\n			}\n			return apply(ch)\n", "			return apply(ch)\n"}}},

	{name: "a change at or below F replayed", edits: []edit{{"join.go", "if lsn <= j.from {", "if lsn <= j.from && lsn == 0 {"}}},
	{name: "a change just above F not replayed", edits: []edit{{"join.go", "if lsn <= j.from {", "if lsn <= j.from+512 {"}}},
	{name: "installed before HWM reaches F", tests: "^TestJoinWaitsForItsSnapshot$", edits: []edit{{"join.go", "if m.applied < j.from || m.applied != m.marks.high() {", "if m.applied != m.marks.high() {"}}},
	{name: "installed before the log is empty", edits: []edit{{"join.go", "if j.kept == nil && j.log.changes == 0 {", "if j.kept == nil && (j.log.changes == 0 || j.table.rows > 0) {"}}},
	{name: "floor above what was replayed", tests: "^TestFlushOfAJoin$", edits: []edit{{"rewrite.go", "	if t.replayed != 0 {", "	if t.replayed == 1 {"}}},
	{name: "batches of a join are born at HWM", tests: "^TestReplayedDeletes$", edits: []edit{{"table.go", "	if t.replayed != 0 {", "	if t.replayed == 1 {"}}},
	{name: "the log begins after the snapshot", tests: "^TestLogBeginsBeforeTheSnapshot$", edits: []edit{
		{"join.go", "	if err := m.inTurn(ctx, func() error { return m.beginJoins(before, queue) }); err != nil {\n		return err\n	}\n	told := false\n", "	told := false\n"},
		{"join.go", "	defer release()\n", "	defer release()\n	if err := m.inTurn(ctx, func() error { return m.beginJoins(before, queue) }); err != nil {\n		return err\n	}\n"}}},
	{name: "a TRUNCATE does not reach the log", edits: []edit{{"join.go", "			j.note(ch, lsn)\n			j.truncatedBy", "			j.truncatedBy"}}},
	{name: "a definition changed under the copy", tests: "^TestAlteredWhileItIsCopied$", edits: []edit{{"join.go", "	case now.Fingerprint != t.fingerprint:\n		return t.changed(now)\n", ""}}},
	{name: "a definition younger than the snapshot", tests: "^TestAlteredBetweenSnapshotAndLook$", edits: []edit{{"join.go", "was.Fingerprint != now.Fingerprint || ", ""}}},
	{name: "the replaced table is not dropped", edits: []edit{{"checkpoint.go", "	cp.drop(t.dropped())\n	c :=", "	cp.drop(nil)\n	c :="}}},
	{name: "what the replaced table replaced is not dropped", edits: []edit{{"checkpoint.go", "			list = append(list, old.dropped()...)\n", ""}}},
	{name: "replaced tables reaped under an earlier reader", edits: []edit{{"join.go", "t.retired > low || oldest <= t.lastReader ||", "oldest <= t.lastReader ||"}}},
	{name: "readers below J have the new content", edits: []edit{{"read.go", "		v := now.at(at)\n", "		v := now\n"}}},
	{name: "the new content is there from F on", edits: []edit{{"join.go", "= stateStreaming, m.applied, 0, j.truncatedBy", "= stateStreaming, 0, 0, j.truncatedBy"}}},
	{name: "the wish for a join does not survive", tests: "^TestJoinSurvivesRestart$", edits: []edit{{"recover.go", "	if r.Resync != \"\" {", "	if r.Resync == \"-\" {"}}},

	{name: "a flush waits for a compaction", tests: "^TestCheckpointDoesNotWait", edits: []edit{{"rewrite.go", "	t.jobs.Lock()\n	defer t.jobs.Unlock()\n", "	t.tidying.Lock()\n	defer t.tidying.Unlock()\n"}}},
	{name: "moved rows get new row ids", tests: "^TestCompactKeepsLineage$", edits: []edit{{"compact.go", "valueOr(rowIDs, row, firstID+first+int64(row))", "valueOr(rowIDs, row, firstID*0+first+int64(row))"}}},
	{name: "a compaction of files that are gone ends the mirror", tests: "^TestFilesGoDuringCompaction$", edits: []edit{{"compact.go", "if gone != nil || !void {", "if gone != nil || !void || true {"}}},
	{name: "lineage that a file brings is lost in the next compaction", tests: "^TestCompactKeepsLineage$", edits: []edit{{"compact.go", "valueOr(rowIDs, row, firstID+first+int64(row))", "firstID+first+int64(row)"},
		{"compact.go", "lsns, rowIDs, sequences := numbers[0], numbers[1], numbers[2]\n", "lsns, sequences := numbers[0], numbers[2]\n"}}},
	{name: "many large files are left as they are", tests: "^TestFewFiles$", edits: []edit{{"compact.go", "	if n > most/2 {\n", "	if n > 1<<40 {\n"}}},
	{name: "neighbours that are not worth it are never joined", tests: "^TestFewFiles", edits: []edit{{"compact.go", "		return t.cheapest(-1, full)\n", "		return nil\n"}}},
	{name: "compaction ignores the bound of memory", tests: "^TestCompactionMemory$", edits: []edit{{"compact.go", "min(compactMost, m.cfg.Memory/4/buildBytes)", "min(compactMost, m.cfg.Memory)"}}},
	{name: "the interval is ignored", tests: "^TestCompactorPolicy$", edits: []edit{{"compactor.go", "t.compactedAt.IsZero() || ", "true || "}}},
	{name: "the window is ignored", tests: "^TestCompactorPolicy$", edits: []edit{{"compactor.go", "if !m.cfg.Compact.Window.Contains(now) || ", "if "}}},
	{name: "the first table that is due comes first", tests: "^TestTablesTakeTurns$", edits: []edit{{"compactor.go", "		first++\n", "		first = 0\n"}}},
	{name: "deletions not carried over by a compaction", edits: []edit{
		{"compact.go", "		if err := rw.succeed(); err != nil {\n", "		rw.vis = deletion.NewVisibility(rw.floor)\n		if err := rw.succeed(); err != nil {\n"},
		{"compact.go", "	\"pgmirror/iceberg\"\n", "	\"pgmirror/deletion\"\n	\"pgmirror/iceberg\"\n"}}},
	{name: "compacted files stay in the next snapshot", edits: []edit{{"checkpoint.go", "		for _, s := range t.compacted {\n", "		for _, s := range t.compacted[:0] {\n"}}},
	{name: "a compaction leaves out what is deleted at HWM", edits: []edit{{"compact.go", "	low := m.marks.low()\n	inputs :=", "	low := m.marks.high()\n	inputs :="}}},
	{name: "files of dead rows alone stay", tests: "^TestCompactDeadFiles$", edits: []edit{{"compact.go", "	var out []*segment\n	if rw.out != nil {\n", "	var out []*segment\n	if rw.out == nil {\n		return nil\n	}\n	if rw.out != nil {\n"}}},
	{name: "files with cut-offs are compacted", edits: []edit{{"compact.go", " && s.file.cuts.Load() == nil", ""}}},
	{name: "files that no snapshot names are compacted", edits: []edit{{"compact.go", "s.file.published && ", ""}}},
	{name: "truncated files are compacted", edits: []edit{
		{"compact.go", " && s.droppedAt.Load() == 0\n", "\n"},
		{"compact.go", "||\n		slices.ContainsFunc(rw.inputs, func(s *segment) bool { return s.droppedAt.Load() != 0 }) {", "{"},
		{"rewrite.go", "	rw.out.droppedAt.Store(dropped)\n", ""}}},
	{name: "a TRUNCATE during a compaction is lost", edits: []edit{
		{"compact.go", "||\n		slices.ContainsFunc(rw.inputs, func(s *segment) bool { return s.droppedAt.Load() != 0 }) {", "{"},
		{"rewrite.go", "	rw.out.droppedAt.Store(dropped)\n", ""}}},
	{name: "compacted rows found in their old files", edits: []edit{{"compact.go", "				x.segments[i] = nil\n", "				left = true\n"}}},
	{name: "files are recovered as the commits list them", tests: "^TestFilesAreHeldInCreateOrder$", edits: []edit{{"closed.go", "		return cmp.Or(cmp.Compare(a.MinLSN, b.MinLSN), cmp.Compare(a.MaxLSN, b.MaxLSN))\n", "		return cmp.Compare(0, 0)\n"}}},
	{name: "rows that compaction moved are merged", tests: "^TestMergeLeavesOutWhatMoved$", edits: []edit{{"mergeindex.go", "places[at.File] >= 0\n", "true\n"}}},
	{name: "stale entries stay in an index that is merged with none", tests: "^TestStaleEntriesGo$", edits: []edit{{"mergeindex.go", "return x.live < x.entries/2 && ", "return x.live == 0 && "}}},
	{name: "stale entries keep indexes from being merged", tests: "^TestMergeable$", edits: []edit{{"mergeindex.go", "		rows[i] = x.live\n", "		rows[i] = x.entries\n"}}},
	{name: "compacted rows lose their create LSNs", tests: "^TestCompactMakesOneFile$", edits: []edit{{"compact.go", "	b.lsns.push(lsn)\n", "	b.lsns.push(1)\n"}}},

	{name: "a foreign rewrite is taken over inside a transaction", tests: "^TestForeignRewriteInsideATransaction$", edits: []edit{{"foreign.go", "err := m.inTurn(ctx, func() (err error) { // between two", "err := m.inAnyTurn(ctx, func() (err error) { // between two"}}},
	{name: "a foreign rewrite may have other rows", tests: "^TestForeignRewriteOfOtherRows$", edits: []edit{{"foreign.go", "		if a.key != b.key {\n", "		if a.key.Hi == b.key.Hi+1 {\n"}}},
	{name: "deletions stay in the files that a foreign rewrite removed", tests: "^TestModelWithAnotherWriter$", edits: []edit{{"foreign.go", "			rw.moved[at.file].Set(at.row)\n", "			_ = at\n"}}},
	{name: "a foreign rewrite that was read ahead is read again", tests: "^TestForeignRewriteIsReadOnce$", edits: []edit{{"foreign.go", "	m.matching.done = rw\n", "	m.matching.done = nil\n"}}},
	{name: "files of a foreign rewrite's rows are left", tests: "^TestForeignRewrite", edits: []edit{{"rowsorter.go", "			err = errors.Join(err, s.m.files.Remove(run.path))\n", "			_ = s.m.files\n"}}},
	{name: "runs of rows are merged out of order", tests: "^TestForeignRewriteIsReadOnce$", edits: []edit{{"rowsorter.go", "		top.row = top.run.row(top.at)\n	} else {", "		top.row = top.run.row(top.at)\n		return row\n	} else {"}}},

	{name: "damage of one table stops all", tests: "^TestDamageFailsOneTable$", edits: []edit{{"recover.go", "				faults[home.table] = err\n				return nil\n", "				return err\n"}}},
	{name: "damage is forgotten by the next life", tests: "^TestDamageFailsOneTable$", edits: []edit{{"damage.go", "	t.state, t.dirty = stateFailed, true\n", "	t.dirty = true\n"}}},
	{name: "a damaged table is good up to HWM", tests: "^TestDamageFailsOneTable$", edits: []edit{{"damage.go", "Good: m.doc.Cut,", "Good: maxLSN,"}}},
	{name: "a damaged table holds back the slot", tests: "^TestDamageFailsOneTable$", edits: []edit{{"checkpoint.go", "	m.source.Acknowledge(cp.cut)\n", "	for _, t := range m.tables {\n		if t.damage != \"\" {\n			cp.cut = t.failure.Good\n		}\n	}\n	m.source.Acknowledge(cp.cut)\n"}}},
	{name: "damage that compaction finds stops all", tests: "^TestDamageFoundByCompaction$", edits: []edit{{"damage.go", "	if !errors.Is(err, iceberg.ErrCorrupt) {\n", "	if true || !errors.Is(err, iceberg.ErrCorrupt) {\n"}}},
	{name: "a full disk ends the expiry", tests: "^TestExpiryOnAFullDisk$", edits: []edit{{"expire.go", "		if isDiskFull(err) {\n			m.cfg", "		if false {\n			m.cfg"}}},
	{name: "change feeds without a bound", tests: "^TestChangesAreBounded$", edits: []edit{{"changes.go", "all > l.m.cfg.Memory && all > l.bytes", "false"}}},
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
		{"read.go", "v.table.version.Load().at(at)", "early[v.table].at(at)"},
		{"read.go", `	"fmt"
`, `	"fmt"
	"runtime"
`},
	}
}
