package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/deletion"
	"pgmirror/iceberg"
)

var errPowerCut = errors.New("power cut")

// fakeWarehouse keeps tables in memory. What is not committed is lost by a crash, as orphans are by RemoveOrphans.
type fakeWarehouse struct {
	mu      sync.Mutex
	doc     []byte
	tables  map[string]*iceberg.TableState // by uuid
	files   map[string][]arrow.RecordBatch // by path
	serial  int
	lineage map[string][2]int64 // first row id and sequence number, by path
	rowIDs  int64
	history []iceberg.Commit

	// writing, if set, runs while a data file is being written, before it is closed.
	writing func()
	// closing, if set, runs before a data file is there; its error fails it.
	closing func() error
	// committing, if set, runs inside Commit before anything is stored; its error fails the commit.
	committing func() error
	// committed, if set, runs inside Commit after everything is stored.
	committed func(iceberg.Commit)
	cut       LSN // of the newest commit
	// faulty are tables that Load cannot load, and unreadable says of data files why they cannot be opened.
	mixed      bool // another writer has made files that are not in create order
	faulty     map[string]error
	unreadable func(path string) error
	// opening, if set, runs before a data file is opened for reading, and reads, if not nil, counts the rows read of each file's columns, by field id.
	opening func(path string)
	reads   map[string]map[int32]int64
	// expiring, if set, runs before snapshots expire; its error fails that.
	expiring func() error
	// deleting, if set, runs before files are deleted as unreachable; its error fails that.
	deleting func() error
	deleted  int // files deleted as unreachable

	// retains: older snapshots keep naming the files of before, until Expire. named are such files, listed those that no snapshot names any more.
	retains bool
	// snapshots are what commits showed, oldest first, the newest last; the others as far as they are retained or one of holds asks for them.
	snapshots []fakeSnapshot
	holds     map[*LSN]bool
	// foreign is what another writer made of tables that no commit has met yet, by uuid; nil: nobody is to go on from it. refused are such tables.
	foreign map[string]*iceberg.Foreign
	refused map[string]bool
	// taken is a name that a table of somebody else's has.
	taken *iceberg.TableName
	// crashing are those that were adopted since the last commit.
	crashing map[string]*iceberg.Foreign
	named    map[string]bool
	listed   map[string]time.Time
	grace    time.Duration
	now      func() time.Time
}

// fakeSnapshot is what all tables held from a commit's cut up to, but not including, that of the next.
type fakeSnapshot struct {
	cut, until LSN // until is 0 for the newest
	doc        []byte
	tables     map[string]*iceberg.TableState // by uuid
}

func (s *fakeSnapshot) shows(at LSN) bool { return s.cut <= at && (s.until == 0 || at < s.until) }

// lastCut is the newest LSN that is durable.
func (w *fakeWarehouse) lastCut() LSN {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut
}

func newFakeWarehouse() *fakeWarehouse {
	return &fakeWarehouse{lineage: map[string][2]int64{}, foreign: map[string]*iceberg.Foreign{}, refused: map[string]bool{}, named: map[string]bool{}, listed: map[string]time.Time{}, holds: map[*LSN]bool{}, now: time.Now, tables: map[string]*iceberg.TableState{}, files: map[string][]arrow.RecordBatch{}}
}

func (w *fakeWarehouse) Load(context.Context) (*iceberg.State, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uuid, f := range w.crashing { // adopted, but no commit came after it
		t := f.Held
		w.tables[uuid], w.foreign[uuid] = &t, f
	}
	w.crashing = nil
	clear(w.refused)
	clear(w.holds)
	st := &iceberg.State{Mirror: w.doc}
	for _, t := range w.tables {
		if err := w.faulty[t.Name.Name]; err != nil {
			st.Faults = append(st.Faults, iceberg.TableFault{Name: t.Name, UUID: t.UUID, Err: err})
			continue
		}
		c := *t
		c.Files = slices.Clone(t.Files)
		st.Tables = append(st.Tables, c)
	}
	for _, path := range slices.Sorted(maps.Keys(w.listed)) {
		st.Unreachable = append(st.Unreachable, iceberg.UnreachableFile{Path: path, Since: w.listed[path]})
	}
	return st, nil
}

func (w *fakeWarehouse) RemoveOrphans(context.Context) (removed []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	named := map[string]bool{}
	for _, t := range w.tables {
		for _, f := range t.Files {
			named[f.Path] = true
		}
	}
	for _, f := range w.foreign {
		for _, d := range f.Added {
			named[d.Path] = true
		}
	}
	maps.DeleteFunc(w.files, func(path string, _ []arrow.RecordBatch) bool {
		_, listed := w.listed[path]
		return !named[path] && !w.named[path] && !listed
	})
	return nil, nil
}

func (w *fakeWarehouse) NewWriter(_ context.Context, loc iceberg.TableLocation) (DataWriter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serial++
	return &fakeWriter{w: w, data: iceberg.DataFile{Path: fmt.Sprintf("/w/%s/%06d.parquet", loc.Name.Name, w.serial)}}, nil
}

type fakeWriter struct {
	w    *fakeWarehouse
	data iceberg.DataFile
	recs []arrow.RecordBatch
}

func (x *fakeWriter) Write(rec arrow.RecordBatch) error {
	lsns := rec.Column(slices.IndexFunc(rec.Schema().Fields(), func(f arrow.Field) bool { return f.Name == iceberg.LSNColumn })).(*array.Int64)
	for i := range lsns.Len() {
		lsn := LSN(lsns.Value(i))
		if lsn < x.data.MaxLSN && !x.w.mixed {
			return fmt.Errorf("row %d was created before the row above it", x.data.Rows)
		}
		if x.data.MinLSN == 0 {
			x.data.MinLSN = lsn
		}
		x.data.MaxLSN = lsn
		x.data.Rows++
	}
	columns := make([]arrow.Array, rec.NumCols()) // nothing of rec is kept
	for i, c := range rec.Columns() {
		copied, err := array.Concatenate([]arrow.Array{c}, memory.DefaultAllocator)
		if err != nil {
			return err
		}
		columns[i] = copied
	}
	x.recs = append(x.recs, array.NewRecordBatch(rec.Schema(), columns, rec.NumRows()))
	return nil
}

func (x *fakeWriter) Close() (iceberg.DataFile, error) {
	if f := x.w.writing; f != nil {
		f()
	}
	if f := x.w.closing; f != nil {
		if err := f(); err != nil {
			return iceberg.DataFile{}, err
		}
	}
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	x.w.files[x.data.Path] = x.recs
	x.data.Bytes = 100 * x.data.Rows
	return x.data, nil
}

func (x *fakeWriter) Abort() error {
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	delete(x.w.files, x.data.Path)
	return nil
}

func (w *fakeWarehouse) OpenData(path string) (DataReader, error) {
	if w.opening != nil {
		w.opening(path)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unreadable != nil {
		if err := w.unreadable(path); err != nil {
			return nil, err
		}
	}
	recs, ok := w.files[path]
	if !ok {
		return nil, fmt.Errorf("no file %s", path)
	}
	if w.reads != nil {
		return countedReader{fakeReader(recs), path, w.reads}, nil
	}
	return fakeReader(recs), nil
}

// countedReader counts the rows that are read of each column of each data file.
type countedReader struct {
	fakeReader
	path  string
	reads map[string]map[int32]int64
}

func (r countedReader) Columns(ctx context.Context, ids []int32, each func(arrow.RecordBatch, int64) error) error {
	return r.fakeReader.Columns(ctx, ids, func(rec arrow.RecordBatch, first int64) error {
		if r.reads[r.path] == nil {
			r.reads[r.path] = map[int32]int64{}
		}
		for _, id := range ids {
			r.reads[r.path][id] += rec.NumRows()
		}
		return each(rec, first)
	})
}

type fakeReader []arrow.RecordBatch

func (r fakeReader) pick(rec arrow.RecordBatch, ids []int32) (arrow.RecordBatch, error) {
	var fields []arrow.Field
	var arrays []arrow.Array
	for _, id := range ids {
		for i, f := range rec.Schema().Fields() {
			if got, err := fieldID(f); err == nil && got == int(id) || id == iceberg.LSNFieldID && f.Name == iceberg.LSNColumn {
				fields, arrays = append(fields, f), append(arrays, rec.Column(i))
			}
		}
	}
	if len(arrays) != len(ids) {
		return nil, fmt.Errorf("columns %v are not all there", ids)
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, rec.NumRows()), nil
}

func (r fakeReader) Has(id int32) bool {
	_, err := r.pick(r[0], []int32{id})
	return err == nil
}

func (r fakeReader) Columns(_ context.Context, ids []int32, each func(arrow.RecordBatch, int64) error) error {
	first := int64(0)
	for _, rec := range r {
		picked, err := r.pick(rec, ids)
		if err != nil {
			return err
		}
		if err := each(picked, first); err != nil {
			return err
		}
		first += rec.NumRows()
	}
	return nil
}

func (r fakeReader) Row(row int64, ids []int32) (arrow.RecordBatch, error) {
	for _, rec := range r {
		if row < rec.NumRows() {
			return r.pick(rec.NewSlice(row, row+1), ids)
		}
		row -= rec.NumRows()
	}
	return nil, errors.New("no such row")
}

func (r fakeReader) Close() error { return nil }

func (w *fakeWarehouse) Commit(_ context.Context, c iceberg.Commit) (*iceberg.Result, error) {
	if f := w.committing; f != nil {
		if err := f(); err != nil {
			return nil, err
		}
	}
	result, err := w.commit(c)
	if err == nil && w.committed != nil {
		w.committed(c)
	}
	return result, err
}

func (w *fakeWarehouse) commit(c iceberg.Commit) (*iceberg.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := &iceberg.MovedError{}
	for _, tc := range c.Tables {
		if w.foreign[tc.UUID] != nil && !tc.Drop {
			moved.Tables = append(moved.Tables, iceberg.MovedTable{Name: tc.Name, UUID: tc.UUID})
		}
		if tc.Create && w.taken != nil && tc.Name == *w.taken {
			moved.Tables = append(moved.Tables, iceberg.MovedTable{Name: tc.Name, UUID: tc.UUID})
		}
	}
	if len(moved.Tables) > 0 {
		return nil, moved
	}
	next := map[string]*iceberg.TableState{}
	for uuid, t := range w.tables {
		next[uuid] = t
	}
	var dropped []string
	for _, tc := range c.Tables {
		if !tc.Drop {
			continue
		}
		old := next[tc.UUID]
		if old == nil || old.Name != tc.Name {
			return nil, fmt.Errorf("drop table %s: not there", tc.Name.Name)
		}
		for _, f := range old.Files {
			dropped = append(dropped, f.Path)
		}
		delete(next, tc.UUID)
		delete(w.foreign, tc.UUID)
	}
	for _, tc := range c.Tables {
		if tc.Drop {
			continue
		}
		old := next[tc.UUID]
		for uuid, t := range next {
			if tc.Create && t.Name == tc.Name {
				return nil, fmt.Errorf("create table %s: %s has its name", tc.Name.Name, uuid)
			}
		}
		if (old == nil) != tc.Create {
			return nil, fmt.Errorf("table %s: create is %v", tc.Name.Name, tc.Create)
		}
		t := iceberg.TableState{Name: tc.Name, UUID: tc.UUID}
		if old != nil {
			t = *old
		}
		if tc.Schema != nil {
			t.Schema = tc.Schema
			for _, f := range tc.Schema.Fields() {
				t.LastColumnID = max(t.LastColumnID, lastFieldID(f))
			}
		}
		t.LSN = c.LSN
		if tc.At != 0 {
			t.LSN = tc.At
		}
		files := slices.Clone(t.Files)
		for _, path := range tc.Remove {
			n := len(files)
			files = slices.DeleteFunc(files, func(f iceberg.DataFile) bool { return f.Path == path })
			if len(files) != n-1 {
				return nil, fmt.Errorf("remove %s: not there", path)
			}
		}
		for _, f := range tc.Add {
			if w.files[f.Path] == nil {
				return nil, fmt.Errorf("add %s: no such file", f.Path)
			}
			if f.MaxLSN > t.LSN {
				return nil, fmt.Errorf("add %s: rows of %s in the snapshot at %s", f.Path, f.MaxLSN, t.LSN)
			}
			files = append(files, f)
		}
		for path, v := range tc.Vectors {
			i := slices.IndexFunc(files, func(f iceberg.DataFile) bool { return f.Path == path })
			if i < 0 {
				return nil, fmt.Errorf("vector for %s: not there", path)
			}
			if err := superset(files[i].Deleted, v); err != nil {
				return nil, fmt.Errorf("vector for %s: %w", path, err)
			}
			files[i].Deleted = v
		}
		t.Files = files
		next[tc.UUID] = &t
	}
	for _, tc := range c.Tables {
		for _, f := range tc.Add {
			w.lineage[f.Path] = [2]int64{w.rowIDs, int64(len(w.history) + 1)}
			w.rowIDs += f.Rows
		}
	}
	w.tables, w.doc, w.cut = next, slices.Clone(c.Mirror), c.LSN
	w.history = append(w.history, c)
	w.showLocked(c)
	unreachable := dropped
	let := func(path string) { // go, once no snapshot names it
		if w.retains || w.shownLocked(path) {
			w.named[path] = true
		} else {
			unreachable = append(unreachable, path)
		}
	}
	for uuid, f := range w.crashing {
		if !slices.ContainsFunc(c.Tables, func(tc iceberg.TableCommit) bool { return tc.UUID == uuid }) {
			continue
		}
		delete(w.crashing, uuid)
		for _, d := range f.Removed {
			let(d.Path)
		}
	}
	for _, tc := range c.Tables {
		for _, path := range tc.Remove {
			let(path)
		}
	}
	w.listLocked(unreachable)
	return &iceberg.Result{Unreachable: unreachable}, nil
}

// showLocked notes what a commit shows.
func (w *fakeWarehouse) showLocked(c iceberg.Commit) {
	if n := len(w.snapshots); n > 0 {
		w.snapshots[n-1].until = c.LSN
	}
	w.snapshots = append(w.snapshots, fakeSnapshot{cut: c.LSN, doc: slices.Clone(c.Mirror), tables: maps.Clone(w.tables)})
	if !w.retains {
		w.forgetLocked()
	}
}

// forgetLocked lets the snapshots go that are not the newest and that nobody holds.
func (w *fakeWarehouse) forgetLocked() {
	w.snapshots = slices.DeleteFunc(w.snapshots, func(s fakeSnapshot) bool {
		held := false
		for at := range w.holds {
			held = held || s.shows(*at)
		}
		return s.until != 0 && !held
	})
}

// shownLocked says whether an older snapshot of a table that is still there names a file.
func (w *fakeWarehouse) shownLocked(path string) bool {
	return slices.ContainsFunc(w.snapshots[:max(0, len(w.snapshots)-1)], func(s fakeSnapshot) bool {
		for uuid, t := range s.tables {
			if w.tables[uuid] != nil && slices.ContainsFunc(t.Files, func(f iceberg.DataFile) bool { return f.Path == path }) {
				return true
			}
		}
		return false
	})
}

// shownAt is the retained snapshot that shows an LSN, of the tables that are still there.
func (w *fakeWarehouse) shownAt(at LSN) (shown fakeSnapshot, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shownAtLocked(at)
}

func (w *fakeWarehouse) shownAtLocked(at LSN) (shown fakeSnapshot, ok bool) {
	i := slices.IndexFunc(w.snapshots, func(s fakeSnapshot) bool { return s.shows(at) })
	if i < 0 {
		return shown, false
	}
	shown = w.snapshots[i]
	shown.tables = maps.Clone(shown.tables)
	maps.DeleteFunc(shown.tables, func(uuid string, _ *iceberg.TableState) bool { return w.tables[uuid] == nil })
	return shown, true
}

func (w *fakeWarehouse) Moved(context.Context) (list []iceberg.MovedTable, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, uuid := range slices.Sorted(maps.Keys(w.foreign)) {
		if !w.refused[uuid] {
			list = append(list, iceberg.MovedTable{Name: w.foreign[uuid].Name, UUID: uuid})
		}
	}
	return list, nil
}

func (w *fakeWarehouse) Examine(_ context.Context, moved iceberg.MovedTable) (*iceberg.Foreign, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.foreign[moved.UUID] == nil {
		return &iceberg.Foreign{Name: moved.Name, UUID: moved.UUID, Reason: "the catalog has another table of this name"}, nil
	}
	f := *w.foreign[moved.UUID]
	if t := w.tables[moved.UUID]; t != nil {
		f.Held = *t
		f.Held.Files = slices.Clone(t.Files)
	}
	return &f, nil
}

func (w *fakeWarehouse) Held(uuid string) (t iceberg.TableState, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if held := w.tables[uuid]; held != nil {
		t = *held
		t.Files = slices.Clone(held.Files)
		return t, true
	}
	return t, false
}

func (w *fakeWarehouse) Adopt(f *iceberg.Foreign) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := *w.tables[f.UUID]
	t.Files = slices.DeleteFunc(slices.Clone(t.Files), func(d iceberg.DataFile) bool {
		return slices.ContainsFunc(f.Removed, func(r iceberg.DataFile) bool { return r.Path == d.Path })
	})
	t.Files = append(t.Files, f.Added...)
	w.tables[f.UUID] = &t
	delete(w.foreign, f.UUID)
	if w.crashing == nil { // what was there is still what a start finds, until the next commit
		w.crashing = map[string]*iceberg.Foreign{}
	}
	w.crashing[f.UUID] = f
}

func (w *fakeWarehouse) Refuse(uuid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused[uuid] = true
}

func (w *fakeWarehouse) listLocked(paths []string) {
	for _, path := range paths {
		w.listed[path] = w.now()
	}
}

// Expire makes the older snapshots go that nobody holds, all at once.
func (w *fakeWarehouse) Expire(_ context.Context, _ int, dryRun bool) (*iceberg.Expiry, error) {
	if w.expiring != nil {
		if err := w.expiring(); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x := &iceberg.Expiry{}
	if !dryRun {
		w.forgetLocked()
		for _, path := range slices.Sorted(maps.Keys(w.named)) {
			if !w.shownLocked(path) {
				x.Unreachable = append(x.Unreachable, path)
				delete(w.named, path)
			}
		}
		w.listLocked(x.Unreachable)
	}
	return x, nil
}

func (w *fakeWarehouse) Hold(at LSN) (files []iceberg.DataFile, release func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shown, _ := w.shownAtLocked(at)
	for _, t := range shown.tables {
		files = append(files, t.Files...)
	}
	w.holds[&at] = true
	return files, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.holds, &at)
	}, nil
}

func (w *fakeWarehouse) Lineage(_, path string) (firstRowID, sequence int64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, ok := w.lineage[path]
	return l[0], l[1], ok
}

func (w *fakeWarehouse) Written() (vectors, metadata int64) { return 0, 0 }

func (w *fakeWarehouse) Retained(string) []iceberg.SnapshotInfo { return nil }

func (w *fakeWarehouse) Orphans(context.Context, time.Time, bool) ([]string, error) { return nil, nil }

func superset(old, v *deletion.Vector) error {
	for pos := range old.Positions() {
		if !v.Contains(pos) {
			return fmt.Errorf("position %d is visible again", pos)
		}
	}
	return nil
}

func (w *fakeWarehouse) Discard(ctx context.Context, path string) error {
	w.mu.Lock()
	_, there := w.files[path]
	w.mu.Unlock()
	if !there {
		return fmt.Errorf("discard %s: not there", path)
	}
	return w.DeleteUnreachable(ctx, []string{path})
}

func (w *fakeWarehouse) DeleteUnreachable(_ context.Context, paths []string) error {
	if w.deleting != nil {
		if err := w.deleting(); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, path := range paths {
		for _, t := range w.tables {
			if slices.ContainsFunc(t.Files, func(f iceberg.DataFile) bool { return f.Path == path }) {
				return fmt.Errorf("delete %s: the newest snapshot of %s names it", path, t.Name.Name)
			}
		}
		if w.named[path] {
			return fmt.Errorf("delete %s: a retained snapshot names it", path)
		}
		if since, listed := w.listed[path]; listed && w.now().Sub(since) < w.grace {
			return fmt.Errorf("delete %s: within the grace period: %s", path, w.now().Sub(since))
		}
		delete(w.listed, path)
		delete(w.files, path)
		w.deleted++
	}
	return nil
}

// fakeFiles keeps index files in memory; tear damages some.
type fakeFiles struct {
	mu    sync.Mutex
	files map[string][]byte

	// writing, if set, runs before a file is written; its error fails it.
	writing func() error
	// merging, if set, runs while a merged index, or a run of a rowSorter, is being written.
	merging func()
	// spare is the most memory that came with a merged index beyond its bytes.
	spare int
}

func (f *fakeFiles) WriteFile(path string, data []byte) error {
	if f.writing != nil {
		if err := f.writing(); err != nil {
			return err
		}
	}
	if during := f.merging; during != nil && (strings.Contains(path, mergedPrefix) || strings.Contains(path, runPrefix)) {
		during()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.Contains(path, mergedPrefix) {
		f.spare = max(f.spare, cap(data)-len(data))
	}
	f.files[path] = slices.Clone(data)
	return nil
}

func (f *fakeFiles) Map(path string) ([]byte, func() error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.files[path]
	if !ok {
		return nil, nil, fmt.Errorf("no file %s", path)
	}
	return data, func() error { return nil }, nil
}

func (f *fakeFiles) List(dir string) (names []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path := range f.files {
		if strings.HasPrefix(path, dir+"/") {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (f *fakeFiles) Remove(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.files, path)
	return nil
}
