package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgmirror/mirror"
	"pgmirror/test/harness"
	"pgmirror/test/harness/running"
)

// program is the pgmirror under test, built by TestMain.
var program string

// patience bounds every wait. It is far above what a loaded machine with two cores needs, so that only a hang meets it.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	program = os.Getenv("PGMIRROR_BIN")
	if program == "" {
		dir, err := os.MkdirTemp("", "pgmirror-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "pgmirror")
		build := exec.Command("go", "build", "-o", program, "pgmirror/cmd/pgmirror")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build pgmirror: %v\n%s", err, out)
			return 1
		}
	}
	code := m.Run()
	if err := closeReaders(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// mirrorRole is the role that every Mirror connects as. It may log in, replicate and read, and nothing else.
const mirrorRole = "mirror"

// Mirror is one data directory and the `pgmirror run` on it, if one runs. Its methods are for the goroutine of the test, except TrySQL,
// Command and Status. It ends with the test; when the test fails, its log is shown.
type Mirror struct {
	t       testing.TB
	source  string
	data    string
	args    []string
	logPath string
	run     *harness.Process // nil when none was started, or its end was seen
}

// NewMirror prepares a mirror of a publication of the database postgres without starting it. The server must have the role
// (harness.CreateMirrorRole); args are more flags of `run`.
func NewMirror(t testing.TB, pg *harness.Postgres, publication string, args ...string) *Mirror {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgm") // a short name: a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	m := &Mirror{t: t, source: pg.URL(mirrorRole, "postgres"), data: filepath.Join(dir, "data"), logPath: filepath.Join(dir, "log")}
	m.args = append([]string{"--publication", publication, "--listen", "off", "--log-level", "debug"}, args...)
	t.Cleanup(func() {
		m.Kill()
		if t.Failed() {
			t.Logf("log of %s:\n%s", m.data, m.LastLog(20_000))
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return m
}

// StartMirror starts a mirror and waits until it is ready.
func StartMirror(t testing.TB, pg *harness.Postgres, publication string, args ...string) *Mirror {
	t.Helper()
	m := NewMirror(t, pg, publication, args...)
	m.Start()
	m.WaitReady()
	return m
}

// Data is the data directory.
func (m *Mirror) Data() string { return m.data }

// SetSource makes the next Start connect to another source.
func (m *Mirror) SetSource(url string) { m.source = url }

// Start starts `pgmirror run`, with more flags for this life only, and returns at once.
func (m *Mirror) Start(args ...string) {
	m.t.Helper()
	if m.Running() {
		m.t.Fatal("pgmirror runs already")
	}
	all := append([]string{"run", "--source", m.source, "--data", m.data}, m.args...)
	cmd := exec.Command(program, append(all, args...)...)
	cmd.Env = environment()
	run, err := harness.StartProcess(cmd, m.logPath)
	if err != nil {
		m.t.Fatal(err)
	}
	m.run = run
}

// environment is ours without what would configure pgmirror or libpq, and with a time zone other than UTC.
func environment() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "TZ=") {
			env = append(env, entry)
		}
	}
	return append(env, "TZ=Asia/Kolkata")
}

// Running says whether the process lives.
func (m *Mirror) Running() bool { return m.run != nil && m.run.Running() }

// Kill ends the process with SIGKILL, if it runs, and waits for it.
func (m *Mirror) Kill() {
	if m.run != nil {
		m.run.Kill()
		m.run = nil
	}
}

// Stop sends SIGTERM and waits for the exit code, at most for patience.
func (m *Mirror) Stop() int {
	m.t.Helper()
	if m.run == nil {
		m.t.Fatal("stop: pgmirror does not run")
	}
	if err := m.run.Signal(syscall.SIGTERM); err != nil {
		m.t.Fatal(err)
	}
	return m.WaitExit()
}

// WaitExit waits until the process ends by itself and returns its exit code, -1 after a signal.
func (m *Mirror) WaitExit() int {
	m.t.Helper()
	if err := m.run.Wait(patience); err != nil {
		m.t.Fatal(err)
	}
	code := m.run.ExitCode()
	m.run = nil
	return code
}

// Status is what `status --json` prints; an error says that nothing answers.
func (m *Mirror) Status() (*mirror.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return running.Status(ctx, m.data)
}

// WaitStatus waits until the running mirror's status satisfies ok, and returns it. It ends the test when the process ends or
// patience does.
func (m *Mirror) WaitStatus(what string, ok func(*mirror.Status) bool) *mirror.Status {
	m.t.Helper()
	var last *mirror.Status
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		status, err := m.Status()
		if err == nil && ok(status) {
			return status
		}
		if err == nil {
			last = status
		}
		if !m.Running() {
			m.t.Fatalf("wait until %s: pgmirror has ended", what)
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("wait until %s: not within %s, last status %+v, %v", what, patience, last, err)
		}
	}
}

// WaitReady waits until the source is connected, the first copy is done and reads are open. Failed tables do not hold it.
func (m *Mirror) WaitReady() *mirror.Status {
	m.t.Helper()
	return m.WaitStatus("ready", func(s *mirror.Status) bool {
		for _, table := range s.Tables {
			if table.State == "copying" {
				return false
			}
		}
		return s.State == "streaming" && len(s.Tables) > 0
	})
}

// Table finds a table's part of a status by "schema.table".
func Table(t testing.TB, s *mirror.Status, name string) mirror.TableStatus {
	t.Helper()
	for _, table := range s.Tables {
		if table.Name == name {
			return table
		}
	}
	t.Fatalf("status shows no table %s", name)
	return mirror.TableStatus{}
}

// Command runs any other command on the data directory to its end.
func (m *Mirror) Command(args ...string) (stdout, stderr string, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append(args, "--data", m.data)...)
	cmd.Env = environment()
	cmd.SysProcAttr = harness.ChildProc()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return out.String(), err.Error(), -1
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// SQL runs statements once everything that the source has committed is visible, and returns the rows of the last one. NULL is
// harness's "<null>".
func (m *Mirror) SQL(statements string) [][]string {
	m.t.Helper()
	return m.SQLWith(statements, "--wait-lsn", "source")
}

// SQLWith is SQL with other flags in the place of --wait-lsn source.
func (m *Mirror) SQLWith(statements string, flags ...string) [][]string {
	m.t.Helper()
	rows, err := m.TrySQL(statements, flags...)
	if err != nil {
		m.t.Fatal(err)
	}
	return rows
}

// TrySQL is SQLWith for statements that may fail. The error holds what the command wrote to standard error.
func (m *Mirror) TrySQL(statements string, flags ...string) ([][]string, error) {
	out, errs, code := m.Command(append([]string{"sql", "--format", "csv", "-c", statements}, flags...)...)
	if code != 0 {
		return nil, fmt.Errorf("%s: exit code %d: %s", statements, code, errs)
	}
	rows, err := parseCSV(out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", statements, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: no header", statements)
	}
	return rows[1:], nil
}

// Checkpoint makes everything visible durable.
func (m *Mirror) Checkpoint() {
	m.t.Helper()
	if _, errs, code := m.Command("checkpoint"); code != 0 {
		m.t.Fatalf("checkpoint: exit code %d: %s", code, errs)
	}
}

// Verify runs `pgmirror verify` and ends the test unless every table is equal.
func (m *Mirror) Verify(tables ...string) {
	m.t.Helper()
	if out, errs, code := m.Command(append([]string{"verify"}, tables...)...); code != 0 {
		m.t.Fatalf("verify: exit code %d\n%s%s", code, out, errs)
	}
}

// Log is everything that the runs on this data directory have logged.
func (m *Mirror) Log() string {
	log, err := os.ReadFile(m.logPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	return string(log)
}

// LastLog is the end of Log.
func (m *Mirror) LastLog(bytes int) string {
	log := m.Log()
	return log[max(0, len(log)-bytes):]
}
