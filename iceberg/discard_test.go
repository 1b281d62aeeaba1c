package iceberg

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

// A data file that was never committed can be thrown away; one that a snapshot names, now or before, cannot.
func TestDiscard(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir()})
	loc := newLocation(t, "orders")
	live, gone, never := writeRows(t, w, loc, 100, 1), writeRows(t, w, loc, 100, 2), writeRows(t, w, loc, 100, 3)
	commit(t, w, 100, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: []DataFile{live, gone}})
	commit(t, w, 101, TableCommit{Name: loc.Name, UUID: loc.UUID, Remove: []string{gone.Path}})
	if err := w.Discard(t.Context(), never.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(never.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	for _, f := range []DataFile{live, gone} {
		if err := w.Discard(t.Context(), f.Path); err == nil {
			t.Errorf("%s was discarded although a snapshot names it", f.Path)
		}
		if _, err := os.Stat(f.Path); err != nil {
			t.Error(err)
		}
	}
}
