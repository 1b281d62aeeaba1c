package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mustCreate makes a data directory and gives its lock up again.
func mustCreate(t *testing.T, path string) {
	t.Helper()
	d, err := createDataDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// A new data directory is the owner's alone, carries its format, and can be opened again.
func TestDataDirCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "data")
	mustCreate(t, path)
	mustCreate(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	if text, err := os.ReadFile(filepath.Join(path, "FORMAT")); err != nil || string(text) != "pgmirror data format 1\n" {
		t.Errorf("FORMAT is %q, %v", text, err)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("an open directory stays %v, %v", info.Mode(), err)
	}
}

// Only one process at a time has a data directory; a second handle in this process counts as another.
func TestDataDirLock(t *testing.T) {
	path := t.TempDir()
	first, err := createDataDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := createDataDir(path); !errors.Is(err, errLocked) {
		t.Errorf("a second run: %v", err)
	}
	if _, err := openDataDir(path); !errors.Is(err, errLocked) {
		t.Errorf("a drop beside it: %v", err)
	}
	if err := errors.Join(first.Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, path)
}

// A directory with something else in it, one of a newer version and a damaged one are left alone.
func TestDataDirRefuses(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"thesis.txt", "x", "is not empty"},
		{"FORMAT", "pgmirror data format 2\n", "newer pgmirror"},
		{"FORMAT", "pgmirror data format x\n", "damaged"},
		{"FORMAT", "pgmirror data format 0\n", "damaged"},
		{"FORMAT", "", "damaged"},
		{"FORMAT", "1\n", "damaged"},
	} {
		path := t.TempDir()
		if err := os.WriteFile(filepath.Join(path, c.file), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := createDataDir(path); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %q: %v", c.file, c.text, err)
			}
		}
		if _, err := openDataDir(path); err == nil {
			t.Errorf("%s %q: was opened", c.file, c.text)
		}
		if text, err := os.ReadFile(filepath.Join(path, c.file)); err != nil || string(text) != c.text {
			t.Errorf("%s was changed: %q, %v", c.file, text, err)
		}
		if entries, err := os.ReadDir(path); err != nil || len(entries) != 1 {
			t.Errorf("%s has company: %v, %v", c.file, entries, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: the directory's mode was changed to %v, %v", c.file, info.Mode(), err)
		}
	}
	if _, err := openDataDir(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent directory: %v", err)
	}
	if _, err := os.Stat("absent"); err == nil {
		t.Error("opening made the directory")
	}
}

// remove takes what is the mirror's and nothing else.
func TestDataDirRemove(t *testing.T) {
	for _, c := range []struct {
		everything bool
		stranger   bool
		remain     []string
	}{
		{false, false, []string{"FORMAT", "catalog.db", "lock", "warehouse"}},
		{true, true, []string{"notes.txt"}},
		{true, false, nil},
	} {
		parent := t.TempDir()
		path := filepath.Join(parent, "m_1")
		mustCreate(t, path)
		mustCreate(t, filepath.Join(parent, "m_10"))
		files := []string{"catalog.db", "index/a/b.idx", "spill/1", "warehouse/public/t/data/x.parquet"}
		if c.stranger {
			files = append(files, "notes.txt")
		}
		for _, name := range files {
			for _, dir := range []string{path, filepath.Join(parent, "m_10")} {
				full := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o700), os.WriteFile(full, []byte("x"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
		d, err := openDataDir(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.remove(c.everything); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		var remain []string
		entries, err := os.ReadDir(path)
		if err != nil && !(c.remain == nil && errors.Is(err, fs.ErrNotExist)) {
			t.Fatal(err)
		}
		for _, e := range entries {
			remain = append(remain, e.Name())
		}
		if !slices.Equal(remain, c.remain) {
			t.Errorf("everything %v: %q remain, want %q", c.everything, remain, c.remain)
		}
		if _, err := os.Stat(filepath.Join(parent, "m_10", "index", "a", "b.idx")); err != nil {
			t.Errorf("the neighbour was touched: %v", err)
		}
	}
}

// A symbolic link in the data directory is removed, not what it points to.
func TestDataDirRemoveFollowsNoLink(t *testing.T) {
	path, elsewhere := t.TempDir(), t.TempDir()
	mustCreate(t, path)
	precious := filepath.Join(elsewhere, "precious")
	if err := errors.Join(os.WriteFile(precious, nil, 0o600), os.Symlink(elsewhere, filepath.Join(path, "index"))); err != nil {
		t.Fatal(err)
	}
	d, err := openDataDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.remove(false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}
