package mirror

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"pgmirror/iceberg"
)

// OSFiles keeps files on the local disk.
func OSFiles() Files { return FilesOver(iceberg.OS) }

// FilesOver keeps files through a file system whose paths are the operating system's too: Map goes past it.
func FilesOver(fs iceberg.FileSystem) Files { return osFiles{fs} }

type osFiles struct{ fs iceberg.FileSystem }

// WriteFile leaves the old content or the new one after a crash, never a part. A temporary file of an earlier life is
// overwritten; List shows it, and recovery removes it as an index that no file has.
func (f osFiles) WriteFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	if err := f.fs.MkdirAll(dir); err != nil {
		return err
	}
	temporary := path + ".tmp"
	if err := f.fs.Remove(temporary); err != nil {
		return err
	}
	w, err := f.fs.Create(temporary)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	if err == nil {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err == nil {
		err = f.fs.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, f.fs.Remove(temporary))
	}
	return f.fs.SyncDir(dir)
}

func (osFiles) Map(path string) ([]byte, func() error, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.Size() == 0 {
		return nil, func() error { return nil }, nil
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	return data, func() error { return unix.Munmap(data) }, nil
}

func (f osFiles) List(dir string) ([]string, error) { return f.fs.ReadDir(dir) }

func (f osFiles) Remove(path string) error { return f.fs.Remove(path) }

// SystemClock tells the machine's time.
func SystemClock() Clock { return systemClock{} }

type systemClock struct{}

func (systemClock) Now() time.Time                         { return time.Now() }
func (systemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
