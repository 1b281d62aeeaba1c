package duckdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// scratchPrefix begins the names of scratch directories.
const scratchPrefix = "pgmirror-sql-"

const scratchAttempts = 100

// scratch is a DB's own directory. Its lock is held as long as the process lives, so that what a killed one has left can be told
// from what another uses.
type scratch struct {
	dir  string
	lock *os.File
}

// newScratch makes a directory below parent, or below the system's directory for temporary files, and removes those that no
// process uses any more.
func newScratch(parent string) (_ *scratch, err error) {
	if parent == "" {
		parent = os.TempDir()
	} else if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	removeStale(parent)
	for attempt := 1; ; attempt++ {
		s := &scratch{}
		if s.dir, err = os.MkdirTemp(parent, scratchPrefix); err != nil {
			return nil, err
		}
		// Another process may take it for a stale one between the making of its lock file and the locking.
		if s.lock, err = lockScratch(s.dir, os.O_CREATE); err == nil {
			return s, nil
		}
		os.RemoveAll(s.dir)
		if attempt == scratchAttempts {
			return nil, fmt.Errorf("lock the scratch directory: %w", err)
		}
	}
}

// lockScratch locks a scratch directory. The lock ends with the file. One whose lock file was removed before it was locked is an error.
func lockScratch(dir string, flag int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|flag|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	held, err := f.Stat()
	named, nameErr := os.Lstat(f.Name())
	if err = errors.Join(err, nameErr); err == nil && !os.SameFile(held, named) {
		err = errors.New("the lock file was replaced")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// removeStale removes the scratch directories that are ours and not locked. One that is just being made has no lock file yet, and
// stays. It is a service to the next user of the disk, so what does not work is left for another time.
func removeStale(parent string) {
	entries, err := filepath.Glob(filepath.Join(parent, scratchPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range entries {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
			continue
		}
		if lock, err := lockScratch(dir, 0); err == nil {
			os.RemoveAll(dir)
			lock.Close()
		}
	}
}

// close removes the directory. It may be called twice, and on nil.
func (s *scratch) close() error {
	if s == nil {
		return nil
	}
	defer s.lock.Close()
	return os.RemoveAll(s.dir)
}
