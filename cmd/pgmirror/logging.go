package main

import (
	"io"
	"log/slog"
)

// newLog writes to standard error as the settings say. It is given no row, no source URL and no password by anybody.
func newLog(s *settings, stderr io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: s.LogLevel, ReplaceAttr: readableDuration}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(stderr, options))
	}
	return slog.New(slog.NewTextHandler(stderr, options))
}

// readableDuration writes durations with their unit, in JSON too, where they would be a number of nanoseconds.
func readableDuration(_ []string, attr slog.Attr) slog.Attr {
	if attr.Value.Kind() == slog.KindDuration {
		return slog.String(attr.Key, attr.Value.Duration().String())
	}
	return attr
}
