package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// The server sends an open transaction again from its first row after a reconnect: it is neither doubled nor lost, and while it is
// open it holds back neither a checkpoint nor the acknowledgement of what came after its beginning.
func TestScenarioOpenTransaction(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{"create table t(id int primary key, v text)", "create table f(a int)", "alter table f replica identity full"}, harness.Setting("logical_decoding_work_mem", "64kB"))
	m := StartMirror(t, pg, "p", "--checkpoint-interval", "1s")
	s := pg.Open("postgres", "postgres")
	s.Exec("begin", "insert into t select g, repeat('x', 100) from generate_series(1, 5000) g", "savepoint a", "insert into t values (9000, 'no')", "rollback to a", "insert into f values (1), (1)")
	pg.Exec("insert into t values (10000, 'other')")
	cut := func(how func()) {
		t.Helper()
		how()
		m.WaitReady()
		answers(t, m, "select count(*), max(id), (select count(*) from f) from t", "1|10000|0")
	}
	cut(func() {})
	cut(func() {
		pg.Exec("select pg_terminate_backend(active_pid) from pg_replication_slots")
		within(t, "the stream is cut", func() bool { return strings.Contains(m.Log(), "connection to the source lost") })
	})
	m.Checkpoint()
	// Acknowledged: the commit of row 10000, though the open transaction began before it.
	at := pg.QueryRow(insertLSN)
	within(t, "the acknowledgement passes the open transaction", func() bool { return lsnAtLeast(pg, confirmedLSN, at) })
	if pg.QueryRow("select restart_lsn < confirmed_flush_lsn from pg_replication_slots") != "t" {
		t.Fatal("the server does not keep the open transaction's WAL")
	}
	cut(func() { restart(m) })
	s.Exec("insert into t values (9001, 'end')", "update t set v = 'u' where id = 1", "delete from f where ctid = (select min(ctid) from f)")
	cut(func() { restart(m) })
	cut(func() {
		before := strings.Count(m.Log(), "connection to the source lost")
		pg.Exec("select pg_terminate_backend(active_pid) from pg_replication_slots")
		within(t, "the stream is cut", func() bool { return strings.Count(m.Log(), "connection to the source lost") > before })
	})
	s.Exec("commit")
	alike(t, pg, m, "select count(*), sum(id), (select count(*) from f), (select v from t where id = 1) from t")
	m.Verify()
}

// A table that is rewritten between the exported snapshot and its copy would be read as empty or at other places: the copy notices
// and leaves the table to a join after the first copy, which holds nobody up. VACUUM FULL, CLUSTER and TRUNCATE rewrite too.
func TestScenarioRewrittenBeforeCopy(t *testing.T) {
	t.Parallel()
	for name, rewrite := range map[string]string{
		"alter":    "alter table t alter n type bigint using n * 100",
		"same":     "alter table t alter n type int using n * 100",
		"default":  "alter table t add x float8 default random()",
		"fast":     "alter table t add x int default 7",
		"drop":     "alter table t drop v",
		"rename":   "alter table t rename v to w",
		"vacuum":   "vacuum full t",
		"cluster":  "cluster t using t_pkey",
		"truncate": "truncate t; insert into t values (7, 7, 'after')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg := server(t, []string{"create table a as select g id from generate_series(1, 20000) g", "create table t(id int primary key, n int, v text)", "insert into t select g, g, 'v' || g from generate_series(1, 1000) g",
				"delete from t where id % 2 = 0", "create table u(id int primary key)", "insert into u values (1)"})
			m := NewMirror(t, pg, "p", "--copy-workers", "1")
			gate := newCopyGate(t, pg, "a") // the largest table is copied first
			copying(m, gate)
			pg.Exec(rewrite)
			gate.open()
			within(t, "it is copied after the others", func() bool { return strings.Contains(m.Log(), "it changed while the other tables were copied") })
			m.WaitReady()
			alike(t, pg, m, "select * from t order by id")
			alike(t, pg, m, "select * from u")
			pg.Exec("update t set id = id + 10000", "insert into t(id, n) values (1, 1)")
			alike(t, pg, m, "select * from t order by id")
			m.Verify()
		})
	}
}

// durableCopy copies the disk of a source all of whose commits the mirror has made durable, and goes on.
func durableCopy(pg *harness.Postgres, m *Mirror) (path string) {
	m.t.Helper()
	m.Checkpoint()
	pg.Stop(harness.Fast)
	path = filepath.Join(m.t.TempDir(), "older")
	pg.CopyDataDir(path)
	pg.Start()
	m.WaitReady()
	return path
}

// A source that was restored from a copy of its disk has the same identity and timeline as before, and goes on writing over LSNs that
// the mirror holds: it is refused with reason and remedy, whether its WAL is still behind ours or has new commits beyond it.
func TestScenarioForkedHistory(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, v text)", "insert into t values (1, 'a')"})
	pg.Exec("insert into t values (2, 'b')")
	older := durableCopy(pg, m)
	pg.Exec("insert into t select g, repeat('x', 100) from generate_series(3, 1000) g")
	answers(t, m, "select count(*) from t", "1000")
	m.Checkpoint()
	for name, after := range map[string]string{
		"behind":   "select 1",
		"beyond":   "insert into t select g, 'other' from generate_series(3, 30000) g",
		"deleting": "do $$ begin for i in 1..3000 loop update t set v = v || 'y' where id = 1; commit; end loop; end $$",
	} {
		if m.Running() {
			if code := m.Stop(); code != 0 {
				t.Fatalf("exit code %d", code)
			}
		}
		keep := filepath.Join(t.TempDir(), "keep")
		if out, err := copyTree(m.Data(), keep); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		pg.Stop(harness.Fast)
		pg.RestoreDataDir(older)
		pg.Start()
		pg.Exec(after)
		before := len(m.Log())
		m.Start()
		var reason string
		within(t, name+" is refused", func() bool {
			if !m.Running() {
				reason = m.Log()[before:]
				return true
			}
			s, err := m.Status()
			if err == nil && s.State == "refused" {
				reason = s.Reason
			}
			return reason != ""
		})
		if !strings.Contains(reason, "restored") && !strings.Contains(reason, "history") {
			t.Fatalf("%s: %s", name, reason)
		}
		refusal(t, reason, "drop the mirror and run again")
		if m.Running() {
			if rows, err := m.TrySQL("select count(*) from t"); err != nil || show(rows) != "1000" {
				t.Fatalf("%s: a query while refused: %v, %v", name, rows, err)
			}
			m.Stop()
		} else if code := m.WaitExit(); code != 3 {
			t.Fatalf("%s: exit code %d", name, code)
		}
		readableAlone(t, m, "select count(*) from t", "1000")
		if err := os.RemoveAll(m.Data()); err != nil {
			t.Fatal(err)
		}
		if out, err := copyTree(keep, m.Data()); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// The same while the mirror runs: it reconnects to the restored server by itself, takes nothing from there, and goes on answering queries.
func TestScenarioForkedWhileRunning(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key)", "insert into t values (1)"}, "--checkpoint-interval", "1h")
	older := durableCopy(pg, m)
	pg.Exec("insert into t select generate_series(2, 100)") // applied, not yet durable
	answers(t, m, "select count(*) from t", "100")
	m.Checkpoint()
	pg.Exec("insert into t values (101)")
	answers(t, m, "select count(*) from t", "101")
	pg.Stop(harness.Immediate)
	pg.RestoreDataDir(older)
	pg.Start()
	pg.Exec("insert into t select generate_series(200, 30000)")
	status := m.WaitStatus("the source is refused", func(s *mirror.Status) bool { return s.State == "refused" })
	refusal(t, status.Reason, "restored", "drop the mirror and run again")
	if rows, err := m.TrySQL("select count(*) from t"); err != nil || show(rows) != "101" {
		t.Fatalf("a query while refused: %v, %v", rows, err)
	}
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	readableAlone(t, m, "select count(*) from t where id <= 100", "100")
}
