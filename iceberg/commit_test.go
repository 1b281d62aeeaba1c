package iceberg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	icelib "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"

	"pgmirror/deletion"
)

// What would make an illegal or wrong snapshot is refused, and the table stays as it was.
func TestIllegalCommits(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir()})
	a, b := newLocation(t, "a"), newLocation(t, "b")
	fileA, fileB := writeRows(t, w, a, 10, 1, 2, 3), writeRows(t, w, b, 10, 1)
	commit(t, w, 10, TableCommit{Name: a.Name, UUID: a.UUID, Create: true, Schema: a.Schema, Add: []DataFile{fileA}, Vectors: vectors(fileA.Path, vectorOf(3, 1))},
		TableCommit{Name: b.Name, UUID: b.UUID, Create: true, Schema: b.Schema})
	before := metadataPath(w, a.Name)
	openVector := deletion.NewVector(3)
	openVector.SetRange(0, 2)
	renamed := func(typ arrow.DataType, nullable bool, id int) *arrow.Schema {
		return arrow.NewSchema([]arrow.Field{a.Schema.Field(0), fieldWithID("name", typ, nullable, id)}, nil)
	}
	for name, change := range map[string]TableCommit{
		"file of another table":      {Add: []DataFile{fileB}},
		"file twice":                 {Add: []DataFile{fileA}},
		"removed and added":          {Add: []DataFile{fileA}, Remove: []string{fileA.Path}},
		"file not written by us":     {Add: []DataFile{{Path: fileA.Path + "x", Rows: 1}}},
		"removing an unknown file":   {Remove: []string{fileB.Path}},
		"vector of an unknown file":  {Vectors: vectors(fileB.Path, vectorOf(1, 0))},
		"vector of a removed file":   {Remove: []string{fileA.Path}, Vectors: vectors(fileA.Path, vectorOf(3, 0, 1))},
		"vector for other rows":      {Vectors: vectors(fileA.Path, vectorOf(4, 1, 3))},
		"vector that loses a row":    {Vectors: vectors(fileA.Path, vectorOf(3, 0, 2))},
		"vector that may change":     {Vectors: vectors(fileA.Path, openVector)},
		"empty vector":               {Vectors: vectors(fileA.Path, vectorOf(3))},
		"column with a new type":     {Schema: renamed(arrow.PrimitiveTypes.Float64, true, 3)},
		"column becomes required":    {Schema: renamed(arrow.BinaryTypes.String, false, 3)},
		"new required column":        {Schema: renamed(arrow.BinaryTypes.String, false, 4)},
		"field id of an old column":  {Schema: renamed(arrow.BinaryTypes.String, true, LSNFieldID)},
		"field id twice":             {Schema: renamed(arrow.BinaryTypes.String, true, 2)},
		"create an existing table":   {Create: true, Schema: a.Schema},
		"another uuid":               {UUID: b.UUID},
		"create with the same name":  {UUID: "00000000-0000-4000-8000-000000000000", Create: true, Schema: a.Schema},
		"column named as the hidden": {Schema: arrow.NewSchema([]arrow.Field{fieldWithID(LSNColumn, arrow.PrimitiveTypes.Int64, true, 9)}, nil)},
	} {
		change.Name = a.Name
		if change.UUID == "" {
			change.UUID = a.UUID
		}
		// A legal change beside it must not happen either.
		_, err := w.Commit(t.Context(), Commit{LSN: 11, Mirror: []byte("new"), Tables: []TableCommit{change, {Name: TableName{Schema: "public", Name: "c"},
			UUID: "11111111-0000-4000-8000-000000000000", Create: true, Schema: b.Schema}}})
		if !errors.Is(err, ErrIllegalCommit) {
			t.Errorf("%s: error %v, want ErrIllegalCommit", name, err)
		}
		if metadataPath(w, a.Name) != before || len(w.tables) != 2 {
			t.Errorf("%s: the warehouse changed", name)
		}
	}
	if _, err := w.Commit(t.Context(), Commit{LSN: 9, Tables: []TableCommit{{Name: a.Name, UUID: a.UUID}}}); !errors.Is(err, ErrIllegalCommit) {
		t.Errorf("lsn that goes back: error %v", err)
	}
	if _, err := w.RemoveOrphans(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range filesBelow(t, w.config.Dir) {
		if strings.Contains(path, "/c-") {
			t.Errorf("failed commits left %s", path)
		}
	}
}

// A table that another writer changed or dropped is not overwritten, and nothing else of that commit happens.
func TestForeignSnapshot(t *testing.T) {
	for name, statement := range map[string]string{
		"changed": `UPDATE iceberg_tables SET metadata_location = 'file:///elsewhere/00001-x.metadata.json' WHERE table_name = 'a'`,
		"dropped": `DELETE FROM iceberg_tables WHERE table_name = 'a'`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w, _ := openLoaded(t, Config{Dir: dir})
			a, b := newLocation(t, "a"), newLocation(t, "b")
			commit(t, w, 10, TableCommit{Name: a.Name, UUID: a.UUID, Create: true, Schema: a.Schema, Add: []DataFile{writeRows(t, w, a, 10, 1)}}, TableCommit{Name: b.Name, UUID: b.UUID, Create: true, Schema: b.Schema})
			db, err := sql.Open("sqlite", filepath.Join(dir, "catalog.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
			_, err = w.Commit(t.Context(), Commit{LSN: 11, Mirror: []byte("new"), Tables: []TableCommit{
				{Name: b.Name, UUID: b.UUID}, {Name: a.Name, UUID: a.UUID}}})
			if !errors.Is(err, ErrForeignSnapshot) || !strings.Contains(err.Error(), "public.a") {
				t.Fatalf("error %v, want ErrForeignSnapshot naming public.a", err)
			}
			w.Close()
			again, err := Open(t.Context(), Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if state, err := again.Load(t.Context()); err != nil || len(state.Tables) != 2 || len(state.Faults) > 0 {
				t.Errorf("load: %+v, error %v; want both tables as they were committed last", state, err)
			}
			if moved, err := again.Moved(t.Context()); err != nil || !slices.Equal(moved, []MovedTable{{a.Name, a.UUID}}) {
				t.Errorf("moved are %v, error %v", moved, err)
			}
			var mirror string
			if err := db.QueryRow(`SELECT mirror FROM pgmirror_state`).Scan(&mirror); err != nil || mirror == "new" {
				t.Errorf("mirror document %q, %v", mirror, err)
			}
			if removed, err := again.RemoveOrphans(t.Context()); err != nil || len(removed) > 0 {
				t.Errorf("RemoveOrphans removed %v of a table that was changed by another writer, error %v", removed, err)
			}
		})
	}
}

// Small manifests are merged; row ids and rows stay, and the number of manifests is bounded.
func TestManifestsMerge(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir(), KeepSnapshots: 2, Files: newForgetful()})
	loc := newLocation(t, "many")
	change := TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema}
	firstIDs := map[string]int64{}
	var want []string
	for i := range int64(80) {
		file := writeRows(t, w, loc, LSN(i+1), 2*i, 2*i+1)
		change.Add = []DataFile{file}
		want = append(want, fmt.Sprintf("%d|row %d|%d|", 2*i, 2*i, i+1), fmt.Sprintf("%d|row %d|%d|", 2*i+1, 2*i+1, i+1))
		commit(t, w, LSN(i+1), change)
		change = TableCommit{Name: loc.Name, UUID: loc.UUID}
		tbl := w.names[loc.Name]
		if len(tbl.manifests) > maxManifests+1 {
			t.Fatalf("%d manifests after %d commits", len(tbl.manifests), i+1)
		}
		for path, f := range tbl.files {
			if id, known := firstIDs[path]; known && id != f.firstRowID {
				t.Fatalf("commit %d: first row id of %s went from %d to %d", i, path, id, f.firstRowID)
			}
			firstIDs[path] = f.firstRowID
		}
	}
	slices.Sort(want)
	tbl := openIceberg(t, metadataPath(w, loc.Name))
	if rows := sortedScan(t, tbl); !slices.Equal(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
	// The row ids that a reader sees are those given when the files were added.
	want = nil
	for path, f := range w.names[loc.Name].files {
		for i := range int64(2) {
			id := 2*(int64(f.file.MinLSN)-1) + i
			want = append(want, fmt.Sprintf("%d|row %d|%d|%d|%d|", id, id, f.file.MinLSN, firstIDs[path]+i, f.file.MinLSN))
		}
	}
	slices.Sort(want)
	rows := scan(t, tbl, icetable.WithRowLineage())
	slices.Sort(rows)
	if !slices.Equal(rows, want) {
		t.Errorf("row lineage %v, want %v", rows, want)
	}
}

// One snapshot has at most one vector a data file: the manifest entries say so, not only our own memory.
func TestOneVectorPerFile(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir()})
	loc := newLocation(t, "a")
	f, g := writeRows(t, w, loc, 10, 1, 2, 3), writeRows(t, w, loc, 10, 4, 5, 6)
	commit(t, w, 10, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: []DataFile{f, g},
		Vectors: map[string]*deletion.Vector{f.Path: vectorOf(3, 0), g.Path: vectorOf(3, 1)}})
	commit(t, w, 11, TableCommit{Name: loc.Name, UUID: loc.UUID, Vectors: vectors(f.Path, vectorOf(3, 0, 2))})
	tbl := openIceberg(t, metadataPath(w, loc.Name))
	fs, err := tbl.FS(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := tbl.CurrentSnapshot().Manifests(fs)
	if err != nil {
		t.Fatal(err)
	}
	live := map[string]int64{}
	for _, m := range manifests {
		entries, err := m.FetchEntries(fs, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			d := e.DataFile()
			if d.ContentType() != icelib.EntryContentPosDeletes {
				continue
			}
			if _, twice := live[*d.ReferencedDataFile()]; twice {
				t.Errorf("two vectors for %s", *d.ReferencedDataFile())
			}
			live[*d.ReferencedDataFile()] = d.Count()
			path := strings.TrimPrefix(d.FilePath(), "file://")
			blob, err := os.ReadFile(path)
			if err != nil || int64(len(blob)) != d.FileSizeBytes() || string(blob[:4]) != "PFA1" || string(blob[len(blob)-4:]) != "PFA1" {
				t.Errorf("puffin %s: %v, %d bytes, manifest says %d", path, err, len(blob), d.FileSizeBytes())
			}
			for _, part := range []string{`"fields":[2147483645]`, `"referenced-data-file":"` + *d.ReferencedDataFile() + `"`, `"cardinality":"`, `"type":"deletion-vector-v1"`} {
				if !strings.Contains(string(blob), part) {
					t.Errorf("puffin %s lacks %s", path, part)
				}
			}
		}
	}
	if live[toURI(f.Path)] != 2 || live[toURI(g.Path)] != 1 || len(live) != 2 {
		t.Errorf("live vectors %v", live)
	}
}

// A damaged or missing file is found at the start and named. It costs its own table alone: another one is loaded and committed to,
// and what is left of the damaged one stays for whoever looks at it.
func TestLoadNamesDamage(t *testing.T) {
	for _, kind := range []string{".parquet", ".puffin", "data-", "deletes-", "snap-", ".metadata.json"} {
		for _, damage := range []string{"missing", "cut"} {
			t.Run(kind+" "+damage, func(t *testing.T) {
				dir := t.TempDir()
				w, _ := openLoaded(t, Config{Dir: dir, Files: newForgetful()})
				loc := newLocation(t, "a")
				f := writeRows(t, w, loc, 10, 1, 2, 3)
				other := newLocation(t, "b")
				commit(t, w, 10, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: []DataFile{f}, Vectors: vectors(f.Path, vectorOf(3, 0))},
					TableCommit{Name: other.Name, UUID: other.UUID, Create: true, Schema: other.Schema})
				home := w.names[loc.Name].dir
				w.Close()
				var victim string
				for _, path := range filesBelow(t, home) {
					if strings.Contains(filepath.Base(path), kind) {
						victim = path
					}
				}
				if damage == "missing" {
					os.Remove(victim)
				} else if err := os.Truncate(victim, 40); err != nil {
					t.Fatal(err)
				}
				before := filesBelow(t, home)
				again, err := Open(t.Context(), Config{Dir: dir})
				if err != nil {
					t.Fatal(err)
				}
				defer again.Close()
				state, err := again.Load(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if len(state.Tables) != 1 || state.Tables[0].UUID != other.UUID || len(state.Faults) != 1 {
					t.Fatalf("tables %v, faults %v", state.Tables, state.Faults)
				}
				if fault := state.Faults[0]; !errors.Is(fault.Err, ErrCorrupt) || !strings.Contains(fault.Err.Error(), victim) || fault.UUID != loc.UUID || fault.Name != loc.Name {
					t.Errorf("fault %+v, want ErrCorrupt naming %s", fault, victim)
				}
				if removed, err := again.RemoveOrphans(t.Context()); err != nil || len(removed) > 0 {
					t.Errorf("removed %v, %v", removed, err)
				}
				g := writeRows(t, again, other, 11, 4)
				commit(t, again, 11, TableCommit{Name: other.Name, UUID: other.UUID, Add: []DataFile{g}})
				if after := filesBelow(t, home); !slices.Equal(before, after) {
					t.Errorf("of the damaged table there was %v, is %v", before, after)
				}
				replaceDamaged(t, again, loc, home)
			})
		}
	}
}

// replaceDamaged: a damaged table is dropped by the commit that creates another of its name, and its files are orphans for the next
// start.
func replaceDamaged(t *testing.T, w *Warehouse, damaged TableLocation, home string) {
	t.Helper()
	anew := newLocation(t, damaged.Name.Name)
	f := writeRows(t, w, anew, 12, 5, 6)
	commit(t, w, 12, TableCommit{Name: damaged.Name, UUID: damaged.UUID, Drop: true},
		TableCommit{Name: anew.Name, UUID: anew.UUID, Create: true, Schema: anew.Schema, Add: []DataFile{f}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	again, state := openLoaded(t, Config{Dir: w.config.Dir})
	defer again.Close()
	if len(state.Faults) != 0 || len(state.Tables) != 2 || state.Tables[0].UUID != anew.UUID || state.Tables[0].Rows() != 2 {
		t.Errorf("tables %+v, faults %v", state.Tables, state.Faults)
	}
	if _, err := again.RemoveOrphans(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the damaged table's directory is still there: %v", err)
	}
}

// The hint and the catalog name the same metadata file, whatever a crash left.
func TestVersionHint(t *testing.T) {
	dir := t.TempDir()
	w, _ := openLoaded(t, Config{Dir: dir})
	loc := newLocation(t, "a")
	commit(t, w, 10, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema})
	hint := filepath.Join(w.names[loc.Name].metadataDir(), "version-hint.text")
	check := func(w *Warehouse) {
		t.Helper()
		text, err := os.ReadFile(hint)
		if err != nil || string(text)+".metadata.json" != filepath.Base(metadataPath(w, loc.Name)) {
			t.Errorf("hint %q, %v; metadata %s", text, err, metadataPath(w, loc.Name))
		}
	}
	check(w)
	commit(t, w, 11, TableCommit{Name: loc.Name, UUID: loc.UUID})
	check(w)
	w.Close()
	if err := os.Remove(hint); err != nil {
		t.Fatal(err)
	}
	again, _ := openLoaded(t, Config{Dir: dir})
	check(again)
}

// Only what the catalog lists as replaced is deleted, and nothing that a retained snapshot names.
func TestDeleteUnreachableIsCareful(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir(), KeepSnapshots: 2})
	loc := newLocation(t, "a")
	f := writeRows(t, w, loc, 10, 1, 2, 3)
	commit(t, w, 10, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: []DataFile{f}})
	exists := func() bool {
		_, err := os.Stat(f.Path)
		return err == nil
	}
	if err := w.DeleteUnreachable(t.Context(), []string{f.Path, "/etc/hosts"}); err != nil || !exists() {
		t.Errorf("a live file: error %v, exists %v", err, exists())
	}
	removed := commit(t, w, 11, TableCommit{Name: loc.Name, UUID: loc.UUID, Remove: []string{f.Path}})
	if err := w.DeleteUnreachable(t.Context(), []string{f.Path}); err == nil || !exists() || slices.Contains(removed.Unreachable, f.Path) {
		t.Errorf("a file of a retained snapshot: error %v, exists %v", err, exists())
	}
	expired := commit(t, w, 12, TableCommit{Name: loc.Name, UUID: loc.UUID})
	if !slices.Contains(expired.Unreachable, f.Path) {
		t.Errorf("unreachable %v, want %s", expired.Unreachable, f.Path)
	}
	for range 2 {
		if err := w.DeleteUnreachable(t.Context(), expired.Unreachable); err != nil || exists() {
			t.Errorf("an unreachable file: error %v, exists %v", err, exists())
		}
	}
}

// Two places that every reader reads alike, and some that they do not.
func TestOpenRefusesOddDirectories(t *testing.T) {
	for _, dir := range []string{"relative", "/tmp/a%20b", "/tmp/a#b", "/tmp/[a]", "/tmp/\xff"} {
		if w, err := Open(t.Context(), Config{Dir: dir}); err == nil {
			w.Close()
			t.Errorf("%q was opened", dir)
		}
	}
	w, err := Open(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "mit Umlaut ä und Leerzeichen")})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
}
