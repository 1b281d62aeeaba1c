package duckdb

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"
)

// What a killed process has left goes when the next one starts; what is in use, half made, or somebody else's business stays.
func TestStaleScratchDirectories(t *testing.T) {
	parent := t.TempDir()
	killed, err := newScratch(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(killed.dir, "pgmirror.duckdb"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inUse, err := newScratch(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.close()
	halfMade, other := filepath.Join(parent, scratchPrefix+"1"), filepath.Join(parent, "sql-1")
	for _, dir := range []string{halfMade, other} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	killed.lock.Close() // as the end of its process does
	db, err := Open(context.Background(), Config{Source: fixed(), ScratchDir: parent})
	if err != nil {
		t.Fatal(err)
	}
	for dir, stays := range map[string]bool{killed.dir: false, inUse.dir: true, halfMade: true, other: true, db.scratch.dir: true} {
		if _, err := os.Stat(dir); (err == nil) != stays {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(db.scratch.dir); !os.IsNotExist(err) {
		t.Errorf("after Close: %v", err)
	}
}

// Programs that start at the same time do not take each other's directories for stale ones.
func TestScratchDirectoriesMadeAtOnce(t *testing.T) {
	parent := t.TempDir()
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			for range 50 {
				s, err := newScratch(parent)
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(s.dir, "pgmirror.duckdb"), nil, 0o600); err != nil {
					return err
				}
				if err := s.close(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}
