package e2e

import (
	"strings"
	"testing"

	"pgmirror/test/harness"
)

// A first start on a source that cannot be mirrored ends with exit code 3 and what check would print, leaves no slot behind, and
// succeeds when the printed fixes are executed as printed. What costs only a table is logged once, and does not keep it.
func TestRunStartsWithCheck(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t)
	pg.Exec("create role "+mirrorRole+" login", "create domain numbers as int[]", "create table t(id int primary key)", "create table odd(id int primary key, v numbers[])",
		"create table no_key(a int)", "grant select on all tables in schema public to "+mirrorRole, "insert into t values (1)", "create publication p for table t, odd, no_key with (publish = 'insert')")
	m := NewMirror(t, pg, "p")
	m.Start()
	if code := m.WaitExit(); code != 3 {
		t.Fatalf("exit code %d", code)
	}
	said := m.Log()
	refusal(t, said, "pgmirror: the source is not ready: 2 errors\n", "[replication]\n", "[publish]\n", "it leaves out update, delete, truncate")
	if got := pg.QueryRow("select count(*) from pg_replication_slots"); got != "0" {
		t.Fatalf("%s slots stay", got)
	}
	fixes := 0
	for line := range strings.Lines(said) {
		if sql, ok := strings.CutPrefix(line, "    "); ok {
			pg.Exec(strings.TrimSpace(sql))
			fixes++
		}
	}
	if fixes != 2 {
		t.Fatalf("%d fixes", fixes)
	}
	m.Start()
	m.WaitReady()
	answers(t, m, "select count(*) from t", "1")
	once := func(check, object string) {
		t.Helper()
		if n := strings.Count(m.Log()[len(said):], " check="+check+" object="+object); n != 1 {
			t.Errorf("%s of %s is logged %d times", check, object, n)
		}
	}
	once("type", `"table \"public\".\"odd\""`)
	once("identity", `"table \"public\".\"no_key\""`)
	if strings.Contains(m.Log(), "check=max_slot_wal_keep_size") {
		t.Error("a note is logged")
	}

	// With its copy, a mirror answers before the check is done, and does not wait for a source that is not there.
	said = m.Log()
	m.Stop()
	said = m.Log()
	m.Start()
	m.WaitReady()
	within(t, "the check of a restart", func() bool { return strings.Contains(m.Log()[len(said):], " check=type ") })
	m.Stop()
	pg.Stop(harness.Fast)
	m.Start()
	rows, err := m.TrySQL("select count(*) from t")
	for ; err != nil && m.Running(); rows, err = m.TrySQL("select count(*) from t") {
	}
	expect(t, "with no source", rows, "1")
}
