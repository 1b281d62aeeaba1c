package e2e

import (
	"strings"
	"testing"
)

// What is written to a table while it is UNLOGGED is in no stream. The server allows that for tables that no publication names; when such a table is LOGGED
// again before the next look at the catalogue, it is copied again. VACUUM FULL, CLUSTER and TRUNCATE, which also give it other storage, cost no copy.
func TestUnloggedForAWhile(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p", []string{
		"alter default privileges grant select on tables to public",
		"create table narrow(id int primary key, v int)", "create table wide(id int primary key, v text)", "create table none(id int primary key)",
		"insert into narrow select i, i from generate_series(1, 100) i", "insert into wide select i, 'x' from generate_series(1, 100) i", "insert into none values (0)",
		"create publication p for all tables"}, "--catalog-poll", "1h")
	all := func() {
		t.Helper()
		for _, table := range []string{"narrow", "wide", "none"} {
			becomes(t, pg, m, "select * from "+table+" order by 1", "select * from "+table+" order by 1")
		}
	}
	all()
	for _, sql := range []string{
		"vacuum full", "cluster narrow using narrow_pkey", "update narrow set v = v + 1; insert into none values (1)",
		"truncate narrow, wide", "insert into narrow values (1, 1); insert into wide values (1, 'y')",
		"begin; truncate narrow, none; insert into narrow values (2, 2); insert into none values (2); commit",
		"truncate none", "vacuum full wide",
	} {
		pg.Exec(sql)
		all()
	}
	if n := strings.Count(m.Log(), "table joined"); n != 0 {
		t.Errorf("%d tables were copied again though the stream told everything:\n%s", n, m.Log())
	}
	for i, table := range []string{"narrow", "wide", "none"} {
		rows := []string{"3, 3", "3, 'z'", "3"}[i]
		pg.Exec("alter table "+table+" set unlogged", "insert into "+table+" values ("+rows+")", "alter table "+table+" set logged")
		all()
		pg.Exec("begin; truncate " + table + "; alter table " + table + " set unlogged; insert into " + table + " values (" + rows + "); alter table " + table + " set logged; commit")
		all()
	}
	if n := strings.Count(m.Log(), "table joined"); n != 6 {
		t.Errorf("tables were copied again %d times, not 6", n)
	}
	// Found at the next start too.
	m.Stop()
	pg.Exec("alter table narrow set unlogged", "insert into narrow values (4, 4)", "alter table narrow set logged")
	m.Start()
	all()
	m.Verify()
}
