package e2e

import "testing"

// external is SQL for n characters that do not compress, different for each seed, so that they leave the row.
func external(seed string, n string) string {
	return "(select left(string_agg(md5(i || '/' || " + seed + "), '' order by i), " + n + ") from generate_series(1, " + n + " / 32 + 1) i)"
}

// An update that leaves a large value alone does not send it; the mirror keeps it, whether the old row lies in the copied file,
// in a flushed one or in memory, and whatever the identity (S-O1, S-O3, S-O4).
func TestScenarioToast(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{
		"create table plain(id int primary key, n int, big text, doc jsonb, raw bytea, list text[])",
		"create table whole(id int, n int, big text)", "alter table whole replica identity full",
		"create table fullkey(id int primary key, n int, big text)", "alter table fullkey replica identity full",
		"create table alone(u text not null unique, n int, big text)", "alter table alone replica identity using index alone_u_key",
		"insert into plain select g, 1, " + external("g", "9000") + ", jsonb_build_object('k', " + external("g + 50", "9000") + "), decode(" + external("g", "9000") + ", 'hex'), array[" + external("g", "5000") + ", null, " + external("g + 9", "5000") + "] from generate_series(1, 4) g",
		"insert into whole select g, 1, " + external("g", "9000") + " from generate_series(1, 4) g",
		"insert into fullkey select g, 1, " + external("g", "9000") + " from generate_series(1, 4) g",
		"insert into alone select 'u' || g, 1, " + external("g", "9000") + " from generate_series(1, 4) g",
	})
	queries := []string{
		"select id, n, length(big), md5(big), length(doc::text), octet_length(raw), list[1], list[2], list[3] from plain order by id",
		"select id, n, length(big), md5(big) from whole order by id, n",
		"select id, n, length(big), md5(big) from fullkey order by id",
		"select u, n, length(big), md5(big) from alone order by u",
	}
	check := func(when string) {
		t.Helper()
		t.Log(when)
		for _, q := range queries {
			alike(t, pg, m, q)
		}
		m.Verify()
	}
	check("copied")
	pg.Exec("update plain set n = 2 where id <= 2", "update whole set n = 2 where id <= 2", "update fullkey set n = 2 where id <= 2", "update alone set n = 2 where u <= 'u2'")
	check("updated rows of the copied file")
	pg.Exec("update plain set n = 3", "update whole set n = 3", "update fullkey set n = 3", "update alone set n = 3")
	check("updated rows in memory and in the file")
	m.Checkpoint()
	pg.Exec("update plain set n = 4", "update whole set n = 4", "update fullkey set n = 4", "update alone set n = 4")
	check("updated rows of a flushed file")
	pg.Exec("update plain set id = id + 100", "update whole set id = id + 100", "update fullkey set id = id + 100", "update alone set u = 'v' || u")
	check("changed keys")
	m.Checkpoint()
	pg.Exec("update plain set id = id + 100", "update fullkey set id = id + 100", "update alone set u = 'v' || u")
	check("changed keys of flushed rows")
	pg.Exec("update plain set big = null where id = 201", "update plain set list = null, n = 5 where id = 202", "update plain set big = big || 'x', n = 6 where id = 203", "update plain set n = 7")
	check("one of several large values changed")
	pg.Exec(`begin; insert into plain select 300, 1, ` + external("300", "9000") + `;
		update plain set n = n + 1 where id = 300; update plain set id = 301 where id = 300; update plain set n = n + 1; update plain set n = n + 1;
		savepoint a; update plain set big = 'gone'; rollback to a; update plain set n = n + 1 where id = 301;
		insert into whole select 7, 1, ` + external("7", "9000") + `; update whole set n = 2 where id = 7; update whole set n = 3 where id = 7; commit`)
	check("inserted and updated in one transaction")
	restart(m)
	pg.Exec("update plain set n = 9", "update whole set n = 9", "update fullkey set n = 9", "update alone set n = 9", "delete from whole where id = 7", "delete from alone where u = 'vvu1'")
	check("after a crash")
}

// Large values that are the key: updates and deletes find their row (S-O6). The value must leave the row and still fit into
// an index page, compressed.
func TestScenarioToastedKey(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{
		"create table k(txt text primary key, n int, big text)",
		"insert into k select g || repeat('k', 200000), 1, " + external("g", "9000") + " from generate_series(1, 3) g",
		"create table short(txt text primary key, n int)",
		"insert into short select g || repeat('k', 3000), 1 from generate_series(1, 3) g",
	})
	if pg.QueryRow("select pg_column_size(txt) > 2000 and pg_relation_size(reltoastrelid) > 0 from k, pg_class where relname = 'k' limit 1") != "t" {
		t.Fatal("the key does not leave the row")
	}
	query := "select length(txt), left(txt, 2), n, md5(big) from k order by txt"
	alike(t, pg, m, query)
	pg.Exec("update k set n = 2 where n = 1 and txt like '1%'", "update short set n = 2 where txt like '1%'")
	alike(t, pg, m, query)
	pg.Exec("update k set n = 3", "delete from k where txt like '2%'", "update k set txt = 'x' || txt where txt like '3%'", "delete from short where txt like '3%'")
	alike(t, pg, m, query)
	m.Checkpoint()
	pg.Exec("update k set n = 4", "delete from k where txt like 'x%'", "update short set n = 5, txt = txt || 'y'")
	alike(t, pg, m, query)
	m.Verify()
}
