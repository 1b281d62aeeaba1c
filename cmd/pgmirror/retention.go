package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// retention is the setting snapshots.
type retention struct {
	keep  int           // checkpoints that stay readable; less than 0 is all
	age   time.Duration // of the oldest of them; 0 is no bound
	grace time.Duration // for which a file stays that no snapshot names any more
}

// defaultRetention keeps metadata small at any rate of checkpoints: a snapshot takes about 1 KB of a table's metadata file.
var defaultRetention = retention{keep: 100, age: 24 * time.Hour, grace: 10 * time.Minute}

// parseRetention reads off, or any of keep=N, age=DURATION and grace=DURATION, separated by commas; what is not given stays the default.
func parseRetention(v string) (retention, error) {
	r := defaultRetention
	for part := range strings.SplitSeq(v, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "off": // nothing expires
			r.keep, r.age = -1, 0
		case "keep":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > maxKeep {
				return r, fmt.Errorf("keep: %q is not a number between 1 and %d", value, maxKeep)
			}
			r.keep = n
		case "age", "grace":
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 {
				return r, fmt.Errorf("%s: %q is not a duration such as 24h or 10m", name, value)
			}
			if name == "age" {
				r.age = d
			} else {
				r.grace = d
			}
		default:
			return r, fmt.Errorf("%q is not off, keep=N, age=DURATION or grace=DURATION", part)
		}
	}
	return r, nil
}

// maxKeep bounds a table's metadata file to some 10 MB; every commit writes it anew.
const maxKeep = 10_000
