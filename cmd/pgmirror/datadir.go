package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Names inside the data directory.
const (
	lockFile      = "lock"
	formatFile    = "FORMAT"
	newFormatFile = formatFile + ".new"
	catalogFile   = "catalog.db"
	warehouseDir  = "warehouse"
	indexDir      = "index"
	spillDir      = "spill"
	readsDir      = "reads" // what old read states see
	socketFile    = "pgmirror.sock"
	formatPrefix  = "pgmirror data format "
	formatVersion = 1
)

// errLocked says that another process holds the data directory.
var errLocked = errors.New("another pgmirror uses this data directory")

// A dataDir is a data directory that this process holds the lock of. Close gives it up; so does the process's end.
type dataDir struct {
	path string
	lock *os.File
}

// createDataDir opens path for run: it is made if it is absent, and an empty directory becomes a data directory. One with
// files of something else in it is refused.
func createDataDir(path string) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	err := checkFormatFile(path) // before anything in it is touched: it may be somebody's /etc
	if errors.Is(err, fs.ErrNotExist) {
		err = unusedDir(path)
	}
	if err != nil {
		return nil, err
	}
	if err := ownedAlone(path); err != nil {
		return nil, err
	}
	d, err := lockDataDir(path)
	if err != nil {
		return nil, err
	}
	if err := d.checkFormat(); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, d.Close())
		}
		if err := d.format(); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// openDataDir opens an existing data directory; one that is absent gives fs.ErrNotExist.
func openDataDir(path string) (*dataDir, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	if err := checkFormatFile(path); err != nil {
		return nil, err
	}
	return lockDataDir(path)
}

// ownedAlone takes the rights of others away: the files hold the source's rows.
func ownedAlone(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("data directory %s is not a directory", path)
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return fmt.Errorf("data directory %s is open to other users (%04o): %w", path, info.Mode().Perm(), err)
	}
	return nil
}

// lockDataDir takes the lock. A lock file that drop removed between the opening and the locking is given up for the new one.
func lockDataDir(path string) (*dataDir, error) {
	name := filepath.Join(path, lockFile)
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock data directory: %w", err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%s: %w", path, errLocked)
		} else if err != nil {
			err = fmt.Errorf("lock data directory %s: %w", path, err)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		held, err := f.Stat()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock data directory: %w", err), f.Close())
		}
		if named, err := os.Stat(name); err == nil && os.SameFile(held, named) {
			return &dataDir{path: path, lock: f}, nil
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("lock data directory: %w", err)
		}
	}
}

// Close gives up the lock. Calling it again does nothing.
func (d *dataDir) Close() error {
	if d.lock == nil {
		return nil
	}
	f := d.lock
	d.lock = nil
	return f.Close()
}

func (d *dataDir) join(name string) string { return filepath.Join(d.path, name) }

func (d *dataDir) checkFormat() error { return checkFormatFile(d.path) }

// checkFormatFile reads FORMAT. An absent one gives fs.ErrNotExist.
func checkFormatFile(path string) error {
	text, err := os.ReadFile(filepath.Join(path, formatFile))
	if err != nil {
		return fmt.Errorf("%s is no pgmirror data directory: %w", path, err)
	}
	number, ok := strings.CutPrefix(strings.TrimSpace(string(text)), formatPrefix)
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 {
		return fmt.Errorf("%s is damaged: expected %q and a number", filepath.Join(path, formatFile), strings.TrimSpace(formatPrefix))
	}
	if n > formatVersion {
		return fmt.Errorf("%s has data format %d, which a newer pgmirror wrote: this one knows formats up to %d", path, n, formatVersion)
	}
	return nil
}

// format makes a data directory of an empty directory. FORMAT is written whole and synced before anything else exists.
func (d *dataDir) format() error {
	if err := unusedDir(d.path); err != nil {
		return err
	}
	temporary := d.join(newFormatFile)
	if err := writeSynced(temporary, fmt.Sprintf("%s%d\n", formatPrefix, formatVersion)); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	if err := os.Rename(temporary, d.join(formatFile)); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	return syncDir(d.path)
}

// unusedDir refuses a directory that holds anything but what an interrupted format leaves.
func unusedDir(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	for _, e := range entries {
		if name := e.Name(); name != lockFile && name != newFormatFile {
			return fmt.Errorf("%s is no pgmirror data directory (it has no %s file) and is not empty: choose another one for data", path, formatFile)
		}
	}
	return nil
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}

// remove deletes what drop promises to delete, and nothing else. With everything, an empty directory goes too.
func (d *dataDir) remove(everything bool) (removed []string, err error) {
	names := []string{indexDir, spillDir, readsDir}
	if everything {
		names = append(names, warehouseDir, catalogFile, catalogFile+"-wal", catalogFile+"-shm", catalogFile+"-journal", socketFile, socketFile+".path", formatFile)
	}
	for _, name := range names {
		if _, err := os.Lstat(d.join(name)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.RemoveAll(d.join(name)); err != nil {
			return removed, fmt.Errorf("remove %s: %w", d.join(name), err)
		}
		removed = append(removed, name)
	}
	if !everything {
		return removed, nil
	}
	if err := os.Remove(d.join(lockFile)); err != nil {
		return removed, fmt.Errorf("remove %s: %w", d.join(lockFile), err)
	}
	if rest, err := os.ReadDir(d.path); err == nil && len(rest) == 0 {
		if err := os.Remove(d.path); err != nil {
			return removed, fmt.Errorf("remove data directory: %w", err)
		}
		removed = append(removed, d.path)
	}
	return removed, nil
}
