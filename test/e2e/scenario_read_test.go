package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// Quoted, mixed-case, Unicode and reserved names go end to end: copy, stream, checkpoint, restart, verify, DuckDB (S-S16). SELECT * has
// PostgreSQL's columns in PostgreSQL's order, what was dropped before included in neither.
func TestScenarioNames(t *testing.T) {
	t.Parallel()
	tables := []string{`"My ""T"" x"`, `"select"`, `"Größe.π"`, `"a b"`, `"1"`, `"o'clock"`, `"file_row_number"`, `"semi;colon--"`, `"` + strings.Repeat("l", 63) + `"`, `"..".".."`, `"S p".tab`, `"pg like".t`}
	columns := `"z" int default 3, "gone" int, "select" int primary key, "é ü" text default 'é', "Upper" int default 1, "upper_" int, "a""b" text default 'q', "file_index" int default 4, "f1" int default 5, "f2" int default 6, "user" text default 'u', "1" int default 7, "rowid" int default 8, "` + strings.Repeat("c", 63) + `" int default 9`
	statements := []string{`create schema ".."`, `create schema "S p"`, `create schema "pg like"`}
	for _, table := range tables {
		statements = append(statements, "create table "+table+"("+columns+")", "alter table "+table+` drop column "gone"`, "alter table "+table+" add column late int default 11", "insert into "+table+`("select") values (1), (2)`)
	}
	pg := harness.StartPostgres(t)
	pg.Exec(statements...)
	pg.CreateMirrorRole(mirrorRole, "postgres", "public", "..", "S p", "pg like")
	pg.Exec(`create publication "P ""q"", é" for all tables`)
	m := StartMirror(t, pg, `"P ""q"", é"`)
	check := func() {
		t.Helper()
		for _, table := range tables {
			alike(t, pg, m, "select * from "+table+` order by "select"`)
		}
		m.Verify()
	}
	for _, table := range tables {
		pg.Exec("insert into "+table+`("select") values (3)`, "update "+table+` set "é ü" = null, "z" = 9 where "select" = 1`, "delete from "+table+` where "select" = 2`)
	}
	check()
	m.Checkpoint()
	restart(m)
	check()
	header, _, _ := m.Command("sql", "--format", "csv", "-c", `select * from "select" limit 0`)
	if want := `z,select,é ü,Upper,upper_,"a""b",file_index,f1,f2,user,1,rowid,` + strings.Repeat("c", 63) + ",late\n"; header != want {
		t.Fatalf("columns %q, want %q", header, want)
	}
	// DuckDB ignores case: of two names that differ by it only, the one in lower case keeps its own.
	pg2, m2 := scene(t, []string{`create table "Tab"(id int primary key, "A" int, a int)`, `create table tab(id int primary key)`, `insert into "Tab" values (1, 2, 3)`, `insert into tab values (9)`})
	answers(t, m2, `select id, "A_1", a from "Tab_1"`, "1|2|3")
	answers(t, m2, `select * from tab`, "9")
	pg2.Exec(`update "Tab" set a = 4`)
	answers(t, m2, `select * from "Tab_1"`, "1|2|4")
	m2.Verify()
}

// --at reads any LSN of the window that history keeps, over checkpoints, updates, deletes and truncates, and is refused outside of
// it with the window's bounds.
func TestScenarioAt(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, n int)", "insert into t select g, 0 from generate_series(1, 100) g"}, "--history", "10m")
	type moment struct{ lsn, want string }
	var moments []moment
	for i, change := range []string{"update t set n = n + 1", "delete from t where id > 50", "insert into t values (1000, 5)", "truncate t", "insert into t select g, 7 from generate_series(1, 10) g", "update t set id = id + 5000"} {
		pg.Exec(change)
		want := pg.QueryRow("select count(*), coalesce(sum(n), -1), coalesce(sum(id), -1) from t")
		expect(t, change, m.SQL("select count(*), coalesce(sum(n), -1), coalesce(sum(id), -1) from t"), want)
		moments = append(moments, moment{m.WaitReady().VisibleLSN, want})
		if i%2 == 1 {
			m.Checkpoint()
		}
	}
	for _, at := range moments {
		expect(t, "at "+at.lsn, m.SQLWith("select count(*), coalesce(sum(n), -1), coalesce(sum(id), -1) from t", "--at", at.lsn), at.want)
	}
	for _, lsn := range []string{"0/1", "0/1000000"} {
		if _, err := m.TrySQL("select * from t", "--at", lsn); err == nil || !strings.Contains(err.Error(), "the mirror can be read from") {
			t.Fatalf("at %s: %v", lsn, err)
		}
	}
	// The LSN of a restart is the new floor.
	restart(m)
	if _, err := m.TrySQL("select * from t", "--at", moments[0].lsn); err == nil || !strings.Contains(err.Error(), "the mirror can be read from") {
		t.Fatalf("after a restart: %v", err)
	}
	last := moments[len(moments)-1]
	expect(t, "after a restart", m.SQL("select count(*), coalesce(sum(n), -1), coalesce(sum(id), -1) from t"), last.want)
}

// Mirrored tables cannot be changed, with an error that says so; what DuckDB itself can do with others it still can.
func TestScenarioReadOnly(t *testing.T) {
	t.Parallel()
	_, m := scene(t, []string{"create table t(id int primary key, v text)", "insert into t values (1, 'a'), (2, null)"})
	for _, sql := range []string{"insert into t values (3, 'x')", "update t set v = 'x'", "delete from t", "drop table t", "truncate t", "alter table t add column x int"} {
		if _, err := m.TrySQL(sql); err == nil || !strings.Contains(err.Error(), "exit code 1") {
			t.Errorf("%s: %v", sql, err)
		} else if !strings.Contains(err.Error(), "cannot be changed") {
			t.Errorf("%s does not say that mirrored tables cannot be changed: %v", sql, err)
		}
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "o'ut.csv")
	answers(t, m, "create temp table x as from t; insert into x values (3, 'c'); update x set v = 'd' where id = 1; delete from x where id = 2; select * from x order by id", "1|d", "3|c")
	m.SQL("copy (from t order by id) to '" + strings.ReplaceAll(out, "'", "''") + "'; select 1")
	if text, err := os.ReadFile(out); err != nil || string(text) != "id,v\n1,a\n2,\n" {
		t.Fatalf("%q, %v", text, err)
	}
	answers(t, m, "attach '"+filepath.Join(dir, "other.db")+"' as other; create table other.kept as from t; select count(*) from other.kept", "2")
	answers(t, m, "attach '"+filepath.Join(dir, "other.db")+"' as other; select o.id, t.v from other.kept o join t using (id) order by 1", "1|a", "2|<null>")
	answers(t, m, "select * from t order by id", "1|a", "2|<null>")
}

// Without a run, answers come from the last committed snapshots, with a notice; --wait-lsn is refused.
func TestScenarioRunIsDown(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key)", "create table bad(id int primary key, d time)", "insert into t values (1)"}, "--checkpoint-interval", "1h")
	pg.Exec("insert into t values (2)")
	m.Checkpoint()
	pg.Exec("insert into t values (3)", "insert into bad values (1, '24:00')")
	answers(t, m, "select count(*) from t", "3")
	m.Kill()
	readableAlone(t, m, "select * from t order by id", "1", "2")
	if _, err := m.TrySQL("select * from t", "--wait-lsn", "source"); err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Fatalf("--wait-lsn without a run: %v", err)
	}
	restart(m)
	refusedTable(t, m, "public.bad", "24:00:00")
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	readableAlone(t, m, "select * from t order by id", "1", "2", "3")
	if _, err := m.TrySQL("select * from bad"); err == nil || !strings.Contains(err.Error(), "24:00:00") {
		t.Fatalf("a failed table without a run: %v", err)
	}
}

// The stream that is cut is taken up by itself; meanwhile the state says why, readiness with it, and queries are answered (S-U3).
func TestScenarioReconnects(t *testing.T) {
	t.Parallel()
	address := httpAddress(t)
	pg, m := scene(t, []string{"create table t(id int primary key)", "insert into t values (1)"}, "--listen", address)
	get := func(path string) (int, string) { return httpGet(t, "http://"+address+path) }
	if code, text := get("/readyz"); code != 200 {
		t.Fatalf("/readyz: %d %s", code, text)
	}
	for i := range 2 {
		pg.Exec("select pg_terminate_backend(active_pid) from pg_replication_slots")
		within(t, "the stream is cut", func() bool { return strings.Count(m.Log(), "connection to the source lost") > i })
		m.WaitReady()
		pg.Exec("insert into t values (" + itoa(10+i) + ")")
		answers(t, m, "select count(*) from t", itoa(2+i))
	}
	pg.Stop(harness.Fast)
	m.WaitStatus("reconnecting", func(s *mirror.Status) bool { return s.State == "reconnecting" && s.Reason != "" })
	if code, text := get("/readyz"); code != 503 || !strings.Contains(text, "reconnecting: ") || len(text) < 20 {
		t.Fatalf("/readyz while the source is down: %d %q", code, text)
	}
	if code, text := get("/healthz"); code != 200 {
		t.Fatalf("/healthz while the source is down: %d %s", code, text)
	}
	if rows, err := m.TrySQL("select count(*) from t"); err != nil || show(rows) != "3" {
		t.Fatalf("a query while the source is down: %v, %v", rows, err)
	}
	if _, err := m.TrySQL("select count(*) from t", "--wait-lsn", "source"); err == nil || !strings.Contains(err.Error(), "reconnecting") {
		t.Fatalf("--wait-lsn source while the source is down: %v", err)
	}
	pg.Start()
	m.WaitReady()
	within(t, "/readyz is back", func() bool { code, _ := get("/readyz"); return code == 200 })
	pg.Exec("insert into t values (20)")
	answers(t, m, "select count(*) from t", "4")
	// A source that is down when the mirror starts is waited for, too.
	m.Checkpoint()
	pg.Stop(harness.Fast)
	m.Kill()
	m.Start()
	m.WaitStatus("reconnecting", func(s *mirror.Status) bool { return s.State == "reconnecting" })
	if rows, err := m.TrySQL("select count(*) from t where id < 20"); err != nil || show(rows) != "3" {
		t.Fatalf("a query before the source is there: %v, %v", rows, err)
	}
	pg.Start()
	m.WaitReady()
	answers(t, m, "select count(*) from t", "4")
	code, text := get("/metrics")
	if code != 200 {
		t.Fatalf("/metrics: %d", code)
	}
	for _, name := range []string{`pgmirror_watermark_lsn_bytes{watermark="received"}`, `{watermark="applied"}`, `{watermark="visible"}`, `{watermark="durable"}`, `{watermark="acknowledged"}`,
		"pgmirror_freshness_seconds ", "pgmirror_slot_retained_bytes ", `pgmirror_rows_total{operation="insert"}`, `operation="update"`, `operation="delete"`, `operation="truncate"`,
		`pgmirror_memory_bytes{kind="batches"}`, `kind="mem_index"`, `kind="file_index"`, `kind="visibility"`, "pgmirror_checkpoint_seconds ", "pgmirror_build_info{",
		`pgmirror_table_failed{relation="public.t"} 0`, `pgmirror_tables{state="streaming"} 1`, "pgmirror_source_connected 1"} {
		if !strings.Contains(text, name) {
			t.Errorf("/metrics lacks %s", name)
		}
	}
}
