package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pgmirror/pgcdc"
)

// freeBytes is the space that is free for us where a directory is or would be made.
func freeBytes(dir string) (uint64, error) {
	for path := dir; ; path = filepath.Dir(path) {
		var stat unix.Statfs_t
		err := unix.Statfs(path, &stat)
		switch {
		case err == nil:
			return stat.Bavail * uint64(stat.Bsize), nil
		case errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path):
		default:
			return 0, fmt.Errorf("free space at %s: %w", path, err)
		}
	}
}

// diskFinding judges whether a first copy of the tables fits; after it, part of them is there already. Parquet is smaller than the source's pages as a rule, but index files, memory
// batches on their way to disk and the files that a checkpoint replaces want room too.
func diskFinding(dir string, free uint64, tableBytes int64) (pgcdc.Finding, bool) {
	_, err := os.Stat(filepath.Join(dir, catalogFile))
	if err == nil || tableBytes < 0 || free >= uint64(tableBytes) {
		return pgcdc.Finding{}, false
	}
	return pgcdc.Finding{
		Level: pgcdc.LevelWarning, Check: "disk", Object: "data directory " + dir,
		Problem: size(int64(free)) + " are free there; the tables take " + size(tableBytes) + " on the source",
		Why:     "when the disk is almost full the mirror is paused, and the source keeps its WAL until it goes on",
		Fix:     pgcdc.Fix{Advice: "free space, or set data to a directory on a larger disk"},
	}, true
}
