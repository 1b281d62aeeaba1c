package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"pgmirror/iceberg"
	"pgmirror/mirror"
	"pgmirror/readstate"
)

// verifyAlone compares without a running mirror: it runs one until it has compared, with no socket and no HTTP port. Ctrl-C stops it
// in order, as it stops run.
func (a *app) verifyAlone(ctx context.Context, s *settings, request mirror.VerifyRequest, shown *verifyProgress) ([]byte, error) {
	dir, err := openDataDir(s.Data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cannotRun(fmt.Errorf("%w, and there is no mirror in %s to compare", readstate.ErrNotRunning, s.Data))
	}
	if err != nil {
		return nil, cannotRun(err)
	}
	defer dir.Close()
	known, err := loadStored(ctx, dir)
	if err != nil {
		return nil, cannotRun(err)
	}
	if !known.Copied() {
		return nil, cannotRun(fmt.Errorf("the first copy into %s was never finished, so there is nothing to compare: start pgmirror run", s.Data))
	}
	t, err := s.target()
	if err != nil {
		return nil, cannotRun(fmt.Errorf("%w (%s), and without it verify needs the source: %w", readstate.ErrNotRunning, s.Data, err))
	}
	if err := a.recall(ctx, s, &t, dir); err != nil {
		return nil, err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s.LogLevel = max(s.LogLevel, slog.LevelWarn)
	report, err := compareAlone(ctx, s, t, dir, newLog(s, shown), request, shown.line)
	if err != nil {
		return nil, cannotRun(fmt.Errorf("verify: %w", err))
	}
	answer, err := json.Marshal(report)
	if err != nil {
		return nil, cannotRun(fmt.Errorf("verify: %w", err))
	}
	return answer, nil
}

func compareAlone(ctx context.Context, s *settings, t target, dir *dataDir, log *slog.Logger, request mirror.VerifyRequest, progress func(string)) (report *mirror.VerifyReport, err error) {
	warehouse, err := iceberg.Open(ctx, iceberg.Config{Dir: dir.path, Log: log, KeepSnapshots: s.Snapshots.keep, KeepAge: s.Snapshots.age})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, warehouse.Close()) }()
	source, err := openSource(s, t, dir.join(spillDir), nil, log)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	m, err := newMirror(s, t, dir, source, warehouse, nil, log)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	group, comparing := errgroup.WithContext(running)
	group.Go(func() error { return m.Run(running) })
	group.Go(func() (err error) {
		defer stop()
		if err := m.WaitStreaming(comparing); err != nil {
			return err
		}
		report, err = m.Verify(comparing, request, progress)
		return err
	})
	err = group.Wait()
	return report, err
}
