package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgmirror/mirror"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

// A time reads the state after the last commit made by then, and the change feed has every version that came and went, from memory and from files; beyond the
// window, which a restart ends, a checkpoint is read, also while no mirror runs.
func TestPast(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, n int)", "insert into t values (1, 10), (2, 20)"}, "--history", "10m", "--checkpoint-interval", "1h")
	begin := m.WaitReady().VisibleLSN
	pg.Exec("begin; insert into t values (3, 30); update t set n = 11 where id = 1; insert into t values (9, 9); delete from t where id = 9; commit")
	m.SQL("from t")
	m.Checkpoint()
	cut := m.WaitReady().DurableLSN
	pg.Exec("select pg_sleep(0.05)")
	moment := pg.QueryRow("select to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS.US') || '+00'")
	pg.Exec("select pg_sleep(0.05)", "alter table t add column late text default 'x'", "insert into t values (4, 40)")
	expect(t, "the new column", m.SQL("select late from t where id = 4"), "x")
	pg.Exec("truncate t", "insert into t values (5, 50, 'y')")
	expect(t, "now", m.SQL("from t"), "5|50|y")
	rows := "select id, n from t order by id"
	before := []string{"1|11", "2|20", "3|30"}
	expect(t, "at "+moment, m.SQLWith(rows, "--at", moment), before...)
	feed := "select _change, id, n, late, dense_rank() over (order by _lsn) from pgmirror_changes('t', '" + begin + "') order by _lsn, _change, id"
	expect(t, "the feed", m.SQL(feed), "delete|1|10|x|1", "insert|1|11|x|1", "insert|3|30|x|1", "insert|4|40|x|2",
		"delete|1|11|x|3", "delete|2|20|x|3", "delete|3|30|x|3", "delete|4|40|x|3", "insert|5|50|y|4")
	expect(t, "up to the cut", m.SQL("select count(*) from pgmirror_changes('public.t', '"+begin+"', '"+cut+"')"), "3")
	if _, err := m.TrySQL("from pgmirror_changes('t', '0/1')"); err == nil || !strings.Contains(err.Error(), "changes are known from") {
		t.Errorf("below the window: %v", err)
	}
	m.Checkpoint()
	restart(m)
	expect(t, "the checkpoint by its LSN", m.SQLWith(rows, "--at", cut), before...)
	expect(t, "the checkpoint by a time", m.SQLWith("select * from t order by id", "--at", moment), before...) // in the columns of then
	if _, err := m.TrySQL("from pgmirror_changes('t', '" + begin + "')"); err == nil || !strings.Contains(err.Error(), "changes are known from") {
		t.Errorf("after the restart: %v", err)
	}
	if _, err := m.TrySQL(rows, "--at", "2001-01-01"); err == nil || !strings.Contains(err.Error(), "the oldest is") {
		t.Errorf("before everything: %v", err)
	}
	m.Stop()
	expect(t, "with no mirror", m.SQLWith(rows, "--at", moment), before...)
}

// A checkpoint beyond the window does not expire while a statement's transaction reads it; afterwards it does.
func TestPastIsHeld(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, n int)"}, "--checkpoint-interval", "1h", "--compact", "off", "--snapshots", "keep=2,age=1h,grace=0s")
	round := func() (cut string) {
		t.Helper()
		pg.Exec("truncate t", "insert into t select i, i from generate_series(1, 1000) i", "update t set n = 0 where id = 1")
		m.SQL("from t limit 0")
		m.Checkpoint()
		return m.WaitReady().DurableLSN
	}
	cut := round()
	round()
	reader := startReader(t, m, "--at", cut)
	reader.ask("begin; select count(*) c from t;", "1000")
	for range 4 {
		round()
	}
	held := func() bool {
		t.Helper()
		out, stderr, code := m.Command("inspect", "t", "--json")
		var report mirror.InspectReport
		if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
			t.Fatalf("exit code %d: %s%s, %v", code, out, stderr, err)
		}
		return slices.ContainsFunc(report.Snapshots, func(s mirror.InspectSnapshot) bool {
			return s.LSN == cut && slices.Equal(s.HeldBy, []string{"read state"})
		})
	}
	if !held() {
		t.Error("inspect names no snapshot that the reader holds")
	}
	reader.ask("select sum(n) s from t;", "500499")
	if out, stderr, code := m.Command("resync", "t"); code != 0 { // the table that is read goes
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	m.Checkpoint()
	if out, stderr, code := m.Command("expire"); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	reader.ask("select sum(n + 1) s from t;", "501499")
	if err := reader.end(); err != nil {
		t.Error(err)
	}
	within(t, "it has expired", func() bool {
		_, _, code := m.Command("expire")
		return code == 0 && !held()
	})
	if _, err := m.TrySQL("from t", "--at", cut); err == nil || !strings.Contains(err.Error(), "is no retained checkpoint") {
		t.Errorf("after it has expired: %v", err)
	}
}

// A transaction that is open when run ends and comes again is told that what it reads is gone.
func TestTransactionOverRestart(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, n int)", "insert into t select i, i from generate_series(1, 1000) i"},
		"--checkpoint-interval", "1h", "--snapshots", "keep=1,age=0s,grace=0s")
	reader := startReader(t, m)
	reader.ask("begin; select count(*) c from t;", "1000")
	restart(m)
	pg.Exec("truncate t")
	m.SQL("from t limit 0")
	within(t, "the file is gone", func() bool {
		m.Checkpoint()
		files, err := filepath.Glob(filepath.Join(m.Data(), "warehouse", "*", "*", "data", "*.parquet"))
		return err == nil && len(files) == 0
	})
	reader.tell("select sum(n) s from t;")
	if err := reader.end(); err == nil || !strings.Contains(err.Error(), readstate.ErrLost.Error()) || !strings.Contains(err.Error(), "the read state at ") {
		t.Errorf("%v", err)
	}
}

// reader is a sql process that is told one line after the other.
type reader struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	errs  bytes.Buffer
}

func startReader(t *testing.T, m *Mirror, flags ...string) *reader {
	t.Helper()
	r := &reader{t: t, cmd: exec.Command(program, append([]string{"sql", "--data", m.Data(), "--format", "csv"}, flags...)...)}
	r.cmd.Env, r.cmd.SysProcAttr, r.cmd.Stderr = environment(), harness.ChildProc(), &r.errs
	in, err := r.cmd.StdinPipe()
	must(t, err)
	out, err := r.cmd.StdoutPipe()
	must(t, err)
	must(t, r.cmd.Start())
	t.Cleanup(func() { r.cmd.Process.Kill(); r.cmd.Wait() })
	r.in, r.lines = in, bufio.NewScanner(out)
	return r
}

func (r *reader) tell(statements string) {
	r.t.Helper()
	_, err := io.WriteString(r.in, statements+"\n")
	must(r.t, err)
}

// ask tells statements with one answer, of one value.
func (r *reader) ask(statements, want string) {
	r.t.Helper()
	r.tell(statements)
	if !r.lines.Scan() || !r.lines.Scan() || r.lines.Text() != want {
		r.t.Fatalf("%s: %q, want %q; %s", statements, r.lines.Text(), want, r.errs.String())
	}
}

// end closes the input; the error has what the process wrote on stderr.
func (r *reader) end() error {
	r.in.Close()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, r.errs.String())
	}
	return nil
}
