package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/zeebo/xxh3"

	"pgmirror/deletion"
	"pgmirror/iceberg"
)

// Another Iceberg engine may commit to a table of ours. A checkpoint or an expiry that meets such a table commits nothing, settles what has come of
// the table, and is made again; tables that change seldom are looked after at the start and once a minute.
//
//	nothing of the rows is touched (snapshots, tags, properties) ─▶ the next commit goes on from there
//	rows were moved to other files, and are the same rows        ─▶ the files are indexed and take the old ones' place
//	anything else                                                ─▶ the table fails with what was done; the others go on
//
// In each case what was not committed is not acknowledged: the failed table's last good LSN is that of the last commit, and is stored in the commit
// that goes on without it.

const (
	remedyForeign = copyAnew + "; what another program has written to this Iceberg table is then dropped with it"
	remedyTaken   = "drop or rename the other table in the catalog and " + copyAnew
)

// foreignAgain is how often one checkpoint meets other writers before the tables that they keep changing fail.
const foreignAgain = 5

// A rewrite may have moved very many rows. Both sides are read once, in memory that has a bound (rowsorter.go), and commits wait for that only when
// they meet the rewrite themselves. No flush of the table waits, so that memory can be won back, and the applier only for the last deletions.

// lookForForeign looks for tables that another writer has changed and settles them. What is to be read of them is read before, while commits go on.
func (m *Mirror) lookForForeign(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	moved, err := m.warehouse.Moved(ctx)
	if err != nil {
		return err
	}
	for _, mt := range moved {
		if err := m.matchAhead(ctx, mt); err != nil {
			return fmt.Errorf("what another writer made of %s: %w", mt.Name, err)
		}
		if m.stopping() {
			return nil // what the last checkpoint does not meet the next start does
		}
		err := m.settleIfMoved(ctx, mt)
		if err = errors.Join(err, m.dropMatching(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// settleIfMoved settles a table that another writer has changed, unless a checkpoint has done so meanwhile.
func (m *Mirror) settleIfMoved(ctx context.Context, mt iceberg.MovedTable) error {
	m.checkpointing.Lock()
	defer m.checkpointing.Unlock()
	moved, err := m.warehouse.Moved(ctx)
	if err != nil {
		return err
	}
	return m.settleForeign(ctx, slices.DeleteFunc(moved, func(now iceberg.MovedTable) bool { return now.UUID != mt.UUID }), "")
}

// settleForeign takes over what another writer made of some tables, or fails them: with refuse, that is why, whatever was made of them. The caller
// holds m.checkpointing: nothing is committed meanwhile.
func (m *Mirror) settleForeign(ctx context.Context, moved []iceberg.MovedTable, refuse string) error {
	for _, mt := range moved {
		if err := m.settleMoved(ctx, mt, refuse); err != nil {
			return fmt.Errorf("what another writer made of %s: %w", mt.Name, err)
		}
	}
	return nil
}

func (m *Mirror) settleMoved(ctx context.Context, mt iceberg.MovedTable, refuse string) error {
	t, err := m.movedTable(ctx, mt)
	if err != nil {
		return err
	}
	if t == nil {
		m.warehouse.Refuse(mt.UUID)
		return nil
	}
	for _, job := range []*sync.Mutex{&t.tidying, &t.merging} { // no compaction or merge is under way
		job.Lock()
		defer job.Unlock()
	}
	f, err := m.warehouse.Examine(ctx, mt)
	if err != nil {
		return err
	}
	reason := cmp.Or(f.Reason, refuse)
	if reason == "" && len(f.Removed)+len(f.Added) > 0 {
		if reason, err = m.takeOverRewrite(ctx, t, f); err != nil {
			return err
		}
	}
	if reason == "" {
		m.warehouse.Adopt(f)
		m.cfg.Log.Info("another writer's change of an Iceberg table is taken over", "relation", t.String(), "files_removed", len(f.Removed), "files_added", len(f.Added))
		return nil
	}
	m.warehouse.Refuse(mt.UUID)
	t.jobs.Lock() // nor a flush
	defer t.jobs.Unlock()
	return m.inAnyTurn(ctx, func() error { m.stopForeign(t, f, reason); return nil })
}

// movedTable is the mirror's table of what another writer has changed; nil when another takes its place, and the commit that creates that drops it,
// and when it has failed for this in an earlier life.
func (m *Mirror) movedTable(ctx context.Context, mt iceberg.MovedTable) (t *table, err error) {
	err = m.inAnyTurn(ctx, func() error {
		if i := slices.IndexFunc(m.tables, func(t *table) bool { return t.uuid == mt.UUID }); i >= 0 && !m.tables[i].closed() {
			t = m.tables[i]
		}
		return nil
	})
	return t, err
}

// stopForeign fails a table that another writer has changed. In its place comes one that holds what the last commit made of it; readers of before
// keep what they see. Nothing is to be done for a table in whose place another has come meanwhile: the commit that creates that drops it. The caller holds
// t.jobs, t.tidying and t.merging. The applier's turn.
func (m *Mirror) stopForeign(t *table, f *iceberg.Foreign, reason string) {
	if !slices.Contains(m.tables, t) {
		return
	}
	why := failure{LSN: m.applied, Remedy: remedyForeign}
	m.goodUpToCommit(t, &why)
	reason = "another writer has changed the Iceberg table: " + reason
	switch was := t.failure; {
	case was != nil:
		good, doubtful := why.Good, why.Doubtful
		why = *was
		why.Good, why.Doubtful = min(why.Good, good), doubtful
		reason = was.Reason + "; and " + reason
	case !t.created:
		why.Remedy = remedyTaken
	}
	why.Reason, why.Closed = reason, true
	m.logFailure(t.String(), m.applied, &why)
	m.leave(t, &why, f.Held.Files)
}

// matching is a rewrite that was read ahead of its being taken over.
type matching struct {
	mu   sync.Mutex // held while one is read, so that a checkpoint that meets the same one does not read it a second time
	done *foreignRewrite
}

// matchAhead reads what another writer made of a table, if it is a rewrite, while commits go on, and leaves it for takeOverRewrite. Whether anything has
// changed meanwhile that counts is found there; so what cannot be read now is no error.
func (m *Mirror) matchAhead(ctx context.Context, mt iceberg.MovedTable) error {
	m.matching.mu.Lock()
	defer m.matching.mu.Unlock()
	t, err := m.movedTable(ctx, mt)
	if err != nil || t == nil {
		return err
	}
	f, err := m.warehouse.Examine(ctx, mt)
	if err != nil || f.Reason != "" || len(f.Removed)+len(f.Added) == 0 {
		return err
	}
	rw := &foreignRewrite{table: t, foreign: f, ahead: true}
	reason, err := rw.begin(ctx, m)
	if err == nil && reason == "" {
		reason, err = rw.read(ctx, m)
	}
	if errors.Is(err, ErrStopped) && m.stopping() {
		err, reason = nil, "it was given up"
	}
	if err != nil || reason != "" {
		return errors.Join(err, rw.close(ctx, m))
	}
	before := m.matching.done // of another table, that another goroutine looks at
	m.matching.done = rw
	return before.close(ctx, m)
}

// dropMatching gives up what was read ahead and not taken over.
func (m *Mirror) dropMatching(ctx context.Context) error {
	m.matching.mu.Lock()
	defer m.matching.mu.Unlock()
	rw := m.matching.done
	m.matching.done = nil
	return rw.close(ctx, m)
}

// matchedAhead is the rewrite as it was read ahead; nil when none was, or another one. Its files and their rows are what they were then: neither we nor another
// engine writes into a data file. The caller holds m.matching.mu.
func (m *Mirror) matchedAhead(ctx context.Context, t *table, f *iceberg.Foreign) (*foreignRewrite, error) {
	rw := m.matching.done
	m.matching.done = nil
	if rw == nil || rw.table == t && sameFiles(rw.foreign.Removed, f.Removed) && sameFiles(rw.foreign.Added, f.Added) {
		return rw, nil
	}
	return nil, rw.close(ctx, m)
}

// sameFiles says whether two lists name the same files with the same deletions.
func sameFiles(a, b []iceberg.DataFile) bool {
	return slices.EqualFunc(a, b, func(a, b iceberg.DataFile) bool {
		return a.Path == b.Path && a.Rows == b.Rows && a.Bytes == b.Bytes && a.Deleted.Equal(b.Deleted)
	})
}

// foreignRounds is how often deletions are moved to the new files while the applier goes on, before it waits for that. Each time there are fewer: those made
// while the ones before were moved.
const foreignRounds = 8

// takeOverRewrite puts the files that another writer has made in the place of ours, or says why it cannot. Rows that were deleted since the last
// commit are so in the new files too. Readers below the present LSN keep the old files. The caller holds m.checkpointing, t.tidying and t.merging.
func (m *Mirror) takeOverRewrite(ctx context.Context, t *table, f *iceberg.Foreign) (reason string, err error) {
	m.matching.mu.Lock()
	defer m.matching.mu.Unlock()
	rw, err := m.matchedAhead(ctx, t, f)
	if err != nil {
		return "", err
	}
	if rw == nil {
		rw = &foreignRewrite{table: t}
	}
	rw.foreign, rw.ahead = f, false
	defer func() { err = errors.Join(err, rw.close(ctx, m)) }()
	for round := 0; ; round++ {
		if reason, err := rw.begin(ctx, m); err != nil || reason != "" {
			return reason, err
		}
		if reason, err := rw.read(ctx, m); err != nil || reason != "" {
			return reason, err
		}
		var fresh []*deletion.Vector
		done, flushing := false, false
		err := m.inTurn(ctx, func() (err error) { // between two transactions: what the one that is being applied has deleted is above m.applied
			if flushing = !t.jobs.TryLock(); flushing {
				return nil
			}
			defer t.jobs.Unlock()
			var rows uint64
			if fresh, rows, err = rw.fresh(m.applied); err == nil && (rows <= uint64(m.carrySlice) || round >= foreignRounds) {
				done, err = rw.install(m, fresh)
			}
			return err
		})
		if err != nil || done {
			return "", err
		}
		if flushing { // a flush that waits for memory lets the applier go on: so nothing waits for a turn with t.jobs
			t.jobs.Lock()
			t.jobs.Unlock() //nolint:staticcheck // it was waited for
			continue
		}
		if err := rw.moveDeletions(fresh); err != nil {
			return "", err
		}
	}
}

// foreignRewrite is a rewrite by another writer that is taken over.
//
//	begin ─▶ read: pair the rows of both sides, index the new files ─▶ move what was deleted since the last commit ─▶ install
type foreignRewrite struct {
	table   *table
	foreign *iceberg.Foreign
	ahead   bool       // it is read while commits go on, and given up when the mirror stops
	shape   *shape     // the table's when it began
	rows    *shape     // that of the last commit, which both sides' files are read in
	old     []*segment // the removed files' segments

	places  *rowSorter // where each row of the removed files is now; nil before
	indexed *shape     // what added and opened are made for; nil before
	added   []*segment
	opened  []*fileIndex       // of added; none for a table whose rows are never looked for
	dead    []*deletion.Vector // of each removed file: rows that moved has as deleted, or the last commit
	moved   []*deletion.Vector // of each added file: its deleted rows
}

// place is where a row is: the place of its file in a list, and its number there.
type place struct{ file, row uint32 }

// begin finds the segments of the files that were removed.
func (rw *foreignRewrite) begin(ctx context.Context, m *Mirror) (reason string, err error) {
	var stale []*fileIndex
	var unsorted *rowSorter
	err = m.inAnyTurn(ctx, func() error {
		t := rw.table
		if t.state != stateStreaming || t.committed == nil {
			reason = "its files were rewritten while the table was " + string(t.state)
			return nil
		}
		if rw.rows != t.committed {
			unsorted, rw.places = rw.places, nil
		}
		rw.shape, rw.rows = t.shape, t.committed
		if rw.indexed != rw.shape {
			stale, rw.opened, rw.added, rw.indexed = rw.opened, nil, nil, nil
			for _, x := range stale {
				m.closeIndex(x) // to be built again
			}
		}
		reason = rw.find()
		return nil
	})
	return reason, errors.Join(err, unsorted.close())
}

// find looks the segments up. The applier's turn.
func (rw *foreignRewrite) find() (reason string) {
	t := rw.table
	named := map[string]*segment{}
	for _, s := range slices.Concat(t.files, t.compacted) {
		if s.file.published {
			named[s.file.data.Path] = s
		}
	}
	rw.old = rw.old[:0]
	for _, data := range rw.foreign.Removed {
		s := named[data.Path]
		if s == nil {
			return fmt.Sprintf("it removed %s, which the mirror does not know", data.Path)
		}
		rw.old = append(rw.old, s)
	}
	return ""
}

// read reads what was not read yet: the rows of both sides, and the new files' keys. The error is the machine's, or that of a stop; what is wrong with the files
// is the reason.
func (rw *foreignRewrite) read(ctx context.Context, m *Mirror) (reason string, err error) {
	if rw.places == nil {
		if reason, err = rw.match(ctx, m); err != nil || reason != "" {
			return reason, err
		}
	}
	if rw.indexed == nil {
		if err := rw.index(ctx, m); err != nil {
			return wrongFile(ctx, err)
		}
	}
	return "", nil
}

// wrongFile says whether what came of reading a file is the file's fault, and so a reason, or the machine's: too many open files, a disk that does not take
// what we write.
func wrongFile(ctx context.Context, fault error) (reason string, err error) {
	if context.Cause(ctx) != nil || !errors.Is(fault, iceberg.ErrCorrupt) {
		return "", fault
	}
	return fault.Error(), nil
}

// match pairs the live rows of the removed files with those of the added ones: the same values in all columns and the same create LSN. Rows that are
// alike in all that cannot be told apart, so any of them will do. The reason says that the two sides are not the same rows.
func (rw *foreignRewrite) match(ctx context.Context, m *Mirror) (reason string, err error) {
	total, after := liveRows(rw.foreign.Removed), liveRows(rw.foreign.Added)
	if total != after {
		return fmt.Sprintf("the files that it removed had %d rows, those that it added have %d", total, after), nil
	}
	was, is, pairs := m.newRowSorter(total), m.newRowSorter(total), m.newRowSorter(total)
	defer func() {
		err = errors.Join(err, was.close(), is.close())
		if rw.places == nil {
			err = errors.Join(err, pairs.close())
		}
	}()
	if reason, err = rw.hash(ctx, m, rw.foreign.Removed, was); err != nil || reason != "" {
		return reason, err
	}
	if reason, err = rw.hash(ctx, m, rw.foreign.Added, is); err != nil || reason != "" {
		return reason, err
	}
	before, now := was.merge(), is.merge()
	for range total {
		a, b := before.next(), now.next()
		if a.key != b.key {
			return "the rows in the files that it added are not those of the files that it removed", nil
		}
		if err := pairs.add(sortedRow{a.at.key(), b.at}); err != nil {
			return "", err
		}
	}
	pairs.end()
	rw.places = pairs
	rw.dead = make([]*deletion.Vector, len(rw.foreign.Removed))
	for i, data := range rw.foreign.Removed {
		rw.dead[i] = data.Deleted
	}
	rw.moved = make([]*deletion.Vector, len(rw.foreign.Added))
	for i, data := range rw.foreign.Added {
		rw.moved[i] = deletion.NewVector(uint32(data.Rows))
		rw.moved[i].Or(data.Deleted)
	}
	return "", nil
}

func liveRows(files []iceberg.DataFile) (rows int64) {
	for _, data := range files {
		rows += data.Rows - int64(data.Deleted.Cardinality())
	}
	return rows
}

// hash reads the live rows of some files and sorts them by the hash of their values and create LSN.
func (rw *foreignRewrite) hash(ctx context.Context, m *Mirror, files []iceberg.DataFile, into *rowSorter) (reason string, err error) {
	for i, data := range files {
		live := data.Rows - int64(data.Deleted.Cardinality())
		err := rw.eachRow(ctx, m, data, func(row uint32, encoded []byte) error {
			if live--; live < 0 || int64(row) >= data.Rows {
				return fmt.Errorf("%w: it has more than the %d rows that it is said to have", iceberg.ErrCorrupt, data.Rows)
			}
			return into.add(sortedRow{xxh3.Hash128(encoded), place{uint32(i), row}})
		})
		if err == nil && live > 0 {
			err = fmt.Errorf("%w: it has fewer than the %d rows that it is said to have", iceberg.ErrCorrupt, data.Rows)
		}
		if err != nil {
			return wrongFile(ctx, fmt.Errorf("read %s: %w", data.Path, err))
		}
	}
	into.end()
	return "", nil
}

// eachRow hands out the canonical encoding of each live row of a file, its create LSN first; it is lent until each returns. An error of each ends it.
func (rw *foreignRewrite) eachRow(ctx context.Context, m *Mirror, data iceberg.DataFile, each func(row uint32, encoded []byte) error) error {
	r, err := m.warehouse.OpenData(data.Path)
	if errors.Is(err, fs.ErrPermission) { // the other writer's doing
		err = fmt.Errorf("%w: %w", iceberg.ErrCorrupt, err)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	fields := append([]arrow.Field{{Name: iceberg.LSNColumn, Type: arrow.PrimitiveTypes.Int64}}, rw.rows.arrow.Fields()...)
	y, err := newYounger(r, data.Path, fields, append([]int32{iceberg.LSNFieldID}, rw.rows.fieldIDs()...))
	if err != nil {
		return err
	}
	var encoded []byte
	return r.Columns(ctx, y.ids, func(rec arrow.RecordBatch, first int64) error {
		if rw.ahead && m.stopping() {
			return ErrStopped // the last checkpoint is not to wait for this
		}
		columns, err := y.columns(rec)
		if err != nil {
			return err
		}
		if lsns, ok := columns[0].(*array.Int64); !ok || lsns.NullN() > 0 {
			return fmt.Errorf("%w: its column %s is not one of ours", iceberg.ErrCorrupt, iceberg.LSNColumn)
		}
		values := make([]valueAppender, len(columns))
		for i, c := range columns {
			if values[i], err = appenderOf(c, false); err != nil {
				return fmt.Errorf("%w: %w", iceberg.ErrCorrupt, err)
			}
		}
		for row := range int(rec.NumRows()) {
			at := uint32(first) + uint32(row)
			if data.Deleted.Contains(at) {
				continue
			}
			encoded = encoded[:0]
			for _, value := range values {
				encoded = value(encoded, row)
			}
			if err := each(at, encoded); err != nil {
				return err
			}
		}
		return nil
	})
}

// index makes the segments of the added files, with their FileIndexes.
func (rw *foreignRewrite) index(ctx context.Context, m *Mirror) error {
	for _, data := range rw.foreign.Added {
		s := &segment{file: &file{data: data, published: true, committed: true, vector: data.Deleted.Cardinality()}}
		rw.added = append(rw.added, s)
		if rw.shape.mode == insertOnly {
			continue
		}
		x, err := m.rebuildIndex(ctx, rw.shape, s)
		if err != nil {
			return err // the next start removes those that were built
		}
		s.file.index = x.path
		rw.opened = append(rw.opened, x)
	}
	rw.indexed = rw.shape
	return nil
}

// fresh are the rows of each removed file that were deleted up to an LSN and are not in rw.dead, and their number; readers below it keep the old files, so nobody
// needs to know since when. The applier's turn.
func (rw *foreignRewrite) fresh(now LSN) (list []*deletion.Vector, rows uint64, err error) {
	list = make([]*deletion.Vector, len(rw.old))
	for i, s := range rw.old {
		size := uint32(s.file.data.Rows)
		dead, err := s.vis.At(now, size)
		if err != nil {
			return nil, 0, fmt.Errorf("deletions of %s: %w", s.file.data.Path, err)
		}
		if s.droppedAt.Load() != 0 || slices.Contains(rw.table.compacted, s) { // the rows of a compacted file are in a file of ours that the next commit brings
			dead = deletion.NewVector(size)
			dead.SetRange(0, size)
		}
		list[i] = dead.Without(rw.dead[i])
		rows += list[i].Cardinality()
	}
	return list, rows, nil
}

// moveDeletions marks rows of removed files as deleted in the added ones.
func (rw *foreignRewrite) moveDeletions(fresh []*deletion.Vector) error {
	find := rw.places.finder()
	for i, v := range fresh {
		for row := range v.Positions() {
			at, ok := find.next(place{uint32(i), row}.key())
			if !ok {
				return fmt.Errorf("row %d of %s is in no file that was added", row, rw.foreign.Removed[i].Path)
			}
			rw.moved[at.file].Set(at.row)
		}
		if v != nil {
			v.Or(rw.dead[i])
			rw.dead[i] = v
		}
	}
	return nil
}

// install puts the added files in the removed ones' place, as of what is applied: readers below it keep the version before. It says no when the
// table has other columns meanwhile. The caller holds t.jobs and t.tidying. The applier's turn, between two transactions.
func (rw *foreignRewrite) install(m *Mirror, fresh []*deletion.Vector) (done bool, err error) {
	t := rw.table
	if t.shape != rw.shape || t.state != stateStreaming {
		return false, nil
	}
	if err := rw.moveDeletions(fresh); err != nil {
		return false, err
	}
	for i, s := range rw.added {
		m.lastSegment++
		s.id, s.vis = m.lastSegment, deletion.FromVector(rw.moved[i].Freeze(), m.applied)
		s.file.data = rw.foreign.Added[i]
	}
	t.earlier, t.since, t.moved = t.version.Load(), m.applied, m.applied
	removed := func(s *segment) bool { return slices.Contains(rw.old, s) }
	t.files = slices.Concat(rw.added, slices.DeleteFunc(slices.Clone(t.files), removed))
	t.compacted = slices.DeleteFunc(slices.Clone(t.compacted), removed)
	for _, s := range rw.old {
		s.file.published = false
	}
	m.uncover(t, rw.old)
	t.indexes = append(t.indexes, rw.opened...)
	rw.opened = nil
	t.epoch++
	t.dirty, t.restate = true, true
	t.install()
	return true, m.cfg.Effect("version installed")
}

// close gives up what was not installed. It may be called of nil.
func (rw *foreignRewrite) close(ctx context.Context, m *Mirror) error {
	if rw == nil {
		return nil
	}
	err := rw.places.close()
	rw.places = nil
	if len(rw.opened) == 0 {
		return err
	}
	return errors.Join(err, m.inAnyTurn(ctx, func() error {
		for _, x := range rw.opened { // the next start removes the files
			m.closeIndex(x)
		}
		rw.opened, rw.added, rw.indexed = nil, nil, nil
		return nil
	}))
}
