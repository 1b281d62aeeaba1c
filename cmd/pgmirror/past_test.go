package main

import (
	"testing"
	"time"

	"pgmirror/readstate"
)

// --at and .pin take LSNs, times in PostgreSQL's and RFC 3339's forms, and how long ago; nothing else.
func TestParsePast(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ten := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]any{
		"16/B374D848":               readstate.LSN(0x16_B374D848),
		"2026-11-30 10:00:00+00":    ten,
		"2026-11-30T10:00:00Z":      ten,
		"2026-11-30 11:30:00+01:30": ten,
		"2026-11-30 10:00:00":       ten,
		"2026-11-30 10:00":          ten,
		"2026-11-30 10:00:00.25+00": ten.Add(250 * time.Millisecond),
		"2026-11-30":                ten.Add(-10 * time.Hour),
		"-2h":                       ten,
		"-0s":                       now,
		"0/0":                       nil, "": nil, "yesterday": nil, "5m": nil, "--5m": nil, "-": nil, "16-1": nil,
	} {
		at, moment, err := parsePast(text, now)
		var got any
		switch {
		case err == nil && at != 0:
			got = at
		case err == nil:
			if w, ok := want.(time.Time); ok && moment.Equal(w) {
				moment = w
			}
			got = moment
		}
		if got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}
