package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// What status tells of the source, the lag and each table is what the source and the tables say; a failed table is in status and
// in a metric (S-U2); after the run has ended, status shows what the last checkpoint left, says that nothing runs, and ends with 3.
func TestStatusFigures(t *testing.T) {
	t.Parallel()
	address := httpAddress(t)
	pg, m := scene(t, []string{"create table t(id int primary key, v text)", "create table bad(id int primary key, d time)", "create table u(id int)",
		"insert into t select g, 'x' from generate_series(1, 1000) g"}, "--checkpoint-interval", "1h", "--listen", address)
	pg.Exec("delete from t where id <= 10", "insert into bad values (1, '24:00')")
	refusedTable(t, m, "public.bad", "24:00:00")
	m.Checkpoint()
	at := pg.QueryRow(insertLSN)
	s := m.WaitStatus("nothing lags", func(s *mirror.Status) bool {
		return s.LagBytes == 0 && lsnAtLeast(pg, "select '"+s.SourceLSN+"'::pg_lsn", at)
	})
	if x := Table(t, s, "public.t"); s.LagSeconds != 0 || s.SlotWALStatus != "reserved" || x.Rows != 990 || x.Files != 1 || x.Vectors != 1 || x.DeletedRows != 10 {
		t.Fatalf("%+v", s)
	}
	if _, metrics := httpGet(t, "http://"+address+"/metrics"); !strings.Contains(metrics, `pgmirror_table_failed{relation="public.bad"} 1`) || !strings.Contains(metrics, `pgmirror_table_failed{relation="public.t"} 0`) {
		t.Fatalf("metrics:\n%s", metrics)
	}
	for _, page := range []func() string{
		func() string { out, _, _ := m.Command("status"); return out },
		func() string { _, text := httpGet(t, "http://"+address+"/"); return text },
	} {
		text := page()
		for _, want := range []string{": streaming\n", "lag                   none\n", "1 deletion vector\n", "last checkpoint", "public.bad: ", "remedy: "} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
	}

	for _, name := range []string{"t", "public.t", `"t"`, `"public"."t"`} {
		if out, errs, code := m.Command("inspect", name); code != 0 || !strings.HasPrefix(out, "table: public.t\n") {
			t.Errorf("inspect %s: exit code %d, %s%s", name, code, out, errs)
		}
	}

	// While the mirror stands still the source goes on: the lag is the distance, and as old as the first commit that is missing.
	pg.Stop(harness.Fast)
	lost := m.WaitStatus("reconnecting", func(s *mirror.Status) bool { return s.State == "reconnecting" && s.LagSeconds > 0 })
	later := m.WaitStatus("the lag grows", func(s *mirror.Status) bool { return s.State == "reconnecting" && s.LagSeconds > lost.LagSeconds+1 })
	if out, _, code := m.Command("status"); code != 0 || !strings.Contains(out, "at least ") || !strings.Contains(out, ": reconnecting (") {
		t.Fatalf("%+v, exit code %d:\n%s", later, code, out)
	}
	pg.Start()
	m.WaitReady()
	within(t, "the lag is gone", func() bool { s, err := m.Status(); return err == nil && s.LagBytes == 0 && s.LagSeconds == 0 })

	durable := m.WaitReady().DurableLSN
	m.Kill()
	out, errs, code := m.Command("status", "--json")
	var stopped mirror.Status
	if err := json.Unmarshal([]byte(out), &stopped); err != nil || code != 3 || !strings.Contains(errs, "no running pgmirror") {
		t.Fatalf("without a run: exit code %d, %v, %s", code, err, errs)
	}
	x, bad := Table(t, &stopped, "public.t"), Table(t, &stopped, "public.bad")
	if stopped.State != "stopped" || stopped.DurableLSN != durable || x.Rows != 990 || x.Files != 1 || x.Vectors != 1 || x.DeletedRows != 10 ||
		bad.State != "failed" || bad.Error == "" || bad.Remedy == "" || stopped.LastCheckpoint == "" || stopped.Slot != "pgmirror_postgres" || len(stopped.Tables) != 3 {
		t.Fatalf("without a run: %+v", stopped)
	}
	out, _, code = m.Command("status")
	if code != 3 || !strings.HasPrefix(out, "pgmirror is not running; this is what its last checkpoint left\n") || !strings.Contains(out, "public.bad: ") {
		t.Fatalf("without a run: exit code %d\n%s", code, out)
	}
}

// A mirror that stands still while the source writes shows how many bytes and seconds it is behind.
func TestStatusLag(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, v text)"})
	gate := pg.Open("postgres", "postgres")
	pid := pg.QueryRow("select active_pid from pg_replication_slots")
	stop, resume := signaller(t, pid)
	stop()
	before := m.WaitReady().VisibleLSN
	gate.Exec("insert into t select g, repeat('x', 1000) from generate_series(1, 10000) g")
	s := m.WaitStatus("it is seen to lag", func(s *mirror.Status) bool { return s.LagBytes > 10_000_000 && s.LagSeconds > 1 })
	if s.VisibleLSN != before || s.State != "streaming" || s.LagSeconds > patience.Seconds() {
		t.Fatalf("%+v", s)
	}
	resume()
	within(t, "the lag is gone", func() bool { s, err := m.Status(); return err == nil && s.LagBytes == 0 && s.LagSeconds == 0 })
}

// signaller stops and resumes a process of the server, which is this machine's.
func signaller(t *testing.T, pid string) (stop, resume func()) {
	t.Helper()
	process := 0
	for _, digit := range pid {
		process = process*10 + int(digit-'0')
	}
	send := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(process, s); err != nil {
			t.Fatalf("signal %v to process %q: %v", s, pid, err)
		}
	}
	t.Cleanup(func() { syscall.Kill(process, syscall.SIGCONT) })
	return func() { send(syscall.SIGSTOP) }, func() { send(syscall.SIGCONT) }
}

// While the slot waits for an older transaction, the log, status and readiness name the process and its age, and check does too,
// before the start; its fix, executed as printed, lets the mirror go on (S-W13).
func TestStatusNamesBlocker(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{"create table u(id int primary key)", "grant pg_read_all_stats to " + mirrorRole})
	s := pg.Open("postgres", "postgres")
	s.Exec("begin", "insert into u values (1)")
	rows, err := s.Query("select pg_backend_pid()")
	if err != nil {
		t.Fatal(err)
	}
	pid := rows[0][0]
	address := httpAddress(t)
	m := NewMirror(t, pg, "p", "--listen", address)
	out, _, _ := m.Command("check", "--source", m.source, "--publication", "p")
	if !strings.Contains(out, "process "+pid+" (role \"postgres\"") || !strings.Contains(out, "idle in transaction") {
		t.Fatalf("check:\n%s", out)
	}
	fix := "SELECT pg_terminate_backend(" + pid + ");"
	if !strings.Contains(out, "\n    "+fix+"\n") {
		t.Fatalf("check has no fix:\n%s", out)
	}
	m.Start()
	waits := m.WaitStatus("it says for whom it waits", func(s *mirror.Status) bool {
		return s.State == "copying" && strings.Contains(s.Reason, "process "+pid+" ")
	})
	if !strings.Contains(waits.Reason, "idle in transaction") || !strings.Contains(waits.Reason, "s") {
		t.Fatalf("reason %q", waits.Reason)
	}
	if code, text := httpGet(t, "http://"+address+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "process "+pid+" ") {
		t.Fatalf("readyz: %d %s", code, text)
	}
	within(t, "the log names the session", func() bool {
		return strings.Contains(m.Log(), "blocking_pids="+pid+" ") && strings.Contains(m.Log(), "process "+pid+" ")
	})
	pg.Exec(fix)
	if s := m.WaitReady(); s.Reason != "" {
		t.Fatalf("still waiting: %q", s.Reason)
	}
	answers(t, m, "select count(*) from u", "0")
}

// WAL that the server itself cannot decode ends the stream with the server's own words, the slot, the LSN and a remedy, once; the
// mirror is refused, in mid-life as after a start, and answers queries. Nothing tries in a loop (S-W16).
func TestStatusDecoderFails(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, v text)", "insert into t values (1, 'a')"}, "--checkpoint-interval", "1h")
	m.Checkpoint()
	m.run.Signal(syscall.SIGSTOP)
	within(t, "the walsender has ended", func() bool {
		pg.Exec("select pg_terminate_backend(active_pid) from pg_replication_slots where active")
		return pg.QueryRow("select count(*) from pg_replication_slots where active") == "0"
	})
	pg.Exec("select pg_switch_wal()", "insert into t select g, repeat('x', 500) from generate_series(2, 5000) g")
	segment := pg.QueryRow("select pg_walfile_name(pg_current_wal_insert_lsn())")
	pg.Exec("select pg_switch_wal()", "checkpoint", "insert into t values (0, 'after')", "checkpoint")
	damage(t, filepath.Join(pg.DataDir(), "pg_wal", segment), 1<<20)
	m.run.Signal(syscall.SIGCONT)
	s := m.WaitStatus("refused", func(s *mirror.Status) bool { return s.State == "refused" })
	told := func(text string) (verbatim string) {
		t.Helper()
		refusal(t, text, "the source cannot decode its WAL", "slot pgmirror_postgres", "after 0/", "ERROR: ", "XX000", "pgmirror drop --warehouse")
		server := pg.Log()
		_, verbatim, _ = strings.Cut(text, "ERROR: ")
		verbatim, _, _ = strings.Cut(verbatim, " (SQLSTATE")
		if verbatim == "" || !strings.Contains(server, "ERROR:  "+verbatim) {
			t.Fatalf("the server's log does not have %q", verbatim)
		}
		return verbatim
	}
	verbatim := told(s.Reason)
	if rows, err := m.TrySQL("select * from t order by id"); err != nil || show(rows) != "1|a" {
		t.Fatalf("a query while refused: %v, %v", rows, err)
	}
	attempts := strings.Count(pg.Log(), verbatim)
	time.Sleep(3 * time.Second) // two and more of the shortest pauses between attempts
	if now := strings.Count(pg.Log(), verbatim); now != attempts {
		t.Fatalf("%d attempts, then %d", attempts, now)
	}
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	m.Start()
	told(m.WaitStatus("refused", func(s *mirror.Status) bool { return s.State == "refused" }).Reason)
	if rows, err := m.TrySQL("select * from t order by id"); err != nil || show(rows) != "1|a" {
		t.Fatalf("a query after a start: %v, %v", rows, err)
	}
}

// damage overwrites a page in a file.
func damage(t *testing.T, path string, offset int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(strings.Repeat("damaged!", 1024)), offset); err != nil {
		t.Fatal(err)
	}
}
