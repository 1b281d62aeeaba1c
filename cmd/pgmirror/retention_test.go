package main

import (
	"testing"
	"time"
)

// The setting snapshots is read from a flag and from a file's mapping or word; what is not given stays the default, and what makes no sense is refused.
func TestRetention(t *testing.T) {
	for text, want := range map[string]retention{
		"keep: 3":            {3, 24 * time.Hour, 10 * time.Minute},
		"{keep: 7, age: 1h}": {7, time.Hour, 10 * time.Minute},
		"{grace: 0s}":        {100, 24 * time.Hour, 0},
		"off":                {-1, 0, 10 * time.Minute},
	} {
		if text[0] == 'k' {
			text = "\n  " + text
		}
		values, faults := parseConfig("mirror.yaml", []byte("snapshots: "+text+"\n"))
		if len(faults) > 0 {
			t.Errorf("%q: %v", text, faults)
			continue
		}
		if got, err := parseRetention(values["snapshots"].text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "keep", "keep=0", "keep=10001", "keep=-1", "age=1", "age=-1h", "grace=soon", "days=3", "on"} {
		if got, err := parseRetention(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got, err := parseRetention("keep=100,age=24h,grace=10m"); err != nil || got != defaultRetention {
		t.Errorf("the default: %+v, %v", got, err)
	}
}
