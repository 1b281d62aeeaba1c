package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"pgmirror/iceberg"
)

// FS is the file system of one life of a process. It works on the real directory at once, and knows what of it a power
// loss could undo. It satisfies iceberg.FileSystem; mirror.FilesOver makes mirror.Files of it. Nothing is really fsynced.
type FS struct {
	effects *Effects
	links   string // directory of hard links that keep removed and replaced files

	mu      sync.Mutex
	off     bool             // crashed
	nodes   int              // how many nodes got a hard link
	durable map[string]*node // entry by path, as on the disk; nil is absent. Only paths touched in this life
	current map[string]*node // the same as processes see it
	pending []change         // not durable yet, in order
}

var _ iceberg.FileSystem = (*FS)(nil)

// node is a file or directory apart from its name.
type node struct {
	dir    bool
	link   string // hard link to a file's bytes
	size   int64
	synced int64 // the first synced bytes are durable
}

// change is one step of a directory's entries: all of it happens or nothing.
type change struct {
	dir     string
	entries map[string]*node // path → what it names from now on; nil is nothing
}

// NewFS makes a file system over what is on disk; everything there is durable. scratch is an empty directory of the same
// device that outlives the FS; the names in it are the FS's. effects may be nil.
func NewFS(scratch string, effects *Effects) *FS {
	if effects == nil {
		effects = FailAt(0)
	}
	return &FS{effects: effects, links: scratch, durable: map[string]*node{}, current: map[string]*node{}}
}

// begin is the start of every effect. While the process lives it returns with the lock held.
func (f *FS) begin(effect, path string) error {
	f.mu.Lock()
	err := fmt.Errorf("%s %s: %w", effect, path, ErrCrashed)
	if !f.off {
		_, err = f.effects.hook(effect)
	}
	if err != nil {
		f.mu.Unlock()
	}
	return err
}

// touch makes a path known that was on disk before this life, or absent, and returns what it names now.
func (f *FS) touch(path string) (*node, error) {
	if n, ok := f.current[path]; ok {
		return n, nil
	}
	info, err := os.Lstat(path)
	var n *node
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.IsDir():
		n = &node{dir: true}
	default:
		n = &node{size: info.Size(), synced: info.Size()}
		if err := f.keep(n, path); err != nil {
			return nil, err
		}
	}
	f.durable[path], f.current[path] = n, n
	return n, nil
}

// keep holds on to a file's bytes whatever happens to its name.
func (f *FS) keep(n *node, path string) error {
	f.nodes++
	n.link = filepath.Join(f.links, strconv.Itoa(f.nodes))
	return os.Link(path, n.link)
}

// record makes a step in dir visible and pending.
func (f *FS) record(dir string, entries map[string]*node) {
	maps.Copy(f.current, entries)
	f.pending = append(f.pending, change{dir, entries})
}

func (f *FS) Create(path string) (iceberg.WriteFile, error) {
	path = filepath.Clean(path)
	if err := f.begin("create", path); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	if _, err := f.touch(path); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	n := &node{}
	if err := f.keep(n, path); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f.record(filepath.Dir(path), map[string]*node{path: n})
	return &writeFile{fs: f, path: path, node: n, file: file}, nil
}

func (f *FS) Open(path string) (iceberg.ReadFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.off {
		return nil, fmt.Errorf("open %s: %w", path, ErrCrashed)
	}
	return iceberg.OS.Open(path)
}

// Rename refuses what a power loss can leave half done: moving a directory, and moving between directories.
func (f *FS) Rename(from, to string) error {
	from, to = filepath.Clean(from), filepath.Clean(to)
	if err := f.begin("rename", to); err != nil {
		return err
	}
	defer f.mu.Unlock()
	n, err := f.touch(from)
	if err != nil {
		return err
	}
	if n != nil && n.dir || filepath.Dir(from) != filepath.Dir(to) {
		return fmt.Errorf("rename %s to %s: only files, and only inside a directory", from, to)
	}
	if _, err := f.touch(to); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	f.record(filepath.Dir(to), map[string]*node{from: nil, to: n})
	return nil
}

func (f *FS) Remove(path string) error {
	path = filepath.Clean(path)
	if err := f.begin("remove", path); err != nil {
		return err
	}
	defer f.mu.Unlock()
	n, err := f.touch(path)
	if err != nil || n == nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	f.record(filepath.Dir(path), map[string]*node{path: nil})
	return nil
}

func (f *FS) MkdirAll(path string) error {
	path = filepath.Clean(path)
	if err := f.begin("mkdir", path); err != nil {
		return err
	}
	defer f.mu.Unlock()
	return f.mkdirAll(path)
}

func (f *FS) mkdirAll(path string) error {
	n, err := f.touch(path)
	if err != nil {
		return err
	}
	if n != nil {
		if !n.dir {
			return fmt.Errorf("mkdir %s: a file is in the way", path)
		}
		return nil
	}
	if err := f.mkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	f.record(filepath.Dir(path), map[string]*node{path: {dir: true}})
	return nil
}

func (f *FS) SyncDir(path string) error {
	path = filepath.Clean(path)
	if err := f.begin("sync directory", path); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if info, err := os.Stat(path); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("sync %s: not a directory", path)
	}
	kept := f.pending[:0]
	for _, c := range f.pending {
		if c.dir == path {
			maps.Copy(f.durable, c.entries)
		} else {
			kept = append(kept, c)
		}
	}
	f.pending = kept
	return nil
}

func (f *FS) ReadDir(path string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.off {
		return nil, fmt.Errorf("list %s: %w", path, ErrCrashed)
	}
	return iceberg.OS.ReadDir(path)
}

// writeFile is a file being written.
type writeFile struct {
	fs   *FS
	path string
	node *node
	file *os.File
}

// Write writes half of p when the process dies in it.
func (w *writeFile) Write(p []byte) (int, error) {
	w.fs.mu.Lock()
	defer w.fs.mu.Unlock()
	if w.fs.off {
		return 0, fmt.Errorf("write %s: %w", w.path, ErrCrashed)
	}
	now, dead := w.fs.effects.hook("write")
	switch {
	case now:
		p = p[:len(p)/2]
	case dead != nil:
		return 0, dead
	}
	n, err := w.file.Write(p)
	w.node.size += int64(n)
	return n, errors.Join(dead, err)
}

func (w *writeFile) Sync() error {
	if err := w.fs.begin("sync", w.path); err != nil {
		return err
	}
	defer w.fs.mu.Unlock()
	w.node.synced = w.node.size
	return nil
}

// Close syncs nothing. It releases the file even in a dead process.
func (w *writeFile) Close() error { return w.file.Close() }
