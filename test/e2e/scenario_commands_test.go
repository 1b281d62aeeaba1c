package e2e

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// A password in --source is in no log, status, error, answer or file, whatever goes wrong.
func TestScenarioSecrets(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3tPassw0rd"
	pg := server(t, []string{"create table t(id int primary key, d time)", "insert into t values (1, null)"})
	m := NewMirror(t, pg, "p")
	withPassword := strings.Replace(pg.URL(mirrorRole, "postgres"), mirrorRole+"@", mirrorRole+":"+secret+"@", 1)
	m.SetSource(withPassword)
	m.Start()
	m.WaitReady()
	var said []string
	say := func(args ...string) {
		out, errs, _ := m.Command(args...)
		said = append(said, out, errs)
	}
	pg.Exec("insert into t values (2, '24:00')")
	refusedTable(t, m, "public.t", "24:00:00")
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"verify"}, {"inspect", "t"}, {"checkpoint"}, {"sql", "-c", "select * from t"},
		{"run", "--source", withPassword, "--publication", "p"}, {"drop", "--yes", "--source", withPassword}, {"run", "--source", withPassword + "&nonsense=" + secret, "--publication", "p"},
		{"run", "--source", "host=127.0.0.1 port=1 user=x password=" + secret, "--publication", "p"}, {"run", "--source", "postgres://u:" + secret + "@[bad", "--publication", "p"}} {
		say(args...)
	}
	pg.Stop(harness.Fast)
	m.WaitStatus("reconnecting", func(s *mirror.Status) bool { return s.State == "reconnecting" })
	say("status")
	m.Stop()
	say("drop", "--yes", "--source", withPassword) // the server is down
	said = append(said, m.Log())
	err := filepath.WalkDir(m.Data(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var content []byte
			content, err = os.ReadFile(path)
			said = append(said, string(content))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range said {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("the password is told: %q", text[max(0, i-200):min(len(text), i+50)])
		}
	}
}

// drop takes away what is this mirror's and nothing else, also when the server, the slot or the data directory is gone already.
func TestScenarioDrop(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key)", "insert into t values (1)"}, "--slot", "m_1")
	neighbour := StartMirror(t, pg, "p", "--slot", "m_10")
	slots := func(want string) {
		t.Helper()
		if got := pg.QueryRow("select string_agg(slot_name, ',' order by slot_name) from pg_replication_slots"); got != want {
			t.Fatalf("slots %s, want %s", got, want)
		}
	}
	drop := func(m *Mirror, want int, args ...string) string {
		t.Helper()
		out, errs, code := m.Command(append([]string{"drop", "--yes", "--source", m.source}, args...)...)
		if code != want {
			t.Fatalf("drop %v: exit code %d, want %d: %s%s", args, code, want, out, errs)
		}
		return out + errs
	}
	drop(m, 3) // it runs
	slots("m_1,m_10")
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if _, errs, code := m.Command("drop", "--source", m.source); code != 1 || !strings.Contains(errs, "m_1") { // standard input is empty
		t.Fatalf("drop without a yes: exit code %d, %s", code, errs)
	}
	slots("m_1,m_10")
	drop(m, 2, "--slot", "m_10") // the data directory knows another one
	slots("m_1,m_10")
	drop(m, 0)
	slots("m_10")
	readableAlone(t, m, "select * from t", "1") // the Iceberg tables stay
	drop(m, 0, "--warehouse")                   // the slot is gone already
	if _, err := os.Stat(m.Data()); err == nil {
		t.Fatal("the data directory is still there")
	}
	drop(m, 0, "--warehouse", "--slot", "m_1") // everything is gone already
	slots("m_10")
	if pg.QueryRow("select count(*) from pg_publication where pubname = 'p'") != "1" {
		t.Fatal("the publication went without being named")
	}
	pg.Exec("insert into t values (2)")
	answers(t, neighbour, "select * from t order by id", "1", "2")

	// The server does not answer: local files go, the exit code and the text say what stays.
	if code := neighbour.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	pg.Stop(harness.Fast)
	refusal(t, drop(neighbour, 1, "--warehouse"), "pg_drop_replication_slot('m_10')")
	pg.Start()
	slots("m_10")
	neighbour.SetSource(pg.URL("postgres", "postgres")) // only its owner may drop a publication
	drop(neighbour, 0, "--slot", "m_10", "--publication=p")
	if got := pg.QueryRow("select (select count(*) from pg_replication_slots) + (select count(*) from pg_publication)"); got != "0" {
		t.Fatalf("%s slots and publications", got)
	}
}

// inspect and checkpoint describe what a table is made of, and the exit codes are the documented ones.
func TestScenarioCommands(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, v text)", "create schema s", "create table s.t(id int)", "grant usage on schema s to public", "grant select on s.t to public", "insert into t select g, 'v' from generate_series(1, 100) g"})
	pg.Exec("delete from t where id <= 10", "insert into t values (1000, 'x')")
	answers(t, m, "select count(*) from t", "91")
	inspect := func() mirror.InspectReport {
		t.Helper()
		out, errs, code := m.Command("inspect", "public.t", "--json")
		var report mirror.InspectReport
		if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
			t.Fatalf("inspect: exit code %d, %v, %s", code, err, errs)
		}
		return report
	}
	r := inspect()
	if len(r.Files) != 1 || r.Files[0].Rows != 100 || r.Files[0].Deleted != 10 || r.Files[0].Pending != 10 || r.Files[0].Vector != 0 || len(r.Indexes) != 1 || !slices.Equal(r.Key, []string{"id"}) {
		t.Fatalf("before the checkpoint: %+v", r)
	}
	m.Checkpoint()
	r = inspect()
	if len(r.Files) != 2 || r.Files[0].Pending != 0 || r.Files[0].Vector != 10 || !r.Files[1].Published || r.Files[1].Rows != 1 {
		t.Fatalf("after the checkpoint: %+v", r)
	}
	if out, _, code := m.Command("inspect", "public.t"); code != 0 || !strings.Contains(out, "files: 2") {
		t.Fatalf("inspect: exit code %d, %s", code, out)
	}
	for _, x := range []struct {
		code int
		args []string
	}{
		{0, []string{"version"}}, {0, []string{"status"}}, {0, []string{"status", "--json"}}, {0, []string{"verify"}}, {0, []string{"verify", "public.t", "--json"}},
		{0, []string{"sql", "-c", "select 1"}}, {1, []string{"sql", "-c", "select nonsense"}}, {1, []string{"sql", "-c", "select * from none"}}, {2, []string{"sql", "--format", "xml", "-c", "select 1"}},
		{2, []string{"sql", "--at", "yesterday", "-c", "select 1"}}, {2, []string{"nonsense"}}, {2, []string{"status", "extra"}}, {2, []string{"run", "--no-such-flag"}},
		{2, []string{"run", "--publication", "p", "--source", "nonsense://"}}, {2, []string{"run", "--source", m.source}}, {2, []string{"run", "--source", m.source, "--publication", "p", "--slot", "Bad Name"}},
		{3, []string{"inspect", "none"}}, {3, []string{"inspect", "t"}}, {3, []string{"verify", "none"}}, {3, []string{"run", "--source", m.source, "--publication", "p", "--listen", "off"}},
	} {
		if x.args[0] == "version" {
			continue // it has no --data
		}
		if out, errs, code := m.Command(x.args...); code != x.code {
			t.Errorf("%v: exit code %d, want %d: %s%s", x.args, code, x.code, out, errs)
		} else if code != 0 && errs == "" {
			t.Errorf("%v: exit code %d without a word", x.args, code)
		}
	}
	if code := m.Stop(); code != 0 {
		t.Fatalf("SIGTERM: exit code %d", code)
	}
	for _, args := range [][]string{{"status"}, {"checkpoint"}, {"verify"}, {"inspect", "t"}} {
		if _, errs, code := m.Command(args...); code != 3 || errs == "" {
			t.Errorf("%v without a run: exit code %d, %s", args, code, errs)
		}
	}
}

// Another database, slot or publication than the data directory's is refused.
func TestScenarioOtherSource(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key)", "insert into t values (1)"})
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	mine := m.source
	pg.Exec("create database second", "create publication q for table t")
	m.SetSource(pg.URL(mirrorRole, "second"))
	before := len(m.Log())
	m.Start()
	if code := m.WaitExit(); code != 3 {
		t.Fatalf("exit code %d", code)
	}
	refusal(t, m.Log()[before:], "slot")
	m.SetSource(mine)
	wrong := []string{"--slot", "another"}
	m.Start(wrong...)
	if code := m.WaitExit(); code != 3 {
		t.Fatalf("another slot: exit code %d", code)
	}
	m.Start("--publication", "q")
	if code := m.WaitExit(); code != 3 {
		t.Fatalf("another publication: exit code %d", code)
	}
	readableAlone(t, m, "select * from t", "1")
	restart(m)
	m.Verify()
}

// Five tables, one of which cannot be mirrored: four stream, status shows one failed, the process is ready (S-U1). The mirror
// keeps nothing of its own in the source, so that a publication FOR ALL TABLES has only the user's (S-U7).
func TestScenarioOneBadTable(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create domain c as int[]", "create table t1(id int primary key)", "create table t2(id int primary key)", "create table t3(id int primary key, c c[])", "create table t4(id int primary key)", "create table t5(id int primary key)"})
	objects := "select count(*) from pg_class c join pg_namespace n on n.oid = relnamespace where nspname !~ '^(pg_|information_schema)'"
	before := pg.QueryRow(objects)
	pg.Exec("insert into t1 values (1)", "insert into t2 values (1)", "insert into t3 values (1)", "insert into t4 values (1)", "insert into t5 values (1)")
	answers(t, m, "select count(*) from t1, t2, t4, t5", "1")
	refusedTable(t, m, "public.t3", "arrays of arrays")
	s := m.WaitReady()
	if len(s.Tables) != 5 {
		t.Fatalf("%d tables", len(s.Tables))
	}
	m.Checkpoint()
	m.Verify("t1", "t2", "t4", "t5")
	if got := pg.QueryRow(objects); got != before {
		t.Fatalf("the source has %s relations, had %s", got, before)
	}
}
