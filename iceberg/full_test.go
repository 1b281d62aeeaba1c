package iceberg

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A catalogue that finds no room for a commit says so as a full disk does, keeps the commit before it, and takes the same commit when there is room.
func TestCatalogWithoutRoom(t *testing.T) {
	ctx := context.Background()
	c, err := openCatalog(ctx, filepath.Join(t.TempDir(), "catalog.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := c.commit(ctx, "first", []byte("small"), 1, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.db.ExecContext(ctx, "PRAGMA max_page_count = 20"); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 1<<20)
	if err := c.commit(ctx, "second", large, 2, nil); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, errUnknownOutcome) {
		t.Fatalf("commit without room: %v", err)
	}
	if doc, err := c.document(ctx); err != nil || string(doc) != "small" {
		t.Fatalf("the document is %q, %v", doc, err)
	}
	if _, err := c.db.ExecContext(ctx, "PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	if err := c.commit(ctx, "second", large, 2, nil); err != nil {
		t.Fatal(err)
	}
	if doc, err := c.document(ctx); err != nil || len(doc) != len(large) {
		t.Fatalf("the document has %d bytes, %v", len(doc), err)
	}
}

// A catalogue that was removed or replaced under its writer takes no commit: what would be written to it is gone with the process.
func TestCatalogNotInItsPlace(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "catalog.db")
	c, err := openCatalog(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	aside := path + ".aside"
	if err := os.Rename(path, aside); err != nil {
		t.Fatal(err)
	}
	if err := c.commit(ctx, "first", nil, 1, nil); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("a removed catalogue: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.commit(ctx, "first", nil, 1, nil); err == nil || !strings.Contains(err.Error(), "another file") {
		t.Errorf("a replaced catalogue: %v", err)
	}
	if err := os.Rename(aside, path); err != nil {
		t.Fatal(err)
	}
	if err := c.commit(ctx, "first", nil, 1, nil); err != nil {
		t.Errorf("put back: %v", err)
	}
}
