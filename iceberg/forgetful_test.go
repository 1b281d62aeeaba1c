package iceberg

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// forgetful is a file system on a real directory that knows what a power loss would take: contents that were not synced,
// and names (made, renamed, removed, directories) whose directory was not synced. It makes no fsync calls itself.
type forgetful struct {
	mu       sync.Mutex
	unsynced map[string]bool     // files whose content is not synced
	pending  map[string][]func() // by directory: how to undo its unsynced changes, in order
	closed   bool                // after the crash: what the dead process still does has no effect
}

func newForgetful() *forgetful {
	return &forgetful{unsynced: map[string]bool{}, pending: map[string][]func(){}}
}

var errDead = errors.New("the process is dead")

// later notes how to undo a change of a directory's entries until it is synced.
func (f *forgetful) later(path string, undo func()) {
	dir := filepath.Dir(path)
	f.pending[dir] = append(f.pending[dir], undo)
}

func (f *forgetful) Create(path string) (WriteFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errDead
	}
	file, err := OS.Create(path)
	if err != nil {
		return nil, err
	}
	f.unsynced[path] = true
	f.later(path, func() { os.Remove(path) })
	return &forgetfulFile{f, path, file}, nil
}

type forgetfulFile struct {
	f    *forgetful
	path string
	WriteFile
}

func (x *forgetfulFile) Sync() error {
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	delete(x.f.unsynced, x.path)
	return nil
}

func (x *forgetfulFile) Write(p []byte) (int, error) {
	x.f.mu.Lock()
	x.f.unsynced[x.path] = true
	x.f.mu.Unlock()
	return x.WriteFile.Write(p)
}

func (f *forgetful) Open(path string) (ReadFile, error) { return OS.Open(path) }

func (f *forgetful) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errDead
	}
	old, oldErr := os.ReadFile(to)
	if err := OS.Rename(from, to); err != nil {
		return err
	}
	f.unsynced[to] = f.unsynced[from]
	f.later(to, func() {
		os.Remove(to)
		if oldErr == nil {
			os.WriteFile(to, old, 0o644)
		}
	})
	return nil
}

func (f *forgetful) Remove(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errDead
	}
	content, err := os.ReadFile(path)
	if err == nil {
		f.later(path, func() { os.WriteFile(path, content, 0o644) })
	}
	return OS.Remove(path)
}

func (f *forgetful) MkdirAll(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errDead
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		f.later(dir, func() { os.RemoveAll(dir) })
	}
	return OS.MkdirAll(path)
}

func (f *forgetful) SyncDir(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pending, path)
	return nil
}

func (f *forgetful) ReadDir(path string) ([]string, error) { return OS.ReadDir(path) }

// crash is a power loss: each unsynced content is cut somewhere, and of each directory's unsynced changes some last ones
// never happened.
func (f *forgetful) crash(random *rand.Rand) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for path, lost := range f.unsynced {
		if info, err := os.Stat(path); lost && err == nil {
			os.Truncate(path, random.Int64N(info.Size()+1))
		}
	}
	for _, undo := range f.pending {
		for i := len(undo) - 1; i >= random.IntN(len(undo)+1); i-- {
			undo[i]()
		}
	}
}

// filesBelow lists the regular files below a directory.
func filesBelow(t testing.TB, dir string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), "catalog.db") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
