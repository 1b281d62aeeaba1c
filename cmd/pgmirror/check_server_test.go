package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/test/harness"
)

// checked is one database with a role, a publication and a config file for check.
type checked struct {
	t        *testing.T
	p        *harness.Postgres
	database string   // the role's, the first publication's and, after pgmirror_, the slot's name too
	config   []string // lines
	dir      string
}

// newChecked makes the database and its role. Setup runs in it as superuser; $D stands for the database's name.
func newChecked(t *testing.T, p *harness.Postgres, database string, setup ...string) *checked {
	t.Helper()
	p.Exec("CREATE DATABASE " + database)
	p.CreateMirrorRole(database, database)
	c := &checked{t: t, p: p, database: database, dir: t.TempDir()}
	c.exec(setup...)
	c.config = []string{"source: " + p.URL(database, database), "publication: " + database, "data: " + filepath.Join(c.dir, "data")}
	return c
}

func (c *checked) exec(sql ...string) {
	c.t.Helper()
	for _, one := range sql {
		c.p.ExecIn(c.database, strings.ReplaceAll(one, "$D", c.database))
	}
}

// run runs a command with the config file.
func (c *checked) run(args ...string) (out string, code int) {
	c.t.Helper()
	file := filepath.Join(c.dir, "mirror.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(c.config, "\n")+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	code = execute(c.t.Context(), append(args, "--config", file), program{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr})
	if stderr.Len() > 0 {
		c.t.Logf("%v: %s", args, stderr.String())
	}
	return stdout.String(), code
}

// findings splits what check printed: for each name of a check, the lines of its findings.
func findings(out string) map[string][]string {
	found := map[string][]string{}
	name := ""
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "":
			name = ""
		case !strings.HasPrefix(line, " ") && strings.HasSuffix(line, "]"):
			name = line[strings.LastIndexByte(line, '[')+1 : len(line)-1]
			fallthrough
		case name != "":
			found[name] = append(found[name], line)
		}
	}
	return found
}

// apply does what the printed lines of a finding say, each line as it stands, and reports whether there was anything to do.
func (c *checked) apply(lines []string) (done bool) {
	c.t.Helper()
	how := ""
	for _, line := range lines {
		pasted, isPasted := strings.CutPrefix(line, "    ")
		switch {
		case strings.HasPrefix(line, "  fix ("):
			how = line
		case line == "  then restart the server":
			c.p.Stop(harness.Fast)
			c.p.Start()
		case !isPasted:
			how = ""
		case strings.HasPrefix(how, "  fix (SQL"):
			c.p.ExecIn(c.database, pasted)
			done = true
		case strings.HasPrefix(how, "  fix (shell)"):
			if out, code := c.run(strings.Fields(pasted)[1:]...); code != exitOK {
				c.t.Fatalf("%s: exit code %d: %s", pasted, code, out)
			}
			done = true
		case strings.HasPrefix(how, "  fix (line of mirror.yaml)"):
			key, _, _ := strings.Cut(pasted, ":")
			kept := c.config[:0]
			for _, old := range c.config {
				if !strings.HasPrefix(old, key+":") {
					kept = append(kept, old)
				}
			}
			c.config = append(kept, pasted)
			done = true
		}
	}
	return done
}

// repair wants a finding, does what it says and wants it gone. It returns what is found then.
func (c *checked) repair(check string, code int) (after string) {
	c.t.Helper()
	out, got := c.run("check")
	lines := findings(out)[check]
	if got != code || len(lines) == 0 {
		c.t.Fatalf("no finding %s with exit code %d, but %d:\n%s", check, code, got, out)
	}
	if !c.apply(lines) {
		c.t.Fatalf("%s has no fix to paste:\n%s", check, out)
	}
	after, _ = c.run("check")
	if left := findings(after)[check]; len(left) > 0 {
		c.t.Fatalf("%s stays after its fix:\n%s\nbefore:\n%s", check, strings.Join(left, "\n"), out)
	}
	return after
}

// repairAll is repair of the only finding: nothing may be found then, but what a right line of the setting types means.
func (c *checked) repairAll(check string, code int) {
	c.t.Helper()
	after := c.repair(check, code)
	left := findings(after)
	delete(left, "types")
	if len(left) > 0 || !strings.Contains(after, "\n0 errors, 0 warnings, ") {
		c.t.Fatalf("after the fix of %s:\n%s", check, after)
	}
}

const (
	keyed   = "CREATE TABLE t(id int PRIMARY KEY, v text)"
	publish = "CREATE PUBLICATION $D FOR TABLE t"
)

// Each case provokes one finding; its printed fix, executed as printed, leaves a check without any finding.
var checkCases = []struct {
	name  string
	check string
	code  int
	setup []string
}{
	{"replication", "replication", exitFinding, []string{keyed, publish, "ALTER ROLE $D NOREPLICATION"}},
	{"connect", "connect", exitFinding, []string{keyed, publish, "REVOKE CONNECT ON DATABASE $D FROM PUBLIC"}},
	{"usage", "usage", exitFinding, []string{"CREATE SCHEMA s", "CREATE TABLE s.t(id int PRIMARY KEY)", "GRANT SELECT ON s.t TO $D", "CREATE PUBLICATION $D FOR TABLE s.t"}},
	{"select", "select", exitFinding, []string{keyed, `CREATE TABLE "Q""t"(id int PRIMARY KEY)`, `REVOKE SELECT ON t, "Q""t" FROM $D`, `CREATE PUBLICATION $D FOR TABLE t, "Q""t"`}},
	// S-U10.
	{"row_security", "row_security", exitFinding, []string{keyed, publish, "ALTER TABLE t ENABLE ROW LEVEL SECURITY"}},
	{"missing", "publication", exitFinding, []string{keyed, "CREATE TABLE no_key(a int)"}},
	{"publish", "publish", exitFinding, []string{keyed, publish + " WITH (publish = 'insert, delete')"}},
	{"column_list", "identity", exitOK, []string{keyed, publish + " (v) WHERE (id > 1)"}},
	{"partition_identity", "partition", exitFinding, []string{keyed, "CREATE TABLE pt(id int PRIMARY KEY, v text NOT NULL) PARTITION BY LIST (id)", "CREATE TABLE leaf PARTITION OF pt(UNIQUE (v)) DEFAULT",
		"CREATE TABLE leaf2 PARTITION OF pt(UNIQUE (v)) FOR VALUES IN (2)", "ALTER TABLE leaf REPLICA IDENTITY USING INDEX leaf_v_key", "ALTER TABLE leaf2 REPLICA IDENTITY USING INDEX leaf2_v_key",
		"CREATE PUBLICATION $D FOR TABLE t, pt WITH (publish_via_partition_root)"}},
	{"partition_unlogged", "partition", exitFinding, []string{"CREATE TABLE pt(id int PRIMARY KEY) PARTITION BY LIST (id)", "CREATE UNLOGGED TABLE leaf PARTITION OF pt DEFAULT",
		"CREATE PUBLICATION $D FOR TABLES IN SCHEMA public WITH (publish_via_partition_root)"}},
	{"partition_alone", "partition", exitFinding, []string{"CREATE TABLE pt(id int, v text) PARTITION BY LIST (id)", "CREATE TABLE leaf PARTITION OF pt(PRIMARY KEY (id)) DEFAULT",
		"CREATE PUBLICATION $D FOR TABLE pt WITH (publish_via_partition_root)"}},
	{"partition_none", "identity", exitOK, []string{"CREATE TABLE pt(id int, v text) PARTITION BY LIST (id)", "CREATE TABLE leaf PARTITION OF pt DEFAULT",
		"CREATE PUBLICATION $D FOR TABLE pt WITH (publish_via_partition_root)"}},
	{"partition_unread", "partition", exitOK, []string{"CREATE TABLE pt(id int PRIMARY KEY) PARTITION BY LIST (id)", "CREATE TABLE leaf PARTITION OF pt DEFAULT", "REVOKE SELECT ON leaf FROM $D",
		"CREATE PUBLICATION $D FOR TABLE pt WITH (publish_via_partition_root)"}},
	{"all_tables", "all_tables", exitOK, []string{keyed, "CREATE PUBLICATION $D FOR ALL TABLES"}},
	{"unlogged", "unlogged", exitOK, []string{keyed, "CREATE UNLOGGED TABLE u(id int PRIMARY KEY)", "CREATE PUBLICATION $D FOR TABLES IN SCHEMA public"}},
	{"type", "type", exitFinding, []string{keyed, "CREATE DOMAIN ints AS int[]", `CREATE TABLE "Odd.""it's"""(id int PRIMARY KEY, v ints[], "W" ints[])`, `CREATE PUBLICATION $D FOR TABLE t, "Odd.""it's"""`}},
	{"table", "table", exitFinding, []string{keyed, "CREATE TABLE odd()", "CREATE PUBLICATION $D FOR TABLE t, odd"}},
	{"table_in_schema", "table", exitFinding, []string{keyed, "CREATE TABLE odd()", "CREATE PUBLICATION $D FOR TABLE odd, TABLES IN SCHEMA public"}},
	{"dimensions", "dimensions", exitOK, []string{"CREATE TABLE t(id int PRIMARY KEY, v int[][])", publish}},
	{"column_name", "column_name", exitFinding, []string{"CREATE TABLE t(id int PRIMARY KEY, _pgmirror_lsn int, source_pgmirror_lsn int)", publish}},
	{"physical_slot", "slot_mismatch", exitFinding, []string{keyed, publish, "SELECT pg_create_physical_replication_slot('pgmirror_$D')"}},
	{"role_timeout", "timeout", exitOK, []string{keyed, publish, "ALTER ROLE $D SET statement_timeout = '5s'", "ALTER ROLE $D SET lock_timeout = 0"}},
	{"database_timeout", "timeout", exitOK, []string{keyed, publish, "ALTER DATABASE $D SET idle_session_timeout = '1min'"}},
	{"both_timeout", "timeout", exitOK, []string{keyed, publish, "ALTER ROLE $D IN DATABASE $D SET wal_sender_timeout = '10s'"}},
	{"keep_little", "max_slot_wal_keep_size", exitOK, []string{keyed, publish, "ALTER SYSTEM SET max_slot_wal_keep_size = '64MB'", "SELECT pg_reload_conf()"}},
	{"prepared", "prepared_transaction", exitOK, []string{keyed, publish, "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'it''s'", "SELECT pg_sleep(1.1)"}},
}

// The server's settings are at first those that everybody has.
func TestCheckFindings(t *testing.T) {
	p := harness.StartPostgres(t, harness.Setting("max_prepared_transactions", "5"))
	t.Setenv("PATH", t.TempDir()) // has no duckdb
	first := newChecked(t, p, "c_first", keyed, publish)
	first.repairAll("max_slot_wal_keep_size", exitOK)
	for _, test := range checkCases {
		t.Run(test.name, func(t *testing.T) {
			c := newChecked(t, p, "c_"+test.name, test.setup...)
			c.repairAll(test.check, test.code)
		})
	}
	t.Run("identity", func(t *testing.T) { checkIdentity(t, p) })
	t.Run("published in parts", func(t *testing.T) { checkParts(t, p) })
	t.Run("column lists", func(t *testing.T) { checkColumnLists(t, p) })
	t.Run("blocking transaction", func(t *testing.T) { checkBlocker(t, p) })
	t.Run("active slot", func(t *testing.T) { checkActiveSlot(t, p) })
	t.Run("pooler", func(t *testing.T) { checkPooler(t, p) })
	t.Run("advice", func(t *testing.T) { checkAdvice(t, p) })
	t.Run("missing beside others", func(t *testing.T) { checkMissing(t, p) })
	t.Run("provider", func(t *testing.T) { checkProvider(t, p) })
	t.Run("lost slot", func(t *testing.T) { checkLostSlot(t, p) }) // last: it writes much WAL
}

// Where check says that updates fail on the source, they do; after the fix they do not.
func checkIdentity(t *testing.T, p *harness.Postgres) {
	for name, setup := range map[string][]string{
		"none":       {"CREATE TABLE t(id int, v text)"},
		"nothing":    {keyed, "ALTER TABLE t REPLICA IDENTITY NOTHING"},
		"deferrable": {"CREATE TABLE t(id int PRIMARY KEY DEFERRABLE, v text)"},
		"index gone": {"CREATE TABLE t(id int NOT NULL, v text)", "CREATE UNIQUE INDEX i ON t(id)", "ALTER TABLE t REPLICA IDENTITY USING INDEX i", "DROP INDEX i"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChecked(t, p, "c_identity_"+strings.ReplaceAll(name, " ", "_"), append(setup, publish)...)
			conn, err := pgconn.Connect(t.Context(), p.SocketURL("postgres", c.database))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			update := func() error {
				_, err := conn.Exec(t.Context(), "UPDATE t SET v = 'x'").ReadAll()
				return err
			}
			if err := update(); !hasState(err, "55000") {
				t.Fatalf("an update before: %v", err)
			}
			c.repairAll("identity", exitOK)
			if err := update(); err != nil {
				t.Fatalf("an update after: %v", err)
			}
		})
	}
}

// Row filters, column lists, partitions and generated columns are mirrored as they are published: there is nothing to find but that the table above
// partitions is none. A fix that makes a publication anew keeps them.
func checkParts(t *testing.T, p *harness.Postgres) {
	c := newChecked(t, p, "c_parts", "CREATE TABLE t(id int PRIMARY KEY, v text, w int)", "CREATE TABLE pt(id int PRIMARY KEY) PARTITION BY LIST (id)",
		"CREATE TABLE leaf PARTITION OF pt DEFAULT", "CREATE TABLE g(id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)",
		"CREATE PUBLICATION $D FOR TABLE t (id, v) WHERE (id > 5 AND v <> 'it''s'), pt, g")
	if out, code := c.run("check"); code != exitOK || !strings.Contains(out, `table "public"."pt": it arrives as its partitions: "public"."leaf"`) || !strings.HasSuffix(out, "\n0 errors, 0 warnings, 1 note\n") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	c.exec("CREATE SCHEMA odd", "GRANT USAGE ON SCHEMA odd TO $D", "CREATE TABLE odd.o()", "GRANT SELECT ON odd.o TO $D",
		"ALTER PUBLICATION $D SET TABLE t WHERE (id > 5 AND v <> 'it''s'), pt, g, TABLES IN SCHEMA odd")
	published := func() string {
		s := p.Open("postgres", c.database)
		defer s.Close()
		rows, err := s.Query("SELECT tablename, attnames, rowfilter FROM pg_publication_tables WHERE tablename <> 'o' ORDER BY tablename")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(rows)
	}
	before := published()
	if after := c.repair("table", exitFinding); !strings.HasSuffix(after, "\n0 errors, 0 warnings, 1 note\n") {
		t.Errorf("after the fix: %s", after)
	}
	if after := published(); after != before || !strings.Contains(after, "it''s") {
		t.Errorf("published is %s, was %s", after, before)
	}
}

// Two publications that list different columns of a table break the stream.
func checkColumnLists(t *testing.T, p *harness.Postgres) {
	c := newChecked(t, p, "c_lists", keyed, publish+" (id)", "CREATE PUBLICATION other FOR TABLE t (id, v)")
	c.config[1] += ",other"
	c.repairAll("column_lists", exitFinding)
}

// A session in whose transaction something was written is named by pid. Its age is hidden from a role without pg_monitor.
func checkBlocker(t *testing.T, p *harness.Postgres) {
	c := newChecked(t, p, "c_blocker", keyed, publish)
	c.exec("ALTER ROLE $D CONNECTION LIMIT 10")
	for _, name := range []string{"minimal", "monitor"} {
		if name == "monitor" {
			c.exec("GRANT pg_read_all_stats TO " + c.database)
		}
		s := p.Open("postgres", c.database)
		s.Exec("BEGIN", "INSERT INTO t VALUES (1)")
		rows, _ := s.Query("SELECT pg_backend_pid()")
		out, _ := c.run("check")
		head := strings.Join(findings(out)["blocking_transaction"], "\n")
		if !strings.Contains(head, "process "+rows[0][0]+" (role \"postgres\"") || strings.Contains(head, "idle in transaction") != (name == "monitor") {
			t.Errorf("%s: %s", name, out)
		}
		c.repairAll("blocking_transaction", exitOK)
	}
}

func checkActiveSlot(t *testing.T, p *harness.Postgres) {
	c := newChecked(t, p, "c_active", keyed, publish, "SELECT pg_create_logical_replication_slot('pgmirror_$D', 'pgoutput')")
	conn, err := pgconn.Connect(t.Context(), p.SocketURL(c.database, c.database)+" replication=database application_name=reader")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	err = pglogrepl.StartReplication(t.Context(), conn, "pgmirror_c_active", 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'c_active'"},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.repairAll("slot_active", exitOK)
}

// What needs no repair, or none that can be pasted, is a note or warning with advice.
func checkAdvice(t *testing.T, p *harness.Postgres) {
	c := newChecked(t, p, "c_advice", `CREATE TABLE t(id int PRIMARY KEY, n numeric, ns numeric[], d numeric(10,2), "N" int)`, `CREATE TABLE "T"(id int PRIMARY KEY)`,
		`CREATE PUBLICATION $D FOR TABLE t, "T"`, "CREATE PUBLICATION empty")
	c.config[1] += ",empty"
	out, code := c.run("check", "--json")
	var report struct {
		Database, Role          string
		Errors, Warnings, Notes int
		Findings                []struct {
			Level, Check, Object, Problem, Why string
			Fix                                struct{ Advice string }
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got []string
	for _, f := range report.Findings {
		got = append(got, fmt.Sprintf("%s %s %s: %s", f.Level, f.Check, f.Object, f.Problem))
		if f.Why == "" || f.Fix.Advice == "" {
			t.Errorf("%+v lacks a reason or advice", f)
		}
	}
	want := []string{
		`warning empty_publication publication "empty": it has no tables`,
		`warning numeric table "public"."t": numeric without a precision that fits 38 digits: "n", "ns"`,
		`note case table "public"."t": columns that differ only by case: "n", "N"`,
		`note case database "c_advice": tables that differ only by case: "public"."T", "public"."t"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || code != exitOK || report.Errors != 0 || report.Warnings != 2 || report.Notes != 2 || report.Role != "c_advice" {
		t.Errorf("exit code %d, findings\n%s\nwant\n%s", code, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The publications that exist are named, and the one to be made has no table that cannot be mirrored.
func checkMissing(t *testing.T, p *harness.Postgres) {
	c := newChecked(t, p, "c_others", keyed, "CREATE DOMAIN numbers AS int[]", "CREATE TABLE odd(id int PRIMARY KEY, v numbers[])", "CREATE TABLE ours(id int PRIMARY KEY, _pgmirror_lsn int)",
		`CREATE PUBLICATION "The shop" FOR TABLE t`)
	out, code := c.run("check")
	if code != exitFinding || !strings.Contains(out, `it does not exist; this database has "The shop"`) || strings.Contains(out, `ONLY "public"."odd"`) ||
		!strings.Contains(out, `left out: "public"."odd" (arrays of arrays`) || !strings.Contains(out, `"public"."ours" (a column has`) {
		t.Errorf("exit code %d: %s", code, out)
	}
	c.repairAll("publication", exitFinding)
}

// A managed server is known by a setting that only it has.
func checkProvider(t *testing.T, p *harness.Postgres) {
	c := newChecked(t, p, "c_provider", keyed, publish, `ALTER DATABASE $D SET "rds.logical_replication" = 'off'`, "ALTER ROLE $D NOREPLICATION")
	out, code := c.run("check")
	if code != exitFinding || !strings.Contains(out, " on Amazon RDS or Aurora\n") || !strings.Contains(out, `    GRANT rds_replication TO "c_provider";`) {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func checkLostSlot(t *testing.T, p *harness.Postgres) {
	c := newChecked(t, p, "c_lost", keyed, publish, "SELECT pg_create_logical_replication_slot('pgmirror_$D', 'pgoutput')",
		"ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
	for range 4 {
		c.exec("SELECT pg_logical_emit_message(true, '', 'x')", "SELECT pg_switch_wal()")
	}
	c.exec("CHECKPOINT")
	if got := p.QueryRow("SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'pgmirror_c_lost'"); got != "lost" {
		t.Fatalf("the slot is %s", got)
	}
	c.repair("slot_lost", exitFinding)
	c.repairAll("max_slot_wal_keep_size", exitOK)
}

// A server that was never made ready for logical replication becomes so by the printed fixes and one restart each.
func TestCheckServerSettings(t *testing.T) {
	p := harness.StartPostgres(t, harness.Setting("wal_level", "minimal"), harness.Setting("max_replication_slots", "0"),
		harness.Setting("max_wal_senders", "0"), harness.Setting("max_slot_wal_keep_size", "10GB"))
	t.Setenv("PATH", t.TempDir()) // has no duckdb
	c := newChecked(t, p, "c_settings", keyed, publish)
	c.repair("wal_level", exitFinding)
	c.repair("max_wal_senders", exitFinding)
	c.repairAll("max_replication_slots", exitFinding)
}

// A line of the setting types that names nothing, or a form its column cannot have, is an error that also ends a first start; what a right one means is a
// note.
func TestCheckTypes(t *testing.T) {
	p := harness.StartPostgres(t)
	t.Setenv("PATH", t.TempDir()) // has no duckdb
	c := newChecked(t, p, "c_types", "CREATE TABLE t(k numeric PRIMARY KEY, n numeric, d numeric(9,2), i int, m int[], j json, h numeric)", publish)
	for line, want := range map[string]string{
		"public.t.n: decimal(10,2)": "NOTE a value with more digits", "public.t.n: double": "NOTE the nearest double", "public.t.n: text": "NOTE which it is by itself", "public.t.d: decimal(9,2)": "NOTE which it is by itself",
		"public.t.d: text": "NOTE it is the text that PostgreSQL prints\n", "public.t.i: text": "NOTE the stream comes in text", "public.t.m: text": "NOTE the stream comes in text", "public.t.j: text": "NOTE by itself",
		"public.t.k: decimal(20,5)": "NOTE a value with more digits", "public.t.k: double": "ERROR two keys could be one", "public.t.i: double": "ERROR only a numeric can be; it is integer",
		"public.t.m: decimal(9,2)": "ERROR only a numeric can be; it is integer[]", "public.t.x: text": "ERROR no published table has such a column", "public.T.n: text": "ERROR no published table has such a column",
	} {
		level, part, _ := strings.Cut(want, " ")
		c.config = append(c.config[:3:3], "types:", "  "+line)
		out, code := c.run("check")
		lines := findings(out)["types"]
		if !strings.Contains(strings.Join(lines, "\n")+"\n", part) || strings.Contains(out, "1 error,") != (level == "ERROR") || (code == exitFinding) != (level == "ERROR") {
			t.Errorf("%s: exit code %d, want %s:\n%s", line, code, want, out)
		}
		if level != "ERROR" {
			continue
		}
		var stderr strings.Builder
		code = execute(t.Context(), []string{"run", "--listen", "off", "--config", filepath.Join(c.dir, "mirror.yaml")}, program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &stderr})
		if code != exitCannotRun || !strings.Contains(stderr.String(), part) {
			t.Errorf("run with %s: exit code %d:\n%s", line, code, stderr.String())
		}
	}
}
