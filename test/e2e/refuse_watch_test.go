package e2e

import (
	"testing"
	"time"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// watched are changes of the source that send no row event, and what the failed table says.
var watched = []struct{ table, ddl, reason string }{
	{"w_default", "alter table w_default add column c int default 7", "2 columns instead of 1"},
	{"w_random", "alter table w_random add column c float8 default random()", "2 columns instead of 1"},
	{"w_dropped", "alter table w_dropped drop column v", "1 columns instead of 2"},
	{"w_renamed", "alter table w_renamed rename to w_renamed2", "now called public.w_renamed2"},
	{"w_schema", "alter table w_schema set schema elsewhere", "now called elsewhere.w_schema"},
	{"w_unlogged", "alter table w_unlogged set unlogged", ""},
	{"w_enum", "alter type mood rename value 'b' to 'c'", "an enum's labels"},
	{"w_enums", "", "an enum's labels"}, // an array of the same enum
	{"w_gone", "drop table w_gone", "dropped or taken out"},
	{"w_swapped", "begin; alter table w_swapped rename to w_old; create table w_swapped(id int primary key); insert into w_swapped values (7); commit", "now called public.w_old"},
	{"w_again", "begin; drop table w_again; create table w_again(id int primary key); commit", "dropped or taken out"},
	{"w_identity", "alter table w_identity replica identity full", "replica identity"},
	{"w_values", "alter table w_values alter v type int using v * 100", "rewritten"},
	{"w_type", "alter table w_type alter v type bigint", `"v" has another type`},
	{"w_fresh", "alter table w_fresh drop column v, add column v int default 3", `column "v"`},
}

func watchedScene(t *testing.T, args ...string) (*harness.Postgres, *Mirror) {
	statements := []string{"create schema elsewhere", "grant usage on schema elsewhere to public", "create type mood as enum('a', 'b')", "create table good(id int primary key)", "insert into good values (1)"}
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

// What sends no row event is found within catalog_poll, without anybody asking.
func TestRefuseWatched(t *testing.T) {
	t.Parallel()
	pg, m := watchedScene(t, "--catalog-poll", "500ms")
	for _, w := range watched {
		if w.ddl != "" {
			pg.Exec(w.ddl)
		}
	}
	began := time.Now()
	m.WaitStatus("all of them have failed", func(s *mirror.Status) bool {
		for _, w := range watched {
			if Table(t, s, "public."+w.table).State != "failed" {
				return false
			}
		}
		return true
	})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s to find them", took)
	}
	for _, w := range watched {
		refusedTable(t, m, "public."+w.table, w.reason)
	}
	answers(t, m, "select * from good", "1")
	restart(m)
	pg.Exec("insert into good values (2)")
	answers(t, m, "select * from good order by id", "1", "2")
	for _, w := range watched[:3] {
		refusedTable(t, m, "public."+w.table, w.reason)
	}
}

// --wait-lsn source includes a look at the catalogue: the first query after the statement already sees the table failed.
func TestRefuseBeforeTheNextQuery(t *testing.T) {
	t.Parallel()
	pg, m := watchedScene(t, "--catalog-poll", "1h")
	for _, w := range watched {
		if w.ddl == "" {
			continue
		}
		pg.Exec(w.ddl)
		if rows, err := m.TrySQL("select * from "+w.table, "--wait-lsn", "source"); err == nil {
			t.Errorf("after %s the table still shows %v", w.ddl, rows)
		}
		refusedTable(t, m, "public."+w.table, w.reason)
	}
	answers(t, m, "select * from good", "1")
}

// The same while the mirror is stopped: the next start finds it.
func TestRefuseWatchedWhileStopped(t *testing.T) {
	t.Parallel()
	pg, m := watchedScene(t, "--catalog-poll", "1h")
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, w := range watched {
		if w.ddl != "" {
			pg.Exec(w.ddl)
		}
	}
	m.Start()
	m.WaitReady()
	for _, w := range watched {
		refusedTable(t, m, "public."+w.table, "")
	}
	answers(t, m, "select * from good", "1")
}

// A table taken out of the publication fails with its last content readable; one that joins it is told to need a new mirror. The
// mirror's own later tables do not disturb those it has.
func TestRefusePublicationChanges(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t)
	pg.CreateMirrorRole(mirrorRole, "postgres")
	pg.Exec("create table m(id int primary key)", "insert into m values (1)", "create table z(id int primary key)", "insert into z values (1)",
		"create table a(id int primary key)", "create publication p for table m, z")
	m := StartMirror(t, pg, "p", "--catalog-poll", "200ms")
	pg.Exec("alter publication p add table a", "insert into a values (1)", "alter publication p drop table z")
	m.WaitStatus("a is seen", func(s *mirror.Status) bool { return len(s.Tables) == 3 })
	refusedTable(t, m, "public.a", "joined the publication")
	refusedTable(t, m, "public.z", "taken out of the publication", "1")
	pg.Exec("insert into m values (2)")
	answers(t, m, "select * from m order by id", "1", "2")
	restart(m)
	m.WaitStatus("a is seen again", func(s *mirror.Status) bool { return len(s.Tables) == 3 })
	refusedTable(t, m, "public.a", "joined the publication")
	refusedTable(t, m, "public.z", "taken out of the publication", "1")
	pg.Exec("insert into m values (3)")
	answers(t, m, "select count(*) from m", "3")
}
