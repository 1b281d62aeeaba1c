package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgmirror/mirror"
)

// typesFlag is the setting types as a flag.
func typesFlag(types map[string]string) string {
	var list []string
	for column, form := range types {
		list = append(list, "public.t."+column+"="+form)
	}
	return "--types=" + strings.Join(list, ",")
}

// What the setting types makes of a column is exact in the copy and in the stream, in memory and in files, and `status` has it; a change of the setting
// copies the table again at the next start, and no other (S-T9, S-T18).
func TestTypesSetting(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{
		"create domain ints as int[]",
		"create table t(id int primary key, m int[], tm time, n numeric, d numeric(12,2), b numeric(12,2), deep ints[], w numeric, j jsonb)",
		"create table other(id int primary key, n numeric)", "insert into other values (1, 1.10)",
	})
	values := func(id int) []string {
		return []string{
			fmt.Sprintf(`insert into t values (%d, '{{1,2},{3,NULL}}', '24:00:00', 1.1, 'NaN', -0.05, '{"{1,2}",NULL}', 0.1, '{}')`, id),
			fmt.Sprintf("insert into t values (%d, '[2:3]={7,8}', '12:00', -99999999.99, 1.10, 12345.67, '{}', '1e300', 'null')", id+1),
			fmt.Sprintf("insert into t values (%d, null, null, null, null, null, null, null, null)", id+2),
			fmt.Sprintf("insert into t values (%d, '{}', '00:00', 5.0000, 'NaN', 0, null, 'NaN', '[]')", id+3),
		}
	}
	pg.Exec(values(100)...)
	types := map[string]string{"m": "text", "tm": "text", "n": "decimal(10,2)", "d": "text", "deep": "text", "w": "double", "b": "decimal(20,4)"}
	m := NewMirror(t, pg, "p")
	m.Start(typesFlag(types))
	m.WaitReady()
	check := func(when string) {
		t.Helper()
		caughtUp(pg, m)
		want, err := pg.Query("set extra_float_digits = 1; select id, m, tm, n::numeric(10,2), d, b::numeric(20,4), deep, w::float8, j from t order by id")
		must(t, err)
		got := m.SQL("select id, m, tm, n, d, b, deep, case when isnan(w) then 'NaN' when w = 0.1 then '0.1' else w::varchar end, j from t order by id")
		if show(got) != show(want) {
			t.Fatalf("%s:\n%s\nwant\n%s", when, show(got), show(want))
		}
		if shown := Table(t, m.WaitReady(), "public.t").Types; !maps.Equal(shown, types) {
			t.Errorf("%s: status shows %v", when, shown)
		}
		m.Verify()
	}
	answers(t, m, "select typeof(m), typeof(tm), typeof(n), typeof(d), typeof(b), typeof(deep), typeof(w) from t limit 1", "VARCHAR|VARCHAR|DECIMAL(10,2)|VARCHAR|DECIMAL(20,4)|VARCHAR|DOUBLE")
	check("copied")
	pg.Exec(values(200)...)
	pg.Exec("update t set j = '1' where id % 2 = 0", "update t set m = '{{{9}}}', n = 1.23 where id = 103", "delete from t where id = 101")
	check("streamed")
	m.Checkpoint()
	check("in files")
	m.Kill()
	m.Start(typesFlag(types))
	m.WaitReady()
	check("after a restart")
	if strings.Contains(m.Log(), "copied again") {
		t.Error("a table was copied again though nothing changed")
	}

	// A mirror that does not run: verify goes by what the tables are, status shows it.
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if out, errs, code := m.Command("verify", "--source", m.source); code != 0 || strings.Contains(errs, "copied again") {
		t.Errorf("verify with no mirror: exit code %d\n%s%s", code, out, errs)
	}
	if out, _, _ := m.Command("status"); !strings.Contains(out, "n decimal(10,2)") {
		t.Errorf("status with no mirror:\n%s", out)
	}

	delete(types, "w")
	types["n"], types["tm"] = "double", "text"
	m.Start(typesFlag(types))
	m.WaitStatus("the table is copied again", func(s *mirror.Status) bool {
		return s.State == "streaming" && shownStreaming(s, "public.t") && maps.Equal(Table(t, s, "public.t").Types, types)
	})
	answers(t, m, "select typeof(n), typeof(w), n, w from t where id = 100", "DOUBLE|VARCHAR|1.1|0.1")
	if n := strings.Count(m.Log(), "msg=\"table joined\""); n != 1 {
		t.Errorf("%d tables were copied again, want 1", n)
	}
	m.Verify()
	m.Checkpoint()
}

// A value that does not fit a form stops its table like any other that cannot be represented; with another form it is copied again when asked.
func TestTypesSettingUnrepresentable(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{"create table t(id int primary key, n numeric)", "insert into t values (1, 1.25)", "create table wrong(id int primary key, s text)"})
	m := NewMirror(t, pg, "p", "--catalog-poll", "300ms")
	m.Start("--types=public.t.n=decimal(10,2)")
	m.WaitReady()
	pg.Exec("insert into t values (2, 1.125)")
	f := refusedTable(t, m, "public.t", "more digits", "1|1.25")
	if f.ErrorKey != "id=2" || f.ErrorCol != "n" || !strings.Contains(f.Remedy, "types") {
		t.Errorf("%+v", f)
	}
	m.Checkpoint()
	m.Kill()
	m.Start("--types=public.t.n=decimal(10,3),public.wrong.s=double,public.t.gone=text")
	m.WaitReady()
	refusedTable(t, m, "public.wrong", "only a numeric can be")
	if out, errs, code := m.Command("resync", "t"); code != 0 {
		t.Fatalf("resync: exit code %d, %s%s", code, out, errs)
	}
	answers(t, m, "select id, n from t order by id", "1|1.250", "2|1.125")
	within(t, "the name that nothing has is logged", func() bool { return strings.Contains(m.Log(), "no published table has such a column") })
	m.Checkpoint()
	m.Kill()
	m.Start("--types=public.t.n=decimal(10,3)")
	m.WaitStatus("the other table is back", func(s *mirror.Status) bool { return s.State == "streaming" && shownStreaming(s, "public.wrong") })
	m.Verify()
}

// shownStreaming says whether a status shows the table as streaming.
func shownStreaming(s *mirror.Status, table string) bool {
	return slices.ContainsFunc(s.Tables, func(ts mirror.TableStatus) bool { return ts.Name == table && ts.State == "streaming" })
}
