package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Lines have the chosen form and level, and durations have their unit in both forms.
func TestLog(t *testing.T) {
	for format, want := range map[string]string{"text": "level=INFO msg=done took=1.5s", "json": `"level":"INFO","msg":"done","took":"1.5s"`} {
		var out strings.Builder
		log := newLog(&settings{LogFormat: format, LogLevel: slog.LevelInfo}, &out)
		log.Debug("hidden")
		log.Info("done", "took", 1500*time.Millisecond)
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "hidden") {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}
