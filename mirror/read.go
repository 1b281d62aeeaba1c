package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/deletion"
	"pgmirror/iceberg"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// Pin makes the state that one statement reads: all tables at one LSN. It registers the reader first and takes each table's
// version after that; whatever version it finds gives the same rows at the pinned LSN.
//
// With WaitSource the state has every commit that returned to its client before the call, and its tables are those that the source had at the
// pinned LSN: the catalogue, which the stream does not tell, was the same in a look before that LSN and in one after it.
func (m *Mirror) Pin(ctx context.Context, req readstate.PinRequest) (*readstate.State, error) {
	timeout := req.Timeout
	if timeout == 0 {
		timeout = readstate.DefaultWait
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("timed out after %s", timeout))
	defer cancel()
	wait := max(req.WaitLSN, req.At)
	switch {
	case req.Changes != nil:
		return m.pinChanges(ctx, wait, req.At, req.Changes)
	case !req.AtTime.IsZero() && req.At == 0:
		return m.pinTime(ctx, wait, req.AtTime)
	case !req.WaitSource:
		return m.pinAt(ctx, wait, req.At)
	}
	for {
		point, before, err := m.sourcePoint(ctx)
		if err != nil {
			return nil, fmt.Errorf("wait for the source: %w", err)
		}
		st, err := m.pinAt(ctx, max(wait, point), req.At)
		if err != nil || req.At != 0 {
			return st, err
		}
		if after, err := m.source.Look(ctx); err == nil && sameTables(before, after) {
			return st, nil
		}
		st.Release()
	}
}

// pinAt makes the state at an LSN, or at HWM when that is 0, once HWM has reached wait.
func (m *Mirror) pinAt(ctx context.Context, wait, at LSN) (*readstate.State, error) {
	if err := m.readable(ctx, wait); err != nil {
		return nil, err
	}
	p, err := m.marks.register(at)
	if err != nil {
		if st, ok := m.frozenAt(at); ok {
			return st, nil
		}
		return nil, m.outside(err)
	}
	how := newest
	if at != 0 {
		how = chosen
	}
	return m.stateAt(p.LSN, func() { m.marks.release(p) }, how)
}

// pinTime makes the state of a time (commitTimes), once HWM has reached wait.
func (m *Mirror) pinTime(ctx context.Context, wait LSN, t time.Time) (*readstate.State, error) {
	if err := m.readable(ctx, wait); err != nil {
		return nil, err
	}
	p, err := m.marks.registerTime(t, m.clock.Now())
	if err != nil {
		return nil, m.outside(err)
	}
	return m.stateAt(p.LSN, func() { m.marks.release(p) }, chosen)
}

// readable waits until HWM has reached wait, and says why nothing can be read.
func (m *Mirror) readable(ctx context.Context, wait LSN) error {
	if wait > 0 {
		if err := m.marks.wait(ctx, wait); err != nil {
			if why := m.cfg.Disk.Paused(); why != "" {
				err = fmt.Errorf("%w; the mirror is paused: %s", err, why)
			}
			return err
		}
	}
	if opening := m.shared.opening(); opening != "" {
		return fmt.Errorf("nothing can be read yet: %s", opening)
	}
	return nil
}

// outside adds to the error of an LSN outside the window what decides how far that reaches, and what else can be read.
func (m *Mirror) outside(err error) error {
	if !errors.Is(err, ErrOutsideWindow) {
		return err
	}
	text := fmt.Sprintf("the setting history (%s) says how far back it goes, at most to the start of run", m.cfg.History)
	for _, v := range m.shared.views() {
		if v.failure != nil && v.failure.Good != 0 {
			text += fmt.Sprintf("; table %s, which is %s, can be read at %s", v.table, v.state.shown(v.failure), v.failure.Good)
		}
	}
	return fmt.Errorf("%w; %s", err, text)
}

// frozenAt is a state at the last good LSN of failed tables, below the window: only they can be read in it. Their content
// neither folds nor goes away while they are failed. That of a table which was closed in this life may have been folded before; it is at a checkpoint.
func (m *Mirror) frozenAt(at LSN) (*readstate.State, bool) {
	if at == 0 {
		return nil, false
	}
	for _, v := range m.shared.views() {
		if v.failure != nil && v.failure.Good == at && v.holdsGood() {
			// Registered, so that the content stays should the table be replaced meanwhile.
			p, err := m.marks.register(0)
			if err != nil {
				return nil, false
			}
			st, err := m.stateAt(at, func() { m.marks.release(p) }, frozen)
			return st, err == nil
		}
	}
	return nil, false
}

// reading says how a state came by its LSN.
type reading uint8

const (
	newest reading = iota // HWM: a failed table is not read, though nothing may have happened since its last good LSN
	chosen                // asked for, inside the window
	frozen                // asked for, below the window: the last good LSN of a failed table
)

// stateAt assembles a state. release gives up its hold on at; it is called when the assembly fails.
func (m *Mirror) stateAt(at LSN, release func(), how reading) (*readstate.State, error) {
	st := &readstate.State{LSN: at, Pinned: m.clock.Now()}
	m.readers.opened()
	h := &hold{m: m, state: st, unpin: release}
	st.Release, st.Settle, st.Kept = h.release, h.settle, h.kept
	refused := m.shared.get().state == "refused"
	for _, now := range m.shared.views() {
		v := now.at(at)
		rt := &readstate.Table{Name: v.table.name, Schema: v.schema}
		st.Tables = append(st.Tables, rt)
		if rt.Err = v.unreadable(at, how); rt.Err != "" {
			if refused && v.failure != nil {
				rt.Err += "; but nothing is copied while the mirror is refused: pgmirror status says why"
			}
			if v != now && now.state != stateCopying {
				rt.Err += fmt.Sprintf("; that is over, and from %s on it can be read", now.table.appears)
			}
			continue
		}
		version := v.table.version.Load().at(at)
		rt.Schema = version.shape.arrow
		if err := version.fill(rt, at); err != nil {
			st.Release()
			return nil, fmt.Errorf("read %s at %s: %w", v.table, at, err)
		}
		h.pin(rt)
	}
	return st, nil
}

// unreadable says why a table cannot be read at an LSN; empty when it can.
func (v *tableView) unreadable(at LSN, how reading) string {
	if v.damage != "" {
		return fmt.Sprintf("table %s cannot be read: %s; %s", v.table, v.damage, remedyDamaged)
	}
	if at < v.table.appears {
		return fmt.Sprintf("table %s cannot be read at %s: its content begins at %s", v.table, at, v.table.appears)
	}
	if how == newest && v.failure != nil {
		return unreadable(v.table.name, v.state, v.failure, max(at, v.failure.Good+1))
	}
	if why := unreadable(v.table.name, v.state, v.failure, at); why != "" {
		if v.failure != nil && v.failure.Absent && v.joins {
			why = fmt.Sprintf("table %s was gone since %s and is back: it is being copied; wait until it is streaming", v.table, v.failure.LSN)
		}
		return why
	}
	if how == frozen && (v.failure == nil || v.failure.Good != at || !v.holdsGood()) {
		return fmt.Sprintf("table %s cannot be read at %s: it lies below the readable window", v.table, at)
	}
	return ""
}

// unreadable says why a table in a state cannot be read at an LSN, and what to do; empty when it can.
func unreadable(name readstate.TableName, state tableState, f *failure, at LSN) string {
	switch {
	case state == stateCopying:
		return fmt.Sprintf("table %s is being copied; wait until it is streaming", name)
	case f == nil || at <= f.Good:
		return ""
	}
	if f.Absent {
		return absent(name, f)
	}
	what := "failed at"
	if f.Remedy == remedyOutdated {
		what = "is outdated since"
	}
	text := fmt.Sprintf("table %s %s %s: %s", name, what, f.LSN, f.Reason)
	switch {
	case f.Column != "" && f.Key != "":
		text += fmt.Sprintf(" (column %s, row %s)", f.Column, f.Key)
	case f.Column != "":
		text += fmt.Sprintf(" (column %s)", f.Column)
	case f.Key != "":
		text += fmt.Sprintf(" (row %s)", f.Key)
	}
	if f.Remedy != "" {
		text += "; " + f.Remedy
	}
	if f.Good != 0 && f.Damaged {
		text += fmt.Sprintf("; it can then be read with --at %s", f.Good)
	} else if f.Good != 0 {
		text += fmt.Sprintf("; its last good content can be read with --at %s", f.Good)
	}
	return text
}

// fill lists what a reader at the given LSN sees of a version.
func (v *tableVersion) fill(t *readstate.Table, at LSN) error {
	for _, s := range v.segments {
		if !s.alive(at) {
			continue
		}
		rows := s.rowsAt(at)
		if rows == 0 {
			continue
		}
		dead, err := s.vis.At(at, uint32(rows))
		if err != nil {
			return err
		}
		if dead.Cardinality() == uint64(rows) {
			continue
		}
		if s.batch != nil {
			t.Batches = append(t.Batches, readstate.Batch{ID: uint64(s.id), Sealed: s.batch.sealedNow.Load(), Rows: rows,
				Deleted: dead, Columns: columnReader{s.batch, v.shape}})
			continue
		}
		whole := int(s.file.data.Rows)
		if rows < whole {
			// Rows after the cut-off do not exist yet for this reader.
			cutOff := deletion.NewVector(uint32(whole))
			cutOff.Or(dead)
			cutOff.SetRange(uint32(rows), uint32(whole))
			dead = cutOff.Freeze()
		}
		t.Files = append(t.Files, readstate.File{Path: s.file.data.Path, Rows: s.file.data.Rows, Bytes: s.file.data.Bytes, Deleted: dead})
	}
	return nil
}

// SearchPath is the source database's.
func (m *Mirror) SearchPath() []string { return m.shared.get().searchPath }

// sourcePoint is an LSN at or above every commit made on the source before the call, and above a look at its catalogue made
// after them. A connection that is lost meanwhile is waited for as long as ctx lets it.
func (m *Mirror) sourcePoint(ctx context.Context) (LSN, *pgcdc.Catalog, error) {
	for {
		at, c, err := m.sourcePointNow(ctx)
		if state := m.shared.get().state; err == nil || state != "streaming" && state != "reconnecting" && state != "starting" {
			return at, c, err
		}
		select {
		case <-m.clock.After(sourceAgain):
		case <-ctx.Done():
			return 0, nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// sourceAgain is how long a read that waits for the source waits before it asks again.
const sourceAgain = 20 * time.Millisecond

func (m *Mirror) sourcePointNow(ctx context.Context) (LSN, *pgcdc.Catalog, error) {
	if st := m.shared.get(); st.state != "streaming" {
		return 0, nil, fmt.Errorf("%w: %s", ErrNotConnected, standing(st))
	}
	c, err := m.look(ctx, true)
	if err != nil {
		return 0, nil, err
	}
	at, err := m.source.WaitPoint(ctx)
	return at, c, err
}

// sameTables says whether two looks show the same tables, defined and stored the same.
func sameTables(a, b *pgcdc.Catalog) bool {
	return slices.EqualFunc(a.Tables, b.Tables, func(a, b pgcdc.Table) bool {
		return a.OID == b.OID && a.Fingerprint == b.Fingerprint && a.Unsupported == b.Unsupported && storageOf(&a).same(storageOf(&b))
	})
}

// readRow reads some columns of a shape of a row that lies in a file. The applier's.
func (m *Mirror) readRow(loc location, s *shape, columns []int) (values []arrow.Array, err error) {
	path := loc.segment.file.data.Path
	fields, ids := s.fields(columns)
	r, err := m.readers.open(m.warehouse, path)
	if err == nil {
		var y *younger
		if y, err = newYounger(r, path, fields, ids); err == nil {
			var rec arrow.RecordBatch
			if rec, err = r.Row(int64(loc.row), y.ids); err == nil {
				values, err = y.columns(rec)
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("read row %d of %s: %w", loc.row, path, err)
		if !errors.Is(err, iceberg.ErrCorrupt) {
			err = &machineError{err}
		}
		return nil, err
	}
	return values, nil
}

// readers counts open read states and keeps a few data files open for the applier.
type readers struct {
	mu    sync.Mutex
	count int

	files []openFile // the applier's; most recently used last
}

type openFile struct {
	path   string
	reader DataReader
}

// maxOpenFiles bounds the data files kept open for reading old values.
const maxOpenFiles = 16

func (r *readers) opened() { r.mu.Lock(); r.count++; r.mu.Unlock() }
func (r *readers) closed() { r.mu.Lock(); r.count--; r.mu.Unlock() }
func (r *readers) openStates() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

func (r *readers) open(w Warehouse, path string) (DataReader, error) {
	for i, f := range r.files {
		if f.path == path {
			r.files = append(append(r.files[:i:i], r.files[i+1:]...), f)
			return f.reader, nil
		}
	}
	reader, err := w.OpenData(path)
	if err != nil {
		return nil, err
	}
	if len(r.files) == maxOpenFiles {
		if err := r.files[0].reader.Close(); err != nil {
			return nil, err
		}
		r.files = append(r.files[:0], r.files[1:]...)
	}
	r.files = append(r.files, openFile{path, reader})
	return reader, nil
}

func (r *readers) close() {
	for _, f := range r.files {
		f.reader.Close()
	}
	r.files = nil
}
