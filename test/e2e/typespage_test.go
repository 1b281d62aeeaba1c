package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgmirror/pgcdc"
)

// typesPage is a section of docs/types.md: the code spans of each cell of its rows, and the rows as they stand.
func typesPage(t *testing.T, section string) (text string, rows [][][]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/types.md")
	must(t, err)
	_, text, found := strings.Cut(string(page), "\n## "+section+"\n")
	if !found {
		t.Fatalf("no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		var row [][]string
		for _, cell := range strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ") {
			spans := []string{strings.TrimSpace(cell)} // the whole cell first
			for _, span := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cell, -1) {
				spans = append(spans, span[1])
			}
			row = append(row, spans)
		}
		rows = append(rows, row)
	}
	return text, rows[min(1, len(rows)):] // the first is the head
}

// docs/types.md says of every type what it is in Iceberg and in DuckDB, of every value on it what is shown, copied and streamed, and of every type of the server that it does not
// name that it is text.
func TestTypesPage(t *testing.T) {
	t.Parallel()
	type documented struct{ sql, iceberg, duck string }
	var types []documented
	_, rows := typesPage(t, "The table")
	for _, row := range rows {
		names, icebergs, ducks := row[0][1:], row[1][1:], row[2][1:]
		for i, name := range names {
			types = append(types, documented{name, icebergs[min(i, len(icebergs)-1)], ducks[min(i, len(ducks)-1)]})
		}
	}
	_, values := typesPage(t, "Values")
	if len(types) < 50 || len(values) < 50 {
		t.Fatalf("%d types and %d values", len(types), len(values))
	}
	column := func(sql string) int {
		i := slices.IndexFunc(types, func(d documented) bool { return d.sql == sql })
		if i < 0 {
			t.Fatalf("%s is not in the table", sql)
		}
		return i
	}
	definitions := []string{"id int primary key"}
	for i, d := range types {
		definitions = append(definitions, fmt.Sprintf("c%d %s", i, d.sql))
	}
	var first, second []string
	for i, row := range values {
		insert := fmt.Sprintf("insert into t(id, c%d) values (%%d, %s)", column(row[0][1]), row[1][1])
		first, second = append(first, fmt.Sprintf(insert, i)), append(second, fmt.Sprintf(insert, 1000+i))
	}
	pg := server(t, append([]string{typesSQL, roundTypesSQL, "create table t(" + strings.Join(definitions, ", ") + ")"}, first...))
	others, err := pg.Query(`select format_type(oid, null) from pg_type where typnamespace = 'pg_catalog'::regnamespace and typtype in ('b', 'r', 'm')
		and typsubscript <> 'array_subscript_handler'::regproc order by oid`)
	must(t, err)
	var other []string
	for i, row := range others {
		name := row[0]
		if !slices.ContainsFunc(types, func(d documented) bool {
			plain, _, _ := strings.Cut(d.sql, "(")
			canonical := map[string]string{"timestamp": "timestamp without time zone", "time": "time without time zone", "timestamptz": "timestamp with time zone", "timetz": "time with time zone", "varchar": "character varying", "varbit": "bit varying"}[plain]
			return plain == name || canonical == name
		}) {
			other = append(other, fmt.Sprintf("o%d %s", i, name))
		}
	}
	if len(other) < 30 {
		t.Fatalf("%d other types: %q", len(other), other)
	}
	pg.Exec("create table others(id int primary key, " + strings.Join(other, ", ") + ")")
	m := StartMirror(t, pg, "p")
	pg.Exec(second...)
	caughtUp(pg, m)

	var typeofs, asText []string
	for i := range types {
		typeofs = append(typeofs, fmt.Sprintf("typeof(c%d)", i))
	}
	for i, duck := range m.SQL("select " + strings.Join(typeofs, ", ") + " from t limit 1")[0] {
		if duck != types[i].duck {
			t.Errorf("%s is %s in DuckDB, documented is %s", types[i].sql, duck, types[i].duck)
		}
	}
	for _, row := range m.SQL("select column_name, data_type from information_schema.columns where table_name = 'others' and column_name <> 'id'") {
		if row[1] != "VARCHAR" {
			t.Errorf("%s is %s in DuckDB and not on the page; %q", row[0], row[1], other)
		}
		asText = append(asText, row[0])
	}
	if len(asText) != len(other) {
		t.Errorf("%d other types in DuckDB, %d made", len(asText), len(other))
	}
	var shown []string
	for i, row := range values {
		c := column(row[0][1])
		shown = append(shown, fmt.Sprintf("select id, c%d::varchar as shown from t where id in (%d, %d)", c, i, 1000+i))
	}
	all := m.SQL("set timezone = 'UTC'; from (" + strings.Join(shown, " union all ") + ") order by id")
	if len(all) != 2*len(values) {
		t.Fatalf("%d rows for %d values", len(all), len(values))
	}
	for i, got := range all {
		if row := values[i%len(values)]; got[1] != row[2][1] {
			t.Errorf("%s %s is shown as %q (row %s), documented is %q", row[0][1], row[1][1], got[1], got[0], row[2][1])
		}
	}
	m.Checkpoint()
	fields := icebergFields(t, m, "t")
	for i, d := range types {
		if got := fields[fmt.Sprintf("c%d", i)]; got != d.iceberg {
			t.Errorf("%s is %s in Iceberg, documented is %s", d.sql, got, d.iceberg)
		}
	}
	m.Verify()
}

// icebergFields are the types of a table's columns as its newest metadata has them.
func icebergFields(t *testing.T, m *Mirror, table string) map[string]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(m.Data(), "warehouse", "public", table+"-*", "metadata", "*.metadata.json"))
	if err != nil || len(found) == 0 {
		t.Fatalf("%q, %v", found, err)
	}
	slices.Sort(found)
	text, err := os.ReadFile(found[len(found)-1])
	must(t, err)
	var metadata struct {
		Current int `json:"current-schema-id"`
		Schemas []struct {
			ID     int `json:"schema-id"`
			Fields []struct {
				Name string
				Type json.RawMessage
			}
		}
	}
	must(t, json.Unmarshal(text, &metadata))
	fields := map[string]string{}
	for _, schema := range metadata.Schemas {
		if schema.ID != metadata.Current {
			continue
		}
		for _, f := range schema.Fields {
			var name string
			var list struct{ Type, Element string }
			if json.Unmarshal(f.Type, &name) != nil {
				must(t, json.Unmarshal(f.Type, &list))
				name = list.Type + "<" + list.Element + ">"
			}
			fields[f.Name] = name
		}
	}
	return fields
}

// The values that docs/types.md calls not representable stop a table with the reason that it gives, and are text where types makes them so.
func TestTypesPageUnrepresentable(t *testing.T) {
	t.Parallel()
	_, rows := typesPage(t, "Not representable")
	if len(rows) < 5 {
		t.Fatalf("%d values", len(rows))
	}
	var tables, override []string
	for i, row := range rows {
		tables = append(tables, fmt.Sprintf("create table t%d(id int primary key, v %s)", i, row[0][1]))
		override = append(override, fmt.Sprintf("public.t%d.v=text", i))
	}
	pg := server(t, tables)
	m := StartMirror(t, pg, "p")
	text := StartMirror(t, pg, "p", "--slot", "text", "--types", strings.Join(override, ","))
	for i, row := range rows {
		pg.Exec(fmt.Sprintf("insert into t%d values (1, %s)", i, row[1][1]))
	}
	for i, row := range rows {
		if f := refusedTable(t, m, fmt.Sprintf("public.t%d", i), row[2][0]); f.ErrorCol != "v" || f.ErrorKey != "id=1" {
			t.Errorf("%s: %+v", row[0][1], f)
		}
		alike(t, pg, text, fmt.Sprintf("set timezone = 'UTC'; select v from t%d", i))
	}
}

// The expressions on docs/types.md are those that TestRoundTrip holds against PostgreSQL, and that for hstore gives the keys and values that PostgreSQL has.
func TestTypesPageExpressions(t *testing.T) {
	t.Parallel()
	text, _ := typesPage(t, "As PostgreSQL prints them")
	for name, typ := range map[string]*pgcdc.Type{"boolean": kind(pgcdc.KindBool), "decimal": decimal(9, 2), "binary": kind(pgcdc.KindBytea), "date": kind(pgcdc.KindDate),
		"timestamp": kind(pgcdc.KindTimestamp), "timestamptz": kind(pgcdc.KindTimestampTZ)} {
		if line := fmt.Sprintf("\n- `%s`: `%s`\n", name, printedAsSource("v", typ)); !strings.Contains(text, line) {
			t.Errorf("the page lacks%s", line)
		}
	}
	if n := strings.Count(text, "\n- "); n != 6 {
		t.Errorf("the page has %d expressions", n)
	}
	code, _ := typesPage(t, "hstore as a map")
	_, code, _ = strings.Cut(code, "```sql\n")
	code, _, _ = strings.Cut(code, "```")
	pg := server(t, []string{"create extension hstore", "create table t(id int primary key, v hstore)",
		`insert into t values (1, ''), (2, null), (3, 'a=>1, b=>NULL, "c d"=>"NULL", e=>""'), (4, hstore(array['q"', E'\\', E'a\nb', '=>', ', "x"=>"y'], array[E'\\"', E'\\\\', E'c\nd', '"=>"', null]))`})
	m := StartMirror(t, pg, "p")
	for _, id := range []string{"1", "3", "4"} {
		want, err := pg.Query("select key, coalesce(value, '<null>') from t, each(v) where id = " + id + " order by key collate \"C\"")
		must(t, err)
		got := m.SQL("with m as (select (" + strings.TrimSpace(code) + ") AS m from t where id = " + id + ") select unnest(map_keys(m)) AS k, unnest(map_values(m)) AS v from m order by k")
		if show(got) != show(want) {
			t.Errorf("hstore %s as a map is\n%s\nwant\n%s", id, show(got), show(want))
		}
	}
	answers(t, m, "select ("+strings.TrimSpace(code)+") is null from t where id = 2", "true")
}
