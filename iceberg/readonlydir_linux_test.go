package iceberg

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"pgmirror/readstate"
)

// A directory that the reader may not write to is read like any other, unless a log is left that SQLite would have to recover.
func TestCommittedInReadOnlyDirectory(t *testing.T) {
	dir := t.TempDir()
	w, _ := openLoaded(t, Config{Dir: dir})
	a := newLocation(t, "a")
	f := writeRows(t, w, a, 10, 1, 2, 3)
	commit(t, w, 10, TableCommit{Name: a.Name, UUID: a.UUID, Create: true, Schema: a.Schema, Add: []DataFile{f}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	readable := func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if info.IsDir() {
			return os.Chmod(path, 0o555)
		}
		return os.Chmod(path, 0o444)
	}
	if err := filepath.Walk(dir, readable); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o755)
	// Root may write anywhere, so this thread goes on as somebody else where files are concerned.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const nobody = 65534
	if os.Geteuid() == 0 {
		syscall.Syscall(syscall.SYS_SETFSUID, nobody, 0, 0)
		defer syscall.Syscall(syscall.SYS_SETFSUID, 0, 0, 0)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err == nil {
		t.Fatal("the directory can be written to")
	}
	c, err := OpenReadOnly(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		s, err := c.Pin(t.Context(), readstate.PinRequest{})
		if err != nil || s.LSN != 10 || len(s.Tables) != 1 || len(s.Tables[0].Files) != 1 || s.Tables[0].Files[0].Path != f.Path {
			t.Fatalf("%+v, %v", s, err)
		}
	}

	if os.Geteuid() == 0 {
		syscall.Syscall(syscall.SYS_SETFSUID, 0, 0, 0)
	}
	os.Chmod(dir, 0o755)
	if err := os.WriteFile(filepath.Join(dir, "catalog.db-wal"), []byte("of a process that was killed"), 0o444); err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o555)
	if os.Geteuid() == 0 {
		syscall.Syscall(syscall.SYS_SETFSUID, nobody, 0, 0)
	}
	if c, err := OpenReadOnly(t.Context(), Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "write access") {
		t.Fatalf("with a log left: %v, %v", c, err)
	}
}
