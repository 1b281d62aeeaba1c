package e2e

import (
	"slices"
	"strings"
	"testing"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// rootedSetup makes a partitioned table with leaves on two levels, one of them attached with its columns in another order and one dropped.
var rootedSetup = []string{
	"create table root(id int, gone int, d int, v text, primary key (id, d)) partition by range (d)", "alter table root drop gone",
	"create table p1 partition of root for values from (0) to (10)", "create table middle partition of root for values from (10) to (30) partition by range (d)",
	"create table p2 partition of middle for values from (10) to (20)", "create table p3(v text, gone text, d int not null, id int not null, primary key (id, d))", "alter table p3 drop gone",
	"alter table middle attach partition p3 for values from (20) to (30)", "insert into root select i, i % 30, 'v' || i from generate_series(1, 300) i",
	"create table filled(v text, d int not null, gone int, id int not null, primary key (id, d))", "alter table filled drop gone", "insert into filled select 'f' || i, 30 + i % 10, i from generate_series(1001, 1100) i",
}

// A partitioned table that is published via its root is one table of the mirror: filled through the root or a leaf, with rows that move between leaves, and after
// everything that becomes of a leaf and sends no row, it has the source's rows (S-S10, S-S11, S-U9).
func TestRoot(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p", append(slices.Clone(rootedSetup), "alter table p2 replica identity full", "create publication p for table root with (publish_via_partition_root)"), "--catalog-poll", "300ms")
	pg.Needs(15, "notice of tables that become partitions")
	streams(t, m, "root")
	same := func() {
		t.Helper()
		becomes(t, pg, m, "select id, d, v from root order by 1, 2", "select id, d, v from root order by 1, 2")
	}
	same()
	pg.Exec("update root set d = (d + 10) % 30", "update root set id = -id where d = 3", "delete from root where id % 7 = 0", "update p3 set v = v || 'x'", "delete from p2 where id % 5 = 0",
		"begin; update root set d = 25, v = 'a' where id = 31; update root set d = 5, v = v || 'b' where id = 31; insert into p1 values (1, 7, 'x'); insert into root values (2, 21, 'y'); commit",
		"create table made partition of root for values from (40) to (50)", "update root set d = 45 where id % 11 = 0")
	looksAt(pg, m) // between it and the TRUNCATE: both together look like a leaf that came with rows
	pg.Exec("begin; truncate root; insert into root values (1, 5, 'again'), (2, 15, 'again'), (3, 25, 'again'), (4, 45, 'again'); commit",
		"insert into root select i, i % 30, 'v' || i from generate_series(5, 300) i")
	looksAt(pg, m)
	pg.Exec("vacuum full p2")
	same()
	looksAt(pg, m)
	if n := strings.Count(m.Log(), "table joined"); n != 0 {
		t.Errorf("copied again %d times", n)
	}
	m.Verify()
	for i, silent := range []string{
		"alter table root attach partition filled for values from (30) to (40)", "alter table root detach partition p1", "truncate p3", "drop table p2", "alter table root detach partition middle",
		"alter table root attach partition middle for values from (10) to (30)", "alter table root alter v type text using v || '!'", "begin; truncate made; insert into made select i, 41, 'm' from generate_series(1, 9) i; commit",
	} {
		if i == 4 {
			m.Checkpoint()
			restart(m)
		}
		pg.Exec(silent)
		rows, err := m.TrySQL("select count(*) from root", "--wait-lsn", "source")
		if want := pg.QueryRow("select count(*) from root"); err == nil && show(rows) != want {
			t.Errorf("%s: a reader saw %s rows, want %s", silent, show(rows), want)
		}
		same()
		if n := strings.Count(m.Log(), "table joined"); n != i+1 {
			t.Errorf("%s: copied again %d times, want %d", silent, n, i+1)
		}
		pg.Exec("update root set v = v || '.' where id % 3 = 0", "delete from root where id % 17 = 1")
		same()
	}
	m.Verify()
	if out, errs, code := m.Command("verify", "--sample", "30"); code != 0 {
		t.Errorf("verify --sample: %s%s", out, errs)
	}
	if out, errs, code := m.Command("resync", "root"); code != 0 {
		t.Errorf("resync: %s%s", out, errs)
	}
	same()
}

// looksAt waits until a look at the catalogue has seen everything that there is now.
func looksAt(pg *harness.Postgres, m *Mirror) {
	m.t.Helper()
	at := pg.QueryRow(insertLSN)
	pg.Exec("select pg_logical_emit_message(true, '', '')")
	m.WaitStatus("a look at all of that", func(s *mirror.Status) bool { return lsnAtLeast(pg, "'"+s.CatalogLSN+"'::pg_lsn", at) })
}

// Of several publications, whichever sends a table as part of the topmost partitioned one wins, with that one's filter and list; what it leaves alone is a
// table of its own. A publication that begins or ceases to send partitions as one, and a table that becomes partitioned, change which tables there are (S-U9).
func TestRootPublications(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p,q,r", append(slices.Clone(rootedSetup), "create schema s", "grant usage on schema s to public", "alter default privileges in schema s grant select on tables to public", `create table s."Mixed"(id int primary key, "V" text) partition by hash (id)`,
		`create table s."Low" partition of s."Mixed" for values with (modulus 2, remainder 0)`, `create table s.low2 partition of s."Mixed" for values with (modulus 2, remainder 1)`,
		`insert into s."Mixed" select i, 'v' || i from generate_series(1, 100) i`, "create table plain(id int primary key, v text)", "insert into plain select i, 'v' || i from generate_series(1, 50) i",
		"create publication p for table root (id, d) where (d > 4) with (publish_via_partition_root)", "create publication r for tables in schema s with (publish_via_partition_root)", "create publication q for table p2, plain, filled"), "--catalog-poll", "300ms")
	pg.Needs(15, "notice of tables that become partitions")
	read := map[string]string{"root": "select id, d from root where d > 4 order by 1, 2", `s."Mixed"`: `select * from s."Mixed" order by id`, "plain": "select * from plain order by id", "filled": "select id, d, v from filled order by id"}
	same := func() {
		t.Helper()
		for _, query := range read {
			becomes(t, pg, m, query, query)
		}
	}
	streams(t, m, "filled", "plain", "root", "s.Mixed")
	same()
	pg.Exec("update root set d = (d + 7) % 30", "insert into p2 values (1001, 14, 'x')", "update root set id = -id where id % 9 = 0", "delete from root where d = 20", `update s."Mixed" set id = id + 1000 where id % 3 = 0`,
		`delete from s."Low" where id % 5 = 0`, `insert into s."Mixed" select i, 'w' from generate_series(2000, 2050) i`, "update plain set v = 'new' where id < 9", "update root set v = 'not listed'")
	same()
	m.Verify()
	pg.Exec("alter table root attach partition filled for values from (30) to (40)")
	delete(read, "filled")
	streams(t, m, "plain", "root", "s.Mixed")
	refusedTable(t, m, "public.filled", "taken out of the publication")
	same()
	pg.Exec("update root set d = 35 where d = 5", "alter table root detach partition filled", "update filled set v = 'by itself'")
	read["filled"] = "select id, d, v from filled order by id"
	streams(t, m, "filled", "plain", "root", "s.Mixed")
	same()
	// As its partitions, and as one again.
	pg.Exec("alter publication p drop table root", "alter publication r set (publish_via_partition_root = false)", `update s."Mixed" set "V" = 'apart'`)
	delete(read, "root")
	delete(read, `s."Mixed"`)
	read["p2"], read["Low"], read["low2"] = "select id, d, v from p2 order by 1, 2", `select * from s."Low" order by id`, "select * from s.low2 order by id"
	streams(t, m, "filled", "p2", "plain", "s.Low", "s.low2")
	same()
	pg.Exec("alter publication r set (publish_via_partition_root = true)", `update s."Mixed" set "V" = 'as one' where id % 2 = 0`, "begin; alter table plain rename to low; create table plain(id int primary key, v text) partition by range (id); "+
		"alter table plain attach partition low for values from (minvalue) to (100); create table high partition of plain default; alter publication p add table plain; commit", "insert into plain values (500, 'high')", "update plain set id = id + 100 where id = 7")
	delete(read, "Low")
	delete(read, "low2")
	read[`s."Mixed"`] = `select * from s."Mixed" order by id`
	streams(t, m, "filled", "p2", "plain", "s.Mixed")
	same()
	m.Checkpoint()
	restart(m)
	pg.Exec("update plain set v = v || '!'", `truncate s."Mixed"`, `insert into s."Mixed" values (1, 'again')`)
	same()
	m.Verify("plain", `s."Mixed"`, "p2", "filled")
}

// A partition whose updates cannot be followed stops the table, by itself or with the row that it cannot find, until it is repaired as the table's remedy
// says. A role that may read the table but none of its partitions copies and compares it as one (S-S10).
func TestRootRefused(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p", append(slices.Clone(rootedSetup), "alter table p1 alter v set not null, add unique (d, v)", "revoke select on p1, p2, p3, filled from public", "revoke select on p1, p2, p3, filled from "+mirrorRole,
		"create publication p for table root with (publish_via_partition_root)"), "--catalog-poll", "300ms")
	pg.Needs(15, "notice of tables that become partitions")
	if may := pg.QueryRow("select has_table_privilege('" + mirrorRole + "', 'p1', 'select')"); may != "f" {
		t.Fatalf("the role may read a partition: %s", may)
	}
	same := func() {
		t.Helper()
		becomes(t, pg, m, "select id, d, v from root order by 1, 2", "select id, d, v from root order by 1, 2")
	}
	same()
	for _, c := range []struct{ fault, reason, repair string }{
		{"alter table p1 replica identity using index p1_d_v_key", `without the column "id"`, `alter table "public"."p1" replica identity full`},
		{"alter table p1 set unlogged", "is not in the WAL", `alter table "public"."p1" set logged`},
	} {
		pg.Exec(c.fault, "update root set v = v || 'x' where id % 2 = 0", "delete from root where id % 13 = 1")
		m.WaitStatus("the reason is found", func(s *mirror.Status) bool { return strings.Contains(Table(t, s, "public.root").Error, c.reason) })
		refusedTable(t, m, "public.root", c.reason)
		pg.Exec("update p1 set v = v || 'y'", c.repair)
		same()
		m.Verify()
	}
	pg.Exec("alter table root attach partition filled for values from (30) to (40)", "vacuum full p3")
	same()
	m.Verify()
}
