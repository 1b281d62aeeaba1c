package mirror

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"pgmirror/deletion"
	"pgmirror/globalindex"
	"pgmirror/iceberg"
)

// buildBytes is what a row takes while its file's FileIndex is made: its hash (8 bytes), and by TestBuildMemory of globalindex 12.4 of a million rows;
// it follows from the layout that it is 12.3 to 13.2 of any number. Rows that share one hash take up to 14 more.
const buildBytes = 8 + 13

// rewrite moves the rows of some consecutive segments of a table into one new file: every row except those deleted at or
// before floor, and with limit only those created at or before it. It runs on a goroutine of its own over immutable input;
// begin and install are the applier's. How later deletions follow the rows is in carry.go.
//
//	begin: choose ─▶ dead[i] = deletions of input i at floor ─▶ write file and FileIndex ─▶ carry over later deletions ─▶ install: swap
//
// The dead vectors are the rank map: an input's row moves to its file's base plus its row number less the dead before it.
type rewrite struct {
	table  *table
	shape  *shape
	inputs []*segment
	rows   []int // of each input, how many to look at
	floor  LSN
	dead   []*deletion.Vector // of each input, at floor; nil when none
	base   []int              // of each input, where its rows begin in the output

	written *atomic.Int64 // counts the output's bytes

	followed bool                 // deletions are logged; the applier's
	began    LSN                  // what the inputs had of deletions when the log began lies at or below it
	log      []moved              // deletions since, in LSN order, without those that were carried over; the applier's
	vis      *deletion.Visibility // the output's
	stall    time.Duration        // the longest turn of the applier that it took
	rest     int                  // deletions that were carried over in the turn of the install

	out    *segment // nil when no row was left
	index  *fileIndex
	hashes []uint64
	cuts   []cut
}

// choose picks the table's sealed batches that one file may take next, up to the first created above upTo. The applier's turn.
//
// A file has rows of one shape, and never spans the cut of a checkpoint that has not published yet. And the rows of a transaction that is still being
// applied go to a file of their own, since the table may yet fail in it.
func (t *table) choose(m *Mirror, upTo LSN) (inputs []*segment) {
	good, ended := t.ended(m)
	if ended {
		upTo = min(upTo, good)
	}
	if m.cut != 0 && upTo > m.cut && slices.ContainsFunc(t.sealed, func(s *segment) bool { return s.alive(m.cut) && s.batch.visible(m.cut) > 0 }) {
		upTo = m.cut
	}
	unfinished := false
	for _, s := range t.sealed {
		if !s.alive(upTo) {
			continue // nobody who comes needs it; memory keeps it for those who are here
		}
		first, last := s.batch.span()
		if len(inputs) > 0 && s.batch.shape != inputs[0].batch.shape {
			break
		}
		if first > upTo || (last > upTo && !ended) {
			break
		}
		if last > m.applied && !ended {
			if first <= m.applied || (len(inputs) > 0 && !unfinished) {
				break
			}
			unfinished = true
		}
		inputs = append(inputs, s)
	}
	return inputs
}

// ended says whether no change comes to the table any more, and up to which LSN what it holds counts: it has failed, or the
// mirror stops inside a transaction.
func (t *table) ended(m *Mirror) (good LSN, ended bool) {
	switch {
	case t.failure != nil:
		return t.failure.Good, true
	case m.abandoned:
		return m.applied, true
	}
	return 0, false
}

// begin prepares a flush. The caller holds t.jobs. The applier's turn.
func (m *Mirror) begin(t *table, upTo LSN) *rewrite {
	rw := &rewrite{table: t, shape: t.shape, written: &m.written.flush, floor: m.marks.low(), inputs: t.choose(m, upTo)}
	if len(rw.inputs) > 0 {
		rw.shape = rw.inputs[0].batch.shape
	}
	if good, ended := t.ended(m); ended {
		upTo, rw.floor = min(upTo, good), min(rw.floor, good)
	}
	if t.replayed != 0 { // deletions above it are still to be replayed
		rw.floor = min(rw.floor, t.replayed)
	}
	for _, s := range rw.inputs {
		rw.rows = append(rw.rows, s.batch.visible(upTo))
	}
	return rw
}

// write writes the batches' rows.
func (rw *rewrite) write(ctx context.Context, m *Mirror) error {
	if err := rw.fill(ctx, m, false, rw.writeBatches); err != nil {
		return fmt.Errorf("flush %s: %w", rw.table, err)
	}
	return nil
}

// fill writes a file of the rows that put hands to its writer, those of the inputs that are not dead, and its FileIndex. It writes none without
// rows. moved: the rows bring their lineage.
func (rw *rewrite) fill(ctx context.Context, m *Mirror, moved bool, put func(w DataWriter) error) (err error) {
	total := int64(0)
	for i := range rw.inputs {
		total += int64(rw.rows[i]) - int64(rw.dead[i].Cardinality())
	}
	if total == 0 {
		return nil
	}
	w, err := m.warehouse.NewWriter(ctx, iceberg.TableLocation{Name: rw.table.name, UUID: rw.table.uuid, Schema: rw.shape.arrow, Moved: moved})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			w.Abort()
		}
	}()
	if rw.shape.mode != insertOnly {
		rw.hashes = make([]uint64, 0, total)
	}
	if err := put(w); err != nil {
		return err
	}
	data, err := w.Close()
	if err != nil {
		return err
	}
	if data.Rows != total {
		return fmt.Errorf("%d rows were written, %d are alive", data.Rows, total)
	}
	return rw.finish(m, data)
}

// writeBatches writes the rows of the input batches that are not dead.
func (rw *rewrite) writeBatches(w DataWriter) error {
	schema := withLSN(rw.shape.arrow)
	for i, s := range rw.inputs {
		b := s.batch
		if d := rw.dead[i]; d.Cardinality() > 0 {
			b = b.without(d, rw.rows[i])
		}
		rows := min(b.rows, rw.rows[i])
		if rows == 0 {
			continue
		}
		rw.note(b, rows)
		if err := w.Write(b.record(schema, rows)); err != nil {
			return err
		}
	}
	return nil
}

// note keeps what the index and readers below the file's newest commit need to know of rows that go to the file.
func (rw *rewrite) note(b *batch, rows int) {
	if rw.hashes != nil {
		rw.hashes = append(rw.hashes, b.hashes[:rows]...)
	}
	before := 0
	if n := len(rw.cuts); n > 0 {
		before = rw.cuts[n-1].rows
	}
	for i, lsn := range b.lsns.own[:rows] {
		if n := len(rw.cuts); n > 0 && rw.cuts[n-1].lsn == LSN(lsn) {
			rw.cuts[n-1].rows = before + i + 1
		} else {
			rw.cuts = append(rw.cuts, cut{LSN(lsn), before + i + 1})
		}
	}
}

// finish makes the segment and the FileIndex of a written file.
func (rw *rewrite) finish(m *Mirror, data iceberg.DataFile) error {
	rw.written.Add(data.Bytes)
	f := &file{data: data}
	cuts := rw.cuts // a pointer into rw would keep its batches, as long as readers need the cuts
	f.cuts.Store(&cuts)
	rw.out = &segment{file: f}
	if rw.hashes == nil {
		return nil
	}
	bytes, err := globalindex.BuildFileIndex(indexHeader(rw.shape, data), [][]uint64{rw.hashes})
	if err != nil {
		return fmt.Errorf("index %s: %w", data.Path, err)
	}
	if err := m.cfg.Effect("file index"); err != nil {
		return err
	}
	path := m.indexPath(data.Path)
	if err := m.files.WriteFile(path, bytes); err != nil {
		return fmt.Errorf("index %s: %w", data.Path, err)
	}
	m.written.index.Add(int64(len(bytes)))
	rw.index, err = m.openIndex(path)
	if err != nil {
		return err
	}
	rw.index.segments = []*segment{rw.out}
	rw.out.file.index = path
	return nil
}

// install swaps the inputs for the output. The applier's turn.
func (rw *rewrite) install(m *Mirror) error {
	t := rw.table
	if rw.out != nil {
		m.lastSegment++
		rw.out.id = m.lastSegment
		if err := rw.succeed(); err != nil {
			return err
		}
		if t.failure != nil && rw.out.file.data.MinLSN > t.failure.Good {
			m.discarded = append(m.discarded, rw.out.file.data.Path) // the table failed meanwhile, and nobody will see these rows
		} else {
			t.files = append(t.files, rw.out)
		}
		if rw.index != nil {
			switch {
			case t.state == stateFailed:
				m.staleIndexes = append(m.staleIndexes, rw.index.path)
				rw.out.file.index = ""
				m.closeIndex(rw.index)
			case rw.out.droppedAt.Load() != 0:
				m.closeIndex(rw.index)
			default:
				t.indexes = append(t.indexes, rw.index)
				t.epoch++
			}
		}
	}
	t.sealed = slices.DeleteFunc(t.sealed, func(s *segment) bool { return slices.Contains(rw.inputs, s) })
	for _, s := range rw.inputs {
		s.batch.index, s.batch.hashes = nil, nil // of no use to read states that see it still
		m.letGo(s.batch)
	}
	if t.discarded {
		m.discardTable(t)
		return nil
	}
	t.install()
	return m.cfg.Effect("version installed")
}

// succeed gives the output what its inputs had: their deletions, and the LSN of a TRUNCATE, which ends all of a table's segments at once. The
// applier's turn.
func (rw *rewrite) succeed() error {
	dropped := rw.inputs[0].droppedAt.Load()
	for _, s := range rw.inputs {
		if s.droppedAt.Load() != dropped {
			return fmt.Errorf("install %s: a part of its rows was truncated at %s, another at %s", rw.out.file.data.Path, LSN(dropped), LSN(s.droppedAt.Load()))
		}
	}
	rw.out.droppedAt.Store(dropped)
	rw.out.vis = rw.vis
	return nil
}

// flush moves the table's sealed batches created at or before upTo to a file, or to one for each shape. Any background goroutine; it takes t.jobs.
func (m *Mirror) flush(ctx context.Context, t *table, upTo LSN) error {
	t.jobs.Lock()
	defer t.jobs.Unlock()
	for {
		if more, err := m.flushShape(ctx, t, upTo); err != nil || !more {
			return err
		}
	}
}

// flushShape flushes the first batches, which are of one shape; more says that others come after them. The caller holds t.jobs.
func (m *Mirror) flushShape(ctx context.Context, t *table, upTo LSN) (more bool, err error) {
	rw, err := m.startRewrite(ctx, func() *rewrite {
		rw := m.begin(t, upTo)
		if len(rw.inputs) == 0 {
			return nil
		}
		more = slices.ContainsFunc(t.sealed, func(s *segment) bool { return s.batch.shape != rw.shape })
		return rw
	})
	if err != nil || rw == nil {
		return false, err
	}
	defer rw.end(ctx, m)
	started := m.clock.Now()
	if err := rw.write(ctx, m); err != nil {
		return false, err
	}
	if rw.out != nil {
		m.counts.flushed.add(rw.out.file.data)
	}
	err = rw.carryOver(ctx, m, func() error {
		if err := rw.install(m); err != nil {
			return err
		}
		if len(t.mergeable(m)) > 0 {
			signal(m.flusher.wake)
		}
		return nil
	})
	if err == nil && rw.out != nil {
		m.cfg.Log.Debug("flushed", "relation", t.String(), "rows", rw.out.file.data.Rows, "bytes", rw.out.file.data.Bytes, "took", m.clock.Now().Sub(started))
	}
	return more, err
}

// without copies the first rows rows of a sealed batch that are not dead.
func (b *batch) without(dead *deletion.Vector, rows int) *batch {
	out := &batch{shape: b.shape, cols: b.shape.newColumns()}
	for row := range rows {
		if dead.Contains(uint32(row)) {
			continue
		}
		for i, c := range out.cols {
			c.appendFrom(b.cols[i], row)
		}
		out.lsns.push(b.lsns.own[row])
		if b.hashes != nil {
			out.hashes = append(out.hashes, b.hashes[row])
		}
		out.rows++
	}
	return out
}

// record is the first rows rows with their create LSNs, for a data file. The batch is sealed or the caller's own.
func (b *batch) record(schema *arrow.Schema, rows int) arrow.RecordBatch {
	arrays := make([]arrow.Array, len(b.cols)+1)
	for i, c := range b.cols {
		arrays[i] = c.array(0, rows)
	}
	arrays[len(b.cols)] = lsnArray(b.lsns.own[:rows])
	return array.NewRecordBatch(schema, arrays, int64(rows))
}

// withLSN adds the hidden column.
func withLSN(s *arrow.Schema) *arrow.Schema {
	fields := append(slices.Clone(s.Fields()), arrow.Field{Name: iceberg.LSNColumn, Type: arrow.PrimitiveTypes.Int64})
	return arrow.NewSchema(fields, nil)
}

// indexHeader describes the FileIndex of one data file.
func indexHeader(s *shape, data iceberg.DataFile) globalindex.Header {
	kind := globalindex.KeyBytes
	if s.integer {
		kind = globalindex.KeyInt
	}
	return globalindex.Header{
		KeyKind: kind,
		HashID:  kind.Hash(),
		Columns: s.keyFieldIDs(),
		Files:   []globalindex.FileRef{{Path: filepath.Base(data.Path), Rows: uint64(data.Rows)}},
	}
}

// indexPath is where the FileIndex of a data file is kept. Data files' base names are unique.
func (m *Mirror) indexPath(data string) string {
	return filepath.Join(m.cfg.IndexDir, strings.TrimSuffix(filepath.Base(data), filepath.Ext(data))+".fidx")
}

func (m *Mirror) openIndex(path string) (*fileIndex, error) {
	data, unmap, err := m.files.Map(path)
	if err != nil {
		return nil, fmt.Errorf("open file index %s: %w", path, err)
	}
	x, err := globalindex.OpenFileIndex(data)
	if err != nil {
		unmap()
		return nil, fmt.Errorf("open file index %s: %w", path, err)
	}
	entries := x.Header().Entries
	return &fileIndex{path: path, index: x, entries: entries, live: entries, unmap: unmap}, nil
}

// closeIndexes forgets a table's FileIndexes: none of the rows they name can be changed any more. The applier's turn.
func (m *Mirror) closeIndexes(t *table) {
	for _, x := range t.indexes {
		m.closeIndex(x)
	}
	t.indexes = nil
	t.epoch++
}
