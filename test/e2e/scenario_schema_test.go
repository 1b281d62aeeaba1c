package e2e

import (
	"strings"
	"testing"

	"pgmirror/mirror"
)

// Schema changes of whatever kind end in the rows and columns that the source has: a default that old rows show (S-S1), rows written anew without
// a row event (S-S2), renames and cycles of them (S-S3), a change of type beside tables that go on (S-S8), a generated column (S-S12), and a
// binary column that is no obstacle to any of it (S-T17).
func TestScenarioSchemaChanges(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p", []string{
		"create table t(id int primary key, v int, x text, y text)", "insert into t values (1, 1, 'x1', 'y1'), (2, 2, 'x2', null)",
		"create table dates(id int primary key, d text)", "insert into dates values (1, '2024-05-06 07:08:09+00')",
		"create table b(k int primary key, v bytea)", "insert into b values (1, '\\x00ff')",
		"create table other(id int primary key)", "create publication p for table t, dates, b, other"}, "--catalog-poll", "300ms")
	same := func(statements ...string) {
		t.Helper()
		pg.Exec(statements...)
		becomes(t, pg, m, "select * from t order by id", "select * from t order by id")
	}
	same("alter table t add c int default 7")
	same("insert into t values (3, 3, 'x3', 'y3')")
	same("alter table t alter v type bigint using v * 100")
	same("alter table t add r int default (random() * 1000000)::int")
	same("alter table t rename x to z", "update t set z = 'named z' where id = 1")
	same("begin; alter table t rename z to tmp; alter table t rename y to z; alter table t rename tmp to y; update t set y = 'was x' where id = 2; commit")
	answers(t, m, "select id, y, z, v, c from t order by id", "1|named z|y1|100|7", "2|was x|<null>|200|7", "3|x3|y3|300|7")
	pg.Exec("alter table b add c int", "insert into b values (2, '\\x', 3)", "insert into other values (1)")
	becomes(t, pg, m, "select k, hex(v), c from b order by k", "select k, upper(encode(v, 'hex')), c from b order by k")
	pg.Exec("alter table dates alter d type timestamptz using d::timestamptz", "insert into other values (2)")
	becomes(t, pg, m, "select id, epoch(d)::bigint from dates", "select id, extract(epoch from d)::bigint from dates")
	becomes(t, pg, m, "select * from other order by id", "select * from other order by id")
	m.Checkpoint()
	restart(m)
	same("update t set v = v + 1")
	m.Verify()
}

// What was written before a schema change that a stopped mirror did not see is decoded in the shape that it had (S-S5), and a change that was found
// just before a crash is found again (S-S7).
func TestScenarioSchemaChangesMissed(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p", []string{"create table t(id int primary key, gone int, v text)", "insert into t values (1, 1, 'a')",
		"create table idle(id int primary key)", "insert into idle values (1)", "create publication p for table t, idle"}, "--catalog-poll", "300ms")
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	pg.Exec("insert into t values (2, 2, 'before')", "update t set v = 'changed' where id = 1", "alter table t drop gone", "alter table t add gone text default 'new'",
		"alter table t rename v to w", "insert into t values (3, 'after', 'g')")
	m.Start()
	m.WaitReady()
	becomes(t, pg, m, "select * from t order by id", "select * from t order by id")
	holder := pg.Open("postgres", "postgres")
	holder.Exec("begin", "select pg_current_xact_id()") // keeps the copy from beginning
	pg.Exec("alter table idle alter id type bigint")
	m.WaitStatus("the change is found", func(s *mirror.Status) bool { return Table(t, s, "public.idle").State == "resyncing" })
	m.Checkpoint()
	m.Kill()
	holder.Exec("commit")
	m.Start()
	m.WaitReady()
	becomes(t, pg, m, "select * from idle", "select * from idle")
	m.Verify()
}

// A partitioned table with a name in mixed case is copied whole, (S-S15), and each of the partitions is a table
// under its own name, the partitioned one none (S-U9).
func TestScenarioPartitionNames(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p", []string{
		`create table "Mixed" (id int, "Group" text, primary key (id, "Group")) partition by list ("Group")`,
		`create table "Mixed A" partition of "Mixed" for values in ('a')`, `create table "Mixed rest" partition of "Mixed" default`,
		`insert into "Mixed" select i, chr(97 + i % 3) from generate_series(1, 3000) i`,
		`create publication p for table "Mixed"`}, "--catalog-poll", "300ms")
	pg.Needs(15, "eye for tables that become partitions")
	pg.Exec(`update "Mixed" set "Group" = 'a' where id % 30 = 1`, `delete from "Mixed" where id < 10`)
	same := func(table, order string) {
		t.Helper()
		becomes(t, pg, m, "select * from "+table+" order by "+order, "select * from "+table+" order by "+order)
	}
	same(`"Mixed A"`, "id")
	same(`"Mixed rest"`, `id, "Group"`)
	if rows, err := m.TrySQL(`select * from "Mixed"`); err == nil || !strings.Contains(err.Error(), "Mixed") {
		t.Errorf("the partitioned table itself: %v, %v", rows, err)
	}
	m.Checkpoint()
	restart(m)
	pg.Exec(`update "Mixed" set id = -id`)
	same(`"Mixed A"`, "id")
	same(`"Mixed rest"`, `id, "Group"`)
	m.Verify()
}

// Rows that were written while a table was UNLOGGED are there when it is LOGGED and published (S-S17). A resync of every table includes one that
// was added after the first copy (S-U4).
func TestScenarioLateTables(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p", []string{"alter default privileges grant select on tables to public", "create table t(id int primary key)", "insert into t values (1)",
		"create unlogged table quick(id int primary key)", "insert into quick values (1), (2)", "create publication p for all tables"}, "--catalog-poll", "300ms")
	pg.Exec("alter table quick set logged", "insert into quick values (3)", "create table late(id int primary key)", "insert into late values (1)")
	becomes(t, pg, m, "select * from quick order by id", "select * from quick order by id")
	becomes(t, pg, m, "select * from late", "select * from late")
	status := m.WaitReady()
	var names []string
	for _, table := range status.Tables {
		names = append(names, table.Name)
	}
	out, errs, code := m.Command(append([]string{"resync"}, names...)...)
	if code != 0 || len(names) != 3 {
		t.Fatalf("resync of %q: exit code %d\n%s%s", names, code, out, errs)
	}
	for _, name := range names {
		if !strings.Contains(out, name) {
			t.Errorf("resync says nothing of %s:\n%s", name, out)
		}
	}
	pg.Exec("insert into late values (2)")
	becomes(t, pg, m, "select * from late order by id", "select * from late order by id")
	m.Verify()
}
