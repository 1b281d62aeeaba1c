package e2e

import (
	"slices"
	"strings"
	"testing"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// publishing is a source with tables and publications of its own, and a mirror of the publications.
func publishing(t *testing.T, publications string, statements []string, args ...string) (*harness.Postgres, *Mirror) {
	t.Helper()
	pg := harness.StartPostgres(t)
	pg.CreateMirrorRole(mirrorRole, "postgres")
	pg.Exec(statements...)
	return pg, StartMirror(t, pg, publications, args...)
}

// becomes waits until the mirror answers a query as the source answers another one, and nothing else than an error until then: what it shows
// after a look at the catalogue is never what was there before.
func becomes(t *testing.T, pg *harness.Postgres, m *Mirror, ours, theirs string) {
	t.Helper()
	want, err := pg.Query(theirs)
	if err != nil {
		t.Fatal(err)
	}
	within(t, ours+" is answered", func() bool {
		rows, err := m.TrySQL(ours, "--wait-lsn", "source")
		if err == nil && show(rows) != show(want) {
			t.Fatalf("%s:\n%s, want\n%s", ours, show(rows), show(want))
		}
		return err == nil
	})
}

// streams waits until exactly these tables are streaming.
func streams(t *testing.T, m *Mirror, tables ...string) {
	t.Helper()
	m.WaitStatus(strings.Join(tables, ", ")+" are streaming", func(s *mirror.Status) bool {
		var streaming []string
		for _, ts := range s.Tables {
			if ts.State == "streaming" {
				streaming = append(streaming, strings.TrimPrefix(ts.Name, "public."))
			}
		}
		slices.Sort(tables)
		slices.Sort(streaming)
		return slices.Equal(streaming, tables)
	})
}

// Each partition that a publication of the partitioned table sends is a table of the mirror: rows move between them, they are filled through the
// root and truncated with it, have identities of their own, come filled and go, and so do they over a restart (S-S10, S-S11).
func TestPartitions(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p", []string{
		"create table parts(id int, d int, v text, primary key (id, d)) partition by range (d)",
		"create table part1 partition of parts for values from (0) to (10)",
		"create table part2 partition of parts for values from (10) to (20)", "alter table part2 replica identity full",
		`create table middle partition of parts for values from (20) to (30) partition by list (id)`,
		`create table "Part 3" partition of middle for values in (1, 2, 3)`, "create table rest partition of middle default",
		"insert into parts select i, i % 30, 'v' || i from generate_series(0, 299) i", "create publication p for table parts"}, "--catalog-poll", "300ms")
	pg.Needs(15, "eye for tables that become partitions")
	all := []string{"part1", "part2", `"Part 3"`, "rest"}
	same := func() {
		t.Helper()
		for _, leaf := range all {
			becomes(t, pg, m, "select id, d, v from "+leaf+" order by 1, 2", "select id, d, v from "+leaf+" order by 1, 2")
		}
	}
	same()
	pg.Exec("update parts set d = (d + 10) % 30", "update parts set id = -id where d = 3", "delete from parts where id % 7 = 0",
		"begin; update parts set d = 25, v = 'a' where id = 31; update parts set d = 5, v = v || 'b' where id = 31; insert into parts values (1, 20, 'x'), (2, 21, 'y'); commit",
		"insert into parts select 1000, 10, 'equal' where false", "truncate part2", "insert into parts values (500, 15, 'new')")
	same()
	m.Verify()
	// One comes filled, with its columns in another order, one goes, and one is made empty.
	pg.Exec("create table part4(v text, d int not null, gone int, id int not null, primary key (id, d))", "alter table part4 drop gone",
		"insert into part4 select 'old' || i, 30 + i % 10, i from generate_series(1001, 1100) i", "alter table parts attach partition part4 for values from (30) to (40)",
		"create table part5 partition of parts for values from (40) to (50)", "update parts set d = 45 where d = 31", "update parts set d = 35 where d = 25",
		"alter table parts detach partition part1", "insert into part1 values (9999, 1, 'not published')")
	all = []string{"part2", `"Part 3"`, "rest", "part4", "part5"}
	streams(t, m, "part2", "Part 3", "rest", "part4", "part5")
	same()
	refusedTable(t, m, "public.part1", "taken out of the publication")
	pg.Exec("truncate parts", "insert into parts values (1, 11, 'again'), (2, 22, 'again'), (3, 33, 'again'), (4, 24, 'again')", "alter table parts attach partition part1 for values from (0) to (10)")
	all = append(all, "part1")
	streams(t, m, "part1", "part2", "Part 3", "rest", "part4", "part5")
	same()
	m.Checkpoint()
	restart(m)
	pg.Exec("update parts set d = (d + 10) % 50")
	same()
	m.Verify()
}

// The mirror holds the rows that pass the filters, in the copy and in the stream: a row that an update moves over the edge comes or goes, a
// table in several publications has the rows of each, and TRUNCATE empties it (S-S13).
func TestRowFilters(t *testing.T) {
	t.Parallel()
	text := "(select string_agg(md5(i::text), '') from generate_series(1, 200) i)"
	pg, m := publishing(t, "p,q", []string{
		"create table f(id int primary key, s text, big text)", "alter table f replica identity full", "alter table f alter big set storage external",
		"create table k(k int primary key, v text)", "create table two(id int primary key, v int)", "create table open(id int primary key, v int)",
		"create table whole(s text, v int)", "alter table whole replica identity full",
		"insert into f select i, case i % 3 when 0 then 'on' when 1 then 'off' end, " + text + " from generate_series(1, 30) i",
		"insert into k select i, 'v' from generate_series(1, 200) i", "insert into two select i, i from generate_series(1, 200) i", "insert into open select i, i from generate_series(1, 200) i",
		"insert into whole select s, v from unnest('{on,on,off,ON}'::text[]) s, generate_series(1, 3) v",
		"create publication p for table f where (s = 'on'), k where (k > 100), two where (id < 10), open where (id < 10), whole where (lower(s) = 'on')",
		"create publication q for table two where (id > 190), open"}, "--catalog-poll", "300ms")
	filtered := map[string]string{"f": "s = 'on'", "k": "k > 100", "two": "id < 10 or id > 190", "open": "true", "whole": "lower(s) = 'on'"}
	same := func() {
		t.Helper()
		for table, filter := range filtered {
			becomes(t, pg, m, "select * from "+table+" order by 1, 2", "select * from "+table+" where "+filter+" order by 1, 2")
		}
	}
	same()
	m.Verify()
	copies := strings.Count(m.Log(), "table joined")
	pg.Exec("update f set s = 'on' where id = 1", "update f set s = 'off' where id = 3", "update f set s = null where id = 6", "update f set id = 100 + id where id in (9, 10)",
		"begin; update f set s = 'on' where id = 2; update f set s = 'off' where id = 2; update f set s = 'on' where id = 2; update f set s = 'on', big = 'x' where id = 4; commit",
		"delete from f where id in (12, 13)", "insert into f values (50, 'on', 'n'), (51, 'off', 'n')",
		"update k set k = -k where k > 150", "update k set k = -k where k < -180", "update k set k = k + 1000 where k = 20", "delete from k where k in (101, 30)",
		"update two set id = 300 - id where id < 5", "update two set id = id - 295 where id in (296, 297)", "update two set v = 0", "delete from two where id % 2 = 0", "delete from open where id % 2 = 0",
		"update whole set s = 'off' where v = 1", "update whole set s = 'oN' where s = 'off'", "delete from whole where v = 2")
	same()
	m.Verify()
	if _, errs, code := m.Command("verify", "--sample", "50"); code != 0 {
		t.Errorf("verify of a sample: %d, %s", code, errs)
	}
	if now := strings.Count(m.Log(), "table joined"); now != copies {
		t.Errorf("%d tables were copied again", now-copies)
	}
	// The source does not send what lies out of line and was left alone by an update that moves a row in: the table is copied again.
	pg.Exec("alter table k alter v set storage external", "begin; update k set v = "+text+" where k < 100; update k set k = k + 2000 where k between 1 and 40; update k set v = 'after' where k = 2001; commit",
		"update k set k = k + 2000 where k between 41 and 60", "update k set v = 'later' where k = 2041")
	same()
	if !strings.Contains(m.Log(), "moved a row into the row filter") {
		t.Error("every value was sent: the case shows nothing")
	}
	m.Verify()
	// Another filter, found by the watch.
	pg.Exec("alter publication p set table f where (s = 'off'), k where (k > 100), two, open where (id < 10), whole where (lower(s) = 'on')", "insert into f values (60, 'on', 'n'), (61, 'off', 'n')")
	filtered["f"], filtered["two"] = "s = 'off'", "true"
	same()
	pg.Exec("truncate k, f", "insert into k values (1), (101)", "insert into f values (1, 'on'), (2, 'off')")
	same()
	m.Checkpoint()
	restart(m)
	pg.Exec("update f set s = 'off'", "update k set k = 200 where k = 1")
	same()
	m.Verify()
	// While the mirror is stopped.
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	pg.Exec("alter publication p drop table f", "insert into f values (3, 'on')", "alter publication p add table f where (s = 'on')", "insert into f values (4, 'on')")
	filtered["f"] = "s = 'on'"
	m.Start()
	m.WaitReady()
	same()
	m.Verify()
}

// Only the columns that are published are in the mirror, alike in copy, stream and verify: those of a list, and no generated ones (S-S12, S-S14).
func TestColumnLists(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p", []string{
		`create table l(secret text, id int primary key, gone int, "Ä b" numeric(8,2), pair point, v text)`, "alter table l drop gone",
		"create table g(id int primary key, twice int generated always as (id * 2) stored, v int, thrice text generated always as (v::text || 'x') stored)",
		"create table inserts(a int primary key, b int, c int)",
		"insert into l select 's', i, i, point(i, i), 'v' from generate_series(1, 50) i", "insert into g(id, v) select i, i from generate_series(1, 50) i", "insert into inserts select i, i, i from generate_series(1, 50) i",
		`create publication p for table l (v, "Ä b", id) where (id <> 7), g, inserts (c, b)`}, "--catalog-poll", "300ms")
	want := map[string]string{"l": `select id, "Ä b", v from l where id <> 7 order by id`, "g": "select id, v from g order by id", "inserts": "select b, c from inserts order by b"}
	same := func() {
		t.Helper()
		for table, theirs := range want {
			becomes(t, pg, m, "select * from "+table+" order by 1", theirs)
		}
	}
	same()
	pg.Exec(`update l set "Ä b" = 0.5, secret = 'x' where id < 10`, "update l set secret = 'y'", "delete from l where id = 20", "update l set id = -7 where id = 7", "update l set id = 7 where id = 8", "insert into l(id, v) values (100, null)",
		"update g set v = v + 1", "update g set id = -id where id < 10", "delete from g where id = 20", "insert into g values (200, default, 1)", "insert into inserts values (99, 98, 97)")
	same()
	m.Verify()
	copies := strings.Count(m.Log(), "table joined")
	// What is not published may change as it likes.
	pg.Exec("alter table l drop secret", "alter table l add other int default 5", "alter table l rename pair to paar", "update l set other = 6", "insert into l(id, v) values (101, 'w')")
	same()
	if now := strings.Count(m.Log(), "table joined"); now != copies {
		t.Errorf("%d tables were copied again", now-copies)
	}
	pg.Exec("alter publication p set table l (id, other), g (id), inserts", "insert into l(id, other) values (102, 1)", "insert into g(id, v) values (201, 1)")
	want["l"], want["g"], want["inserts"] = "select id, other from l order by id", "select id from g order by id", "select * from inserts order by 1"
	same()
	pg.Exec("update l set other = -1", "update inserts set b = 0", "delete from g where id < 0")
	same()
	m.Checkpoint()
	restart(m)
	pg.Exec("update inserts set c = 0 where a < 10", "update l set id = 10000 - id")
	same()
	m.Verify()
}

// Stored generated columns are mirrored where the publication sends them, alike in copy, stream and verify, and come and go with the publication's option (S-S12).
func TestGeneratedColumns(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t)
	pg.Needs(18, "generated columns in publications")
	pg.CreateMirrorRole(mirrorRole, "postgres")
	pg.Exec("create table g(id int primary key, twice int generated always as (id * 2) stored, v int, text text generated always as (v::text || 'x') stored, half int generated always as (v / 2) virtual)",
		"create table named(id int primary key, twice int generated always as (id * 2) stored, v int)",
		"insert into g(id, v) select i, i from generate_series(1, 50) i", "insert into named(id, v) select i, i from generate_series(1, 50) i",
		"create publication p for table g, named (id, twice) with (publish_generated_columns = stored)")
	m := StartMirror(t, pg, "p", "--catalog-poll", "300ms")
	same := func(g string) {
		t.Helper()
		becomes(t, pg, m, "select * from g order by id", "select "+g+" from g order by id")
		becomes(t, pg, m, "select * from named order by id", "select id, twice from named order by id")
		m.Verify()
	}
	change := func() {
		pg.Exec("update g set v = v + 1", "update g set id = id + 1000 where id % 10 = 1", "delete from g where id % 10 = 2", "update named set id = -id where id % 3 = 0")
	}
	const stored, without = "id, twice, v, text", "id, v"
	same(stored)
	change()
	same(stored)
	m.Checkpoint()
	restart(m)
	change()
	same(stored)
	pg.Exec("alter publication p set (publish_generated_columns = none)")
	same(without)
	change()
	same(without)
	pg.Exec("alter publication p set (publish_generated_columns = stored)")
	same(stored)
}

// Changes that were not published because a table was out of the publication, published otherwise, or no partition for a moment are in the
// mirror, whether or not a look at the catalogue fell into that moment.
func TestPublishedAgain(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p,q", []string{
		"create schema s", "grant usage on schema s to public", "alter default privileges grant select on tables to public",
		"create table a(id int primary key)", "create table b(id int primary key)", "create table s.c(id int primary key)", "create table other(id int primary key)",
		"create table root(id int primary key) partition by list (id)", "create table leaf partition of root default",
		"insert into a values (1)", "insert into b values (1)", "insert into s.c values (1)", "insert into root values (1)",
		"create publication p for table a, root", "create publication q for table b, tables in schema s"}, "--catalog-poll", "1h")
	for _, c := range []struct {
		table      string
		statements []string
	}{
		{"a", []string{"alter publication p drop table a", "insert into a values (2)", "alter publication p add table a"}},
		{"leaf", []string{"alter table root detach partition leaf", "insert into leaf values (2)", "alter table root attach partition leaf default"}},
		{"leaf", []string{"alter publication p drop table root", "insert into leaf values (3)", "alter publication p add table root"}},
		{"b", []string{"alter publication q set (publish = 'insert')", "update b set id = 2", "alter publication q set (publish = 'insert, update, delete, truncate')"}},
		{"s.c", []string{"alter publication q drop tables in schema s", "insert into s.c values (2)", "alter publication q add tables in schema s"}},
		{"s.c", []string{"alter table s.c set schema public", "insert into c values (3)", "alter table c set schema s"}},
		{"leaf", []string{"alter publication p set (publish_via_partition_root = true)", "insert into leaf values (4)", "alter publication p set (publish_via_partition_root = false)"}},
	} {
		pg.Exec(c.statements...)
		becomes(t, pg, m, "select * from "+c.table+" order by id", "select * from "+c.table+" order by id")
	}
	for _, table := range []string{"a", "b", "s.c", "leaf"} {
		becomes(t, pg, m, "select * from "+table+" order by id", "select * from "+table+" order by id")
	}
	m.Verify()
	// What a look finds out of order is not shown as if it were right.
	pg.Exec("alter publication q set (publish = 'insert')", "delete from b")
	if rows, err := m.TrySQL("select * from b", "--wait-lsn", "source"); err == nil || !strings.Contains(err.Error(), "leaves out update, delete, truncate") {
		t.Errorf("a table whose deletes are left out shows %v, %v", rows, err)
	}
	becomes(t, pg, m, "select * from a order by id", "select * from a order by id")
	pg.Exec("alter publication q set (publish = 'insert, update, delete, truncate')")
	becomes(t, pg, m, "select * from b", "select * from b")
	becomes(t, pg, m, "select * from s.c order by id", "select * from s.c order by id")
	copies := strings.Count(m.Log(), "table joined")
	pg.Exec("comment on publication p is 'x'", "alter publication p add table other", "vacuum freeze pg_publication_rel")
	becomes(t, pg, m, "select * from a order by id", "select * from a order by id") // it looks at the catalogue
	streams(t, m, "a", "b", "s.c", "leaf", "other")
	if now := strings.Count(m.Log(), "table joined"); now != copies+1 {
		t.Errorf("%d tables joined instead of one", now-copies)
	}
}

// A publication of inserts alone keeps what the source deletes and what it was before an update (S-U8), over checkpoints and restarts; a key that is
// inserted again is there again.
func TestInsertsOnly(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p", []string{"create table t(id int primary key, v text)", "insert into t select i, 'old' from generate_series(1, 3) i",
		"create publication p for table t where (id < 100) with (publish = 'insert')"}, "--partial-publish")
	pg.Exec("update t set v = 'new'", "delete from t where id = 2", "insert into t values (2, 'again'), (4, 'x'), (100, 'filtered')", "truncate t", "insert into t values (1, 'after')")
	history := []string{"1|after", "1|old", "2|again", "2|old", "3|old", "4|x"}
	answers(t, m, "select * from t order by id, v", history...)
	m.Checkpoint()
	restart(m)
	pg.Exec("delete from t", "insert into t values (5, 'x')")
	answers(t, m, "select * from t order by id, v", append(history, "5|x")...)
	m.Checkpoint()
	restart(m)
	answers(t, m, "select * from t order by id, v", append(history, "5|x")...)
}
