package main

import (
	"testing"
	"time"

	"pgmirror/mirror"
)

// The setting compact is read from a flag and from a file's mapping or word; what is not given stays the default, and what makes no sense is refused.
func TestCompaction(t *testing.T) {
	with := func(change func(*mirror.Compaction)) mirror.Compaction {
		c := defaultCompaction
		change(&c)
		return c
	}
	for text, want := range map[string]mirror.Compaction{
		"auto":            defaultCompaction,
		"off":             with(func(c *mirror.Compaction) { c.Off = true }),
		"{files: 100}":    with(func(c *mirror.Compaction) { c.Files = 100 }),
		"dead_ratio: 0.3": with(func(c *mirror.Compaction) { c.DeadRatio = 0.3 }),
		"{min_interval: 10m, window: 22:00-06:30, bytes_per_second: 50MiB}": with(func(c *mirror.Compaction) {
			c.MinInterval, c.BytesPerSecond = 10*time.Minute, 50<<20
			c.Window = mirror.DayWindow{From: 22 * time.Hour, To: 6*time.Hour + 30*time.Minute}
		}),
		"{window: 18:00-24:00}": with(func(c *mirror.Compaction) { c.Window = mirror.DayWindow{From: 18 * time.Hour, To: 24 * time.Hour} }),
	} {
		if text[0] == 'd' {
			text = "\n  " + text
		}
		values, faults := parseConfig("mirror.yaml", []byte("compact: "+text+"\n"))
		if len(faults) > 0 {
			t.Errorf("%q: %v", text, faults)
			continue
		}
		if got, err := parseCompaction(values["compact"].text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "on", "auto,files=64", "dead_ratio=0", "dead_ratio=NaN", "dead_ratio=1.1", "dead_ratio=half", "files=7", "files=10001", "files", "min_interval=5", "min_interval=-1s",
		"window=22-6", "window=22:00", "window=22:00-25:00", "window=06:00-06:00", "bytes_per_second=100", "bytes_per_second=fast", "rate=3"} {
		if got, err := parseCompaction(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got, err := parseCompaction("dead_ratio=0.5,files=64"); err != nil || got != defaultCompaction {
		t.Errorf("the default: %+v, %v", got, err)
	}
}
