package interop

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"

	"pgmirror/deletion"
	"pgmirror/iceberg"
)

// modelFile is one data file of a modelTable.
type modelFile struct {
	path    string
	rows    []Row
	lsns    []LSN
	deleted map[int]bool
}

// modelTable is what a table should hold.
type modelTable struct {
	name   iceberg.TableName
	uuid   string
	schema *arrow.Schema
	lastID int
	files  []*modelFile
	// missing is what each column shows in files from before it.
	missing []string
}

// add adds a column of each of some fields. Rows of before show a random value of its type in it, if it can have one that all readers take, and
// with null NULL.
func (w *writer) add(table *modelTable, null bool, fields ...arrow.Field) {
	w.t.Helper()
	for len(table.missing) < table.schema.NumFields() {
		table.missing = append(table.missing, "null")
	}
	for _, f := range fields {
		shown := "null"
		for !null && shown == "null" {
			one := w.values.batch(arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, f}, nil), []LSN{1})
			with, ok := iceberg.WithDefault(f, one.Column(1))
			rows, err := ArrowRows(one)
			w.must(err)
			if ok {
				f, shown = with, rows[0][1]
			}
			one.Release()
		}
		table.schema, table.lastID = iceberg.AssignFieldIDs(arrow.NewSchema(append(table.schema.Fields(), f), nil), table.lastID)
		table.missing = append(table.missing, shown)
	}
}

// shown is what one snapshot should show.
type shown struct {
	name     iceberg.TableName
	snapshot int64
	lsn      LSN
	columns  []string
	rows     []Row
	rowLSNs  []LSN
	maxLSNs  []LSN // of each file
}

// writer makes commits in a warehouse and remembers what they should show.
type writer struct {
	t         *testing.T
	values    *values
	warehouse *iceberg.Warehouse
	lsn       LSN
	shown     []shown
}

func (w *writer) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// addFile writes a file of n rows, several to an LSN.
func (w *writer) addFile(table *modelTable, n int) iceberg.DataFile {
	w.t.Helper()
	return w.writeFile(table, n, false)
}

// addMoved writes a file as compaction does: its rows bring row ids and sequence numbers, in two columns of no schema.
func (w *writer) addMoved(table *modelTable, n int) iceberg.DataFile {
	w.t.Helper()
	return w.writeFile(table, n, true)
}

func (w *writer) writeFile(table *modelTable, n int, moved bool) iceberg.DataFile {
	w.t.Helper()
	lsns := make([]LSN, n)
	for i := range lsns {
		w.lsn += LSN(w.values.IntN(2) * 8)
		lsns[i] = w.lsn
	}
	out, err := w.warehouse.NewWriter(context.Background(), iceberg.TableLocation{Name: table.name, UUID: table.uuid, Schema: table.schema, Moved: moved})
	w.must(err)
	batch := w.values.batch(table.schema, lsns)
	defer batch.Release()
	written := batch
	if moved {
		written = withLineage(batch)
		defer written.Release()
	}
	w.must(out.Write(written))
	file, err := out.Close()
	w.must(err)
	rows, err := ArrowRows(batch)
	w.must(err)
	table.files = append(table.files, &modelFile{path: file.Path, rows: rows, lsns: lsns, deleted: map[int]bool{}})
	return file
}

// withLineage gives rows the row ids 0 to n − 1, and every second one the sequence number 1, the others none of their own.
func withLineage(batch arrow.RecordBatch) arrow.RecordBatch {
	ids, sequences := array.NewInt64Builder(memory.DefaultAllocator), array.NewInt64Builder(memory.DefaultAllocator)
	defer ids.Release()
	defer sequences.Release()
	for row := range batch.NumRows() {
		ids.Append(row)
		if row%2 == 0 {
			sequences.Append(1)
		} else {
			sequences.AppendNull()
		}
	}
	a, b := ids.NewArray(), sequences.NewArray()
	defer a.Release()
	defer b.Release()
	fields := append(slices.Clone(batch.Schema().Fields()), iceberg.LineageFields()...)
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), append(slices.Clone(batch.Columns()), a, b), batch.NumRows())
}

// deleteRows deletes about one row in every few of a file and returns the file's whole vector.
func (w *writer) deleteRows(f *modelFile, every int) *deletion.Vector {
	for i := range f.rows {
		if w.values.IntN(every) == 0 {
			f.deleted[i] = true
		}
	}
	v := deletion.NewVector(uint32(len(f.rows)))
	for i := range f.deleted {
		v.Set(uint32(i))
	}
	return v.Freeze()
}

func (w *writer) commit(tables map[*modelTable]iceberg.TableCommit) {
	w.t.Helper()
	w.lsn += 8
	c := iceberg.Commit{LSN: w.lsn, Summary: map[string]string{"pgmirror.slot": "s", "pgmirror.checkpoint": "1", "pgmirror.version": "test"}}
	for table, change := range tables {
		change.Name, change.UUID = table.name, table.uuid
		c.Tables = append(c.Tables, change)
	}
	result, err := w.warehouse.Commit(context.Background(), c)
	w.must(err)
	for table := range tables {
		s := shown{name: table.name, snapshot: result.Tables[table.name].SnapshotID, lsn: w.lsn}
		for _, f := range table.schema.Fields() {
			s.columns = append(s.columns, f.Name)
		}
		s.columns = append(s.columns, "_pgmirror_lsn")
		for _, f := range table.files {
			s.maxLSNs = append(s.maxLSNs, f.lsns[len(f.lsns)-1])
			for i, row := range f.rows {
				if f.deleted[i] {
					continue
				}
				// Columns added since the file was written come before the hidden one and show what they had when they came.
				row = slices.Clone(row)
				for len(row) < len(s.columns) {
					row = slices.Insert(row, len(row)-1, table.missing[len(row)-1])
				}
				s.rows, s.rowLSNs = append(s.rows, row), append(s.rowLSNs, f.lsns[i])
			}
		}
		w.shown = append(w.shown, s)
	}
}

// write makes a warehouse with two tables, adding files, deleting rows once and again, taking files away, adding a column.
func write(t *testing.T, dir string) []shown {
	warehouse, err := iceberg.Open(context.Background(), iceberg.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := warehouse.Close(); err != nil {
			t.Error(err)
		}
	}()
	w := &writer{t: t, values: &values{Rand: rand.New(rand.NewPCG(1, 2))}, warehouse: warehouse, lsn: 1 << 40}
	_, err = warehouse.Load(context.Background())
	w.must(err)

	every := &modelTable{name: iceberg.TableName{Schema: "public", Name: "every_type"}, uuid: uuid.NewString()}
	odd := &modelTable{name: iceberg.TableName{Schema: "Über Shop", Name: `Order "Lines"`}, uuid: uuid.NewString()}
	every.schema, every.lastID = iceberg.AssignFieldIDs(everyType(), 0)
	odd.schema, odd.lastID = iceberg.AssignFieldIDs(arrow.NewSchema([]arrow.Field{
		{Name: "file_row_number", Type: arrow.PrimitiveTypes.Int64},
		{Name: "Naïve name", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil), 0)

	// both tables created in one commit, one of them empty
	w.commit(map[*modelTable]iceberg.TableCommit{
		every: {Create: true, Schema: every.schema, Add: []iceberg.DataFile{w.addFile(every, 50)}},
		odd:   {Create: true, Schema: odd.schema},
	})
	// two files at once, and deletions in a file of the same commit
	w.commit(map[*modelTable]iceberg.TableCommit{every: {Add: []iceberg.DataFile{w.addFile(every, 20), w.addFile(every, 30)}}})
	added := w.addFile(odd, 3000)
	w.commit(map[*modelTable]iceberg.TableCommit{
		every: {Vectors: map[string]*deletion.Vector{every.files[0].path: w.deleteRows(every.files[0], 4)}},
		odd: {Add: []iceberg.DataFile{added},
			Vectors: map[string]*deletion.Vector{added.Path: w.deleteRows(odd.files[0], 3)}},
	})
	// a vector superseded, beside a new one
	w.commit(map[*modelTable]iceberg.TableCommit{every: {
		Add: []iceberg.DataFile{w.addFile(every, 10)},
		Vectors: map[string]*deletion.Vector{
			every.files[0].path: w.deleteRows(every.files[0], 3),
			every.files[2].path: w.deleteRows(every.files[2], 2),
		}}})
	// files as compaction makes them
	moved := w.addMoved(odd, 40)
	w.commit(map[*modelTable]iceberg.TableCommit{
		every: {Add: []iceberg.DataFile{w.addMoved(every, 25)}},
		odd:   {Add: []iceberg.DataFile{moved}, Vectors: map[string]*deletion.Vector{moved.Path: w.deleteRows(odd.files[1], 3)}},
	})
	// a column added; older files do not have it
	w.add(odd, true, arrow.Field{Name: "added", Type: arrow.FixedWidthTypes.Date32, Nullable: true})
	w.commit(map[*modelTable]iceberg.TableCommit{odd: {Schema: odd.schema, Add: []iceberg.DataFile{w.addFile(odd, 100)}}})
	// columns of every type added that has initial defaults, with a snapshot that has no new file, and then one with files that have them
	for _, f := range everyType().Fields()[1:] {
		switch f.Type.ID() {
		case arrow.LIST, arrow.BINARY, arrow.DATE32, arrow.TIME64, arrow.TIMESTAMP:
		default:
			w.add(odd, false, f)
		}
	}
	w.commit(map[*modelTable]iceberg.TableCommit{odd: {Schema: odd.schema}})
	w.commit(map[*modelTable]iceberg.TableCommit{odd: {Add: []iceberg.DataFile{w.addFile(odd, 10)}}})
	// files taken away, one with a vector and one without; every row of another deleted
	remove := []string{every.files[0].path, every.files[1].path}
	every.files = every.files[2:]
	w.commit(map[*modelTable]iceberg.TableCommit{every: {
		Remove:  remove,
		Vectors: map[string]*deletion.Vector{every.files[1].path: w.deleteRows(every.files[1], 1)},
	}})
	// nothing left
	remove = nil
	for _, f := range every.files {
		remove = append(remove, f.path)
	}
	every.files = nil
	w.commit(map[*modelTable]iceberg.TableCommit{every: {Remove: remove}})
	return w.shown
}

// Every reader shows each snapshot that iceberg.Warehouse committed, for all types at their extremes, and with a filter on
// the hidden column exactly the rows above, opening only files that can hold some.
func TestReadersAgreeOnOurWarehouse(t *testing.T) {
	dir := t.TempDir()
	snapshots := write(t, dir)
	checkShown(t, dir, snapshots)
}

// After expiry, with all files of what expired deleted, every reader shows what is left as before, where the parents of snapshots are gone too.
func TestReadersAgreeAfterExpiry(t *testing.T) {
	dir := t.TempDir()
	snapshots := write(t, dir)
	warehouse, err := iceberg.Open(t.Context(), iceberg.Config{Dir: dir, KeepSnapshots: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer warehouse.Close()
	if _, err := warehouse.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	expiry, err := warehouse.Expire(t.Context(), 10, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := warehouse.DeleteUnreachable(t.Context(), expiry.Unreachable); err != nil {
		t.Fatal(err)
	}
	expired := map[int64]bool{}
	for _, table := range expiry.Tables {
		for _, s := range table.Expired {
			expired[s.ID] = true
		}
	}
	left := slices.DeleteFunc(slices.Clone(snapshots), func(s shown) bool { return expired[s.snapshot] })
	if len(expiry.Tables) != 2 || len(expiry.Unreachable) < 5 || len(left) < 4 {
		t.Errorf("of %d tables snapshots expired, %d files were deleted, %d snapshots are left", len(expiry.Tables), len(expiry.Unreachable), len(left))
	}
	checkShown(t, dir, left)
}

func checkShown(t *testing.T, dir string, snapshots []shown) {
	t.Helper()
	listed, err := Tables(dir)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[iceberg.TableName]Table{}
	for _, table := range listed {
		tables[iceberg.TableName{Schema: table.Namespace, Name: table.Name}] = table
	}
	for _, s := range snapshots {
		table := tables[s.name]
		found, err := table.Snapshots()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(found, func(f Snapshot) bool { return f.ID == s.snapshot && f.LSN == s.lsn }) {
			t.Errorf("%v: no snapshot %d at %s in %+v", s.name, s.snapshot, s.lsn, found)
		}
		readers.Check(t, table, s.snapshot, s.columns, s.rows)
		for _, above := range s.maxLSNs {
			files := 0
			for _, last := range s.maxLSNs {
				if last > above {
					files++
				}
			}
			var rows []Row
			for i, row := range s.rows {
				if s.rowLSNs[i] > above {
					rows = append(rows, row)
				}
			}
			readers.CheckAbove(t, table, s.snapshot, above, s.columns, rows, files)
		}
		if s.snapshot == found[len(found)-1].ID {
			checkDirectory(t, table, s)
		}
	}
}

// checkDirectory reads a table by its directory, where version-hint.text says which metadata file is current.
func checkDirectory(t *testing.T, table Table, s shown) {
	t.Helper()
	table.Metadata = filepath.Dir(filepath.Dir(table.Metadata))
	got, err := readers.Named("duckdb").Read(Query{Table: table, Snapshot: s.snapshot})
	if err != nil {
		t.Error(err)
	} else if d := Diff(s.rows, got.Rows); d != "" {
		t.Errorf("directory of %v: %s", s.name, d)
	}
}
