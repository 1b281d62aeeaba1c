package iceberg

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	icetable "github.com/apache/iceberg-go/table"

	"pgmirror/deletion"
	"pgmirror/readstate"
)

// settable is a clock that a test moves.
type settable struct{ now time.Time }

func newSettable() *settable { return &settable{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *settable) Now() time.Time { return c.now }

// snapshotLSNs lists what a table retains.
func snapshotLSNs(w *Warehouse, name TableName) (lsns []LSN) {
	for _, s := range w.names[name].state().Snapshots {
		lsns = append(lsns, s.LSN)
	}
	return lsns
}

func expireAll(t *testing.T, w *Warehouse) *Expiry {
	t.Helper()
	x, err := w.Expire(t.Context(), 100, false)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// setRef names a snapshot of a table, as another program does with a tag or a branch, or takes the name away.
func setRef(t *testing.T, w *Warehouse, table, name string, id int64, kind icetable.RefType) {
	t.Helper()
	old := w.names[TableName{Schema: "public", Name: table}]
	b, err := icetable.MetadataBuilderFromBase(old.meta, toURI(old.path))
	if err == nil && id == 0 {
		err = b.RemoveSnapshotRef(name)
	} else if err == nil {
		err = b.SetSnapshotRef(name, id, kind)
	}
	if err != nil {
		t.Fatal(err)
	}
	next := *old
	if next.meta, err = b.Build(); err != nil {
		t.Fatal(err)
	}
	w.setTable(&next)
}

// What a checkpoint needs stays or goes together: of a table that stands still its last snapshot before it. Age expires what count leaves, a dry run
// nothing, and the newest checkpoint always stays.
func TestExpireByCheckpoint(t *testing.T) {
	clock := newSettable()
	dir := t.TempDir()
	w, _ := openLoaded(t, Config{Dir: dir, Files: newForgetful(), KeepSnapshots: 4, KeepAge: time.Hour, Now: clock.Now})
	idle, busy := newLocation(t, "idle"), newLocation(t, "busy")
	var file DataFile
	for i := range LSN(10) {
		clock.now = clock.now.Add(time.Minute)
		changes := []TableCommit{{Name: busy.Name, UUID: busy.UUID, Create: i == 0}}
		if i == 0 {
			changes[0].Schema = busy.Schema
		}
		if i < 3 { // idle has snapshots of 1, 2, 3
			file = writeRows(t, w, idle, i+1, int64(i))
			changes = append(changes, TableCommit{Name: idle.Name, UUID: idle.UUID, Create: i == 0, Add: []DataFile{file}})
			if i == 0 {
				changes[1].Schema = idle.Schema
			}
		}
		commit(t, w, i+1, changes...)
	}
	if got := snapshotLSNs(w, busy.Name); !slices.Equal(got, []LSN{7, 8, 9, 10}) {
		t.Errorf("busy retains %v", got)
	}
	dry, err := w.Expire(t.Context(), 1, true)
	if err != nil || len(dry.Tables) != 1 || len(dry.Tables[0].Expired) != 2 || dry.Tables[0].State.Name != idle.Name || len(snapshotLSNs(w, idle.Name)) != 3 {
		t.Errorf("a dry run: %+v, %v; idle retains %v", dry, err, snapshotLSNs(w, idle.Name))
	}
	if x := expireAll(t, w); len(x.Tables) != 1 || len(x.Unreachable) == 0 {
		t.Errorf("%+v", x)
	}
	if got := snapshotLSNs(w, idle.Name); !slices.Equal(got, []LSN{3}) {
		t.Errorf("idle retains %v", got)
	}
	if rows := scan(t, openIceberg(t, metadataPath(w, idle.Name)), modelColumns); len(rows) != 3 {
		t.Errorf("idle reads as %v", rows)
	}
	for _, again := range []bool{false, true} { // what was stored says the same as what was known
		if again {
			w.Close()
			w, _ = openLoaded(t, Config{Dir: dir, KeepSnapshots: 4, KeepAge: time.Hour, Now: clock.Now})
		}
		if x := expireAll(t, w); len(x.Tables) != 0 {
			t.Errorf("after expiry something expires: %+v", x)
		}
	}
	clock.now = clock.now.Add(58*time.Minute + 30*time.Second) // 9 and 10 are younger than an hour
	expireAll(t, w)
	if got := snapshotLSNs(w, busy.Name); !slices.Equal(got, []LSN{9, 10}) {
		t.Errorf("busy retains %v after an hour", got)
	}
	clock.now = clock.now.Add(240 * time.Hour)
	expireAll(t, w)
	if got := snapshotLSNs(w, busy.Name); !slices.Equal(got, []LSN{10}) {
		t.Errorf("busy retains %v after ten days", got)
	}
	if got := snapshotLSNs(w, idle.Name); !slices.Equal(got, []LSN{3}) {
		t.Errorf("idle retains %v after ten days", got)
	}
	hint, err := os.ReadFile(filepath.Join(w.names[busy.Name].metadataDir(), hintName))
	if err != nil || string(hint) != hintOf(w.names[busy.Name]) {
		t.Errorf("the version hint is %s, %v", hint, err)
	}
}

// A snapshot that a tag or branch names, or that shows a held LSN, stays readable with all its files while those of its neighbours go; nobody
// takes it for what the table held later.
func TestExpireKeepsWhatIsNamedOrHeld(t *testing.T) {
	for _, how := range []string{"tag", "branch", "hold"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			w, _ := openLoaded(t, Config{Dir: dir, Files: newForgetful(), KeepSnapshots: 2})
			loc := newLocation(t, "a")
			files := []DataFile{writeRows(t, w, loc, 1, 1)}
			commit(t, w, 1, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: files})
			release := func() {}
			var id int64
			gone := map[string]bool{}
			for lsn := LSN(2); lsn < 20; lsn++ {
				// Each commit puts one file in the place of the one before.
				next := writeRows(t, w, loc, lsn, int64(lsn))
				changes := []TableCommit{{Name: loc.Name, UUID: loc.UUID, Remove: []string{files[len(files)-1].Path}, Add: []DataFile{next}}}
				if lsn == 7 { // a table that stands still from then on: its snapshot says that there was a checkpoint
					still := newLocation(t, "still")
					changes = append(changes, TableCommit{Name: still.Name, UUID: still.UUID, Create: true, Schema: still.Schema})
				}
				r := commit(t, w, lsn, changes...)
				files = append(files, next)
				for _, path := range r.Unreachable {
					gone[path] = true
				}
				if err := w.DeleteUnreachable(t.Context(), r.Unreachable); err != nil {
					t.Fatal(err)
				}
				if lsn == 5 {
					id = r.Tables[loc.Name].SnapshotID
					switch how {
					case "tag":
						setRef(t, w, "a", "v1", id, icetable.TagRef)
					case "branch":
						setRef(t, w, "a", "audit", id, icetable.BranchRef)
					default:
						var held []DataFile
						var err error
						if held, release, err = w.Hold(5); err != nil || len(held) == 0 {
							t.Fatalf("holds %v: %v", held, err)
						}
					}
				}
			}
			if got := snapshotLSNs(w, loc.Name); !slices.Equal(got, []LSN{5, 18, 19}) {
				t.Fatalf("retains %v", got)
			}
			want := map[string][]string{"tag": {"tag v1"}, "branch": {"branch audit"}, "hold": {"read state"}}[how]
			for _, s := range w.Retained(loc.UUID) {
				if s.ID == id && !slices.Equal(s.HeldBy, want) || len(s.HeldBy) == 0 {
					t.Errorf("snapshot at %s is held by %q", s.LSN, s.HeldBy)
				}
			}
			if !gone[files[5].Path] || gone[files[4].Path] {
				t.Errorf("the file of the snapshot that is kept: gone %t; of the one after: %t", gone[files[4].Path], gone[files[5].Path])
			}
			tbl := openIceberg(t, metadataPath(w, loc.Name))
			if rows := scan(t, tbl, modelColumns, icetable.WithSnapshotID(id)); !slices.Equal(rows, []string{"5|row 5|5|"}) {
				t.Errorf("the snapshot that is kept reads as %v", rows)
			}
			if s := tbl.Metadata().SnapshotByID(id); s == nil || s.ParentSnapshotID == nil || tbl.Metadata().SnapshotByID(*s.ParentSnapshotID) != nil {
				t.Errorf("its parent should be gone: %+v", s)
			}
			c, err := OpenReadOnly(t.Context(), Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for at, ok := range map[LSN]bool{4: false, 5: true, 6: false, 7: false, 17: false, 18: true, 19: true} {
				st, err := c.Pin(t.Context(), readstate.PinRequest{At: at})
				switch {
				case err == nil && !ok && st.Tables[0].Err != "": // only the table that stands still is readable there
				case (err == nil) != ok || err != nil && !errors.Is(err, ErrNotRetained):
					t.Errorf("reading at %s: %v", at, err)
				case ok && (len(st.Tables[0].Files) != 1 || st.Tables[0].Files[0].Path != files[at-1].Path):
					t.Errorf("reading at %s: %+v", at, st.Tables[0])
				}
			}
			if how == "hold" {
				release()
				release()
			} else {
				setRef(t, w, "a", map[string]string{"tag": "v1", "branch": "audit"}[how], 0, "")
			}
			x := expireAll(t, w)
			if got := snapshotLSNs(w, loc.Name); !slices.Equal(got, []LSN{18, 19}) || !slices.Contains(x.Unreachable, files[4].Path) {
				t.Errorf("retains %v after it was let go; unreachable %v", got, x.Unreachable)
			}
			if err := w.DeleteUnreachable(t.Context(), x.Unreachable); err != nil {
				t.Error(err)
			}
		})
	}
}

// With all snapshots kept, nothing expires.
func TestExpireOff(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir(), Files: newForgetful(), KeepSnapshots: -1, KeepAge: time.Nanosecond})
	loc := newLocation(t, "a")
	for lsn := LSN(1); lsn <= 120; lsn++ {
		c := TableCommit{Name: loc.Name, UUID: loc.UUID, Create: lsn == 1}
		if c.Create {
			c.Schema = loc.Schema
		}
		commit(t, w, lsn, c)
	}
	if x := expireAll(t, w); len(x.Tables) > 0 || len(snapshotLSNs(w, loc.Name)) != 120 {
		t.Errorf("%+v; %d snapshots", x, len(snapshotLSNs(w, loc.Name)))
	}
}

// Files that no snapshot names any more outlive a start, with the time since when; then they may be deleted.
func TestUnreachableFilesOutliveAStart(t *testing.T) {
	dir, clock := t.TempDir(), newSettable()
	config := Config{Dir: dir, KeepSnapshots: 1, Now: clock.Now}
	w, _ := openLoaded(t, config)
	loc, gone := newLocation(t, "a"), newLocation(t, "gone")
	f, g := writeRows(t, w, loc, 10, 1), writeRows(t, w, gone, 10, 2)
	commit(t, w, 10, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: []DataFile{f}},
		TableCommit{Name: gone.Name, UUID: gone.UUID, Create: true, Schema: gone.Schema, Add: []DataFile{g}})
	since := clock.now.Add(time.Hour)
	clock.now = since
	commit(t, w, 11, TableCommit{Name: loc.Name, UUID: loc.UUID, Remove: []string{f.Path}}, TableCommit{Name: gone.Name, UUID: gone.UUID, Drop: true})
	w.Close()
	clock.now = clock.now.Add(time.Minute)
	w, state := openLoaded(t, config)
	if removed, err := w.RemoveOrphans(t.Context()); err != nil || len(removed) > 0 {
		t.Errorf("the start removed %v, %v", removed, err)
	}
	var paths []string
	for _, u := range state.Unreachable {
		if !u.Since.Equal(since) {
			t.Errorf("%s: since %s, want %s", u.Path, u.Since, since)
		}
		paths = append(paths, u.Path)
	}
	for _, path := range []string{f.Path, g.Path} {
		if _, err := os.Stat(path); err != nil || !slices.Contains(paths, path) {
			t.Errorf("%s: %v; unreachable are %v", path, err, paths)
		}
	}
	if err := w.DeleteUnreachable(t.Context(), paths); err != nil {
		t.Fatal(err)
	}
	want := w.names[loc.Name].allFiles()
	slices.Sort(want)
	if got := filesBelow(t, dir); !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
	w.Close()
	if w, state = openLoaded(t, config); len(state.Unreachable) > 0 {
		t.Errorf("still unreachable: %+v", state.Unreachable)
	}
}

// Orphans are files of our naming that nothing names and that have been left alone for some time: not those that are being written, that wait for
// a commit or for a reader to end, that are young, or that another program made.
func TestOrphans(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir(), KeepSnapshots: 1})
	loc := newLocation(t, "a")
	live, replaced, waits := writeRows(t, w, loc, 10, 1), writeRows(t, w, loc, 10, 2), writeRows(t, w, loc, 10, 3)
	commit(t, w, 10, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: []DataFile{live, replaced}})
	commit(t, w, 11, TableCommit{Name: loc.Name, UUID: loc.UUID, Remove: []string{replaced.Path}})
	open, err := w.NewWriter(t.Context(), loc)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Abort()
	tbl := w.names[loc.Name]
	write := func(dir, name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	orphans := []string{write(tbl.dataDir(), newID()+".parquet"), write(tbl.dataDir(), newID()+".puffin"), write(tbl.metadataDir(), "data-"+newID()+".avro"),
		write(tbl.metadataDir(), "00077-"+newID()+".metadata.json"), write(tbl.metadataDir(), "version-hint-"+newID()+".text")}
	slices.Sort(orphans)
	others := []string{write(tbl.dataDir(), "00000-1-"+newID()+"-00001.parquet"), write(tbl.metadataDir(), "notes.txt"), write(w.root, "readme")}
	before := filesBelow(t, w.config.Dir)
	look := func(cut time.Time, dryRun bool) []string {
		t.Helper()
		found, err := w.Orphans(t.Context(), cut, dryRun)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(found)
		return found
	}
	if found := look(time.Now().Add(-time.Hour), false); len(found) > 0 {
		t.Errorf("young files are taken for orphans: %v", found)
	}
	later := time.Now().Add(time.Hour)
	if found := look(later, true); !slices.Equal(found, orphans) {
		t.Errorf("found %v, want %v", found, orphans)
	}
	if !slices.Equal(filesBelow(t, w.config.Dir), before) {
		t.Error("a dry run deleted something")
	}
	if found := look(later, false); !slices.Equal(found, orphans) {
		t.Errorf("deleted %v, want %v", found, orphans)
	}
	want := slices.DeleteFunc(before, func(path string) bool { return slices.Contains(orphans, path) })
	if got := filesBelow(t, w.config.Dir); !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v (of others: %v)", got, want, others)
	}
	commit(t, w, 12, TableCommit{Name: loc.Name, UUID: loc.UUID, Add: []DataFile{waits}})
	if found := look(later, false); len(found) > 0 {
		t.Errorf("after the commit: %v", found)
	}
}

// A catalog of before the grace period is opened as it is, and what it lists goes on.
func TestOldCatalog(t *testing.T) {
	dir := t.TempDir()
	db, err := sql.Open("sqlite", filepath.Join(dir, "catalog.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(context.Background(), `CREATE TABLE pgmirror_replaced (path TEXT PRIMARY KEY, uuid TEXT NOT NULL, sequence INTEGER NOT NULL) WITHOUT ROWID;
		INSERT INTO pgmirror_replaced VALUES ('/gone.avro', 'u', 3)`)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w, state := openLoaded(t, Config{Dir: dir})
		if len(state.Unreachable) != 1 || state.Unreachable[0].Path != "/gone.avro" {
			t.Errorf("%+v", state.Unreachable)
		}
		w.Close()
	}
}

var manyCommits = flag.Int("many.commits", 300, "commits of TestManyCommits")

// S-I10: a table that is committed to for ever stays small: its metadata file, its manifests and its files, and a commit takes no longer. A file more a commit is
// what the engine's compaction undoes; here every commit takes the file away that is thirty commits old.
func TestManyCommits(t *testing.T) {
	clock := newSettable()
	w, _ := openLoaded(t, Config{Dir: t.TempDir(), Files: newForgetful(), Now: clock.Now})
	loc := newLocation(t, "a")
	var files []DataFile
	change := TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema}
	last, began := *manyCommits, time.Now()
	for i := 1; i <= last; i++ {
		clock.now = clock.now.Add(time.Second)
		change.Add = []DataFile{writeRows(t, w, loc, LSN(i), int64(i), int64(-i))}
		files = append(files, change.Add[0])
		change.Vectors = vectors(files[len(files)-1].Path, vectorOf(2, 1))
		if len(files) > 30 {
			change.Remove, files = []string{files[0].Path}, files[1:]
		}
		r := commit(t, w, LSN(i), change)
		change = TableCommit{Name: loc.Name, UUID: loc.UUID}
		if err := w.DeleteUnreachable(t.Context(), r.Unreachable); err != nil {
			t.Fatal(err)
		}
		if i != 1 && i != 1000 && i != last {
			continue
		}
		tbl := w.names[loc.Name]
		info, err := os.Stat(tbl.path)
		if err != nil {
			t.Fatal(err)
		}
		onDisk := filesBelow(t, tbl.dir)
		t.Logf("after %d commits: metadata %d bytes, %d manifests, %d snapshots, %d files on disk, %s a commit", i, info.Size(), len(tbl.manifests)+1, len(tbl.meta.Snapshots()),
			len(onDisk), time.Since(began)/time.Duration(i))
		if info.Size() > 1<<20 || len(tbl.manifests) > maxManifests+1 || len(tbl.meta.Snapshots()) > defaultKeepSnapshots || len(onDisk) > 1000 {
			t.Errorf("after %d commits: metadata %d bytes, %d manifests, %d snapshots, %d files on disk", i, info.Size(), len(tbl.manifests), len(tbl.meta.Snapshots()), len(onDisk))
		}
		if previous := len(previousMetadata(tbl.meta)); previous > keepMetadata {
			t.Errorf("%d older metadata files are named", previous)
		}
		want := tbl.allFiles()
		slices.Sort(want)
		if !slices.Equal(onDisk, want) {
			t.Errorf("after %d commits %d files are on disk, %d are needed", i, len(onDisk), len(want))
		}
	}
	if rows := scan(t, openIceberg(t, metadataPath(w, loc.Name)), modelColumns); len(rows) != 30 || !slices.Contains(rows, fmt.Sprintf("%d|row %d|%d|", last, last, last)) {
		t.Errorf("%d rows: %v", len(rows), rows)
	}
}

// A Puffin file in which several data files have their vectors, as other writers make them, is replaced when the last of them is.
func TestSharedPuffin(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir(), Files: newForgetful(), KeepSnapshots: 1})
	loc := newLocation(t, "a")
	f, g := writeRows(t, w, loc, 10, 1, 2, 3), writeRows(t, w, loc, 10, 4, 5, 6)
	commit(t, w, 10, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: []DataFile{f, g},
		Vectors: map[string]*deletion.Vector{f.Path: vectorOf(3, 0), g.Path: vectorOf(3, 1)}})
	tbl := w.names[loc.Name]
	shared := tbl.files[f.Path].vector.path
	tbl.files[g.Path].vector.path = shared // only the path matters to what is deleted
	if r := commit(t, w, 11, TableCommit{Name: loc.Name, UUID: loc.UUID, Vectors: vectors(f.Path, vectorOf(3, 0, 2))}); slices.Contains(r.Unreachable, shared) {
		t.Errorf("%s is unreachable, but another vector is in it", shared)
	}
	if r := commit(t, w, 12, TableCommit{Name: loc.Name, UUID: loc.UUID, Vectors: vectors(g.Path, vectorOf(3, 0, 1))}); !slices.Contains(r.Unreachable, shared) {
		t.Errorf("%s is not unreachable: %v", shared, r.Unreachable)
	}
}
