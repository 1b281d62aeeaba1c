package iceberg

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	icetable "github.com/apache/iceberg-go/table"

	"pgmirror/deletion"
)

// modelTable is a table as plain lists: what every snapshot must read as.
type modelTable struct {
	loc     TableLocation
	last    int // field id
	lsn     LSN
	files   map[string]*modelFile
	history map[int64][]string // snapshot id → rows
	rowIDs  map[string]int64   // path → first row id, for ever
}

type modelFile struct {
	rows    []string // what a scan of id, name, _pgmirror_lsn shows
	deleted map[uint32]bool
}

func (m *modelTable) clone() *modelTable {
	c := *m
	c.files, c.history = map[string]*modelFile{}, maps.Clone(m.history)
	for path, f := range m.files {
		c.files[path] = &modelFile{f.rows, maps.Clone(f.deleted)}
	}
	return &c
}

func (m *modelTable) rows() []string {
	var rows []string
	for _, f := range m.files {
		for i, row := range f.rows {
			if !f.deleted[uint32(i)] {
				rows = append(rows, row)
			}
		}
	}
	slices.Sort(rows)
	return rows
}

// modelRun drives a warehouse and the model side by side.
type modelRun struct {
	t      *testing.T
	random *rand.Rand
	dir    string
	disk   *forgetful
	w      *Warehouse
	tables map[TableName]*modelTable
	lsn    LSN
	nextID int64
	step   int
	mirror string
	cuts   []LSN                       // of the commits that made snapshots
	at     map[LSN]map[string][]string // what each table, by its uuid, held at them
	held   LSN                         // an LSN that somebody reads; 0: nobody does
	forgot bool                        // a restart found no snapshot of a cut any more, for its tables were dropped, and may keep an older one in its stead
	let    func()                      // ends that

	fuse      int    // effects until the crash; negative: none
	crashedAt string // the effect that did not happen
}

const modelKeepSnapshots = 4

var errCrash = errors.New("crash")

func (r *modelRun) open() *State {
	r.disk, r.crashedAt, r.fuse = newForgetful(), "", -1
	w, state := openLoaded(r.t, Config{Dir: r.dir, Files: r.disk, KeepSnapshots: modelKeepSnapshots, Effect: func(name string) error {
		r.disk.mu.Lock()
		defer r.disk.mu.Unlock()
		if r.crashedAt != "" {
			return errCrash
		}
		if r.fuse--; r.fuse == 0 {
			r.crashedAt = name
			return errCrash
		}
		return nil
	}})
	r.w = w
	return state
}

// commit makes a random change to some tables. The model moves on only if the catalog did.
func (r *modelRun) commit() {
	r.step++
	r.lsn += LSN(1 + r.random.IntN(50))
	next := map[TableName]*modelTable{}
	for name, m := range r.tables {
		next[name] = m.clone()
	}
	if r.random.IntN(3) == 0 {
		r.fuse = 1 + r.random.IntN(14)
	}
	changes, err := r.changes(next)
	mirror := fmt.Sprintf(`{"step":%d}`, r.step)
	var result *Result
	if err == nil {
		result, err = r.w.Commit(r.t.Context(), Commit{Mirror: []byte(mirror), LSN: r.lsn, Tables: changes})
	}
	committed := err == nil || r.crashedAt == "sqlite committed" || r.crashedAt == "version hint"
	if err != nil && (r.crashedAt == "" || !errors.Is(err, errCrash)) {
		r.t.Fatalf("step %d: %v", r.step, err)
	}
	if committed {
		r.tables, r.mirror = next, mirror
		if slices.ContainsFunc(changes, func(c TableCommit) bool { return !c.Drop }) {
			r.cuts = append(r.cuts, r.lsn)
		}
		r.at[r.lsn] = map[string][]string{}
		for _, m := range next {
			r.at[r.lsn][m.loc.UUID] = m.rows()
		}
	}
	if err == nil {
		r.note(result.Tables)
		r.check(result.Tables)
		// A reader may keep files for some time: deletion may come late, or never in this life.
		if r.random.IntN(3) > 0 {
			err = r.w.DeleteUnreachable(r.t.Context(), result.Unreachable)
		}
	}
	if r.crashedAt != "" || r.random.IntN(10) == 0 {
		r.restart()
	} else if err != nil {
		r.t.Fatalf("step %d: %v", r.step, err)
	}
	r.fuse = -1
}

// readable are the cuts that must be readable: the newest, and one that is held.
func (r *modelRun) readable() []LSN {
	cuts := slices.Clone(r.cuts[max(0, len(r.cuts)-modelKeepSnapshots):])
	if r.held != 0 {
		cuts = append(cuts, r.held)
	}
	return cuts
}

// hold begins or ends to read at a cut that is readable.
func (r *modelRun) hold() {
	if r.held != 0 {
		r.let()
		r.held = 0
	} else if cuts := r.readable(); len(cuts) > 0 {
		r.held = cuts[r.random.IntN(len(cuts))]
		var err error
		if _, r.let, err = r.w.Hold(r.held); err != nil {
			r.t.Fatal(err)
		}
	}
}

// expire takes out what is not needed, a few tables at a time, perhaps up to a crash.
func (r *modelRun) expire() {
	r.t.Helper()
	r.step++
	if r.random.IntN(3) == 0 {
		r.fuse = 1 + r.random.IntN(12)
	}
	for more := true; more; {
		x, err := r.w.Expire(r.t.Context(), 1+r.random.IntN(3), false)
		if err == nil && r.random.IntN(3) > 0 {
			err = r.w.DeleteUnreachable(r.t.Context(), x.Unreachable)
		}
		if err != nil {
			if !errors.Is(err, errCrash) {
				r.t.Fatalf("step %d: expire: %v", r.step, err)
			}
			r.restart()
			return
		}
		more = x.More
	}
	r.fuse = -1
	r.checkHistory()
	for name, m := range r.tables {
		if got, want := len(r.w.names[name].meta.Snapshots()), len(r.needed(openIceberg(r.t, metadataPath(r.w, name)), m)); got < want || got > want && !r.forgot {
			r.t.Fatalf("step %d: table %v retains %d snapshots after expiry, %d are needed", r.step, name, got, want)
		}
		for _, s := range r.w.Retained(m.loc.UUID) {
			if len(s.HeldBy) == 0 {
				r.t.Fatalf("step %d: table %v retains the snapshot of %s for nothing", r.step, name, s.LSN)
			}
		}
	}
}

// needed are the snapshots that show a table at the readable cuts, and the current one.
func (r *modelRun) needed(tbl *icetable.Table, m *modelTable) map[int64]bool {
	r.t.Helper()
	needed := map[int64]bool{tbl.CurrentSnapshot().SnapshotID: true}
	for _, cut := range r.readable() {
		want, known := r.at[cut][m.loc.UUID]
		if !known { // it was made later
			continue
		}
		var shows *icetable.Snapshot
		for _, s := range tbl.Metadata().Snapshots() {
			if at, err := parseLSN(s.Summary.Properties[summaryCut]); err == nil && at <= cut && (shows == nil || s.SequenceNumber > shows.SequenceNumber) {
				shows = &s
			}
		}
		if shows == nil {
			r.t.Fatalf("step %d: nothing shows table %v at %s", r.step, m.loc.Name, cut)
		}
		needed[shows.SnapshotID] = true
		if got := sortedScan(r.t, tbl, icetable.WithSnapshotID(shows.SnapshotID)); !slices.Equal(got, want) {
			r.t.Fatalf("step %d: table %v at %s reads as %v, want %v", r.step, m.loc.Name, cut, got, want)
		}
	}
	return needed
}

// note keeps what the new snapshots must read as for ever.
func (r *modelRun) note(states map[TableName]TableState) {
	for name, state := range states {
		m := r.tables[name]
		m.history[state.SnapshotID] = m.rows()
	}
}

func (r *modelRun) changes(next map[TableName]*modelTable) (changes []TableCommit, err error) {
	for i := range 4 {
		name := TableName{Schema: []string{"public", "Sales"}[i%2], Name: "t" + strconv.Itoa(i)}
		m := next[name]
		if r.random.IntN(2) == 0 && m != nil {
			continue
		}
		var c TableCommit
		switch roll := r.random.IntN(12); {
		case m != nil && roll == 0:
			changes = append(changes, TableCommit{Name: name, UUID: m.loc.UUID, Drop: true})
			delete(next, name)
			if r.random.IntN(2) == 0 {
				continue
			}
			fallthrough
		case m == nil:
			m = &modelTable{loc: newLocation(r.t, name.Name), last: 3, files: map[string]*modelFile{}, history: map[int64][]string{}, rowIDs: map[string]int64{}}
			m.loc.Name = name
			next[name] = m
			c = TableCommit{Create: true, Schema: m.loc.Schema}
		case roll == 1: // a column more
			fields := append(slices.Clone(m.loc.Schema.Fields()), arrow.Field{Name: "c" + strconv.Itoa(m.last), Type: arrow.PrimitiveTypes.Int32, Nullable: true})
			m.loc.Schema, m.last = AssignFieldIDs(arrow.NewSchema(fields, nil), m.last)
			c.Schema = m.loc.Schema
		}
		c.Name, c.UUID, m.lsn = name, m.loc.UUID, r.lsn
		if err := r.change(m, &c); err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// change adds, removes and deletes at random.
func (r *modelRun) change(m *modelTable, c *TableCommit) error {
	if r.random.IntN(6) == 0 { // TRUNCATE, or a rewrite of some files
		all := r.random.IntN(2) == 0
		for _, path := range slices.Sorted(maps.Keys(m.files)) {
			if all || r.random.IntN(2) == 0 {
				c.Remove = append(c.Remove, path)
				delete(m.files, path)
			}
		}
	}
	for range r.random.IntN(3) {
		if c.Create && r.random.IntN(2) == 0 {
			break
		}
		file, model, err := r.file(m.loc)
		if err != nil {
			return err
		}
		c.Add = append(c.Add, file)
		m.files[file.Path] = model
	}
	c.Vectors = map[string]*deletion.Vector{}
	for _, path := range slices.Sorted(maps.Keys(m.files)) {
		f := m.files[path]
		if r.random.IntN(3) == 0 {
			f.deleted[uint32(r.random.IntN(len(f.rows)))] = true
			c.Vectors[path] = vectorOf(int64(len(f.rows)), slices.Collect(maps.Keys(f.deleted))...)
		}
	}
	return nil
}

func (r *modelRun) file(loc TableLocation) (DataFile, *modelFile, error) {
	model := &modelFile{deleted: map[uint32]bool{}}
	x, err := r.w.NewWriter(r.t.Context(), loc)
	if err != nil {
		return DataFile{}, nil, err
	}
	fields := append(slices.Clone(loc.Schema.Fields()), arrow.Field{Name: LSNColumn, Type: arrow.PrimitiveTypes.Int64})
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	for range 1 + r.random.IntN(6) {
		r.nextID++
		b.Field(0).(*array.Int64Builder).Append(r.nextID)
		b.Field(1).(*array.StringBuilder).Append("n" + strconv.Itoa(int(r.nextID)))
		for i := 2; i < len(fields)-1; i++ {
			b.Field(i).AppendNull()
		}
		b.Field(len(fields) - 1).(*array.Int64Builder).Append(int64(r.lsn))
		model.rows = append(model.rows, fmt.Sprintf("%d|n%d|%d|", r.nextID, r.nextID, r.lsn))
	}
	if err := x.Write(b.NewRecordBatch()); err != nil {
		return DataFile{}, nil, err
	}
	file, err := x.Close()
	return file, model, err
}

var modelColumns = icetable.WithSelectedFields("id", "name", LSNColumn)

func sortedScan(t *testing.T, tbl *icetable.Table, options ...icetable.ScanOption) []string {
	rows := scan(t, tbl, append(options, modelColumns)...)
	slices.Sort(rows)
	return rows
}

// check compares the current snapshots of some tables with the model.
func (r *modelRun) check(states map[TableName]TableState) {
	r.t.Helper()
	for name, state := range states {
		m := r.tables[name]
		if m == nil {
			r.t.Fatalf("step %d: table %v is not in the model", r.step, name)
		}
		if state.UUID != m.loc.UUID || state.LSN != m.lsn || !state.Schema.Equal(m.loc.Schema) || state.LastColumnID != m.last {
			r.t.Fatalf("step %d: table %v: %+v", r.step, name, state)
		}
		if len(state.Files) != len(m.files) {
			r.t.Fatalf("step %d: table %v has %d files, want %d", r.step, name, len(state.Files), len(m.files))
		}
		for _, f := range state.Files {
			model := m.files[f.Path]
			if model == nil || f.Rows != int64(len(model.rows)) || !slices.Equal(slices.Collect(f.Deleted.Positions()), slices.Sorted(maps.Keys(model.deleted))) {
				r.t.Fatalf("step %d: table %v: file %+v, want %+v", r.step, name, f, model)
			}
		}
		for path, f := range r.w.names[name].files {
			if id, known := m.rowIDs[path]; known && id != f.firstRowID {
				r.t.Fatalf("step %d: table %v: first row id of %s was %d and is %d", r.step, name, path, id, f.firstRowID)
			}
			m.rowIDs[path] = f.firstRowID
		}
		if got, want := sortedScan(r.t, openIceberg(r.t, metadataPath(r.w, name))), m.rows(); !slices.Equal(got, want) {
			r.t.Fatalf("step %d: table %v reads as %v, want %v", r.step, name, got, want)
		}
	}
}

// restart loses power, starts again, and finds exactly what was committed and not a file more.
func (r *modelRun) restart() {
	r.t.Helper()
	r.w.Close()
	r.disk.crash(r.random)
	at := r.crashedAt
	state := r.open()
	if string(state.Mirror) != r.mirror || len(state.Tables) != len(r.tables) {
		r.t.Fatalf("step %d, crash at %q: document %s with %d tables, want %s with %d", r.step, at, state.Mirror, len(state.Tables), r.mirror, len(r.tables))
	}
	states := map[TableName]TableState{}
	for _, s := range state.Tables {
		states[s.Name] = s
	}
	r.note(states)
	r.check(states)
	r.held = 0
	if _, err := r.w.RemoveOrphans(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	var left []string
	for _, f := range state.Unreachable {
		left = append(left, f.Path)
	}
	if r.random.IntN(2) == 0 {
		if err := r.w.DeleteUnreachable(r.t.Context(), left); err != nil {
			r.t.Fatal(err)
		}
		left = nil
	}
	for _, cut := range r.readable() {
		r.forgot = r.forgot || !slices.ContainsFunc(r.w.history, func(c checkpointMark) bool { return c.cut == cut })
	}
	r.checkFiles(left)
	r.checkHistory()
}

// checkFiles compares the files on disk with those that the retained snapshots need, and those that are left for readers.
func (r *modelRun) checkFiles(left []string) {
	r.t.Helper()
	there := map[string]bool{}
	for _, path := range filesBelow(r.t, r.dir) {
		there[path] = true
	}
	want := slices.DeleteFunc(slices.Clone(left), func(path string) bool { return !there[path] }) // deleted, but not forgotten before a crash
	for _, tbl := range r.w.tables {
		want = append(want, tbl.allFiles()...)
	}
	slices.Sort(want)
	if got := filesBelow(r.t, r.dir); !slices.Equal(got, want) {
		r.t.Fatalf("step %d: files on disk\n%v\nneeded\n%v", r.step, got, want)
	}
}

// checkHistory reads every retained snapshot of every table again.
func (r *modelRun) checkHistory() {
	r.t.Helper()
	for name, m := range r.tables {
		tbl := openIceberg(r.t, metadataPath(r.w, name))
		snapshots := tbl.Metadata().Snapshots()
		if most := modelKeepSnapshots + 2; len(snapshots) > most && r.held == 0 {
			r.t.Fatalf("step %d: table %v retains %d snapshots, want at most %d", r.step, name, len(snapshots), most)
		}
		r.needed(tbl, m)
		for _, s := range snapshots {
			want, known := m.history[s.SnapshotID]
			if got := sortedScan(r.t, tbl, icetable.WithSnapshotID(s.SnapshotID)); !known || !slices.Equal(got, want) {
				r.t.Fatalf("step %d: table %v, snapshot %d reads as %v, want %v", r.step, name, s.SnapshotID, got, want)
			}
		}
	}
}

var modelSeeds = flag.Int("model.seeds", 2, "seeds of TestModel")

// Random commits over several tables, expiry, and readers of the past, with a power loss at random effects: every checkpoint that is to be readable and
// every retained snapshot always reads as the model had it, nothing is lost or doubled, and no file stays behind.
func TestModel(t *testing.T) {
	for seed := range uint64(*modelSeeds) {
		t.Run(strconv.Itoa(int(seed)), func(t *testing.T) {
			t.Parallel()
			r := &modelRun{t: t, random: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), tables: map[TableName]*modelTable{}, at: map[LSN]map[string][]string{}, lsn: 100}
			r.open()
			for range 30 {
				r.commit()
				switch r.random.IntN(4) {
				case 0:
					r.expire()
				case 1:
					r.hold()
				}
			}
			r.restart()
		})
	}
}
