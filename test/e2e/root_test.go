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

// A partitioned table that is published via its root is one table of the mirror: filled through the root or a leaf, with rows that move between leaves, and after everything that becomes of a leaf and
// sends no row, it has the source's rows (S-S10, S-S11, S-U9).
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
