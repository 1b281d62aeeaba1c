package mirror

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/iceberg"
)

// compactRun is the number of neighbouring files from which on they are worth one file: with it a table of n rows has about
// 7·log8(n) files besides its full ones, and each row is rewritten about log8(n) times.
const compactRun = 8

// compactMost bounds the rows of a file that compaction makes, whatever memory there is.
const compactMost = 16 << 20

// compactMost is how many rows a file may have that compaction makes: their hashes and their FileIndex are in memory while it does, and take no more
// than a quarter of the bound of memory; or as many as a file of the first copy, which has less memory.
func (m *Mirror) compactMost() int64 {
	return max(m.compactRows, min(compactMost, m.cfg.Memory/4/buildBytes))
}

// compactable chooses neighbouring files to make one of, newest first; empty when nothing is worth it. A file that is chosen is named by
// the current snapshot, and no reader is below its newest row. With all, every such run of files is worth it. The applier's turn.
//
// Of a run of files the longest end is chosen that has compactRun files and in which none has more rows than all others together: so a row's
// file at least doubles each time.
func (t *table) compactable(m *Mirror, low LSN, all bool) []*segment {
	if t.state != stateStreaming || t.retired != 0 || t.since > m.durable { // a checkpoint under way commits the shape before
		return nil
	}
	least, full := m.compactRun, t.fullRows(m)
	if all {
		least = 2
	}
	for end := len(t.files); end > 0; end-- {
		if !t.files[end-1].settled() {
			continue
		}
		if f := t.files[end-1]; f.mostlyDead(low, m.cfg.Compact.DeadRatio) {
			return []*segment{f}
		}
		var best int
		var rows, largest int64
		first := end
		for ; first > 0 && t.files[first-1].settled(); first-- {
			live := t.files[first-1].live()
			if rows+live > full {
				break
			}
			rows, largest = rows+live, max(largest, live)
			if end-first+1 >= least && (all || rows >= 2*largest) {
				best = end - first + 1
			}
		}
		if best > 0 {
			return slices.Clone(t.files[end-best : end])
		}
	}
	return t.crowded(m, full)
}

// fullRows is the number of rows beyond which files are not joined: more in large tables, so that it is not their full files that make many.
func (t *table) fullRows(m *Mirror) int64 {
	return max(m.compactRows, min(m.compactMost(), 4*t.rows/int64(m.cfg.Compact.Files)))
}

// crowded chooses a run of files when the table has more than it may, Compact.Files or one for each compactMost/2 rows; or when more than half of so many
// are large: else each small file that comes would have to be joined with the one before, which grows. Some two neighbours
// fit into one file when there are more than 2·rows/fullRows, which is half of what a table may have; so it does not get stuck.
func (t *table) crowded(m *Mirror, full int64) []*segment {
	most, large := max(int64(m.cfg.Compact.Files), 2*t.rows/m.compactMost()), full/8
	n := int64(0)
	for _, s := range t.files {
		if s.live() > large {
			n++
		}
	}
	if n > most/2 {
		if run := t.cheapest(large, full); run != nil {
			return run
		}
	}
	if int64(len(t.files)) > most {
		return t.cheapest(-1, full)
	}
	return nil
}

// cheapest chooses, of all short runs of files with more than least rows each that fit into one, the one with the fewest rows to write for each file
// that goes.
func (t *table) cheapest(least, full int64) (best []*segment) {
	cost := 0.0
	for first := range t.files {
		rows := int64(0)
		for end := first; end < min(first+compactRun, len(t.files)) && t.files[end].settled(); end++ {
			live := t.files[end].live()
			if rows += live; live <= least || rows > full {
				break
			}
			if gone := end - first; gone > 0 && (best == nil || float64(rows)/float64(gone) < cost) {
				best, cost = t.files[first:end+1], float64(rows)/float64(gone)
			}
		}
	}
	return slices.Clone(best)
}

// settled says whether a file's rows are the same for all readers but for deletions, and the current snapshot names it.
func (s *segment) settled() bool {
	return s.file.published && s.file.cuts.Load() == nil && s.droppedAt.Load() == 0
}

// live counts the rows that are not deleted; the applier's.
func (s *segment) live() int64 { return s.file.data.Rows - int64(s.vis.Count()) }

// mostlyDead says whether so large a part of a file's rows is deleted for every reader that the rest is worth a new file. The applier's.
func (s *segment) mostlyDead(low LSN, part float64) bool {
	rows := float64(s.file.data.Rows)
	if float64(s.vis.Count()) < part*rows {
		return false
	}
	dead, err := s.vis.At(max(low, s.vis.Base()), uint32(s.file.data.Rows))
	return err == nil && float64(dead.Cardinality()) >= part*rows
}

// compact makes one file of some of a table's, if that is worth it; it returns nil when there was nothing to do. Any background goroutine; it takes
// t.tidying.
func (m *Mirror) compact(ctx context.Context, t *table, all bool) (*rewrite, error) {
	t.tidying.Lock()
	defer t.tidying.Unlock()
	return m.rewriteFiles(ctx, func() *rewrite { return m.beginCompaction(t, all) })
}

// rewriteFiles does the compaction that begin begins, in the applier's turn; it returns nil when there was nothing to do. The caller, or begin, has
// taken the table's tidying.
func (m *Mirror) rewriteFiles(ctx context.Context, begin func() *rewrite) (*rewrite, error) {
	rw, err := m.startRewrite(ctx, begin)
	if err != nil || rw == nil {
		return nil, err
	}
	defer rw.end(ctx, m)
	started := m.clock.Now()
	if err := rw.compact(ctx, m); err != nil {
		return nil, fmt.Errorf("compact %s: %w", rw.table, err)
	}
	rows := int64(0)
	if rw.out != nil {
		rows = rw.out.file.data.Rows
		m.counts.compacted.add(rw.out.file.data)
	}
	m.cfg.Log.Debug("compacted", "relation", rw.table.String(), "files", len(rw.inputs), "rows", rows, "took", m.clock.Now().Sub(started), "stalled", rw.stall, "carried_at_install", rw.rest)
	return rw, nil
}

// compact writes the new file and installs it.
func (rw *rewrite) compact(ctx context.Context, m *Mirror) error {
	if err := rw.writeFiles(ctx, m); err != nil {
		void := false
		gone := m.inAnyTurn(ctx, func() error {
			_, installable := rw.inPlace()
			void = !installable
			return nil
		})
		if gone != nil || !void {
			return err
		}
		return nil // a checkpoint has taken the files out of the table meanwhile, and they may be gone
	}
	return rw.carryOver(ctx, m, func() error { return rw.installCompaction(m) })
}

// beginCompaction prepares a compaction, or nothing. The caller holds t.tidying. The applier's turn.
func (m *Mirror) beginCompaction(t *table, all bool) *rewrite {
	low := m.marks.low()
	inputs := t.compactable(m, low, all)
	if len(inputs) == 0 {
		return nil
	}
	rw := &rewrite{table: t, shape: t.shape, written: &m.written.compaction, floor: low, inputs: inputs}
	for _, s := range inputs {
		rw.rows = append(rw.rows, int(s.file.data.Rows))
	}
	return rw
}

// writeFiles writes the rows of the input files.
func (rw *rewrite) writeFiles(ctx context.Context, m *Mirror) error {
	err := rw.fill(ctx, m, true, func(w DataWriter) error {
		c := newFileCopy(rw, w)
		for i, s := range rw.inputs {
			if err := c.file(ctx, m, s.file.data, func(row uint32) bool { return rw.dead[i].Contains(row) }); err != nil {
				return err
			}
		}
		return c.flush()
	})
	if err == nil && rw.out != nil {
		rw.out.file.cuts.Store(nil) // no reader is below any of its rows
	}
	return err
}

// fileCopy passes rows on from data files to another one.
type fileCopy struct {
	rw     *rewrite
	out    DataWriter
	ids    []int32
	schema *arrow.Schema
	keys   *table // hashes the keys
	batch  *batch
	// Of the batch's rows: what Iceberg calls _row_id and _last_updated_sequence_number. A row keeps both where it goes.
	rowIDs, sequences *array.Int64Builder
}

func newFileCopy(rw *rewrite, out DataWriter) *fileCopy {
	c := &fileCopy{rw: rw, out: out, schema: withLineage(withLSN(rw.shape.arrow)), rowIDs: array.NewInt64Builder(memory.DefaultAllocator),
		sequences: array.NewInt64Builder(memory.DefaultAllocator), keys: &table{}, batch: newBatch(rw.shape)}
	c.keys.setShape(rw.shape)
	c.batch.index = nil
	c.ids = append(rw.shape.fieldIDs(), iceberg.LSNFieldID, iceberg.RowIDFieldID, iceberg.SequenceFieldID)
	return c
}

// file adds the rows of a file that are not dead.
func (c *fileCopy) file(ctx context.Context, m *Mirror, data iceberg.DataFile, dead func(uint32) bool) error {
	r, err := m.warehouse.OpenData(data.Path)
	if err != nil {
		return err
	}
	defer r.Close()
	y, err := newYounger(r, data.Path, c.schema.Fields(), c.ids)
	if err != nil {
		return err
	}
	// When a checkpoint has taken the file out meanwhile, by a TRUNCATE, what is written here is discarded in the end.
	firstID, sequence, _ := m.warehouse.Lineage(c.rw.table.uuid, data.Path)
	hidden := len(c.ids) - 3
	return r.Columns(ctx, y.ids, func(rec arrow.RecordBatch, first int64) error {
		columns, err := y.columns(rec)
		if err != nil {
			return err
		}
		var numbers [3]*array.Int64
		for i := range numbers {
			column, ok := columns[hidden+i].(*array.Int64)
			if !ok {
				return fmt.Errorf("%s: its column %s holds %s", data.Path, c.schema.Field(hidden+i).Name, column.DataType())
			}
			numbers[i] = column
		}
		lsns, rowIDs, sequences := numbers[0], numbers[1], numbers[2]
		read := data.Bytes * rec.NumRows() / max(1, data.Rows)
		if err := m.pace.spend(ctx, m.clock, 2*read); err != nil { // as much is written
			return err
		}
		for row := range int(rec.NumRows()) {
			if dead(uint32(first) + uint32(row)) {
				continue
			}
			c.rowIDs.Append(valueOr(rowIDs, row, firstID+first+int64(row)))
			c.sequences.Append(valueOr(sequences, row, sequence))
			if err := c.row(columns, row, uint64(lsns.Value(row))); err != nil {
				return fmt.Errorf("%s: %w", data.Path, err)
			}
		}
		return nil
	})
}

// valueOr is a value, or what stands for NULL.
func valueOr(values *array.Int64, row int, null int64) int64 {
	if values.IsNull(row) {
		return null
	}
	return values.Value(row)
}

// withLineage adds the columns of row lineage.
func withLineage(s *arrow.Schema) *arrow.Schema {
	return arrow.NewSchema(append(slices.Clone(s.Fields()), iceberg.LineageFields()...), nil)
}

func (c *fileCopy) row(columns []arrow.Array, row int, lsn uint64) error {
	b := c.batch
	for i, column := range b.cols {
		if err := column.appendArray(columns[i], row); err != nil {
			return err
		}
		b.added += column.rowBytes(b.rows)
	}
	b.lsns.push(lsn)
	if c.rw.hashes != nil {
		c.rw.hashes = append(c.rw.hashes, c.keys.hash(b.keys, b.rows))
	}
	if b.rows++; b.rows == copyRowsMost || b.added >= batchBytes {
		return c.flush()
	}
	return nil
}

// copyRowsMost is the number of rows handed to the writer at once.
const copyRowsMost = 1 << 16

// flush hands the collected rows to the writer, which keeps nothing of them.
func (c *fileCopy) flush() error {
	b := c.batch
	if b.rows == 0 {
		return nil
	}
	rec := b.record(withLSN(c.rw.shape.arrow), b.rows)
	rec = array.NewRecordBatch(c.schema, append(rec.Columns(), c.rowIDs.NewArray(), c.sequences.NewArray()), int64(b.rows))
	if err := c.out.Write(rec); err != nil {
		return err
	}
	c.batch = newBatch(c.rw.shape)
	c.batch.index = nil
	return nil
}

// inPlace is where the table has a compaction's inputs; ok is false when it has lost one, or is itself not the mirror's any more. The applier's turn.
func (rw *rewrite) inPlace() (at int, ok bool) {
	t := rw.table
	at = slices.Index(t.files, rw.inputs[0])
	if t.state != stateStreaming || t.retired != 0 || at < 0 || at+len(rw.inputs) > len(t.files) || !slices.Equal(t.files[at:at+len(rw.inputs)], rw.inputs) ||
		slices.ContainsFunc(rw.inputs, func(s *segment) bool { return s.droppedAt.Load() != 0 }) {
		return at, false
	}
	return at, true
}

// installCompaction puts the new file in its inputs' place, with what was deleted meanwhile. The next commit takes the inputs out of the
// table and the new file in. If the table has lost an input meanwhile, the new file is discarded. The applier's turn.
func (rw *rewrite) installCompaction(m *Mirror) error {
	t := rw.table
	at, ok := rw.inPlace()
	if !ok {
		rw.discard(m)
		return nil
	}
	var out []*segment
	if rw.out != nil {
		m.lastSegment++
		rw.out.id = m.lastSegment
		if err := rw.succeed(); err != nil {
			return err
		}
		out = []*segment{rw.out}
	}
	t.files = slices.Replace(slices.Clone(t.files), at, at+len(rw.inputs), out...)
	t.compacted = append(t.compacted, rw.inputs...)
	m.uncover(t, rw.inputs)
	if rw.index != nil {
		t.indexes = append(t.indexes, rw.index)
	}
	t.epoch++
	t.dirty = true
	t.install()
	return m.cfg.Effect("version installed")
}

// discard gives the new file up. The applier's turn.
func (rw *rewrite) discard(m *Mirror) {
	if rw.out == nil {
		return
	}
	m.discarded = append(m.discarded, rw.out.file.data.Path)
	if rw.index != nil {
		m.staleIndexes = append(m.staleIndexes, rw.index.path)
		m.closeIndex(rw.index)
	}
}

// uncover takes files out of the FileIndexes: their rows are not found there any more. An index that covers no other file is closed. The
// applier's turn.
func (m *Mirror) uncover(t *table, files []*segment) {
	t.indexes = slices.DeleteFunc(slices.Clone(t.indexes), func(x *fileIndex) bool {
		left := false
		for i, s := range x.segments {
			if slices.Contains(files, s) {
				x.segments[i] = nil
				x.live -= uint64(s.file.data.Rows)
			}
			left = left || x.segments[i] != nil
		}
		if !left {
			m.staleIndexes = append(m.staleIndexes, x.path)
			m.closeIndex(x)
		}
		return !left
	})
}
