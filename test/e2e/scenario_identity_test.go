package e2e

import (
	"strings"
	"testing"

	"pgmirror/mirror"
)

// Keys of several columns, changed in part and in whole, leave no old row behind (S-K1); a row inserted and changed at once is one
// row (S-K3).
func TestScenarioKeys(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{
		"create table abc(a int, b int, c text, v text, primary key(a, b, c))",
		"create table cba(v text, a int, b int, c int, primary key(c, a))",
		"create table incl(id int, v text, primary key(id) include (v))",
		"create table t(id int primary key, v text)",
		"insert into abc select g % 3, g, 'c' || g, 'v' || g from generate_series(1, 30) g",
		"insert into cba select 'v' || g, g, g % 2, g % 3 from generate_series(1, 30) g",
		"insert into incl select g, 'v' || g from generate_series(1, 30) g",
	})
	check := func() {
		t.Helper()
		alike(t, pg, m, "select * from abc order by a, b, c")
		alike(t, pg, m, "select * from cba order by c, a")
		alike(t, pg, m, "select * from incl order by id")
		alike(t, pg, m, "select * from t order by id")
		m.Verify()
	}
	pg.Exec(
		"update abc set b = 100 where b = 5", "update abc set a = a + 10, c = c || 'x' where b < 10", "delete from abc where b = 100",
		"update cba set a = a + 100 where b = 1", "update cba set b = b + 1", "update cba set c = 7, a = 7 where a = 4", "delete from cba where c = 7",
		"update incl set v = v || 'x' where id < 5", "update incl set id = id + 50 where id > 20",
		"insert into t values (1, 'a')", "update t set v = 'b'",
	)
	check()
	m.Checkpoint()
	pg.Exec(
		"update abc set a = -a, b = -b, c = upper(c)", "update cba set a = -a", "update incl set id = -id",
		"begin; insert into t values (2, 'a'); update t set v = 'b' where id = 2; commit",
		"begin; delete from t where id = 1; insert into t values (1, 'c'); delete from t where id = 1; insert into t values (1, 'd'); commit",
		"begin; insert into t values (9, 'gone'); delete from t where id = 9; commit",
		// Rows that change places, each over a key that is free by then.
		"begin; update t set id = 3 where id = 1; update t set id = 1 where id = 2; update t set id = 2 where id = 3; commit",
	)
	answers(t, m, "select * from t order by id", "1|b", "2|d")
	check()
	restart(m)
	pg.Exec("update abc set b = b + 1000", "update cba set a = a + 1000", "update incl set id = id - 1000", "update t set id = id + 1000")
	check()
}

// Every type that may be a key, changed to values that are equal in PostgreSQL's eyes and not in their bytes.
func TestScenarioKeyTypes(t *testing.T) {
	t.Parallel()
	tables := []struct{ name, typ, first, second, third string }{
		{"k_bool", "bool", "true", "false", "true"},
		{"k_int2", "int2", "1", "-32768", "32767"},
		{"k_int8", "int8", "1", "9223372036854775807", "-9223372036854775808"},
		{"k_oid", "oid", "1", "4294967295", "0"},
		{"k_float4", "float4", "0", "nan", "-0"},
		{"k_float8", "float8", "0", "infinity", "-0"},
		{"k_dec", "numeric(20,3)", "1.5", "-99999999999999999.999", "1.500"},
		{"k_num", "numeric", "1.0", "2", "1.000"},
		{"k_text", "text", "a", "", "a "},
		{"k_char", "char(5)", "a", "", "a    "},
		{"k_citext", "citext", "a", "b", "A"},
		{"k_bytea", "bytea", `\x00`, `\x`, `\x0001`},
		{"k_uuid", "uuid", "00112233-4455-6677-8899-aabbccddeeff", "ffffffff-ffff-ffff-ffff-ffffffffffff", "00000000-0000-0000-0000-000000000000"},
		{"k_date", "date", "2024-02-29", "infinity", "0044-03-15 BC"},
		{"k_time", "time", "00:00", "23:59:59.999999", "12:00"},
		{"k_ts", "timestamp", "2024-02-29 01:02:03.000004", "-infinity", "0044-03-15 01:00 BC"},
		{"k_tstz", "timestamptz", "2024-02-29 01:02:03+05:30", "infinity", "1999-12-31 23:59:59.999999+00"},
		{"k_enum", "mood", "ok", "sad", "ok"},
		{"k_arr", "int[]", "{1,2}", "{}", "{null}"},
		{"k_inet", "inet", "10.0.0.1", "::1", "10.0.0.0/8"},
		{"k_interval", "interval", "1 mon", "40 days", "30 days"},
		{"k_domain", "posint", "1", "2", "3"},
		{"k_range", "int4range", "[1,5)", "empty", "[,7]"},
	}
	statements := []string{"create extension citext", "create type mood as enum('sad', 'ok')", "create domain posint as int check(value > 0)"}
	for _, x := range tables {
		statements = append(statements, "create table "+x.name+"(k "+x.typ+" primary key, n int)", "insert into "+x.name+" values ('"+x.first+"', 1)")
	}
	pg, m := scene(t, statements)
	for _, x := range tables {
		pg.Exec(
			"insert into "+x.name+" values ('"+x.second+"', 2)",
			"update "+x.name+" set n = 3 where n = 1",
			"update "+x.name+" set n = 4 where n = 2",
			"delete from "+x.name+" where n = 3",
			"update "+x.name+" set k = '"+x.third+"', n = 5 where n = 4",
		)
	}
	m.Verify()
	m.Checkpoint()
	for _, x := range tables {
		pg.Exec("update "+x.name+" set k = '"+x.first+"'", "update "+x.name+" set n = 6, k = '"+x.third+"'", "update "+x.name+" set n = 7", "insert into "+x.name+" values ('"+x.second+"', 8)")
	}
	m.Verify()
	var counts []string
	for _, x := range tables {
		counts = append(counts, "select list(n order by n)::varchar as n from "+x.name)
	}
	answers(t, m, "select n, count(*) from ("+strings.Join(counts, " union all ")+") group by n", "[7, 8]|"+itoa(len(tables)))
	for _, x := range tables {
		pg.Exec("delete from "+x.name+" where n = 7", "update "+x.name+" set k = '"+x.first+"'")
	}
	m.Verify()
}

// A delete under REPLICA IDENTITY FULL takes exactly one of several equal rows, in memory and in files (S-K5).
func TestScenarioEqualRows(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{
		"create table f(a int, b text)", "alter table f replica identity full", "insert into f values (1, 'c'), (1, 'c'), (1, 'c'), (null, null), (null, null)",
		"create table x(f float8, n numeric, a text[], j jsonb)", "alter table x replica identity full",
		`insert into x values ('nan', '1.0', '{"",null}', '{"a":1}'), ('nan', '1.0', '{"",null}', '{"a":1}'), (0, '1.00', null, null), ('-0', '1.00', null, null)`,
	})
	one := func(table, where string) string {
		return "ctid = (select min(ctid) from " + table + " where " + where + ")"
	}
	pg.Exec("insert into f values (7, 'd'), (7, 'd')", "delete from f where "+one("f", "a = 7"))
	answers(t, m, "select * from f where a = 7", "7|d")
	pg.Exec("delete from f where "+one("f", "a = 1"), "delete from f where "+one("f", "a is null"), "update f set b = 'e' where "+one("f", "a = 1"))
	answers(t, m, "select * from f order by a, b", "1|c", "1|e", "7|d", "<null>|<null>")
	pg.Exec("delete from x where "+one("x", "f = 'nan'"), "update x set n = '2' where "+one("x", "f = 0"))
	m.Verify()
	m.Checkpoint()
	pg.Exec("begin; insert into f values (1, 'c'); update f set a = 2 where b = 'c'; update f set a = 1 where b = 'c'; delete from f where "+one("f", "b = 'c'")+"; commit",
		"update f set b = null", "update x set f = 'nan', j = null", "delete from x where "+one("x", "true"))
	alike(t, pg, m, "select * from f order by a, b")
	m.Verify()
	restart(m)
	pg.Exec("delete from f where "+one("f", "a = 1"), "delete from x where "+one("x", "true"))
	alike(t, pg, m, "select * from f order by a, b")
	m.Verify()
}

// A table with no usable identity is mirrored for its inserts, says so, and its updates fail on the source, as PostgreSQL has
// it (S-K7). --create-publication leaves such tables out.
func TestScenarioNoIdentity(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table n(id int, v text)", "insert into n values (1, 'a'), (1, 'a')", "create table d(id int, unique(id) deferrable, primary key(id) deferrable)"})
	s := pg.Open("postgres", "postgres")
	for _, table := range []string{"n", "d"} {
		if !Table(t, m.WaitReady(), "public."+table).InsertOnly {
			t.Fatalf("%s is not marked insert_only", table)
		}
	}
	pg.Exec("insert into n values (2, 'b')", "insert into d values (1)", "do $$ begin update n set v = 'c'; exception when object_not_in_prerequisite_state then null; end $$")
	alike(t, pg, m, "select * from n order by id")
	m.Checkpoint()
	pg.Exec("truncate n", "insert into n values (3, 'c')")
	answers(t, m, "select * from n", "3|c")
	m.Verify()
	s.Close()
}

// A table that had no usable identity gets one, and at once, before a look at the catalogue shows it, a row is changed: it is copied again by itself,
// also when the mirror was stopped in between.
func TestIdentityAppears(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table f(id int, v text)", "create table k(id int, v text)", "insert into f values (1, 'a'), (2, 'b')", "insert into k values (1, 'a'), (2, 'b')"})
	appears := func() {
		pg.Exec("alter table f replica identity full; delete from f where id = 1; insert into f values (3, 'c')", "alter table k add primary key (id)", "update k set v = 'B' where id = 2")
	}
	same := func() {
		t.Helper()
		m.WaitStatus("it streams", func(s *mirror.Status) bool { return s.State == "streaming" && len(s.Tables) == 2 })
		for _, name := range []string{"f", "k"} {
			m.WaitStatus(name+" is followed with its identity", func(s *mirror.Status) bool {
				table := Table(t, s, "public."+name)
				return table.State == "streaming" && !table.InsertOnly
			})
			alike(t, pg, m, "select * from "+name+" order by id")
		}
		m.Verify()
	}
	appears()
	same()
	pg.Exec("alter table f replica identity default", "alter table k drop constraint k_pkey")
	m.WaitStatus("both have lost it", func(s *mirror.Status) bool {
		return Table(t, s, "public.f").InsertOnly && Table(t, s, "public.k").InsertOnly
	})
	m.WaitReady()
	m.Stop()
	appears()
	m.Start()
	same()
}

// Two keys of the source never become one: an array that does not begin at 1 and a name that several functions have stop the table, and with the form that
// the setting types gives it, it is mirrored. All NaNs are one key, as they are on the source, however they were made and sent.
func TestKeysStayApart(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{
		"create function twice(int) returns int language sql as 'select 1'", "create function twice(text) returns int language sql as 'select 1'",
		"create table copied(k int[] primary key, v int)", "insert into copied values ('{1,2}', 0), ('[2:3]={1,2}', 1)",
		"create table streamed(k int[] primary key, v int)", "insert into streamed values ('{1,2}', 0)",
		"create table astext(k int[] primary key, v int)", "insert into astext values ('{1,2}', 0), ('[2:3]={1,2}', 1)",
		"create table value(k int primary key, v int[])", "insert into value values (1, '[2:3]={1,2}')",
		"create table whole(k int[], v int)", "alter table whole replica identity full", "insert into whole values ('{1,2}', 0), ('[2:3]={1,2}', 0)",
		"create table named(k regproc primary key, v int)", "insert into named values ('twice(int)'::regprocedure::oid, 0), ('twice(text)'::regprocedure::oid, 1)",
		"create table nan(k float8 primary key, v int)", "insert into nan values ('inf'::float8 - 'inf'::float8, 1)",
		"create table text(r int4multirange)", // with it the stream comes in text
	})
	m := StartMirror(t, pg, "p", "--types", "public.astext.k=text")
	refusedTable(t, m, "public.copied", "does not begin at 1")
	refusedTable(t, m, "public.named", "two keys could be one")
	pg.Exec("insert into streamed values ('[2:3]={1,2}', 1)", "update streamed set v = v + 10", "update astext set v = v + 10", "update value set v = '[0:1]={3,4}'",
		"delete from whole where array_lower(k, 1) = 2", "update nan set v = v + 10", "update nan set k = 'NaN'", "update nan set v = v + 10")
	refusedTable(t, m, "public.streamed", "does not begin at 1")
	answers(t, m, "select k, v from astext order by v", "{1,2}|10", "[2:3]={1,2}|11")
	answers(t, m, "select * from value", "1|[3, 4]")
	answers(t, m, "select * from whole", "[1, 2]|0")
	answers(t, m, "select v from nan", "21")
	m.Verify("astext", "value", "nan")
}

// FULL beside a primary key: rows are found by the key, whatever else the old row carries.
func TestScenarioFullBesideKey(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{
		"create table t(v text, b int, a int, primary key(a, b))", "alter table t replica identity full",
		"insert into t select 'v' || g, g % 5, g from generate_series(1, 50) g",
	})
	pg.Exec("update t set v = null where a < 10", "update t set b = b + 100 where a > 40", "delete from t where v is null and a % 2 = 0")
	alike(t, pg, m, "select * from t order by a, b")
	m.Checkpoint()
	pg.Exec("update t set v = 'x'", "update t set a = a + 1000", "delete from t where b = 1", "insert into t values ('x', 1, 1002)")
	alike(t, pg, m, "select * from t order by a, b")
	m.Verify()
}

// A million rows inserted and deleted, with a crash in between, leave nothing (S-K10).
func TestScenarioDeleteAll(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table r(id int primary key)"}, "--checkpoint-interval", "1s")
	pg.Exec("insert into r select generate_series(1, 1000000)")
	answers(t, m, "select count(*), sum(id) from r", "1000000|500000500000")
	pg.Exec("delete from r where id % 2 = 0")
	m.Kill()
	pg.Exec("delete from r")
	restart(m)
	answers(t, m, "select count(*) from r", "0")
	m.Checkpoint()
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	m.Start()
	m.WaitReady()
	pg.Exec("insert into r values (1), (1000000)")
	answers(t, m, "select * from r order by id", "1", "1000000")
	m.Verify()
}
