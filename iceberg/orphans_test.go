package iceberg

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A catalog that was lost does not take the tables along: nothing is an orphan when nothing was ever committed.
func TestLostCatalog(t *testing.T) {
	dir := t.TempDir()
	w, _ := openLoaded(t, Config{Dir: dir})
	loc := newLocation(t, "orders")
	file := writeRows(t, w, loc, 100, 1)
	commit(t, w, 100, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: []DataFile{file}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"catalog.db", "catalog.db-wal", "catalog.db-shm"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	again, _ := openLoaded(t, Config{Dir: dir})
	if removed, err := again.RemoveOrphans(t.Context()); !errors.Is(err, ErrCorrupt) || len(removed) > 0 {
		t.Errorf("removed %v, error %v", removed, err)
	}
	if _, err := os.Stat(file.Path); err != nil {
		t.Error(err)
	}
}

// A catalog that was replaced by an older one is refused, and nothing of what is newer is taken for an orphan; with the right one in its place again all is there.
func TestOlderCatalog(t *testing.T) {
	dir := t.TempDir()
	catalog := filepath.Join(dir, "catalog.db")
	w, _ := openLoaded(t, Config{Dir: dir})
	loc := newLocation(t, "orders")
	commit(t, w, 100, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: []DataFile{writeRows(t, w, loc, 100, 1)}})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.Close())
	older, err := os.ReadFile(catalog)
	must(err)
	w, _ = openLoaded(t, Config{Dir: dir})
	file := writeRows(t, w, loc, 200, 2)
	commit(t, w, 200, TableCommit{Name: loc.Name, UUID: loc.UUID, Add: []DataFile{file}})
	must(w.Close())
	newer, err := os.ReadFile(catalog)
	must(err)

	must(os.WriteFile(catalog, older, 0o600))
	w, err = Open(t.Context(), Config{Dir: dir})
	must(err)
	if _, err := w.Load(t.Context()); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "catalog.db is older than table public.orders") {
		t.Errorf("an older catalog: %v", err)
	}
	if removed, err := w.RemoveOrphans(t.Context()); err == nil || len(removed) > 0 {
		t.Errorf("removed %v, error %v", removed, err)
	}
	must(w.Close())
	must(os.WriteFile(catalog, newer, 0o600))
	again, state := openLoaded(t, Config{Dir: dir})
	if removed, err := again.RemoveOrphans(t.Context()); err != nil || len(removed) > 0 || state.LSN != 200 || len(state.Tables[0].Files) != 2 {
		t.Errorf("with the right catalog: removed %v, %v, %+v", removed, err, state)
	}
	if _, err := os.Stat(file.Path); err != nil {
		t.Error(err)
	}
}
