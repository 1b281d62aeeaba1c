package e2e

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// Writes to tables outside of the publication do not keep WAL: the slot follows within seconds, though nothing that is
// mirrored changes, and also while one mirrored table has failed (S-W1, S-U2).
func TestScenarioIdleTables(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t)
	pg.CreateMirrorRole(mirrorRole, "postgres")
	pg.Exec("create table t(id int primary key)", "create table bad(id int primary key, d time)", "create table u(id int, v text)", "create publication p for table t, bad")
	m := StartMirror(t, pg, "p", "--checkpoint-interval", "1s")
	busy := func() {
		t.Helper()
		pg.Exec("insert into u select g, repeat('x', 200) from generate_series(1, 100000) g")
		at := pg.QueryRow(insertLSN)
		within(t, "the slot follows the source", func() bool { return lsnAtLeast(pg, confirmedLSN, at) })
		within(t, "the server needs no old WAL", func() bool {
			pg.Exec("checkpoint") // logs the running transactions, from which on the slot can decode
			return pg.QueryRow("select pg_current_wal_insert_lsn() - restart_lsn < 20000000 from pg_replication_slots") == "t"
		})
	}
	busy()
	pg.Exec("insert into bad values (1, '24:00')")
	refusedTable(t, m, "public.bad", "24:00:00 is no time of day")
	for i := range 3 {
		pg.Exec("insert into bad select g, '10:00' from generate_series(2, 5) g", "truncate bad", "insert into t select count(*) from t")
		busy()
		if s := m.WaitReady(); Table(t, s, "public.bad").State != "failed" || s.SlotRetainedBytes > 20_000_000 {
			t.Fatalf("round %d: %+v", i, s)
		}
	}
	answers(t, m, "select count(*) from t", "3")
}

// The server hears of us in time although it never asks (wal_sender_timeout = 0) and nothing happens; the position told never
// goes back and is never zero (S-W3).
func TestScenarioStatusUnasked(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{"create table t(id int primary key)"}, harness.Setting("wal_sender_timeout", "0"))
	m := StartMirror(t, pg, "p", "--checkpoint-interval", "200ms")
	pg.Exec("insert into t values (1)")
	m.Checkpoint()
	first := pg.QueryRow("select reply_time from pg_stat_replication")
	lowest := "0/1"
	within(t, "a status comes by itself", func() bool {
		flushed := pg.QueryRow("select flush_lsn from pg_stat_replication")
		if flushed == "" || flushed == "<null>" {
			return false
		}
		if !lsnAtLeast(pg, "select '"+flushed+"'::pg_lsn", lowest) {
			t.Fatalf("flushed went from %s to %s", lowest, flushed)
		}
		lowest = flushed
		return pg.QueryRow("select reply_time > '"+first+"'::timestamptz + interval '5 seconds' from pg_stat_replication") == "t"
	})
}

// refusedRun starts the mirror, which must end with exit code 3 and a message that has all of the words.
func refusedRun(t testing.TB, m *Mirror, words ...string) {
	t.Helper()
	before := len(m.Log())
	m.Start()
	if code := m.WaitExit(); code != 3 {
		t.Fatalf("exit code %d", code)
	}
	refusal(t, m.Log()[before:], words...)
}

func refusal(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Fatalf("refused without %q:\n%s", w, text)
		}
	}
}

// The committed tables can be read without a run, and a notice says that they do not follow.
func readableAlone(t testing.TB, m *Mirror, query string, want ...string) {
	t.Helper()
	out, errs, code := m.Command("sql", "--format", "csv", "-c", query)
	rows, err := parseCSV(out)
	if code != 0 || err != nil || len(rows) == 0 || !strings.Contains(errs, "not running") {
		t.Fatalf("%s without a run: exit code %d, %v, %s", query, code, err, errs)
	}
	expect(t, query+" without a run", rows[1:], want...)
}

// A slot that is gone, made anew behind our back or moved ahead has lost changes: the mirror refuses, says why and what to do, and
// what it holds can still be read (S-W5). Other slots and the server are left as they are.
func TestScenarioSlotReplaced(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key)", "insert into t values (1)"})
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	pg.Exec("select pg_drop_replication_slot('pgmirror_postgres')", "insert into t values (2)")
	refusedRun(t, m, `"pgmirror_postgres" does not exist`, "drop the mirror and run again")
	readableAlone(t, m, "select * from t", "1")

	pg.Exec("select pg_create_logical_replication_slot('pgmirror_postgres', 'pgoutput')")
	refusedRun(t, m, "made anew", "drop the mirror and run again")
	readableAlone(t, m, "select * from t", "1")
	if got := pg.QueryRow("select count(*) from pg_replication_slots"); got != "1" {
		t.Fatalf("%s slots", got)
	}

	pg.Exec("select pg_drop_replication_slot('pgmirror_postgres')", "select pg_create_physical_replication_slot('pgmirror_postgres')")
	refusedRun(t, m, "pgmirror_postgres", "--slot")
	pg.Exec("select pg_drop_replication_slot('pgmirror_postgres')", "select pg_create_logical_replication_slot('pgmirror_postgres', 'test_decoding')")
	refusedRun(t, m, "test_decoding", "--slot")
	pg.Exec("select pg_drop_replication_slot('pgmirror_postgres')", "create database other")
	pg.ExecIn("other", "select pg_create_logical_replication_slot('pgmirror_postgres', 'pgoutput')")
	refusedRun(t, m, `"other"`, "--slot")
	readableAlone(t, m, "select * from t", "1")
}

// A slot whose WAL the server has removed is told by name and remedy, at the start and in mid-stream; queries are answered
// meanwhile (S-W6, S-U3).
func TestScenarioSlotLost(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{"create table t(id int primary key)", "insert into t values (1)"}, harness.Setting("max_slot_wal_keep_size", "16MB"), harness.Setting("min_wal_size", "32MB"), harness.Setting("max_wal_size", "48MB"))
	pg.Exec("create table z(id int primary key)", "insert into z values (1)")
	m := StartMirror(t, pg, "p")
	lose := func() {
		t.Helper()
		within(t, "the slot is lost", func() bool {
			pg.Exec("insert into t select max(id) + 1 from t", "select pg_switch_wal()", "checkpoint")
			return pg.QueryRow("select wal_status from pg_replication_slots") == "lost"
		})
	}
	m.run.Signal(syscall.SIGSTOP)
	lose()
	m.run.Signal(syscall.SIGCONT)
	s := m.WaitStatus("refused", func(s *mirror.Status) bool { return s.State == "refused" })
	if !strings.Contains(s.Reason, "removed WAL") && !strings.Contains(s.Reason, "lost") {
		t.Fatalf("reason %q", s.Reason)
	}
	if rows, err := m.TrySQL("select * from z"); err != nil || show(rows) != "1" {
		t.Fatalf("a query while refused: %v, %v", rows, err)
	}
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	refusedRun(t, m, "max_slot_wal_keep_size", "drop the mirror and run again")
	readableAlone(t, m, "select * from z", "1")
}

// A publication that was made after the slot, or is gone, or leaves out operations is refused (S-W7).
func TestScenarioPublication(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key)", "insert into t values (1)"})
	pg.Exec("drop publication p") // nothing is lost yet, if somebody is told
	m.WaitStatus("the publication is missing", func(s *mirror.Status) bool { return strings.Contains(s.Reason, "does not exist") })
	pg.Exec("create publication p for all tables")
	m.WaitStatus("it is back", func(s *mirror.Status) bool {
		return s.State == "streaming" && s.Reason == "" && Table(t, s, "public.t").State == "streaming"
	})
	answers(t, m, "select * from t", "1")
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	pg.Exec("insert into t values (2)", "alter publication p set (publish = 'insert, update')")
	refusedRun(t, m, `"p"`, "delete, truncate")
	pg.Exec("drop publication p")
	refusedRun(t, m, `"p"`, "does not exist")
	pg.Exec("insert into t values (3)", "create publication p for all tables")
	m.Start()
	s := m.WaitStatus("refused", func(s *mirror.Status) bool { return s.State == "refused" })
	refusal(t, s.Reason, "the publication is younger than the replication slot", "pgmirror drop")
	if _, err := m.TrySQL("select * from t"); err == nil || !strings.Contains(err.Error(), "nothing is copied while the mirror is refused") {
		t.Fatalf("a query of now while refused: %v", err)
	}
	// Nothing is known of what happened to the table since it was last published: that is what --at shows.
	if rows, err := m.TrySQL("select * from t order by id", "--at", Table(t, s, "public.t").DurableLSN); err != nil || show(rows) != "1" {
		t.Fatalf("a query while refused: %v, %v", rows, err)
	}
	m.Stop()

	for _, publications := range []string{"none", "p,none"} {
		fresh := NewMirror(t, pg, publications, "--slot", "none")
		refusedRun(t, fresh, `"none"`, "does not exist")
	}
	pg.Exec("create publication partial for table t with (publish = 'insert')")
	fresh := NewMirror(t, pg, "partial", "--slot", "none")
	refusedRun(t, fresh, `"partial"`, "update, delete, truncate")
	if got := pg.QueryRow("select count(*) from pg_replication_slots where slot_name = 'none'"); got != "0" {
		t.Fatalf("%s slots of refused mirrors stay", got)
	}
	partial := StartMirror(t, pg, "partial", "--slot", "partial", "--partial-publish")
	pg.Exec("delete from t", "insert into t values (4)")
	answers(t, partial, "select * from t order by id", "1", "2", "3", "4")
}

// Commits that their clients do not wait for (synchronous_commit = off) are mirrored like any other, from the copy on and over a
// kill between any two steps (S-W8); --wait-lsn source sees them though they are not flushed when it is asked.
func TestScenarioAsynchronousCommit(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{"create table t(id int primary key, n int)", "insert into t select g, 0 from generate_series(1, 20000) g"},
		harness.Setting("synchronous_commit", "off"), harness.Setting("wal_writer_delay", "10s"), harness.Setting("wal_writer_flush_after", "1GB"))
	m := NewMirror(t, pg, "p", "--checkpoint-interval", "100ms")
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := pg.Open("postgres", "postgres")
		for i := 0; ctx.Err() == nil; i++ {
			s.Exec("update t set n = n + 1 where id % 97 = " + itoa(i%97))
		}
	}()
	m.Start()
	for range 3 {
		m.WaitReady()
		time.Sleep(300 * time.Millisecond)
		restart(m)
	}
	stop()
	<-done
	for i := range 10 {
		pg.Exec("insert into t values (" + itoa(100000+i) + ", 1)")
		answers(t, m, "select count(*) from t where id >= 100000", itoa(i+1))
	}
	alike(t, pg, m, "select count(*), sum(n), sum(id) from t")
	m.Verify()
}

// The source stops fast although the mirror holds what is not durable yet (S-W10), and the mirror comes back by itself.
func TestScenarioSourceStops(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, v text)"}, "--checkpoint-interval", "1h")
	pg.Exec("insert into t select g, repeat('x', 100) from generate_series(1, 50000) g")
	answers(t, m, "select count(*) from t", "50000")
	began := time.Now()
	pg.Stop(harness.Fast)
	if took := time.Since(began); took > 10*time.Second {
		t.Fatalf("the source took %s to stop", took)
	}
	m.WaitStatus("reconnecting", func(s *mirror.Status) bool { return s.State == "reconnecting" && s.Reason != "" })
	rows, err := m.TrySQL("select count(*) from t")
	if err != nil || show(rows) != "50000" {
		t.Fatalf("a query while the source is down: %v, %v", rows, err)
	}
	pg.Start()
	m.WaitReady()
	pg.Exec("delete from t where id > 10")
	answers(t, m, "select count(*) from t", "10")
	m.Verify()
}

// A mirror that was killed takes its slot over at once; a refused or dropped one leaves none behind (S-W11).
func TestScenarioTakeOver(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key)"})
	for i := range 4 {
		pg.Exec("insert into t values (" + itoa(i) + ")")
		m.Kill()
		m.Start()
	}
	m.WaitReady()
	answers(t, m, "select count(*) from t", "4")
	if got := pg.QueryRow("select string_agg(slot_name, ',') from pg_replication_slots"); got != "pgmirror_postgres" {
		t.Fatalf("slots %s", got)
	}
	// Another data directory must not take the slot.
	thief := NewMirror(t, pg, "p")
	refusedRun(t, thief, `"pgmirror_postgres" exists already`, "--slot")
	answers(t, m, "select count(*) from t", "4")
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	refusedRun(t, thief, `"pgmirror_postgres" exists already`, "pgmirror drop")
	if out, errs, code := m.Command("drop", "--yes", "--warehouse", "--source", m.source); code != 0 {
		t.Fatalf("drop: exit code %d, %s%s", code, out, errs)
	}
	if got := pg.QueryRow("select count(*) from pg_replication_slots"); got != "0" {
		t.Fatalf("%s slots after a drop", got)
	}
}
