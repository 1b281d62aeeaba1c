package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// watched are changes of the source that send no row event. after is the table's name then; where it is empty the table is gone, and
// the reason is what it says.
var watched = []struct{ table, ddl, after, reason string }{
	{"w_default", "alter table w_default add column c int default 7", "public.w_default", ""},
	{"w_random", "alter table w_random add column c float8 default random()", "public.w_random", ""},
	{"w_dropped", "alter table w_dropped drop column v", "public.w_dropped", ""},
	{"w_renamed", "alter table w_renamed rename to w_renamed2", "public.w_renamed2", ""},
	{"w_schema", "alter table w_schema set schema elsewhere", "elsewhere.w_schema", ""},
	{"w_unlogged", "alter table w_unlogged set unlogged", "", ""},
	{"w_enum", "alter type mood rename value 'b' to 'c'", "public.w_enum", ""},
	{"w_enums", "", "public.w_enums", ""}, // an array of the same enum
	{"w_gone", "drop table w_gone", "", "dropped or taken out"},
	{"w_swapped", "begin; alter table w_swapped rename to w_old; create table w_swapped(id int primary key); insert into w_swapped values (7); commit", "public.w_swapped", ""},
	{"w_again", "begin; drop table w_again; create table w_again(id int primary key); insert into w_again values (8); commit", "public.w_again", ""},
	{"w_identity", "alter table w_identity replica identity full", "public.w_identity", ""},
	{"w_values", "alter table w_values alter v type int using v * 100", "public.w_values", ""},
	{"w_type", "alter table w_type alter v type bigint", "public.w_type", ""},
	{"w_fresh", "alter table w_fresh drop column v, add column v int default 3", "public.w_fresh", ""},
}

func watchedScene(t *testing.T, args ...string) (*harness.Postgres, *Mirror) {
	statements := []string{"create schema elsewhere", "grant usage on schema elsewhere to public", "create type mood as enum('a', 'b')",
		"alter default privileges grant select on tables to public", "create table good(id int primary key)", "insert into good values (1)"}
	for _, w := range watched {
		columns := "id int primary key"
		switch w.table {
		case "w_dropped", "w_values", "w_type", "w_fresh":
			columns += ", v int default 1"
		case "w_enum":
			columns += ", m mood default 'b'"
		case "w_enums":
			columns += ", m mood[] default '{a,b}'"
		}
		statements = append(statements, "create table "+w.table+"("+columns+")", "insert into "+w.table+" values (1)")
	}
	return scene(t, statements, args...)
}

// settled waits until every watched table is what the source made of it: streaming with the source's rows, or failed.
func settled(t *testing.T, pg *harness.Postgres, m *Mirror) {
	t.Helper()
	m.WaitStatus("all of them are copied again or have failed", func(s *mirror.Status) bool {
		for _, w := range watched {
			name, state := w.after, "streaming"
			if name == "" {
				name, state = "public."+w.table, "gone"
			}
			if !slices.ContainsFunc(s.Tables, func(ts mirror.TableStatus) bool { return ts.Name == name && ts.State == state }) {
				return false
			}
		}
		return slices.ContainsFunc(s.Tables, func(ts mirror.TableStatus) bool { return ts.Name == "public.w_old" && ts.State == "streaming" })
	})
	for _, w := range watched {
		if w.after == "" {
			refusedTable(t, m, "public."+w.table, w.reason)
			continue
		}
		if w.table == "w_enums" { // PostgreSQL prints arrays otherwise
			answers(t, m, "select * from w_enums", "1|[a, c]")
			continue
		}
		alike(t, pg, m, "select * from "+w.after+" order by id")
	}
	alike(t, pg, m, "select * from w_old")
	alike(t, pg, m, "select * from good order by id")
}

// What sends no row event is found within catalog_poll, without anybody asking, and the table is copied as it is then; so it is over a
// restart, and when the source is changed while the mirror is down.
func TestWatchedChangesAreCopied(t *testing.T) {
	t.Parallel()
	pg, m := watchedScene(t, "--catalog-poll", "300ms")
	for _, w := range watched {
		if w.ddl != "" {
			pg.Exec(w.ddl)
		}
	}
	settled(t, pg, m)
	m.Checkpoint()
	restart(m)
	pg.Exec("insert into good values (2)", "insert into w_default values (2)", "update w_type set v = 1::bigint << 40", "delete from w_swapped", "insert into w_old values (3)",
		"alter table w_unlogged set logged")
	within(t, "the logged table is back", func() bool {
		s, err := m.Status()
		return err == nil && Table(t, s, "public.w_unlogged").State == "streaming"
	})
	for _, table := range []string{"good", "w_default", "w_type", "w_swapped", "w_old", "w_unlogged"} {
		alike(t, pg, m, "select * from "+table+" order by id")
	}
	m.Checkpoint()
}

// The same while the mirror is stopped.
func TestWatchedChangesWhileStopped(t *testing.T) {
	t.Parallel()
	pg, m := watchedScene(t, "--catalog-poll", "300ms")
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, w := range watched {
		if w.ddl != "" {
			pg.Exec(w.ddl)
		}
	}
	pg.Exec("insert into good values (2)", "insert into w_values values (2, 5)")
	m.Start()
	m.WaitReady()
	settled(t, pg, m)
}

// --wait-lsn source includes a look at the catalogue: the first query after the statement has the new content or an error, never the old
// content.
func TestWatchedChangesBeforeTheNextQuery(t *testing.T) {
	t.Parallel()
	pg, m := watchedScene(t, "--catalog-poll", "1h")
	for _, w := range watched {
		if w.ddl == "" || w.after != "public."+w.table {
			continue
		}
		pg.Exec(w.ddl)
		rows, err := m.TrySQL("select * from "+w.table+" order by id", "--wait-lsn", "source")
		if err != nil {
			continue
		}
		if want, _ := pg.Query("select * from " + w.table + " order by id"); show(rows) != show(want) {
			t.Errorf("after %s the table shows %v, want %v", w.ddl, rows, want)
		}
	}
	answers(t, m, "select * from good", "1")
}

// A table joins the publication under load, leaves it, and comes back: it is exact each time, and the others do not notice.
func TestPublicationMembership(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t)
	pg.CreateMirrorRole(mirrorRole, "postgres")
	pg.Exec("create table m(id int primary key)", "insert into m values (1)", "create table z(id int primary key)", "insert into z values (1)",
		`create table "A b"(id int primary key, v text)`, `insert into "A b" select i, repeat('x', i % 50) from generate_series(1, 20000) i`, "create publication p for table m, z")
	m := StartMirror(t, pg, "p", "--catalog-poll", "200ms")
	stop := writeBehind(t, pg, `insert into "A b" values ($1, 'new')`, `update "A b" set v = v || 'u' where id % 97 = $1 % 97`, `delete from "A b" where id % 10007 = $1 % 10007`)
	pg.Exec(`alter publication p add table "A b"`)
	m.WaitStatus("the table has joined", func(s *mirror.Status) bool {
		return len(s.Tables) == 3 && Table(t, s, "public.A b").State == "streaming"
	})
	pg.Exec("alter publication p drop table z", "insert into z values (2)")
	refusedTable(t, m, "public.z", "taken out of the publication", "1")
	if report, code := m.verifyJSON(); code != 0 || verifiedTable(t, report, "public.z").Outcome != mirror.VerifySkipped {
		t.Errorf("with a table that is gone: exit code %d, %+v", code, report)
	}
	if _, stderr, code := m.Command("forget", "--yes", "public.m"); code != 3 || !strings.Contains(stderr, "is published") {
		t.Errorf("forget of a table that is published: exit code %d: %s", code, stderr)
	}
	if stdout, stderr, code := m.Command("forget", "--yes", "public.z"); code != 0 || stdout != "removed public.z\n" {
		t.Errorf("forget: exit code %d: %s%s", code, stdout, stderr)
	}
	if _, err := m.TrySQL("select * from z"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a query on a table that is forgotten: %v", err)
	}
	stop()
	alike(t, pg, m, `select * from "A b" order by id`)
	m.Verify(`public.A b`, "m")
	pg.Exec("alter publication p add table z")
	m.WaitStatus("the table is back", func(s *mirror.Status) bool { return len(s.Tables) == 3 && Table(t, s, "public.z").State == "streaming" })
	alike(t, pg, m, "select * from z order by id")
	m.Checkpoint()
	restart(m)
	for _, table := range []string{"m", "z", `"A b"`} {
		alike(t, pg, m, "select * from "+table+" order by id")
	}
}

// writeBehind runs statements with a growing number again and again until stop is called.
func writeBehind(t *testing.T, pg *harness.Postgres, statements ...string) (stop func()) {
	t.Helper()
	session := pg.Open("postgres", "postgres")
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 1_000_000; ; n++ {
			select {
			case <-quit:
				return
			default:
			}
			for _, s := range statements {
				if err := session.Exec(strings.ReplaceAll(s, "$1", itoa(n))); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	return func() { close(quit); <-done }
}

// A healthy table that is copied again under load shows all of its rows the whole time, one state after the other; killed in the middle,
// the copy begins again by itself.
func TestResyncUnderLoad(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, v int not null)", "insert into t select i, 0 from generate_series(1, 100000) i"}, "--checkpoint-interval", "1s")
	// Every transaction keeps the sum.
	stop := writeBehind(t, pg, "begin; update t set v = v + 1 where id = 1 + $1 % 50000; update t set v = v - 1 where id = 50001 + $1 % 50000; commit",
		"begin; insert into t values ($1, 5); delete from t where id = $1; commit")
	broken := make(chan string, 1)
	read, readers := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(readers)
		for {
			select {
			case <-read:
				return
			default:
			}
			rows, err := m.TrySQL("select count(*), sum(v) from t")
			if err != nil && !strings.Contains(err.Error(), "not running") || err == nil && show(rows) != "100000|0" {
				select {
				case broken <- fmt.Sprint(show(rows), err):
				default:
				}
			}
		}
	}()
	for range 3 {
		if out, stderr, code := m.Command("resync", "t"); code != 0 || !strings.Contains(out, "public.t: 100000 rows") {
			t.Fatalf("exit code %d: %s%s", code, out, stderr)
		}
	}
	close(read)
	<-readers
	select {
	case what := <-broken:
		t.Errorf("a reader saw %s", what)
	default:
	}
	for range 3 {
		asked := make(chan struct{})
		go func() { defer close(asked); m.Command("resync", "public.t") }()
		time.Sleep(150 * time.Millisecond)
		restart(m)
		<-asked
	}
	stop()
	m.WaitStatus("the copies are done", func(s *mirror.Status) bool { return Table(t, s, "public.t").State == "streaming" })
	alike(t, pg, m, "select * from t order by id")
	m.Checkpoint()
	m.Verify("t")
}

// A table that failed because of a value comes back by resync once the value is gone, and says why as long as it is not.
func TestResyncFailedTable(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table n(id int primary key, v numeric(6,2))", "insert into n values (1, 1)"})
	pg.Exec("insert into n values (2, 'NaN')")
	refusedTable(t, m, "public.n", "NaN", "1|1.00")
	if out, stderr, code := m.Command("resync", "n"); code != 1 || !strings.Contains(out+stderr, "NaN") {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	restart(m)
	refusedTable(t, m, "public.n", "NaN", "1|1.00")
	pg.Exec("update n set v = 2 where id = 2")
	if out, stderr, code := m.Command("resync", "n"); code != 0 || !strings.Contains(out, "public.n: 2 rows") {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	alike(t, pg, m, "select * from n order by id")
	if _, stderr, code := m.Command("resync", "nowhere"); code != 3 || !strings.Contains(stderr, `"nowhere"`) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// A table that takes the place of one that was dropped and cannot be copied is failed, not gone: it says why, over looks and restarts, verify tells,
// and it comes back by resync.
func TestRecreatedTableThatFails(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		pg, m := scene(t, []string{"create table n(id int primary key, v numeric(6,2))", "insert into n values (1, 1)", "create table z(id int primary key)"}, "--catalog-poll", "200ms")
		if !running {
			if code := m.Stop(); code != 0 {
				t.Fatalf("exit code %d", code)
			}
		}
		pg.Exec("begin; drop table n; create table n(id int primary key, v numeric(6,2)); grant select on n to mirror; insert into n values (2, 'NaN'); commit")
		if !running {
			m.Start()
		}
		for round := range 2 {
			m.WaitStatus("it has failed", func(s *mirror.Status) bool {
				if s.State != "streaming" {
					return false
				}
				ts := Table(t, s, "public.n")
				return ts.State == "failed" && strings.Contains(ts.Error, "NaN")
			})
			answers(t, m, "select count(*) from z", "0")
			time.Sleep(time.Second) // several looks
			s, err := m.Status()
			if err != nil {
				t.Fatal(err)
			}
			if ts := Table(t, s, "public.n"); ts.State != "failed" || !strings.Contains(ts.Error, "NaN") {
				t.Fatalf("after some looks it is %s: %s", ts.State, ts.Error)
			}
			if out, stderr, code := m.Command("verify"); code != 1 || !strings.Contains(out+stderr, "NaN") {
				t.Fatalf("verify: exit code %d: %s%s", code, out, stderr)
			}
			if round == 0 {
				restart(m)
			}
		}
		pg.Exec("update n set v = 2 where id = 2")
		if out, stderr, code := m.Command("resync", "n"); code != 0 || !strings.Contains(out, "public.n: 1 row") {
			t.Fatalf("exit code %d: %s%s", code, out, stderr)
		}
		alike(t, pg, m, "select * from n")
		m.Verify()
	}
}

// Several changes of the definition inside one transaction, between changes of rows, and a type whose binary form cannot be read: the
// stream goes on in text.
func TestSchemaChangesBetweenRows(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, v int)", "insert into t select i, i from generate_series(1, 100) i", "create table other(id int primary key)"}, "--catalog-poll", "300ms")
	pg.Exec(
		"begin; insert into t values (101, 1); alter table t add column w text default 'w'; insert into t values (102, 2, 'x'); alter table t rename v to u; update t set u = -u; insert into other values (1); commit",
		"alter table t alter u type text using u::text || '!'", "insert into t values (103, 'later', null)",
		"alter table t add column p point default '(1,2)'", "insert into t(id) values (104)", "insert into other values (2)",
	)
	m.WaitStatus("it is copied", func(s *mirror.Status) bool { return Table(t, s, "public.t").State == "streaming" })
	within(t, "the last change is there", func() bool {
		rows, err := m.TrySQL("select p from t where id = 104")
		return err == nil && show(rows) == "(1,2)"
	})
	alike(t, pg, m, "select * from t order by id")
	alike(t, pg, m, "select * from other order by id")
	m.Verify()
}
