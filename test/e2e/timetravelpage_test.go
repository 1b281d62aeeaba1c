package e2e

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// timeTravelPage is what docs/time-travel.md shows: its commands, as their arguments, and its statements, without their comments.
func timeTravelPage(t *testing.T) (commands [][]string, statements []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/time-travel.md")
	must(t, err)
	blocks := strings.Split(string(page), "```")
	for i := 1; i < len(blocks); i += 2 {
		kind, code, _ := strings.Cut(blocks[i], "\n")
		for line := range strings.Lines(code) {
			switch line = strings.TrimSpace(line); {
			case line == "":
			case kind == "sql":
				line, _, _ = strings.Cut(line, "--")
				statements = append(statements, strings.TrimSpace(line))
			default:
				line, _, _ = strings.Cut(line, "#")
				var arguments []string
				for _, one := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
					arguments = append(arguments, strings.Trim(one, "'"))
				}
				commands = append(commands, arguments)
			}
		}
	}
	return commands, statements
}

// The commands and statements on docs/time-travel.md, with the LSNs and times of this run in the place of its own, do what the page says of them, and so do
// the rules of the feed that it lists.
func TestTimeTravelPage(t *testing.T) {
	t.Parallel()
	commands, statements := timeTravelPage(t)
	if len(commands) != 3 || len(statements) != 3 {
		t.Fatalf("%d commands and %d statements", len(commands), len(statements))
	}
	pg, m := scene(t, []string{"create table orders(id int primary key, n int, gone int)", "insert into orders values (1, 10, 0), (2, 20, 0)",
		"create table odd(id int primary key, _change text, _lsn int)", "create table later(id int primary key)"}, "--history", "10m", "--checkpoint-interval", "1h")
	at := map[string]string{} // what stands on the page, and what it is here
	run := func(command []string) (out, stderr string, code int) {
		t.Helper()
		if len(command) != 6 || command[0] != "pgmirror" || command[1] != "sql" || command[2] != "--at" {
			t.Fatalf("command %q", command)
		}
		arguments := slices.Clone(command[1:])
		if here, ok := at[arguments[2]]; ok {
			arguments[2] = here
		}
		return m.Command(append(arguments, "--format", "csv")...)
	}
	// Five minutes ago there was neither a window nor a checkpoint.
	if out, stderr, code := run(commands[2]); commands[2][3] != "-5m" || code != 3 || !strings.Contains(stderr, "the oldest is") {
		t.Errorf("%q: exit code %d, %s%s", commands[2], code, out, stderr)
	}
	visible := func() string {
		t.Helper()
		m.SQL("from orders limit 0")
		return m.WaitReady().VisibleLSN
	}
	at["16/B374D848"] = visible()
	pg.Exec("insert into orders values (3, 30, 0)", "select pg_sleep(0.05)")
	at["2026-11-30 10:00:00+00"] = pg.QueryRow("select to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS.US') || '+00'")
	rfc3339 := strings.Replace(strings.TrimSuffix(at["2026-11-30 10:00:00+00"], "+00"), " ", "T", 1) + "Z"
	pg.Exec("select pg_sleep(0.05)", "begin; update orders set n = 11 where id = 1; insert into orders values (9, 9, 9); delete from orders where id = 9; commit")
	at["16/B374F000"] = visible()
	pg.Exec("delete from orders where id = 3", "alter table orders add late text default 'x'", "insert into orders values (4, 40, 0)")
	looksAt(pg, m) // columns that came and went, or a TRUNCATE and a change of columns, would cost a copy if they stood between two looks
	pg.Exec("truncate orders")
	looksAt(pg, m)
	pg.Exec("alter table orders drop gone", "insert into orders values (5, 50, 'y')", "insert into odd values (1, 'mine', 7)")
	visible()
	at["-5m"] = "-1ms"
	for i, want := range []string{"2", "3", "1"} {
		out, stderr, code := run(commands[i])
		if lines := strings.Fields(out); code != 0 || len(lines) != 2 || lines[1] != want {
			t.Errorf("%q: exit code %d, %q, want %s; %s", commands[i], code, out, want, stderr)
		}
		if i > 0 && !regexp.MustCompile(`[0-9A-F]+/[0-9A-F]+`).MatchString(stderr) {
			t.Errorf("%q: no LSN on standard error: %q", commands[i], stderr)
		}
	}
	expect(t, "at "+rfc3339, m.SQLWith("select count(*) from orders", "--at", rfc3339), "3")

	here := func(statement string) string {
		for there, lsn := range at {
			statement = strings.ReplaceAll(statement, there, lsn)
		}
		return statement
	}
	// An update is both at one LSN, and what came and went in one transaction is not there; columns are those at the end of the range.
	feed := strings.TrimSuffix(here(statements[0]), ";")
	expect(t, statements[0], m.SQL("select _change, id, n, dense_rank() over (order by _lsn) from ("+feed+") order by _lsn, _change, id"), "insert|3|30|1", "delete|1|10|2", "insert|1|11|2")
	expect(t, "its columns", m.SQL("select column_name from (describe "+feed+")"), "_change", "_lsn", "id", "n", "gone")
	expect(t, statements[1], m.SQL("select * from ("+strings.TrimSuffix(here(statements[1]), ";")+") order by 1"), "delete|5", "insert|4")
	whole := strings.TrimSuffix(here(statements[2]), ";")
	all := []string{"insert|3|30|x", "delete|1|10|x", "insert|1|11|x", "delete|3|30|x", "insert|4|40|x", "delete|1|11|x", "delete|2|20|x", "delete|4|40|x", "insert|5|50|y"}
	expect(t, statements[2], m.SQL("select _change, id, n, late from ("+whole+") order by _lsn, _change, id"), all...)
	expect(t, "from NULL", m.SQL("select _change, id, n, late from pgmirror_changes('orders', NULL, NULL) order by _lsn, _change, id"), all...)
	expect(t, "its columns", m.SQL("select column_name from (describe "+whole+")"), "_change", "_lsn", "id", "n", "late")
	// The largest _lsn of one feed begins the next, which has nothing of the first.
	last := m.SQL("select max(_lsn) from (" + feed + ")")[0][0]
	expect(t, "the rest", m.SQL("select _change, id, n, late from pgmirror_changes('orders', "+last+") order by _lsn, _change, id"), all[3:]...)
	expect(t, "up to it", m.SQL("select count(*) from pgmirror_changes('orders', NULL, "+last+")"), "3")
	expect(t, "columns of these names", m.SQL("select _change, _change_1, _lsn_1, _lsn > 7 from pgmirror_changes('odd')"), "insert|mine|7|true")
	refused := func(what, statement, says string, flags ...string) {
		t.Helper()
		if _, err := m.TrySQL(statement, flags...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", what, err, says)
		}
	}
	refused("a time above now", "from orders", "lies in the future", "--at", "2999-01-01")
	refused("below the window", "from pgmirror_changes('orders', '0/1')", "changes are known from")
	if _, stderr, code := m.Command("resync", "later"); code != 0 {
		t.Fatalf("resync: %s", stderr)
	}
	refused("over a copy", "from pgmirror_changes('later', '"+at["16/B374D848"]+"')", "copied")
	if out, _, _ := m.Command("status"); !strings.Contains(out, "window from") {
		t.Errorf("status: %s", out)
	}
	m.Checkpoint()
	restart(m)
	refused("after a restart", "from pgmirror_changes('orders', '"+at["16/B374D848"]+"')", "changes are known from")
	if code := m.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	refused("without a mirror", "from pgmirror_changes('orders')", "running")
	refused("a time above now, without a mirror", "from orders", "lies in the future", "--at", "2999-01-01")
}
