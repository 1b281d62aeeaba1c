package iceberg

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// FileSystem is where the warehouse keeps its files. A test replaces it with one that forgets what was not synced.
// Its methods may be called by several goroutines. Paths are absolute.
type FileSystem interface {
	// Create makes a file and fails if there is one of that name.
	Create(path string) (WriteFile, error)
	Open(path string) (ReadFile, error)
	Rename(from, to string) error
	// Remove deletes a file or an empty directory; an absent one is no error.
	Remove(path string) error
	MkdirAll(path string) error
	// SyncDir makes the directory's entries durable.
	SyncDir(path string) error
	// ReadDir names the entries of a directory, sorted; what is absent or no directory is empty.
	ReadDir(path string) ([]string, error)
}

// WriteFile is a file being written. What was written before Sync returned survives a power loss once the directory's
// entry does.
type WriteFile interface {
	io.Writer
	Sync() error
	Close() error
}

// ReadFile is an open file. ReadAt may be called by several goroutines.
type ReadFile interface {
	io.Reader
	io.ReaderAt
	io.Seeker
	io.Closer
	Size() int64
	ModTime() time.Time
}

// OS is the operating system's file system.
var OS FileSystem = osFiles{}

type osFiles struct{}

func (osFiles) Create(path string) (WriteFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

func (osFiles) Open(path string) (ReadFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: %w", path, errNoFile)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return osFile{f, info.Size(), info.ModTime()}, nil
}

type osFile struct {
	*os.File
	size    int64
	changed time.Time
}

func (f osFile) Size() int64        { return f.size }
func (f osFile) ModTime() time.Time { return f.changed }

func (osFiles) Rename(from, to string) error { return os.Rename(from, to) }

func (osFiles) Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (osFiles) MkdirAll(path string) error { return os.MkdirAll(path, 0o755) }

func (osFiles) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFiles) ReadDir(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// readAll returns a whole file.
func readAll(files FileSystem, path string) ([]byte, error) {
	f, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, f.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}
