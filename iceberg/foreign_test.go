package iceberg

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	icelib "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
)

// foreigner is another Iceberg engine on the catalog of a data directory.
type foreigner struct {
	t   *testing.T
	dir string
}

func (f foreigner) exec(statement string, args ...any) {
	f.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(f.dir, "catalog.db"))
	if err == nil {
		_, err = db.Exec(statement, args...)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// pointer is what the catalog says of a table.
func (f foreigner) pointer(name TableName) (location string) {
	f.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(f.dir, "catalog.db"))
	if err == nil {
		err = db.QueryRow(`SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?`, name.Schema, name.Name).Scan(&location)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return location
}

// edit changes a table's metadata, as an engine does that touches no rows.
func (f foreigner) edit(name TableName, change func(b *icetable.MetadataBuilder) error) {
	f.t.Helper()
	location := f.pointer(name)
	meta, err := readMetadata(OS, strings.TrimPrefix(location, uriScheme))
	var b *icetable.MetadataBuilder
	if err == nil {
		b, err = icetable.MetadataBuilderFromBase(meta, location)
	}
	if err == nil {
		err = change(b)
	}
	if err == nil {
		meta, err = b.Build()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	text, err := json.Marshal(meta)
	if err != nil {
		f.t.Fatal(err)
	}
	f.write(name, location, text)
}

// write makes a metadata file the table's current one.
func (f foreigner) write(name TableName, location string, text []byte) {
	f.t.Helper()
	path := strings.TrimPrefix(location, uriScheme)
	path = nextMetadataPath(filepath.Dir(path), path)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.exec(`UPDATE iceberg_tables SET metadata_location = ? WHERE table_namespace = ? AND table_name = ?`, toURI(path), name.Schema, name.Name)
}

// commit commits a change as an engine does that does not know the mirror: the snapshot has its operation and nothing of ours.
func (f foreigner) commit(operation icetable.Operation, change func(w *Warehouse) TableCommit) {
	f.t.Helper()
	w, state := openLoaded(f.t, Config{Dir: f.dir, KeepSnapshots: -1})
	c := change(w)
	before := f.pointer(c.Name)
	if before != toURI(w.names[c.Name].path) {
		f.t.Fatal("the foreigner works on what the mirror committed last")
	}
	if _, err := w.Commit(f.t.Context(), Commit{LSN: state.LSN, Tables: []TableCommit{c}}); err != nil {
		f.t.Fatal(err)
	}
	path := metadataPath(w, c.Name)
	text, err := os.ReadFile(path)
	if err != nil {
		f.t.Fatal(err)
	}
	var meta map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&meta); err != nil {
		f.t.Fatal(err)
	}
	snapshots := meta["snapshots"].([]any)
	summary := snapshots[len(snapshots)-1].(map[string]any)["summary"].(map[string]any)
	for key := range summary {
		if strings.HasPrefix(key, "pgmirror.") {
			delete(summary, key)
		}
	}
	summary["operation"], summary["engine-name"], summary["engine-version"] = string(operation), "spark", "4.0"
	if text, err = json.Marshal(meta); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		f.t.Fatal(err)
	}
	f.exec(`UPDATE pgmirror_tables SET metadata_location = ? WHERE uuid = ?`, before, c.UUID)
	f.exec(`DELETE FROM pgmirror_replaced WHERE uuid = ?`, c.UUID)
	f.write(c.Name, before, text)
}

// movedIn expects that a commit meets another writer in one table, commits nothing, and says so.
func movedIn(t *testing.T, w *Warehouse, loc TableLocation, lsn LSN, tables ...TableCommit) *Foreign {
	t.Helper()
	_, err := w.Commit(t.Context(), Commit{Mirror: []byte("not this"), LSN: lsn, Tables: tables})
	var moved *MovedError
	want := MovedTable{loc.Name, loc.UUID}
	if !errors.As(err, &moved) || !slices.Equal(moved.Tables, []MovedTable{want}) || !errors.Is(err, ErrForeignSnapshot) {
		t.Fatalf("error %v, want a MovedError of %s", err, loc.Name)
	}
	if found, err := w.Moved(t.Context()); err != nil || !slices.Equal(found, moved.Tables) {
		t.Fatalf("moved are %v, error %v", found, err)
	}
	if doc, err := w.Document(t.Context()); err != nil || strings.Contains(string(doc), "not this") {
		t.Fatalf("the document is %s, error %v", doc, err)
	}
	f, err := w.Examine(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// An expiry, a tag and a property by another writer touch no row: the next commit goes on from them and keeps them, also when the mirror was
// started again before it, and what the expiry left is deleted.
func TestForeignMetadataIsAdopted(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("again %v", again), func(t *testing.T) {
			dir := t.TempDir()
			w, _ := openLoaded(t, Config{Dir: dir})
			a, b := newLocation(t, "a"), newLocation(t, "b")
			first := writeRows(t, w, a, 10, 1, 2)
			commit(t, w, 10, TableCommit{Name: a.Name, UUID: a.UUID, Create: true, Schema: a.Schema, Add: []DataFile{first}},
				TableCommit{Name: b.Name, UUID: b.UUID, Create: true, Schema: b.Schema})
			commit(t, w, 11, TableCommit{Name: a.Name, UUID: a.UUID, Add: []DataFile{writeRows(t, w, a, 11, 3)}})
			commit(t, w, 12, TableCommit{Name: a.Name, UUID: a.UUID, Vectors: vectors(first.Path, vectorOf(2, 0))})
			old := w.names[a.Name].meta.Snapshots()
			foreigner{t, dir}.edit(a.Name, func(b *icetable.MetadataBuilder) error {
				return errors.Join(b.SetSnapshotRef("audit", old[1].SnapshotID, icetable.TagRef), b.RemoveSnapshots([]int64{old[0].SnapshotID}, false),
					b.SetProperties(icelib.Properties{"owner": "somebody"}))
			})
			if again {
				w.Close()
				var state *State
				if w, state = openLoaded(t, Config{Dir: dir}); len(state.Tables) != 2 || len(state.Faults) != 0 {
					t.Fatalf("loaded %+v", state)
				}
				if removed, err := w.RemoveOrphans(t.Context()); err != nil || len(removed) > 0 {
					t.Fatalf("removed %v, error %v", removed, err)
				}
			}
			added := writeRows(t, w, a, 13, 4)
			changes := []TableCommit{{Name: b.Name, UUID: b.UUID}, {Name: a.Name, UUID: a.UUID, Add: []DataFile{added}}}
			f := movedIn(t, w, a, 13, changes...)
			if f.Reason != "" || len(f.Removed)+len(f.Added) > 0 || len(f.Held.Files) != 2 {
				t.Fatalf("examined: %+v", f)
			}
			commit(t, w, 13, changes[0]) // the other table does not wait
			w.Adopt(f)
			if moved, err := w.Moved(t.Context()); err != nil || len(moved) > 0 {
				t.Fatalf("moved are %v, error %v", moved, err)
			}
			result := commit(t, w, 14, changes[1])
			list, _ := toPath(old[0].ManifestList)
			if !slices.Contains(result.Unreachable, list) {
				t.Errorf("unreachable are %v, want %s among them", result.Unreachable, list)
			}
			if err := w.DeleteUnreachable(t.Context(), result.Unreachable); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(list); err == nil {
				t.Errorf("%s is still there", list)
			}
			tbl := openIceberg(t, metadataPath(w, a.Name))
			if rows, want := sortedScan(t, tbl), []string{"2|row 2|10|", "3|row 3|11|", "4|row 4|13|"}; !slices.Equal(rows, want) {
				t.Errorf("rows %v, want %v", rows, want)
			}
			if tag := tbl.Metadata().SnapshotByName("audit"); tag == nil || tag.SnapshotID != old[1].SnapshotID || tbl.Properties()["owner"] != "somebody" {
				t.Errorf("tag %v, properties %v", tag, tbl.Properties())
			}
			w.Close()
			if again, state := openLoaded(t, Config{Dir: dir}); len(state.Tables) != 2 {
				t.Errorf("loaded %+v", state)
			} else if removed, err := again.RemoveOrphans(t.Context()); err != nil || len(removed) > 0 {
				t.Errorf("removed %v, error %v", removed, err)
			}
		})
	}
}

// What expired after a rewrite does not hide that it was one, and what a snapshot that is no rewrite made is refused although ours before it has expired.
func TestForeignRewriteAndExpiry(t *testing.T) {
	for _, operation := range []icetable.Operation{icetable.OpReplace, icetable.OpOverwrite} {
		dir := t.TempDir()
		w, _ := openLoaded(t, Config{Dir: dir})
		a := newLocation(t, "a")
		first := writeRows(t, w, a, 10, 1, 2)
		commit(t, w, 10, TableCommit{Name: a.Name, UUID: a.UUID, Create: true, Schema: a.Schema, Add: []DataFile{first}})
		f := foreigner{t, dir}
		f.commit(operation, func(w *Warehouse) TableCommit {
			return TableCommit{Name: a.Name, UUID: a.UUID, Remove: []string{first.Path}, Add: []DataFile{writeRows(t, w, a, 10, 2, 1)}}
		})
		ours := w.names[a.Name].meta.CurrentSnapshot().SnapshotID
		f.edit(a.Name, func(b *icetable.MetadataBuilder) error { return b.RemoveSnapshots([]int64{ours}, false) })
		x := movedIn(t, w, a, 11, TableCommit{Name: a.Name, UUID: a.UUID})
		if operation == icetable.OpOverwrite {
			if !strings.Contains(x.Reason, "(overwrite by spark 4.0: added-records 2, deleted-records 2) was committed") {
				t.Errorf("reason %q", x.Reason)
			}
			continue
		}
		if x.Reason != "" || len(x.Removed) != 1 || len(x.Added) != 1 {
			t.Fatalf("examined: %+v", x)
		}
		w.Adopt(x)
		if r := commit(t, w, 11, TableCommit{Name: a.Name, UUID: a.UUID}); !slices.Contains(r.Unreachable, first.Path) {
			t.Errorf("unreachable are %v", r.Unreachable)
		}
		w.Close()
		if _, state := openLoaded(t, Config{Dir: dir}); len(state.Tables) != 1 || state.Tables[0].LSN != 11 {
			t.Errorf("loaded %+v", state)
		}
	}
}

// A rewrite by another writer is told file by file. Once adopted, the next commit is its successor; the files that it removed stay as long as a retained
// snapshot names them, over a restart too, and go when none does.
func TestForeignRewriteIsAdopted(t *testing.T) {
	dir := t.TempDir()
	w, _ := openLoaded(t, Config{Dir: dir, KeepSnapshots: 2})
	a := newLocation(t, "a")
	first, second := writeRows(t, w, a, 10, 1, 2), writeRows(t, w, a, 10, 3)
	commit(t, w, 10, TableCommit{Name: a.Name, UUID: a.UUID, Create: true, Schema: a.Schema, Add: []DataFile{first, second}, Vectors: vectors(first.Path, vectorOf(2, 0))})
	var rewritten DataFile
	foreigner{t, dir}.commit(icetable.OpReplace, func(w *Warehouse) TableCommit {
		rewritten = writeRows(t, w, a, 10, 3, 2)
		return TableCommit{Name: a.Name, UUID: a.UUID, Remove: []string{first.Path, second.Path}, Add: []DataFile{rewritten}}
	})
	f := movedIn(t, w, a, 11, TableCommit{Name: a.Name, UUID: a.UUID})
	paths := func(files []DataFile) (list []string) {
		for _, d := range files {
			list = append(list, d.Path)
		}
		return list
	}
	if f.Reason != "" || !slices.Equal(paths(f.Removed), []string{first.Path, second.Path}) || !slices.Equal(paths(f.Added), []string{rewritten.Path}) ||
		f.Removed[0].Deleted.Cardinality() != 1 || f.Added[0].MinLSN != 10 {
		t.Fatalf("examined: %+v", f)
	}
	if x := expireAll(t, w); len(x.Tables) > 0 {
		t.Errorf("expired %+v", x)
	}
	w.Adopt(f)
	theirs := w.names[a.Name].meta.CurrentSnapshot().SnapshotID
	if r := commit(t, w, 11, TableCommit{Name: a.Name, UUID: a.UUID}); slices.ContainsFunc(r.Unreachable, func(path string) bool { return strings.Contains(path, "/data/") }) {
		t.Errorf("unreachable are %v", r.Unreachable)
	}
	current := w.names[a.Name].meta.CurrentSnapshot()
	if *current.ParentSnapshotID != theirs {
		t.Errorf("the parent is %d, theirs was %d", *current.ParentSnapshotID, theirs)
	}
	want := []string{"2|row 2|10|", "3|row 3|10|"}
	for _, id := range []int64{current.SnapshotID, f.Held.SnapshotID} { // the other's shows nothing else and need not stay
		if rows := sortedScan(t, openIceberg(t, metadataPath(w, a.Name)), icetable.WithSnapshotID(id)); !slices.Equal(rows, want) {
			t.Errorf("snapshot %d holds %v, want %v", id, rows, want)
		}
	}
	w.Close()
	w, state := openLoaded(t, Config{Dir: dir, KeepSnapshots: 2})
	if len(state.Tables) != 1 || len(state.Tables[0].Files) != 1 || slices.ContainsFunc(state.Unreachable, func(f UnreachableFile) bool { return strings.Contains(f.Path, "/data/") }) {
		t.Fatalf("loaded %+v", state)
	}
	if removed, err := w.RemoveOrphans(t.Context()); err != nil || len(removed) > 0 {
		t.Fatalf("removed %v, error %v", removed, err)
	}
	var gone []string
	for lsn := LSN(12); lsn < 16; lsn++ {
		gone = append(gone, commit(t, w, lsn, TableCommit{Name: a.Name, UUID: a.UUID}).Unreachable...)
	}
	for _, path := range []string{first.Path, second.Path} {
		if !slices.Contains(gone, path) {
			t.Errorf("%s is not among %v", path, gone)
		}
	}
	if err := w.DeleteUnreachable(t.Context(), gone); err != nil {
		t.Error(err)
	}
	if rows := sortedScan(t, openIceberg(t, metadataPath(w, a.Name))); !slices.Equal(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
}

// What is more than a rewrite is refused, with what was done and by whom. Nothing is committed to the table, expired in it, or deleted of it, in this life
// and the next; the other tables can be committed; what we committed last is still what Load gives; and a drop leaves what is not in the table's directory,
// or is another table's by now.
func TestForeignChangeIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f foreigner, a TableLocation, file DataFile)
		reason string
		stays  bool // the catalog's entry of the name, when our table is dropped
		files  bool // our files too
	}{
		"append": {func(f foreigner, a TableLocation, file DataFile) {
			f.commit(icetable.OpAppend, func(w *Warehouse) TableCommit {
				return TableCommit{Name: a.Name, UUID: a.UUID, Add: []DataFile{writeRows(f.t, w, a, 10, 9)}}
			})
		}, "(append by spark 4.0: added-records 1) was committed", false, false},
		"delete": {func(f foreigner, a TableLocation, file DataFile) {
			f.commit(icetable.OpDelete, func(w *Warehouse) TableCommit {
				return TableCommit{Name: a.Name, UUID: a.UUID, Vectors: vectors(file.Path, vectorOf(2, 0))}
			})
		}, "(delete by spark 4.0: added-position-deletes 1) was committed", false, false},
		"a vector in a replace": {func(f foreigner, a TableLocation, file DataFile) {
			f.commit(icetable.OpReplace, func(w *Warehouse) TableCommit {
				return TableCommit{Name: a.Name, UUID: a.UUID, Vectors: vectors(file.Path, vectorOf(2, 0))}
			})
		}, "has another deletion vector of", false, false},
		"a column": {func(f foreigner, a TableLocation, file DataFile) {
			f.edit(a.Name, func(b *icetable.MetadataBuilder) error {
				fields := append([]icelib.NestedField{{ID: 4, Name: "more", Type: icelib.PrimitiveTypes.Int32}}, b.CurrentSchema().Fields()...)
				return setSchema(b, icelib.NewSchema(1, fields...))
			})
		}, "its columns were changed", false, false},
		"a partition spec": {func(f foreigner, a TableLocation, file DataFile) {
			f.edit(a.Name, func(b *icetable.MetadataBuilder) error {
				spec := icelib.NewPartitionSpecID(1, icelib.PartitionField{SourceIDs: []int{2}, FieldID: 1000, Name: "id", Transform: icelib.IdentityTransform{}})
				return b.AddPartitionSpec(&spec, false)
			})
		}, "a partition spec that is not ours", false, false},
		"a rollback": {func(f foreigner, a TableLocation, file DataFile) {
			meta, err := readMetadata(OS, strings.TrimPrefix(f.pointer(a.Name), uriScheme))
			if err != nil {
				f.t.Fatal(err)
			}
			f.edit(a.Name, func(b *icetable.MetadataBuilder) error {
				return b.SetSnapshotRef(icetable.MainBranch, meta.Snapshots()[0].SnapshotID, icetable.BranchRef)
			})
		}, "is not a successor of", false, false},
		"unreadable metadata": {func(f foreigner, a TableLocation, file DataFile) {
			f.write(a.Name, f.pointer(a.Name), []byte(`{"format-version": 4}`))
		}, "warehouse file is damaged", false, false},
		"a drop": {func(f foreigner, a TableLocation, file DataFile) {
			f.exec(`DELETE FROM iceberg_tables WHERE table_name = 'a'`)
		}, "it was dropped from the catalog", false, false},
		"a new name": {func(f foreigner, a TableLocation, file DataFile) {
			f.exec(`UPDATE iceberg_tables SET table_name = 'other' WHERE table_name = 'a'`)
		}, "it was renamed to public.other in the catalog", false, true},
		"another table": {func(f foreigner, a TableLocation, file DataFile) {
			f.exec(`UPDATE iceberg_tables SET metadata_location = 'file:///elsewhere/00001-x.metadata.json' WHERE table_name = 'a'`)
		}, "the catalog has another table in its place, with the metadata file:///elsewhere/00001-x.metadata.json", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w, _ := openLoaded(t, Config{Dir: dir, KeepSnapshots: 2})
			a, b := newLocation(t, "a"), newLocation(t, "b")
			file := writeRows(t, w, a, 9, 1, 2)
			commit(t, w, 9, TableCommit{Name: a.Name, UUID: a.UUID, Create: true, Schema: a.Schema, Add: []DataFile{file}}, TableCommit{Name: b.Name, UUID: b.UUID, Create: true, Schema: b.Schema})
			commit(t, w, 10, TableCommit{Name: a.Name, UUID: a.UUID})
			test.change(foreigner{t, dir}, a, file)
			before := filesBelow(t, dir)
			f := movedIn(t, w, a, 11, TableCommit{Name: a.Name, UUID: a.UUID}, TableCommit{Name: b.Name, UUID: b.UUID})
			if !strings.Contains(f.Reason, test.reason) {
				t.Errorf("reason %q, want %q", f.Reason, test.reason)
			}
			w.Refuse(a.UUID)
			for lsn := LSN(11); lsn < 15; lsn++ {
				commit(t, w, lsn, TableCommit{Name: b.Name, UUID: b.UUID})
				for _, x := range expireAll(t, w).Tables {
					if x.State.Name == a.Name {
						t.Errorf("snapshots of a expired: %+v", x)
					}
				}
			}
			if moved, err := w.Moved(t.Context()); err != nil || len(moved) > 0 {
				t.Errorf("moved are %v, error %v", moved, err)
			}
			w.Close()
			w, state := openLoaded(t, Config{Dir: dir})
			if len(state.Tables) != 2 || len(state.Faults) > 0 || state.Tables[0].LSN != 10 || state.Tables[0].Files[0].Path != file.Path || state.Tables[0].Files[0].Deleted != nil {
				t.Fatalf("loaded %+v", state)
			}
			if moved, err := w.Moved(t.Context()); err != nil || len(moved) != 1 {
				t.Errorf("moved are %v, error %v", moved, err)
			}
			w.Refuse(a.UUID)
			if removed, err := w.RemoveOrphans(t.Context()); err != nil || len(removed) > 0 {
				t.Errorf("removed %v, error %v", removed, err)
			}
			for _, path := range before {
				if _, err := os.Stat(path); err != nil && strings.Contains(path, "/a-") {
					t.Error(err)
				}
			}
			anew := newLocation(t, "a")
			if test.stays { // the name is another's
				result := commit(t, w, 15, TableCommit{Name: a.Name, UUID: a.UUID, Drop: true})
				if err := w.DeleteUnreachable(t.Context(), result.Unreachable); err != nil {
					t.Error(err)
				}
				f := movedOnCreate(t, w, anew, 16)
				if !strings.Contains(f.Reason, "the catalog has another table public.a") || f.Held.Files != nil {
					t.Errorf("examined: %+v", f)
				}
				if p := (foreigner{t, dir}).pointer(a.Name); !strings.Contains(p, "elsewhere") {
					t.Errorf("the other table's metadata is %s", p)
				}
				return
			}
			result := commit(t, w, 15, TableCommit{Name: a.Name, UUID: a.UUID, Drop: true}, TableCommit{Name: anew.Name, UUID: anew.UUID, Create: true, Schema: anew.Schema})
			if err := w.DeleteUnreachable(t.Context(), result.Unreachable); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(file.Path); (err == nil) != test.files {
				t.Errorf("our data file after the drop: %v", err)
			}
			if p := (foreigner{t, dir}).pointer(a.Name); p != toURI(metadataPath(w, a.Name)) {
				t.Errorf("the catalog names %s", p)
			}
			w.Close()
			again, _ := openLoaded(t, Config{Dir: dir})
			if _, err := again.RemoveOrphans(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(file.Path); (err == nil) != test.files {
				t.Errorf("our data file after the next start: %v", err)
			}
		})
	}
}

func movedOnCreate(t *testing.T, w *Warehouse, loc TableLocation, lsn LSN) *Foreign {
	t.Helper()
	_, err := w.Commit(t.Context(), Commit{LSN: lsn, Tables: []TableCommit{{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema}}})
	var moved *MovedError
	if !errors.As(err, &moved) || len(moved.Tables) != 1 {
		t.Fatalf("error %v, want a MovedError of %s", err, loc.Name)
	}
	f, err := w.Examine(t.Context(), moved.Tables[0])
	if err != nil {
		t.Fatal(err)
	}
	return f
}
