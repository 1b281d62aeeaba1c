package e2e

import (
	"strings"
	"testing"
	"time"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// A second instance on the same data directory is refused, and the first runs on.
func TestSecondInstance(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t)
	pg.Exec("create table t(id int primary key, v text)", "insert into t values (1, 'a'), (2, null), (3, '')")
	pg.CreateMirrorRole(mirrorRole, "postgres")
	pg.Exec("create publication p for all tables")
	m := StartMirror(t, pg, "p")

	_, errs, code := m.Command("run", "--source", m.source, "--publication", "p", "--listen", "off")
	if code != 3 || !strings.Contains(errs, "another pgmirror uses") {
		t.Fatalf("a second instance: exit code %d, %s", code, errs)
	}
	pg.Exec("update t set v = 'b' where id = 1")
	if got := m.SQL("select * from t order by id"); len(got) != 3 || got[0][1] != "b" || got[1][1] != null || got[2][1] != "" {
		t.Fatalf("rows %q", got)
	}
	m.Verify()
	if code := m.Stop(); code != 0 {
		t.Fatalf("SIGTERM: exit code %d", code)
	}
}

// loaded starts a small cluster with writers and a mirror that makes no checkpoint by itself.
func loaded(t *testing.T, seed uint64) (*harness.Postgres, *Mirror, *writers) {
	t.Helper()
	trial := newTrial(t, seed)
	trial.m.args = append(trial.m.args, "--checkpoint-interval", "1h")
	trial.writers.allowed.Store(1 << 40)
	if err := trial.writers.waitFor(1000); err != nil {
		t.Fatal(err)
	}
	trial.m.Start()
	trial.m.WaitReady()
	trial.writers.truncate.Store(true)
	if err := trial.writers.waitFor(trial.writers.changes.Load() + 3000); err != nil {
		t.Fatal(err)
	}
	return trial.pg, trial.m, trial.writers
}

// SIGTERM under load ends with exit code 0 within 30 s. Whatever was visible before it is durable after it, acknowledged to
// the source, and answered from the committed snapshots.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	pg, m, w := loaded(t, 1001)
	pg.Exec("INSERT INTO marker VALUES ('before the stop')")
	const seen = "SELECT v FROM marker"
	if got := m.SQL(seen); len(got) != 1 {
		t.Fatalf("the row is not visible: %q", got)
	}
	before, err := m.Status()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if code := m.Stop(); code != 0 {
		t.Fatalf("SIGTERM: exit code %d", code)
	}
	took := time.Since(begin)
	t.Logf("SIGTERM to the end took %s; durable was %s, visible %s", took, before.DurableLSN, before.VisibleLSN)
	if took > 30*time.Second {
		t.Fatalf("the stop took %s", took)
	}
	if before.DurableLSN == before.VisibleLSN {
		t.Fatal("there was nothing left to make durable")
	}
	out, errs, code := m.Command("sql", "--format", "csv", "-c", seen)
	if code != 0 || !strings.Contains(out, "before the stop") || !strings.Contains(errs, "not running") {
		t.Fatalf("with no mirror running: exit code %d, %s, %s", code, out, errs)
	}
	if err := w.fault(); err != nil {
		t.Fatal(err)
	}
	if got := pg.QueryRow("SELECT confirmed_flush_lsn >= '" + before.VisibleLSN + "' FROM pg_replication_slots"); got != "t" {
		t.Fatalf("the slot is not confirmed up to %s: %s", before.VisibleLSN, pg.QueryRow("SELECT confirmed_flush_lsn FROM pg_replication_slots"))
	}
	m.Start()
	m.WaitReady()
	w.stop()
	m.Verify()
}

// A fast stop of the source is not held up by a mirror that holds what is not durable yet, and the mirror goes on by itself
// when the source is back. Meanwhile it answers.
func TestFastStopOfSource(t *testing.T) {
	t.Parallel()
	pg, m, w := loaded(t, 1002)
	begin := time.Now()
	pg.Stop(harness.Fast)
	took := time.Since(begin)
	t.Logf("the fast stop took %s", took)
	if took > 10*time.Second {
		t.Fatalf("the fast stop took %s", took)
	}
	status := m.WaitStatus("reconnecting", func(s *mirror.Status) bool { return s.State == "reconnecting" })
	if status.Reason == "" {
		t.Error("reconnecting without a reason")
	}
	if rows := m.SQLWith("SELECT count(*) FROM t_int"); len(rows) != 1 {
		t.Errorf("without a source: %q", rows)
	}
	pg.Start()
	if err := w.waitFor(w.changes.Load() + 500); err != nil {
		t.Fatal(err)
	}
	w.stop()
	m.WaitReady()
	m.Verify()
}
