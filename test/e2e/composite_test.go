package e2e

import (
	"fmt"
	"testing"
)

// A composite type that changes gives every row another text without writing any. The table is copied as it prints then, whatever part of the type
// changed and however deep it lies, and rows written around the change are right too; with identity FULL the stream names old rows by a text
// that the mirror does not have yet.
func TestCompositeTypesChange(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{
		"create type mood as enum('sad', 'very \"ok\"')", "create type pair as (a int, m mood)", "create type nest as (p pair, ps pair[], note text)", "create domain nested as nest",
		"create table keyed(id int primary key, n nest)", "create table equal(id int, n nested)", "alter table equal replica identity full", "create table lists(id int primary key, n nest[])",
		"create table plain(id int primary key)",
	}, "--catalog-poll", "300ms")
	steps := []string{
		"alter type pair add attribute b text", "alter type nest drop attribute note", "alter type pair rename attribute b to c", "alter type mood rename value 'sad' to 'glum'",
		"alter type mood add value 'new'", "alter type nest add attribute note numeric(4,1)", "alter type pair drop attribute a, add attribute a bigint",
	}
	compare := func(when string) {
		t.Helper()
		lists := "select id, array_to_string(%s, ';') from lists order by id"
		for ours, theirs := range map[string]string{
			"select id, n from keyed order by id": "select id, n from keyed order by id", "select id, n from equal order by id": "select id, n from equal order by id",
			fmt.Sprintf(lists, "n"): fmt.Sprintf(lists, "array(select case when n[i] is distinct from null then format('%s', n[i]) end from generate_subscripts(n, 1) i)"),
		} {
			want, err := pg.Query(theirs)
			must(t, err)
			within(t, when+": "+ours, func() bool {
				got, err := m.TrySQL(ours, "--wait-lsn", "source")
				return err == nil && show(got) == show(want)
			})
		}
	}
	for i, step := range steps {
		write := func(id int) {
			for _, table := range []string{"keyed", "equal"} {
				pg.Exec(fmt.Sprintf("insert into %s(id) values (%d)", table, id), fmt.Sprintf("update %s set n.p.m = 'very \"ok\"' where id %% 3 = %d", table, id%3))
			}
			pg.Exec(fmt.Sprintf("insert into lists select id, array[n, null, n] from keyed where id = %d", id), fmt.Sprintf("insert into plain values (%d)", id))
		}
		write(3 * i)
		pg.Exec(step)
		write(3*i + 1)
		compare(step)
		write(3*i + 2)
	}
	compare("at the end")
	restart(m)
	compare("after a restart")
	m.Verify()
}
