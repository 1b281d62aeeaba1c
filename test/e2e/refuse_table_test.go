package e2e

import (
	"slices"
	"strings"
	"testing"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// Tables that cannot be mirrored yet fail alone when the mirror begins, each with its reason and what to do; the others run on,
// the mirror is ready, and the slot goes on.
func TestRefuseTables(t *testing.T) {
	t.Parallel()
	pg := server(t, nil)
	pg.Exec("drop publication p", "create domain ints as int[]",
		"create table good(id int primary key)", "insert into good values (1)",
		"create table nested(id int primary key, c ints[])",
		"create table parts(id int, d int, primary key(id, d)) partition by range(d)",
		"create table part1 partition of parts for values from (0) to (10)",
		"create table secured(id int primary key)", "alter table secured enable row level security",
		"create table hidden(id int primary key, _pgmirror_lsn bigint)",
		"create table closed(id int primary key)", "revoke select on closed from "+mirrorRole,
		"create table none()",
		"create publication p for table good, nested, parts, part1, secured, hidden, closed, none")
	m := StartMirror(t, pg, "p")
	for table, reason := range map[string]string{
		"nested": "arrays of arrays", "secured": "BYPASSRLS", "hidden": "_pgmirror_lsn", "closed": "GRANT SELECT",
		"none": "no published column",
	} {
		refusedTable(t, m, "public."+table, reason)
		if !strings.Contains(m.Log(), "relation=public."+table) {
			t.Errorf("the log does not name %s", table)
		}
	}
	pg.Exec("insert into nested values (1, array['{1,2}'::ints])", "insert into parts values (1, 1)", "insert into secured values (1)", "insert into hidden values (1, 1)", "insert into closed values (1)",
		"truncate nested, good, closed", "insert into good values (2)")
	answers(t, m, "select * from good", "2")
	answers(t, m, "select * from part1", "1|1")
	m.Checkpoint()
	at := pg.QueryRow(insertLSN)
	within(t, "the slot goes on", func() bool { return lsnAtLeast(pg, confirmedLSN, at) })
	m.Verify("good", "part1")
	if _, errs, code := m.Command("verify"); code != 1 {
		t.Fatalf("verify with failed tables: exit code %d, %s", code, errs)
	}
	restart(m)
	refusedTable(t, m, "public.nested", "arrays of arrays")
	answers(t, m, "select * from good", "2")
}

// A Relation message that differs from the table as it is known stops the table at the commit that carries it, until it is copied as it
// is then, also when its key or identity is another (S-K8). All other tables run on.
func TestChangedShapesAreCopied(t *testing.T) {
	t.Parallel()
	changes := []struct{ table, ddl, insert, after string }{
		{"added", "alter table added add column w int", "insert into added values (2, 2, 2)", ""},
		{"dropped", "alter table dropped drop column v", "insert into dropped values (2)", ""},
		{"renamed", "alter table renamed rename v to w", "insert into renamed values (2, 2)", ""},
		{"retyped", "alter table retyped alter v type bigint", "insert into retyped values (2, 2)", ""},
		{"sized", "alter table sized alter v type numeric(8,2)", "insert into sized values (2, 2)", ""},
		{"moved", "alter table moved set schema elsewhere", "insert into elsewhere.moved values (2, 2)", "elsewhere.moved"},
		{"titled", "alter table titled rename to retitled", "insert into retitled values (2, 2)", "public.retitled"},
		{"swapped", "alter table swapped rename v to x; alter table swapped rename id to v; alter table swapped rename x to id", "insert into swapped(id, v) values (2, 2)", ""},
		{"keyless", "alter table keyless replica identity nothing", "insert into keyless values (2, 2)", ""},
		{"rekeyed", "alter table rekeyed drop constraint rekeyed_pkey, add primary key (v)", "insert into rekeyed values (2, 2)", ""},
		{"full", "alter table \"full\" replica identity full", "insert into \"full\" values (2, 2)", ""},
		{"unfull", "alter table unfull replica identity default", "insert into unfull values (2, 2)", ""},
	}
	statements := []string{"create schema elsewhere", "grant usage on schema elsewhere to public", "create table good(id int primary key)"}
	for _, c := range changes {
		typ, key := "int", " primary key"
		if c.table == "sized" {
			typ = "numeric(6,2)"
		}
		if c.table == "unfull" {
			key = ""
		}
		statements = append(statements, `create table "`+c.table+`"(id int`+key+`, v `+typ+` not null)`)
	}
	statements = append(statements, "alter table unfull replica identity full")
	// The catalogue is looked at once an hour: only the stream and those who ask tell.
	pg, m := scene(t, statements, "--catalog-poll", "1h")
	for _, c := range changes {
		pg.Exec(`insert into "` + c.table + `"(id, v) values (1, 1)`)
	}
	m.Checkpoint()
	for _, c := range changes {
		pg.Exec(c.ddl, "begin; insert into good select count(*) + 1 from good; "+c.insert+"; commit")
	}
	caughtUp(pg, m)
	rows, err := m.TrySQL("select count(*) from good")
	if err != nil || show(rows) != itoa(len(changes)) {
		t.Fatalf("%v, %v", rows, err)
	}
	// Without a change of the columns the stream goes on until a look finds the identity changed.
	if _, err := m.TrySQL("select * from good", "--wait-lsn", "source"); err != nil {
		t.Fatal(err)
	}
	same := func() {
		t.Helper()
		for _, c := range changes {
			name := c.after
			if name == "" {
				name = "public." + c.table
			}
			m.WaitStatus(name+" is copied", func(s *mirror.Status) bool {
				return slices.ContainsFunc(s.Tables, func(ts mirror.TableStatus) bool { return ts.Name == name && ts.State == "streaming" })
			})
			schema, table, _ := strings.Cut(name, ".")
			alike(t, pg, m, "select * from "+harness.Ident(schema)+"."+harness.Ident(table)+" order by id")
		}
	}
	same()
	m.Checkpoint()
	at := pg.QueryRow(insertLSN)
	within(t, "the slot goes on", func() bool { return lsnAtLeast(pg, confirmedLSN, at) })
	restart(m)
	same()
	m.Verify()
}

// DDL that was rolled back changes nothing.
func TestRefuseNothing(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, v int)", "create type e as enum('a')", "create table u(id int primary key, e e)"}, "--catalog-poll", "100ms")
	pg.Exec(
		"begin; savepoint s; alter table t add column w int; insert into t values (1, 1, 1); rollback to s; insert into t values (2, 2); commit",
		"begin; alter table t rename to x; insert into x values (3, 3); rollback",
		"begin; truncate t; alter table t alter v type bigint; rollback",
		// Changes of the catalogue that touch no row.
		"alter table t alter v set default 5", "alter table t alter v set statistics 10", "alter table t add check (v < 1000)", "create index on t(v)",
		"comment on table t is 'x'", "alter table t set (fillfactor = 50)", "analyze t",
		"grant select(v) on t to "+mirrorRole, "alter table t alter v set not null", "alter table t alter v drop not null", "alter table u alter e set storage plain",
	)
	looked := func() {
		t.Helper()
		at := pg.QueryRow(insertLSN)
		m.WaitStatus("a look at all of that", func(s *mirror.Status) bool { return lsnAtLeast(pg, "select '"+s.CatalogLSN+"'::pg_lsn", at) })
	}
	looked()
	// Rewrites that change no row. Between them and the changes of columns above lies a look: both together are a rewriting ALTER.
	pg.Exec("vacuum full t", "cluster t using t_pkey", "vacuum freeze t", "reindex table t", "truncate u", "insert into t(id) values (4)", "insert into u values (1, 'a')")
	looked()
	alike(t, pg, m, "select * from t order by id")
	m.Verify()
	m.Checkpoint()
	restart(m)
	m.Verify()
}
