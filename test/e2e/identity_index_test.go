package e2e

import "testing"

// A table whose replica identity is a unique index (S-K6) is mirrored by the columns of that index, whether it has a primary key
// beside it or none: rows are updated and deleted, the index's own columns too, the other key is free to be given away, values wait
// out of line, and all of it holds over a checkpoint and a restart.
func TestScenarioIdentityUsingIndex(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{
		"create table r(id int primary key, u int not null, v text)",
		"create unique index r_u on r(u)",
		"alter table r replica identity using index r_u",
		`create table "No Key"("U" text not null, n int not null, v text, big text)`,
		`create unique index nk on "No Key"(n, "U") include (v)`,
		`alter table "No Key" replica identity using index nk`,
		`alter table "No Key" alter big set storage external`,
		"insert into r select g, 1000 + g, 'v' || g from generate_series(1, 200) g",
		`insert into "No Key" select 'u' || g % 5, g, 'v', repeat('x', 5000) || g from generate_series(1, 50) g`,
	})
	check := func() {
		t.Helper()
		alike(t, pg, m, "select * from r order by u")
		alike(t, pg, m, `select "U", n, v, md5(big) from "No Key" order by n, "U"`)
		m.Verify()
	}
	change := []string{
		"update r set v = v || 'x' where u % 3 = 0", // neither key changes: no old row is sent
		"update r set u = u + 5000 where u % 7 = 1",
		"update r set id = id + 100000 where u % 5 = 2", // the primary key is a column like others
		"delete from r where u % 11 = 4",
		// The primary key of a deleted row is given to another, all in one transaction.
		"begin; delete from r where id = (select min(id) from r); update r set id = 0 where u = (select max(u) from r); commit",
		// Two rows exchange what they are found by, over a value that is free.
		"begin; update r set u = -1 where u = (select min(u) from r where u > 0); update r set u = -2 where u = (select max(u) from r); commit",
		"begin; insert into r values (-7, -7, 'a'); update r set u = -8 where u = -7; delete from r where u = -8; insert into r values (-7, -7, 'b'); commit",
		`update "No Key" set v = v || n where n % 2 = 0`, // big is left out
		`update "No Key" set "U" = "U" || 'y', n = n + 100 where n % 4 = 1`,
		`delete from "No Key" where n % 6 = 0`,
	}
	pg.Exec(change...)
	check()
	m.Checkpoint()
	pg.Exec("delete from r where u < 0", "update r set id = -id where id < 100000")
	pg.Exec(change[1:5]...)
	pg.Exec(change[7:]...)
	check()
	restart(m)
	pg.Exec("update r set u = u + 1000000", `update "No Key" set n = -n`, "delete from r where v like '%x'", `delete from "No Key" where n > -20`)
	check()
}
