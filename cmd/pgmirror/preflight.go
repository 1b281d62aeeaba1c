package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pgmirror/iceberg"
	"pgmirror/mirror"
	"pgmirror/pgcdc"
)

// preflightLimit is how long a start waits for the answers of the quick check. A source that needs longer is left to the mirror,
// which tries again.
const preflightLimit = 20 * time.Second

// preflight makes the quick part of check. Before the first copy, its errors that would prevent the mirror are returned, and what
// else is wrong is logged once. A mirror that has its copy answers queries at once: there everything is logged, beside the
// mirror, which finds out by itself what stops it. A source that does not answer yet is asked again until it does. wait joins that.
func (a *app) preflight(ctx context.Context, s *settings, t target, dir *dataDir, log *slog.Logger) (wait func(), err error) {
	check := func(ctx context.Context) (*pgcdc.CheckReport, error) { return quickCheck(ctx, s, t, log) }
	if !copied(ctx, dir.path) {
		report, err := check(ctx)
		if err != nil {
			return checkLater(ctx, check, preflightPause, preflightPause, log), nil
		}
		if free, err := freeBytes(s.Data); err == nil {
			if f, found := diskFinding(s.Data, free, report.TableBytes); found {
				report.Findings = append(report.Findings, f)
			}
		}
		logFindings(report, false, log)
		return func() {}, prevented(report)
	}
	return checkLater(ctx, check, 0, preflightPause, log), nil
}

// preflightPause is the time between two attempts to check a source that does not answer.
const preflightPause = 5 * time.Second

// checkLater checks the source after first, and again after each pause until it answers, and logs what it finds. wait ends that.
func checkLater(ctx context.Context, check func(context.Context) (*pgcdc.CheckReport, error), first, pause time.Duration, log *slog.Logger) (wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait := first; ; wait = pause {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
			if report, err := check(ctx); err == nil {
				logFindings(report, true, log)
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// copied says whether the data directory has a first copy. A catalog that cannot be read has one: the mirror will say what is
// wrong with it.
func copied(ctx context.Context, data string) bool {
	if _, err := os.Stat(filepath.Join(data, catalogFile)); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	committed, err := iceberg.OpenReadOnly(ctx, iceberg.Config{Dir: data})
	if err != nil {
		return true
	}
	defer committed.Close()
	text, _ := committed.LastCommit()
	stored, err := mirror.ReadStored(text)
	return err != nil || stored.Copied()
}

// quickCheck asks the source. Of one that does not answer the mirror says so, and tries again.
func quickCheck(ctx context.Context, s *settings, t target, log *slog.Logger) (*pgcdc.CheckReport, error) {
	ctx, cancel := context.WithTimeout(ctx, preflightLimit)
	defer cancel()
	source, err := openSource(s, t, "", nil, log)
	if err == nil {
		defer source.Close()
		var report *pgcdc.CheckReport
		if report, err = source.Check(ctx, pgcdc.CheckOptions{NullUnrepresentable: s.OnUnrepresentable == "null", Quick: true}); err == nil {
			return report, nil
		}
	}
	log.Debug("the source could not be checked", "err", err)
	return nil, err
}

// logFindings logs warnings and errors; those that prevent a mirror only if all is set, for else they are returned to the caller.
func logFindings(report *pgcdc.CheckReport, all bool, log *slog.Logger) {
	for _, f := range report.Findings {
		ours := strings.HasPrefix(f.Check, "slot_") && f.Check != "slot_unreserved" // the mirror looks at its slot itself
		if f.Level == pgcdc.LevelNote || ours || f.Prevents() && !all {
			continue
		}
		fix := append(append(append([]string{}, f.Fix.SQL...), f.Fix.Config...), f.Fix.Shell...)
		if f.Fix.Restart {
			fix = append(fix, "restart the server")
		}
		if f.Fix.Advice != "" {
			fix = append(fix, f.Fix.Advice)
		}
		log.Warn("check: "+f.Problem, "check", f.Check, "object", f.Object, "why", f.Why, "fix", strings.Join(fix, " "))
	}
}

// prevented is the findings that make a mirror impossible, each with its fix; nil when there is none.
func prevented(report *pgcdc.CheckReport) error {
	var b strings.Builder
	n := 0
	for _, f := range report.Findings {
		if f.Prevents() {
			writeFinding(&b, f, report.Database)
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("the source is not ready: %s\n%s\n`pgmirror check` looks for more", plural(n, "error"), strings.TrimRight(b.String(), "\n"))
}
