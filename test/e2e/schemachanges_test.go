package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/mirror"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

const schemaChangesPage = "../../docs/schema-changes.md"

// documented is one statement of docs/schema-changes.md: what it does, in a schema of its own.
type documented struct {
	statement string
	outcome   string   // nothing, in place, followed, copied, stopped, gone or impossible
	says      []string // parts of what `status` says of the table, for copied, stopped and gone
	ends      bool     // found at a start, it ends run with exit code 3
	setup     string   // the statements of its section

	schema string // made for this trial; other names of schemas begin with it
}

// What docs/schema-changes.md says of each of its statements is what happens, while the mirror runs and while it does not: which tables are
// copied, stopped or left alone, what a reader gets meanwhile, and that all of them end equal.
func TestDocumentedSchemaChanges(t *testing.T) {
	t.Parallel()
	running, stopped := readSchemaChanges(t, "r"), readSchemaChanges(t, "s")
	pg := harness.StartPostgres(t)
	pg.Needs(15, "publications of schemas and row filters")
	pg.CreateMirrorRole(mirrorRole, "postgres")
	var publications []string
	for _, d := range slices.Concat(running, stopped) {
		d.prepare(pg)
		publications = append(publications, "p_"+d.schema)
	}
	c := &schemaChanges{t: t, pg: pg, m: StartMirror(t, pg, strings.Join(publications, ","), "--catalog-poll", "200ms")}
	c.try(running, func(execute func()) { execute() })
	// A publication that leaves operations out refuses a start, until it is put right.
	partial := slices.IndexFunc(running, func(d *documented) bool { return d.ends })
	stopped = slices.Delete(stopped, partial, partial+1)
	c.try(stopped, func(execute func()) {
		if code := c.m.Stop(); code != 0 {
			t.Fatalf("SIGTERM: exit code %d", code)
		}
		execute()
		c.m.Start()
		if code := c.m.WaitExit(); code != 3 {
			t.Errorf("%s: run ended with exit code %d", running[partial].statement, code)
		}
		pg.Exec(running[partial].own("ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate')"))
		c.m.Start()
		c.m.WaitStatus("it streams", func(s *mirror.Status) bool { return s.State == "streaming" })
	})
	c.m.Verify(c.streaming(slices.Concat(running, stopped))...)
}

// readSchemaChanges reads the page: sections of statements that set tables up, and the rows of a table of statements after each.
func readSchemaChanges(t *testing.T, prefix string) (list []*documented) {
	t.Helper()
	text, err := os.ReadFile(schemaChangesPage)
	must(t, err)
	sections := strings.Split(string(text), "```sql\n")
	code := regexp.MustCompile("`[^`]*`")
	for _, section := range sections[1:] {
		setup, rest, _ := strings.Cut(section, "```\n")
		for line := range strings.Lines(rest) {
			if !strings.HasPrefix(line, "| `") {
				continue
			}
			cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
			if len(cells) != 5 {
				t.Fatalf("%s: a row has %d cells: %s", schemaChangesPage, len(cells)-2, line)
			}
			for i := range cells {
				cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "\x00", "|"))
			}
			d := &documented{statement: strings.Trim(cells[1], "`"), outcome: cells[2], setup: setup, schema: fmt.Sprintf("%s%02d", prefix, len(list))}
			d.ends = strings.Contains(cells[3], "run ends with exit code 3")
			for _, part := range code.FindAllString(cells[3], -1) {
				d.says = append(d.says, strings.Trim(part, "`"))
			}
			if prefix == "s" && d.outcome == "followed" {
				d.outcome = "copied" // what happened while it did not run
			}
			if len(d.says) > 0 && !slices.Contains([]string{"copied", "stopped", "gone"}, d.outcome) {
				t.Errorf("%s: nothing is said of a table with the outcome %q: %s", schemaChangesPage, d.outcome, line)
			}
			list = append(list, d)
		}
	}
	if len(sections) < 5 || len(list) < 50 {
		t.Fatalf("%s has %d sections and %d statements: it is not read as it is meant", schemaChangesPage, len(sections)-1, len(list))
	}
	return list
}

// prepare makes the schema and what the section sets up.
func (d *documented) prepare(pg *harness.Postgres) {
	pg.Exec("create schema "+d.schema, "grant usage on schema "+d.schema+" to "+mirrorRole,
		"alter default privileges in schema "+d.schema+" grant select on tables to "+mirrorRole,
		"set search_path = "+d.schema+"; "+d.own(d.setup))
}

// own gives what is known in the whole database names of the trial's own.
func (d *documented) own(sql string) string {
	for name, own := range map[string]string{`\bPUBLICATION p\b`: "PUBLICATION p_" + d.schema, `\bSCHEMA here\b`: "SCHEMA " + d.schema, `\bSCHEMA elsewhere\b`: "SCHEMA " + d.schema + "_elsewhere"} {
		sql = regexp.MustCompile(name).ReplaceAllString(sql, own)
	}
	return sql
}

// execute runs the statement. An error says that PostgreSQL refused it.
func (d *documented) execute(pg *harness.Postgres) error {
	sql := append([]string{"set search_path = " + d.schema}, splitSQL(d.own(d.statement))...)
	ctx := context.Background()
	conn, err := pgconn.Connect(ctx, pg.SocketURL("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, s := range sql {
		if _, err := conn.Exec(ctx, s).ReadAll(); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// splitSQL takes statements apart at semicolons outside of literals.
func splitSQL(sql string) (list []string) {
	quoted, from := false, 0
	for i, r := range sql {
		switch {
		case r == '\'':
			quoted = !quoted
		case r == ';' && !quoted:
			list, from = append(list, sql[from:i]), i+1
		}
	}
	return append(list, sql[from:])
}

// owns says whether a table of the mirror is the trial's.
func (d *documented) owns(table string) bool {
	return strings.HasPrefix(table, d.schema+".") || strings.HasPrefix(table, d.schema+"_elsewhere.")
}

// schemaChanges is the source and the mirror of TestDocumentedSchemaChanges.
type schemaChanges struct {
	t  *testing.T
	pg *harness.Postgres
	m  *Mirror
}

// try runs the statements and compares what becomes of each with the page. An open transaction holds every copy back until the readers have been
// asked what they get meanwhile.
func (c *schemaChanges) try(list []*documented, around func(execute func())) {
	c.t.Helper()
	caughtUp(c.pg, c.m)
	before, joined, followed := c.content(list), c.logged(tableJoined), c.logged(columnsChanged)
	holder := c.pg.Open("postgres", "postgres")
	holder.Exec("begin", "select pg_current_xact_id()")
	around(func() {
		for _, d := range list {
			if err := d.execute(c.pg); (err != nil) != (d.outcome == "impossible") {
				c.t.Errorf("%s: the page says %s: %v", d.statement, d.outcome, err)
			}
		}
	})
	c.looked()
	c.meanwhile(list, before)
	holder.Exec("commit")
	c.settle()
	after, now, later := c.content(list), c.logged(tableJoined), c.logged(columnsChanged)
	status, err := c.m.Status()
	must(c.t, err)
	for _, d := range list {
		got := "nothing"
		if !maps.Equal(d.of(before), d.of(after)) {
			got = "in place"
		}
		for table := range later {
			if d.owns(table) && later[table] > followed[table] {
				got = "followed"
			}
		}
		for table := range now {
			if d.owns(table) && now[table] > joined[table] {
				got = "copied"
			}
		}
		for _, ts := range status.Tables {
			switch {
			case d.owns(ts.Name) && ts.State == "failed":
				got = "stopped"
			case d.owns(ts.Name) && ts.State == "gone":
				got = "gone"
			}
		}
		if got != d.outcome && (d.outcome != "impossible" || got != "nothing") {
			c.t.Errorf("%s (%s):\n%s, the page says %s", d.statement, d.schema, got, d.outcome)
		}
	}
	c.goOn(list)
}

// settle waits until it streams and nothing is being copied, or about to be.
func (c *schemaChanges) settle() {
	c.t.Helper()
	c.looked()
	c.m.WaitStatus("nothing is being copied", func(s *mirror.Status) bool {
		return s.State == "streaming" && !slices.ContainsFunc(s.Tables, func(ts mirror.TableStatus) bool {
			return !slices.Contains([]string{"streaming", "failed", "gone"}, ts.State)
		})
	})
}

// looked waits until the mirror has applied, and looked at, everything that there is.
func (c *schemaChanges) looked() {
	c.t.Helper()
	c.pg.Exec("select pg_logical_emit_message(true, '', '')")
	at := c.pg.QueryRow("select pg_current_wal_insert_lsn()")
	c.m.WaitStatus("the catalogue was looked at", func(s *mirror.Status) bool {
		return s.CatalogLSN != "" && lsnAtLeast(c.pg, "'"+s.CatalogLSN+"'::pg_lsn", at)
	})
}

// meanwhile compares what readers are told of each table, and what status says, with the page: of those that wait for their copies and of those that
// stopped an error, under which their content of before can be read; of all others none.
func (c *schemaChanges) meanwhile(list []*documented, before map[string]string) {
	c.t.Helper()
	status, err := c.m.Status()
	must(c.t, err)
	errs := c.readErrors()
	at := regexp.MustCompile(`--at ([0-9A-F]+/[0-9A-F]+)`)
	read := map[string]bool{}
	for _, d := range list {
		var told []string
		for _, ts := range status.Tables {
			if !d.owns(ts.Name) {
				continue
			}
			text := errs[ts.Name]
			if (ts.State == "streaming") != (text == "") {
				c.t.Errorf("%s: %s is %s, a reader gets %q", d.statement, ts.Name, ts.State, text)
			}
			if text != "" {
				told = append(told, ts.State+": "+ts.Resync+" "+text)
			}
			lsn := at.FindStringSubmatch(text)
			if _, had := before[ts.Name]; had && text != "" && lsn == nil {
				c.t.Errorf("%s: a reader of %s is not told where to find what it held: %s", d.statement, ts.Name, text)
			} else if had && text != "" && !read[d.outcome] {
				read[d.outcome] = true
				rows := ""
				for _, row := range c.m.SQLWith(rowsWithNames(ts.Name)+" order by all", "--at", lsn[1]) {
					rows += row[1] + "\n"
				}
				if rows != before[ts.Name] {
					c.t.Errorf("%s: %s at %s is\n%s, want\n%s", d.statement, ts.Name, lsn[1], rows, before[ts.Name])
				}
			}
		}
		all := strings.Join(told, "\n")
		changed := slices.Contains([]string{"copied", "stopped", "gone"}, d.outcome)
		if changed != (len(told) > 0) || (d.outcome == "stopped") != strings.Contains(all, "failed: ") || d.outcome == "gone" && !strings.Contains(all, "gone: ") {
			c.t.Errorf("%s: the page says %s, meanwhile a reader gets %q", d.statement, d.outcome, all)
		}
		for _, part := range d.says {
			if strings.HasPrefix(d.schema, "r") && !strings.Contains(all, part) {
				c.t.Errorf("%s: the page says %q, a reader gets %q", d.statement, part, all)
			}
		}
	}
	if !read["copied"] || !read["stopped"] || !read["gone"] {
		c.t.Errorf("of tables that are copied, that stopped and that are gone, only %v were read as they were before", read)
	}
}

// readErrors are what a query of each table that cannot be read gets.
func (c *schemaChanges) readErrors() map[string]string {
	c.t.Helper()
	client, err := readstate.Dial(c.t.Context(), c.m.Data())
	must(c.t, err)
	defer client.Close()
	state, err := client.Pin(c.t.Context(), readstate.PinRequest{})
	must(c.t, err)
	defer state.Release()
	errs := map[string]string{}
	for _, table := range state.Tables {
		if table.Err != "" {
			errs[table.Name.String()] = table.Err
		}
	}
	return errs
}

const tableJoined, columnsChanged = "table joined", "the table's columns changed"

// logged counts how often the log says something of each table.
func (c *schemaChanges) logged(what string) map[string]int {
	counts := map[string]int{}
	for _, m := range regexp.MustCompile(`msg="`+what+`" relation=(\S+)`).FindAllStringSubmatch(c.m.Log(), -1) {
		counts[m[1]]++
	}
	return counts
}

// content is the rows of every table of the trials that can be read, with the names of their columns.
func (c *schemaChanges) content(list []*documented) map[string]string {
	c.t.Helper()
	content := map[string]string{}
	var selects []string
	for _, name := range c.streaming(list) {
		content[name] = ""
		selects = append(selects, rowsWithNames(name))
	}
	rows := c.m.SQLWith(strings.Join(selects, " union all ") + " order by all")
	for _, row := range rows {
		content[row[0]] += row[1] + "\n"
	}
	return content
}

// rowsWithNames selects each row of a table as a struct in text.
func rowsWithNames(table string) string {
	return fmt.Sprintf("select '%s' as name, row::varchar as columns from %s as row", table, table)
}

// streaming are the tables of the trials that can be read.
func (c *schemaChanges) streaming(list []*documented) (names []string) {
	c.t.Helper()
	status, err := c.m.Status()
	must(c.t, err)
	for _, ts := range status.Tables {
		if ts.State == "streaming" && slices.ContainsFunc(list, func(d *documented) bool { return d.owns(ts.Name) }) {
			names = append(names, ts.Name)
		}
	}
	return names
}

// of is the part of a content that is the trial's.
func (d *documented) of(content map[string]string) map[string]string {
	own := map[string]string{}
	for name, rows := range content {
		if d.owns(name) {
			own[name] = rows
		}
	}
	return own
}

// goOn changes the rows of every table as far as PostgreSQL lets it.
func (c *schemaChanges) goOn(list []*documented) {
	c.t.Helper()
	conn, err := pgconn.Connect(context.Background(), c.pg.SocketURL("postgres", "postgres"))
	must(c.t, err)
	defer conn.Close(context.Background())
	changed := 0
	for _, name := range c.streaming(list) {
		if tried(conn, "begin; delete from "+name+" where id % 5 = 1; update "+name+" set id = -id where id % 5 = 2; commit") {
			changed++
		}
	}
	if changed < len(list)/2 {
		c.t.Errorf("only %d tables could be changed afterwards", changed)
	}
}
