package main

import (
	"io"
	"log/slog"
)

// newLog writes to standard error as the settings say. It is given no row, no source URL and no password by anybody.
func newLog(s *settings, stderr io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: s.LogLevel}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(stderr, options))
	}
	return slog.New(slog.NewTextHandler(stderr, options))
}
