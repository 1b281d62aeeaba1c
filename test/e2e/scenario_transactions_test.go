package e2e

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgmirror/test/harness"
)

// A transaction that writes two tables is seen in both or in none: by one statement, and by the statements of a BEGIN block (S-X7).
func TestScenarioTwoTables(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table o(id int primary key)", "create table i(o int, n int, primary key(o, n))"}, "--checkpoint-interval", "500ms")
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		s := pg.Open("postgres", "postgres")
		for id := 1; ; id++ {
			select {
			case <-stop:
				return
			default:
			}
			time.Sleep(time.Millisecond) // a rate that the smallest machine follows
			n := strconv.Itoa(id)
			s.Exec("begin; insert into o values (" + n + "); insert into i select " + n + ", g from generate_series(1, 3) g; commit")
			if id%7 == 0 {
				s.Exec("begin; delete from i where o = " + n + "; delete from o where id = " + n + "; commit")
			}
		}
	})
	defer writer.Wait()
	defer close(stop)
	const rounds = 12
	script := "create temp table torn(n bigint); create temp table pair(round int, o bigint, i bigint);"
	for round := range rounds {
		script += "insert into torn select count(*) from o full join (select o, count(*) c from i group by o) x on o.id = x.o where x.o is null or o.id is null or c <> 3;" +
			fmt.Sprintf("begin; insert into pair select %d, count(*), null from o; insert into pair select %d, null, count(*) from i; commit;", round, round)
	}
	script += "select (select count(*) from torn), (select sum(n) from torn), (select count(*) from (from pair select max(o) o, max(i) i group by round) where o * 3 <> i), (select max(o) from pair)"
	last := 0
	for range 3 {
		row := m.SQL(script)[0]
		orders, _ := strconv.Atoi(row[3])
		if row[0] != strconv.Itoa(rounds) || row[1] != "0" || row[2] != "0" || orders <= last {
			t.Fatalf("looks, torn orders, torn blocks and orders: %v, after %d orders", row, last)
		}
		last = orders
	}
}

// TRUNCATE takes effect at its place in the transaction, over all relations it reaches (S-X8).
func TestScenarioTruncate(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{
		"create table par(id int primary key, v text)", "create table chi(id int primary key, p int references par)", "create table other(id int primary key, v text)",
		"create table loose(id int)", "alter table loose replica identity full",
		"insert into par select g, 'v' from generate_series(1, 1000) g", "insert into chi select g, g from generate_series(1, 1000) g",
		"insert into other select g, 'v' from generate_series(1, 1000) g", "insert into loose select 1 from generate_series(1, 1000) g",
	})
	check := func() {
		t.Helper()
		m.Verify()
	}
	pg.Exec("begin; insert into par values (1001, 'a'); insert into chi values (1001, 1); truncate par cascade; insert into par values (3, 'b'); commit")
	answers(t, m, "select id, v from par union all select id, 'chi' from chi", "3|b")
	check()
	pg.Exec("begin; truncate other, loose; savepoint a; insert into other values (1, 'x'); truncate other restart identity; rollback to a; insert into other values (2, 'y'); insert into loose values (1), (1); commit")
	answers(t, m, "select id, v from other union all select id, 'loose' from loose", "2|y", "1|loose", "1|loose")
	check()
	pg.Exec("begin; truncate other; rollback")
	answers(t, m, "select * from other", "2|y")
	pg.Exec(
		"begin; update other set v = 'z'; truncate other; insert into other values (2, 'again'); update other set v = 'q', id = 5; truncate other; insert into other select g, 'n' from generate_series(1, 20000) g; delete from other where id > 3; commit",
		"insert into par select g, 'p' from generate_series(10, 20) g")
	check()
	m.Checkpoint()
	pg.Exec("begin; update other set v = 'u'; truncate other; truncate other; insert into other values (1, 'last'); commit", "truncate loose")
	answers(t, m, "select id, v from other union all select id, 'loose' from loose", "1|last")
	check()
	restart(m)
	check()
	pg.Exec("truncate par cascade", "insert into par values (1, 'x')")
	m.Checkpoint()
	check()
	restart(m)
	check()
	answers(t, m, "select * from par", "1|x")
}

// What was rolled back leaves nothing: whole transactions, savepoints at every depth, and subtransactions of PL/pgSQL (S-X1 and
// S-X10 without streaming), with changes far over the server's and our own memory for them.
func TestScenarioRollbacks(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{"create table r(id int primary key, v text)"}, harness.Setting("logical_decoding_work_mem", "64kB"))
	m := StartMirror(t, pg, "p")
	rows := func(first, count int) string {
		return fmt.Sprintf("insert into r select g, repeat('x', 200) from generate_series(%d, %d) g;", first, first+count-1)
	}
	pg.Exec(
		"begin;"+rows(1, 1500)+"savepoint a;"+rows(2001, 1500)+"rollback to a;"+rows(5001, 3)+"commit",
		"begin;"+rows(10001, 2500)+"rollback",
		"begin; savepoint a;"+rows(20001, 10)+"savepoint b;"+rows(20011, 10)+"savepoint c;"+rows(20021, 10)+"rollback to b;"+rows(20031, 10)+"release a;"+rows(20041, 10)+"commit",
		"begin; savepoint a; rollback to a; commit",
		"do $$ begin for i in 30001..30100 loop begin insert into r values (i, 'kept'); if i % 3 = 0 then raise exception 'no'; end if; exception when raise_exception then null; end; end loop; end $$",
		"begin; savepoint a; update r set v = 'u' where id = 1; rollback to a; delete from r where id = 2; savepoint b; delete from r where id = 1; rollback to b; commit",
	)
	alike(t, pg, m, "select id, v from r order by id")
	answers(t, m, "select count(*) from r where id < 10000", "1502")
	m.Verify()
}

// A transaction whose changes do not fit into the staging budget goes through the disk, and is seen whole or not at all.
func TestScenarioHugeTransaction(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table h(id int primary key, v text)", "create table w(id int primary key)"})
	pg.Exec("begin; insert into h select g, repeat('x', 300) from generate_series(1, 250000) g; update h set v = 'y' where id <= 5; delete from h where id > 240000; insert into w values (1); commit")
	answers(t, m, "select count(*), sum(id), count(*) filter (where v = 'y'), (select count(*) from w) from h", "240000|28800120000|5|1")
	m.Verify()
	m.Checkpoint()
	m.Verify()
}
