package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A partitioned table of which only inserts are published, as one table, is a history: it keeps what the source updates, deletes and truncates, whole or in one partition, and the rows of a
// partition that is detached or dropped, without being copied again, over restarts too. A row that an update moves to another partition is sent as an insert. Where rows come of which
// the stream does not tell it is copied, and the history begins anew with what the source has.
func TestInsertsOnlyRoot(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p", []string{
		"create table root(id int, d int, v text, primary key (id, d)) partition by range (d)", "create table p1 partition of root for values from (0) to (10)",
		"create table p2 partition of root for values from (10) to (20)", "create table p3 partition of root for values from (20) to (30)",
		"insert into root select i, i * 10 - 5, 'old' from generate_series(1, 3) i", "create publication p for table root with (publish = 'insert', publish_via_partition_root)"}, "--partial-publish", "--catalog-poll", "300ms")
	pg.Needs(15, "notice of tables that become partitions")
	history := []string{"1|5|old", "2|15|old", "3|25|old"}
	for i, step := range []struct {
		statements []string
		adds       []string
	}{
		{[]string{"update root set v = 'new'", "update p2 set id = id + 100"}, nil},
		{[]string{"update root set d = 16, v = 'moved' where id = 1"}, []string{"1|16|moved"}},
		{[]string{"delete from root where id = 102", "delete from p3", "insert into root values (3, 25, 'again'), (4, 5, 'x')"}, []string{"3|25|again", "4|5|x"}},
		{[]string{"truncate p1", "insert into p1 values (4, 5, 'again')"}, []string{"4|5|again"}},
		{[]string{"begin; insert into root values (6, 6, 'before'); truncate root; insert into root values (6, 6, 'after'), (7, 17, 'x'), (8, 28, 'x'); commit"}, []string{"6|6|before", "6|6|after", "7|17|x", "8|28|x"}},
		{[]string{"vacuum full p2"}, nil},
		{[]string{"alter table root detach partition p2", "insert into p2 values (9, 19, 'detached')", "delete from p2 where id = 7"}, nil},
		{[]string{"drop table p3", "create table p4 partition of root for values from (30) to (40)", "insert into root values (10, 30, 'x')"}, []string{"10|30|x"}},
		{[]string{"truncate p1", "truncate p4", "create table p5 partition of root for values from (40) to (50)"}, nil},
	} {
		pg.Exec(step.statements...)
		looksAt(pg, m)
		history = append(history, step.adds...)
		slices.Sort(history)
		shown := show(m.SQL("select * from root"))
		rows := strings.Split(shown, "\n")
		slices.Sort(rows)
		if !slices.Equal(rows, history) {
			t.Fatalf("after %q it has\n%s\nwant\n%s", step.statements, strings.Join(rows, "\n"), strings.Join(history, "\n"))
		}
		switch i {
		case 3:
			m.Checkpoint()
			restart(m)
		case 7: // and what happens while it is stopped
			m.Checkpoint()
			m.Kill()
			pg.Exec("insert into root values (11, 1, 'while stopped')", "begin; truncate root; insert into root values (12, 2, 'while stopped'); commit")
			history = append(history, "11|1|while stopped", "12|2|while stopped")
			restart(m)
		}
	}
	copies := func() int { return strings.Count(m.Log(), "table joined") }
	if n := copies(); n != 0 {
		t.Errorf("copied again %d times", n)
	}
	for i, comes := range [][]string{
		{"alter table root attach partition p2 for values from (10) to (20)"}, {"alter table root alter v type text using v || '!'"},
		{"alter table p5 set unlogged", "insert into p5 values (13, 41, 'in no WAL')", "alter table p5 set logged"},
	} {
		pg.Exec(comes...)
		becomes(t, pg, m, "select * from root order by id, d, v", "select * from root order by id, d, v")
		if n := copies(); n != i+1 {
			t.Errorf("%s: copied again %d times, want %d", fmt.Sprint(comes), n, i+1)
		}
	}
	pg.Exec("delete from root where id = 9", "insert into root values (14, 1, 'last')", "truncate p5")
	looksAt(pg, m)
	answers(t, m, "select * from root where id in (9, 13, 14) order by id", "9|19|detached!", "13|41|in no WAL", "14|1|last")
}
