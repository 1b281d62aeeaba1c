package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"pgmirror/mirror"
)

// defaultCompaction is the setting compact without anything given.
var defaultCompaction = mirror.Compaction{DeadRatio: 0.5, Files: 64}

// parseCompaction reads auto, off, or any of dead_ratio=PART, files=N, min_interval=DURATION, window=HH:MM-HH:MM and bytes_per_second=SIZE, separated by
// commas; what is not given stays the default.
func parseCompaction(v string) (mirror.Compaction, error) {
	c := defaultCompaction
	if v == "auto" {
		return c, nil
	}
	if v == "off" {
		c.Off = true
		return c, nil
	}
	for part := range strings.SplitSeq(v, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		var err error
		switch name {
		case "dead_ratio":
			if c.DeadRatio, err = strconv.ParseFloat(value, 64); err != nil || !(c.DeadRatio >= 0.05 && c.DeadRatio <= 1) { // NaN too
				err = fmt.Errorf("%q is not a number between 0.05 and 1", value)
			}
		case "files":
			if c.Files, err = strconv.Atoi(value); err != nil || c.Files < 8 || c.Files > 10_000 {
				err = fmt.Errorf("%q is not a number between 8 and 10000", value)
			}
		case "min_interval":
			if c.MinInterval, err = time.ParseDuration(value); err != nil || c.MinInterval < 0 || c.MinInterval > 30*24*time.Hour {
				err = fmt.Errorf("%q is not a duration such as 10m, of 720h at most", value)
			}
		case "window":
			c.Window, err = parseWindow(value)
		case "bytes_per_second":
			c.BytesPerSecond, err = parseSize(value)
			if err == nil && c.BytesPerSecond != 0 && c.BytesPerSecond < minPace {
				err = fmt.Errorf("%s is less than 1MiB", value)
			}
		default:
			return c, fmt.Errorf("%q is not auto, off, dead_ratio=PART, files=N, min_interval=DURATION, window=HH:MM-HH:MM or bytes_per_second=SIZE", part)
		}
		if err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, nil
}

// minPace keeps a slip of the unit from stopping compaction.
const minPace = 1 << 20

// parseWindow reads HH:MM-HH:MM, in UTC. 24:00 is the end of the day.
func parseWindow(v string) (mirror.DayWindow, error) {
	from, to, ok := strings.Cut(v, "-")
	var w mirror.DayWindow
	var err error
	if ok {
		w.From, err = parseTimeOfDay(from)
	}
	if ok && err == nil {
		w.To, err = parseTimeOfDay(to)
	}
	switch {
	case !ok || err != nil:
		return w, fmt.Errorf("%q is not a part of the day such as 22:00-06:00", v)
	case w.From == w.To:
		return w, errors.New("begins when it ends; leave it out for all of the day")
	}
	return w, nil
}

func parseTimeOfDay(v string) (time.Duration, error) {
	if v == "24:00" {
		return 24 * time.Hour, nil
	}
	at, err := time.Parse("15:04", v)
	if err != nil {
		return 0, err
	}
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, nil
}
