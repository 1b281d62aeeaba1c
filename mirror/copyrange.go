package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/deletion"
	"pgmirror/iceberg"
	"pgmirror/pgcdc"
)

// slot is one worker's place. It is given up when the source has been read and little is left to write, so that others read meanwhile: the files of a small
// table take much longer to become durable than to be made.
type slot struct {
	of   chan struct{} // as many as workers
	held bool
}

func (s *slot) take(ctx context.Context) error {
	select {
	case s.of <- struct{}{}:
		s.held = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slot) free() {
	if s.held {
		s.held = false
		<-s.of
	}
}

// run copies the range, again and again while nothing but its connection is at fault and the snapshot lives. Only what concerns
// other tables too is an error.
func (r *copyRange) run(ctx context.Context, m *Mirror, snapshot pgcdc.ExportedSnapshot, slots chan struct{}) error {
	c := r.copy
	wait := firstRetry
	for attempt := 1; ; attempt++ {
		if c.over() {
			r.settle(&m.copying, true) // nothing is left to do
			return nil
		}
		part, err := r.attempt(ctx, m, snapshot, slots)
		if err == nil {
			r.settle(&m.copying, true)
			c.done(m, r, part)
			return nil
		}
		if errors.Is(err, pgcdc.ErrRewritten) {
			c.outrun(err)
		}
		if c.over() {
			m.discardPart(ctx, part)
			continue
		}
		if ctx.Err() != nil || errors.Is(err, pgcdc.ErrSnapshotLost) || !pgcdc.IsRetryable(err) {
			m.discardPart(ctx, part)
			return fmt.Errorf("copy %s: %w", c.table, err)
		}
		m.discardPart(ctx, part)
		r.settle(&m.copying, false)
		m.cfg.Log.Warn("a range of a table is copied again", "relation", c.table.String(), "from_block", r.blocks[0].From, "attempt", attempt, "err", err, "retry_in", wait)
		select {
		case <-m.clock.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait = min(2*wait, lastRetry)
	}
}

// attempt copies the range once. The part has the files that were finished, after an error too. A fault of the content fails
// the table.
func (r *copyRange) attempt(ctx context.Context, m *Mirror, snapshot pgcdc.ExportedSnapshot, slots chan struct{}) (*table, error) {
	c := r.copy
	w := newCopyWriter(m, r)
	defer w.rows.free()
	at := slot{of: slots}
	defer at.free()
	err := at.take(ctx)
	for _, blocks := range r.blocks {
		if err != nil {
			break
		}
		err = m.source.CopyRange(ctx, snapshot, c.source, blocks, func(tuple pgcdc.Tuple) error {
			if err := w.rows.add(tuple); err != nil {
				c.fail(m, w.fault(err, tuple))
				return err
			}
			if w.rows.full() {
				return w.encode(ctx)
			}
			return nil
		})
	}
	if w.inFile == 0 && w.rows.batch.added < smallFlush {
		at.free()
	}
	if err == nil {
		err = w.end(ctx)
	}
	if err != nil {
		w.abort()
		c.copied.Add(-w.copied)
	}
	return w.part, err
}

// copyWriter turns the rows of a range into data files and FileIndexes.
type copyWriter struct {
	m      *Mirror
	r      *copyRange
	part   *table // a table of its own: its files, indexes and counts are the range's
	rows   *copyRows
	schema *arrow.Schema
	out    DataWriter // nil between two files
	job    *rewrite   // of the file out, or of the one before
	inFile int64      // rows written to it
	copied int64      // rows written to all
}

func newCopyWriter(m *Mirror, r *copyRange) *copyWriter {
	t := r.copy.table
	part := &table{oid: t.oid, name: t.name, uuid: t.uuid, state: stateCopying}
	part.setShape(t.shape)
	return &copyWriter{m: m, r: r, part: part, rows: newCopyRows(m, part, r.copy.at), job: &rewrite{}, schema: withLSN(t.shape.arrow)}
}

// fault describes a row that cannot be mirrored.
func (w *copyWriter) fault(err error, tuple pgcdc.Tuple) *failure {
	f := &failure{Reason: err.Error(), Remedy: remedyRow, Key: w.part.keyText(tuple)}
	var row *rowError
	if errors.As(err, &row) {
		f.Column, f.Reason, f.Remedy = row.column, row.err.Error(), remedyUnrepresentable
	}
	return f
}

// encode writes the collected rows to the current file.
func (w *copyWriter) encode(ctx context.Context) (err error) {
	w.rows.weigh(w.job.hashes)
	if err := w.m.cfg.Disk.Wait(ctx); err != nil {
		return err
	}
	if w.out == nil {
		w.job = &rewrite{table: w.part, shape: w.part.shape, written: &w.m.written.copies}
		if w.part.shape.mode != insertOnly {
			w.job.hashes = []uint64{}
		}
		w.out, err = w.m.warehouse.NewWriter(ctx, iceberg.TableLocation{Name: w.part.name, UUID: w.part.uuid, Schema: w.part.shape.arrow})
		if err != nil {
			return err
		}
	}
	if err := w.out.Write(w.rows.record(w.schema)); err != nil {
		return err
	}
	if w.job.hashes != nil {
		w.job.hashes = append(w.job.hashes, w.rows.batch.hashes...)
	}
	rows := w.rows.batch.rows
	w.inFile += int64(rows)
	w.copied += int64(rows)
	w.part.rows += int64(rows)
	w.r.copy.copied.Add(int64(rows))
	w.r.count(&w.m.copying, rows)
	w.rows.reset()
	if w.inFile >= w.m.cfg.FileRows {
		return w.close()
	}
	return nil
}

// close ends the current file.
func (w *copyWriter) close() error {
	data, err := w.out.Close()
	w.out, w.inFile = nil, 0
	if err != nil {
		return err
	}
	w.m.counts.copied.add(data)
	err = w.job.finish(w.m, data)
	s := w.job.out
	s.file.cuts.Store(nil) // nobody reads below the copy's LSN
	s.vis = deletion.NewVisibility(data.MinLSN)
	w.part.files = append(w.part.files, s)
	if w.job.index != nil {
		w.part.indexes = append(w.part.indexes, w.job.index)
	}
	return err
}

func (w *copyWriter) end(ctx context.Context) error {
	if w.rows.batch.rows > 0 {
		if err := w.encode(ctx); err != nil {
			return err
		}
	}
	if w.out != nil {
		return w.close()
	}
	return nil
}

func (w *copyWriter) abort() {
	if w.out != nil {
		w.out.Abort()
	}
}
