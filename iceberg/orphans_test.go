package iceberg

import (
	"errors"
	"os"
	"path/filepath"
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
