package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"pgmirror/mirror"
)

// copyLook is the time between two looks at how far a first copy is.
const copyLook = 200 * time.Millisecond

// screenLog is standard error while a bar may stand below the log.
type screenLog struct {
	out io.Writer

	mu  sync.Mutex
	bar *progress
}

func (s *screenLog) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != nil {
		return s.bar.Write(text)
	}
	return s.out.Write(text)
}

func (s *screenLog) setBar(bar *progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bar = bar
}

// terminal is the terminal that a bar can be drawn on, if there is one.
func (s *screenLog) terminal() (*os.File, bool) {
	f, ok := s.out.(*os.File)
	return f, ok && isTerminal(f)
}

// showCopy shows how far the first copy is until everything is copied and followed: by a bar on a terminal, elsewhere by a line in
// the log every ten seconds.
func showCopy(ctx context.Context, m *mirror.Mirror, screen *screenLog, log *slog.Logger) {
	var bar *progress
	defer func() {
		if bar != nil {
			screen.setBar(nil)
			bar.end()
		}
	}()
	var began, told time.Time
	for ctx.Err() == nil && m.Ready() != nil {
		done, total := m.CopyProgress()
		terminal, drawable := screen.terminal()
		switch {
		case total == 0: // not begun
		case drawable:
			if bar == nil {
				bar = newProgress(terminal, "copy", total, "bytes")
				screen.setBar(bar)
			}
			bar.setTotal(total)
			bar.set(done)
		case began.IsZero():
			began, told = time.Now(), time.Now()
		case time.Since(told) >= linePause && done < total:
			told = time.Now()
			log.Info("copying", "done", size(done), "of", size(total), "left", timeLeft(done, total, time.Since(began)))
		}
		select {
		case <-time.After(copyLook):
		case <-ctx.Done():
		}
	}
}

// timeLeft is how long the rest takes if it goes on as before.
func timeLeft(done, total int64, elapsed time.Duration) string {
	if done <= 0 {
		return "unknown"
	}
	return clock(time.Duration(float64(elapsed) / float64(done) * float64(total-done)))
}
