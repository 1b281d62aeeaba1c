package mirror

import (
	"path/filepath"
	"testing"

	"pgmirror/iceberg"
)

// TestOverGivesNothingWithAnError: a writer or reader that could not be made is nil, so that nobody ends it.
func TestOverGivesNothingWithAnError(t *testing.T) {
	dir := t.TempDir()
	w, err := iceberg.Open(t.Context(), iceberg.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if out, err := Over(w).NewWriter(t.Context(), iceberg.TableLocation{}); err == nil || out != nil {
		t.Errorf("a writer of no table: %v, %v", out, err)
	}
	if in, err := Over(w).OpenData(filepath.Join(dir, "absent.parquet")); err == nil || in != nil {
		t.Errorf("a reader of no file: %v, %v", in, err)
	}
}
