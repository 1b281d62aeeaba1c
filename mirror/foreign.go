package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// lookForForeign looks for tables that another writer has changed and settles them.
func (m *Mirror) lookForForeign(ctx context.Context) error {
	m.checkpointing.Lock()
	defer m.checkpointing.Unlock()
	ctx = context.WithoutCancel(ctx)
	moved, err := m.warehouse.Moved(ctx)
	if err != nil {
		return err
	}
	return m.settleForeign(ctx, moved, "")
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
	var t *table // nil when another takes its place, and the commit that creates that drops it, and when it has failed for this in an earlier life
	find := func() error {
		if i := slices.IndexFunc(m.tables, func(t *table) bool { return t.uuid == mt.UUID }); i >= 0 {
			if t = m.tables[i]; t.closed() {
				t = nil
			}
		}
		return nil
	}
	if err := m.inAnyTurn(ctx, find); err != nil {
		return err
	}
	if t == nil {
		m.warehouse.Refuse(mt.UUID)
		return nil
	}
	for _, job := range []*sync.Mutex{&t.jobs, &t.tidying, &t.merging} { // no flush, compaction or merge is under way
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
	return m.inAnyTurn(ctx, func() error { m.stopForeign(t, f, reason); return nil })
}

// stopForeign fails a table that another writer has changed. In its place comes one that holds what the last commit made of it; readers of before
// keep what they see. The caller holds t.jobs, t.tidying and t.merging. The applier's turn.
func (m *Mirror) stopForeign(t *table, f *iceberg.Foreign, reason string) {
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

// takeOverRewrite puts the files that another writer has made in the place of ours, or says why it cannot. Rows that were deleted since the last
// commit are so in the new files too. Readers below the present LSN keep the old files. The caller holds t.jobs, t.tidying and t.merging.
func (m *Mirror) takeOverRewrite(ctx context.Context, t *table, f *iceberg.Foreign) (reason string, err error) {
	for {
		rw := &foreignRewrite{table: t, foreign: f}
		err := m.inAnyTurn(ctx, func() error { reason = rw.begin(); return nil })
		if err != nil || reason != "" {
			return reason, err
		}
		err = rw.match(ctx, m)
		if err == nil {
			err = rw.index(ctx, m)
		}
		if err != nil {
			if fault := context.Cause(ctx); fault != nil || isDiskFull(err) {
				return "", err
			}
			return err.Error(), nil // a file that we cannot read
		}
		done := false
		err = m.inAnyTurn(ctx, func() (err error) { done, err = rw.install(m); return err })
		if err != nil || done {
			return "", err
		}
	}
}

// foreignRewrite is a rewrite by another writer that is taken over.
type foreignRewrite struct {
	table   *table
	foreign *iceberg.Foreign
	shape   *shape // the table's when it began
	rows    *shape // that of the last commit, which both sides' files are read in

	old    []*segment // the removed files' segments
	places [][]place  // of each removed file's rows: where they are now
	added  []*segment
	opened []*fileIndex // of added; none for a table whose rows are never looked for
}

// place is where a row of a removed file is now.
type place struct{ file, row uint32 }

// begin finds the segments of the files that were removed. The applier's turn.
func (rw *foreignRewrite) begin() (reason string) {
	t := rw.table
	if t.state != stateStreaming || t.committed == nil {
		return "its files were rewritten while the table was " + string(t.state)
	}
	rw.shape, rw.rows = t.shape, t.committed
	named := map[string]*segment{}
	for _, s := range slices.Concat(t.files, t.compacted) {
		if s.file.published {
			named[s.file.data.Path] = s
		}
	}
	for _, data := range rw.foreign.Removed {
		s := named[data.Path]
		if s == nil {
			return fmt.Sprintf("it removed %s, which the mirror does not know", data.Path)
		}
		rw.old = append(rw.old, s)
	}
	return ""
}

// matchedRows is about how many rows of either side are compared at a time: each takes 24 bytes, and a file is read once for each such part.
const matchedRows = 1 << 20

// match pairs the live rows of the removed files with those of the added ones: the same values in all columns and the same create LSN. Rows that are
// alike in all that cannot be told apart, so any of them will do. The error says that the two sides are not the same rows.
func (rw *foreignRewrite) match(ctx context.Context, m *Mirror) error {
	before, after := liveRows(rw.foreign.Removed), liveRows(rw.foreign.Added)
	if before != after {
		return fmt.Errorf("the files that it removed had %d rows, those that it added have %d", before, after)
	}
	rw.places = make([][]place, len(rw.foreign.Removed))
	for i, data := range rw.foreign.Removed {
		rw.places[i] = make([]place, data.Rows)
	}
	parts := uint64(before/matchedRows) + 1
	for part := range parts {
		was, err := rw.hashed(ctx, m, rw.foreign.Removed, part, parts)
		if err != nil {
			return err
		}
		is, err := rw.hashed(ctx, m, rw.foreign.Added, part, parts)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(was, is, func(a, b hashedRow) bool { return a.hash == b.hash }) {
			return errors.New("the rows in the files that it added are not those of the files that it removed")
		}
		for i, r := range was {
			rw.places[r.at.file][r.at.row] = is[i].at
		}
	}
	return nil
}

func liveRows(files []iceberg.DataFile) (rows int64) {
	for _, data := range files {
		rows += data.Rows - int64(data.Deleted.Cardinality())
	}
	return rows
}

// hashedRow is a row by the hash of its values and create LSN.
type hashedRow struct {
	hash xxh3.Uint128
	at   place
}

// hashed reads the live rows of some files whose hashes fall into one of some parts, ordered by hash.
func (rw *foreignRewrite) hashed(ctx context.Context, m *Mirror, files []iceberg.DataFile, part, parts uint64) (list []hashedRow, err error) {
	for i, data := range files {
		err := rw.eachRow(ctx, m, data, func(row uint32, encoded []byte) {
			if h := xxh3.Hash128(encoded); h.Hi%parts == part {
				list = append(list, hashedRow{h, place{uint32(i), row}})
			}
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", data.Path, err)
		}
	}
	slices.SortFunc(list, func(a, b hashedRow) int {
		return cmp.Or(cmp.Compare(a.hash.Hi, b.hash.Hi), cmp.Compare(a.hash.Lo, b.hash.Lo))
	})
	return list, nil
}

// eachRow hands out the canonical encoding of each live row of a file, its create LSN first; it is lent until each returns.
func (rw *foreignRewrite) eachRow(ctx context.Context, m *Mirror, data iceberg.DataFile, each func(row uint32, encoded []byte)) error {
	r, err := m.warehouse.OpenData(data.Path)
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
		columns, err := y.columns(rec)
		if err != nil {
			return err
		}
		if lsns, ok := columns[0].(*array.Int64); !ok || lsns.NullN() > 0 {
			return fmt.Errorf("its column %s is not one of ours", iceberg.LSNColumn)
		}
		values := make([]valueAppender, len(columns))
		for i, c := range columns {
			if values[i], err = appenderOf(c, false); err != nil {
				return err
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
			each(at, encoded)
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
	return nil
}

// install puts the added files in the removed ones' place, as of what is applied: readers below it keep the version before. It says no when the
// table has other columns meanwhile. The applier's turn.
func (rw *foreignRewrite) install(m *Mirror) (done bool, err error) {
	t := rw.table
	if t.shape != rw.shape || t.state != stateStreaming {
		for _, x := range rw.opened {
			m.closeIndex(x) // to be built again
		}
		return false, nil
	}
	deleted, err := rw.deleted(m.applied)
	if err != nil {
		return false, err
	}
	for i, s := range rw.added {
		m.lastSegment++
		s.id, s.vis = m.lastSegment, deletion.FromVector(deleted[i], m.applied)
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
	t.epoch++
	t.dirty, t.restate = true, true
	t.install()
	return true, m.cfg.Effect("version installed")
}

// deleted are the rows of each added file that are deleted as of an LSN; readers below it keep the old files, so nobody needs to know since when.
func (rw *foreignRewrite) deleted(now LSN) ([]*deletion.Vector, error) {
	list := make([]*deletion.Vector, len(rw.added))
	for i, data := range rw.foreign.Added {
		list[i] = deletion.NewVector(uint32(data.Rows))
		list[i].Or(data.Deleted)
	}
	for i, s := range rw.old {
		rows := uint32(s.file.data.Rows)
		dead, err := s.vis.At(now, rows)
		if err != nil {
			return nil, fmt.Errorf("deletions of %s: %w", s.file.data.Path, err)
		}
		if s.droppedAt.Load() != 0 || slices.Contains(rw.table.compacted, s) { // the rows of a compacted file are in a file of ours that the next commit brings
			dead = deletion.NewVector(rows)
			dead.SetRange(0, rows)
		}
		for row := range dead.Positions() {
			if !rw.foreign.Removed[i].Deleted.Contains(row) {
				p := rw.places[i][row]
				list[p.file].Set(p.row)
			}
		}
	}
	for _, v := range list {
		v.Freeze()
	}
	return list, nil
}
