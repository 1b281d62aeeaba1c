package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// The first signal cancels the work and waits for it; the second, or the limit, does not wait; an end by itself is passed on.
func TestUntilStopped(t *testing.T) {
	broken := errors.New("broken")
	stopsIn := func(d time.Duration) func(context.Context) error {
		return func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(d)
			return nil
		}
	}
	for _, c := range []struct {
		name    string
		work    func(context.Context) error
		signals []os.Signal // half a second apart
		want    error
		took    time.Duration
	}{
		{"a clean stop", stopsIn(5 * time.Second), []os.Signal{syscall.SIGTERM}, nil, 5 * time.Second},
		{"a second signal", stopsIn(5 * time.Second), []os.Signal{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGINT}, errCutShort, time.Second},
		{"a signal sent twice", stopsIn(5 * time.Second), []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, nil, 5 * time.Second},
		{"a stop that hangs", stopsIn(time.Hour), []os.Signal{syscall.SIGINT}, errCutShort, stopLimit},
		{"a failure", func(context.Context) error { return broken }, nil, broken, 0},
		{"a failure while stopping", func(ctx context.Context) error { <-ctx.Done(); return broken }, []os.Signal{syscall.SIGTERM}, broken, 0},
		{"a stop before the start", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, []os.Signal{syscall.SIGTERM}, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			signals := make(chan os.Signal, 2)
			begin := time.Now()
			go func() {
				for _, s := range c.signals {
					signals <- s
					time.Sleep(500 * time.Millisecond)
				}
			}()
			err := untilStopped(context.Background(), signals, stopLimit, slog.New(slog.DiscardHandler), c.work)
			if took := time.Since(begin); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || took != c.took {
				t.Errorf("%s: %v after %s", c.name, err, took)
			}
			time.Sleep(2 * time.Hour) // what was left running ends
		})
	}
}

// The command line's own mistakes are exit code 2 and name what is wrong, before anything is touched.
func TestUsageFaults(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"PGHOST", "PGDATABASE", "PGSERVICE"} {
		t.Setenv(name, "")
	}
	for _, c := range []struct {
		args string
		env  string
		want string
	}{
		{"", "", ""},
		{"nonsense", "", "unknown command \"nonsense\""},
		{"run --nonsense", "", "Run 'pgmirror run --help'"},
		{"run extra", "", `unexpected argument "extra" for "pgmirror run"`},
		{"run --create-publication shop", "", "--create-publication=shop"},
		{"drop --publication shop", "", "--publication=shop"},
		{"sql SELECT", "", "SQL goes after -c"},
		{"run", "", "source is not set"},
		{"run --source postgres://h/d", "", "publication is not set"},
		{"run --source postgres://h:x/d --publication p", "", "invalid port"},
		{"run --source postgres://h/d --publication p --slot UP --batch-rows 0", "", "2 settings are wrong"},
		{"run --source postgres://h/d --publication p,q --create-publication=a", "", "exactly one"},
		{"run --source postgres://h/d --publication p --create-publication=\"a", "", "open double quote"},
		{"run --source postgres://h/d --publication p --listen 0.0.0.0:1", "", "set token"},
		{"run --token 0123456789abcdef", "", "unknown flag"},
		{"status", "PGMIRROR_LOG_LEVEL=loud", "PGMIRROR_LOG_LEVEL"},
		{"status --config absent.yaml", "", "absent.yaml"},
		{"inspect", "", "accepts 1 arg"},
		{"sql -c x -f y", "", "exclude each other"},
		{"sql -c x --format xml", "", "--format"},
		{"sql -c x --at 12", "", "--at"},
		{"sql -c x --wait-lsn soon", "", "--wait-lsn"},
		{"sql -c x --wait-lsn source --at 0/1", "", "exclude each other"},
		{"sql -c x --wait-timeout 0s", "", "--wait-timeout"},
		{"sql -f absent.sql", "", "absent.sql"},
		{"drop --yes", "", "source is not set"},
		{"drop --yes --source postgres://h/d --publication", "", "which publication"},
	} {
		var out, errs strings.Builder
		code := execute(t.Context(), strings.Fields(c.args), program{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, environ: []string{c.env}})
		if c.args == "" {
			if code != exitOK || !strings.Contains(out.String(), "Usage:") {
				t.Errorf("no arguments: %d %s", code, out.String())
			}
			continue
		}
		if code != exitUsage || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%q: exit code %d, %s", c.args, code, errs.String())
		}
	}
	var out strings.Builder
	if code := execute(t.Context(), []string{"--version"}, program{stdout: &out, stderr: io.Discard}); code != exitOK || !strings.HasPrefix(out.String(), "pgmirror devel (commit ") {
		t.Errorf("--version: exit code %d, %s", code, out.String())
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("something was made: %v, %v", entries, err)
	}
}

// Commands that need a running mirror say so with exit code 3.
func TestNotRunning(t *testing.T) {
	t.Chdir(t.TempDir())
	mustCreate(t, "data")
	for _, args := range []string{"status --data data", "checkpoint --data data", "verify --data data", "inspect t --data data", "status --data absent",
		"sql -c x --data absent", "sql -c x --wait-lsn source --data data"} {
		var errs strings.Builder
		code := execute(t.Context(), strings.Fields(args), program{stdin: strings.NewReader(""), stdout: &errs, stderr: &errs})
		if code != exitCannotRun || errs.Len() == 0 {
			t.Errorf("%q: exit code %d, %s", args, code, errs.String())
		}
	}
}

// run refuses a data directory that another one uses, with exit code 3.
func TestRunRefusesSecondInstance(t *testing.T) {
	t.Chdir(t.TempDir())
	d, err := createDataDir("data")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var errs strings.Builder
	code := execute(t.Context(), strings.Fields("run --source postgres://h/d --publication p --data data --listen off"), program{stdout: &errs, stderr: &errs})
	if code != exitCannotRun || !strings.Contains(errs.String(), "another pgmirror uses") {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}

func TestVersion(t *testing.T) {
	var out strings.Builder
	if code := execute(t.Context(), []string{"version"}, program{stdout: &out, stderr: &out}); code != exitOK || !strings.HasPrefix(out.String(), "pgmirror "+version+" (commit ") {
		t.Errorf("%d, %s", code, out.String())
	}
}
