package main

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pgmirror/mirror"
)

// diskRule is how much must stay free on the data directory's disk: bytes, a share of the disk in percent, or, when both are 0 and auto is
// set, autoFree but at most autoShare of the disk.
type diskRule struct {
	bytes   int64
	percent float64
	auto    bool
}

// A checkpoint of what memory held, the metadata of all tables and the catalogue's log fit into a gigabyte; of a small disk that would be most.
const (
	autoFree  = 1 << 30
	autoShare = 5 // percent
)

// of is the rule in bytes, for a disk of so many.
func (r diskRule) of(size int64) int64 {
	switch {
	case r.auto:
		return min(autoFree, size/100*autoShare)
	case r.percent > 0:
		return int64(float64(size) * r.percent / 100)
	}
	return r.bytes
}

func parseDiskRule(v string) (r diskRule, err error) {
	if v == "auto" {
		return diskRule{auto: true}, nil
	}
	if share, ok := strings.CutSuffix(v, "%"); ok {
		r.percent, err = strconv.ParseFloat(strings.TrimSpace(share), 64)
		if err != nil || !(r.percent >= 0 && r.percent <= 90) {
			return r, fmt.Errorf("%q is not a share between 0%% and 90%%", v)
		}
		return r, nil
	}
	r.bytes, err = parseSize(v)
	return r, err
}

// newDisk watches the disk of a directory.
func newDisk(dir string, rule diskRule) *mirror.Disk {
	stat := func(of func(unix.Statfs_t) int64) func() (int64, error) {
		return func() (int64, error) {
			var s unix.Statfs_t
			if err := unix.Statfs(dir, &s); err != nil {
				return 0, fmt.Errorf("free space at %s: %w", dir, err)
			}
			return of(s), nil
		}
	}
	return mirror.NewDisk(
		stat(func(s unix.Statfs_t) int64 { return rule.of(int64(s.Blocks) * int64(s.Bsize)) }),
		stat(func(s unix.Statfs_t) int64 { return int64(s.Bavail) * int64(s.Bsize) }))
}
