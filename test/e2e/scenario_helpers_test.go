package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// scene starts a server, runs the statements as its superuser, and mirrors every table of the database postgres through the
// publication p. args are flags of `run`.
func scene(t testing.TB, statements []string, args ...string) (*harness.Postgres, *Mirror) {
	t.Helper()
	pg := server(t, statements)
	m := NewMirror(t, pg, "p", args...)
	m.Start()
	m.WaitReady()
	return pg, m
}

// server starts a server with tables, the mirror's role and a publication p of every table.
func server(t testing.TB, statements []string, options ...harness.Option) *harness.Postgres {
	t.Helper()
	pg := harness.StartPostgres(t, options...)
	pg.CreateMirrorRole(mirrorRole, "postgres")
	pg.Exec(statements...)
	pg.Exec("create publication p for all tables")
	return pg
}

// restart kills the process, if it runs, and starts it again.
func restart(m *Mirror, args ...string) {
	m.t.Helper()
	m.Kill()
	m.Start(args...)
	m.WaitReady()
}

// alike runs one query on both sides and compares the answers row by row.
func alike(t testing.TB, pg *harness.Postgres, m *Mirror, query string) {
	t.Helper()
	want, err := pg.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	caughtUp(pg, m)
	got := m.SQL(query)
	if len(got) == 0 && len(want) == 0 {
		return
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n%s, want\n%s", query, show(got), show(want))
	}
}

// copiedOnce says that no start after the first copy has copied again.
func copiedOnce(m *Mirror) {
	m.t.Helper()
	if got := strings.Count(m.Log(), "msg=copied"); got != 1 {
		m.t.Errorf("copied %d times", got)
	}
}

// caughtUp waits, however far behind, until the mirror shows what the source has by now.
func caughtUp(pg *harness.Postgres, m *Mirror) {
	m.t.Helper()
	at, err := pglogrepl.ParseLSN(pg.QueryRow("select pg_current_wal_flush_lsn()"))
	if err != nil {
		m.t.Fatal(err)
	}
	m.WaitStatus("everything is visible", func(s *mirror.Status) bool {
		visible, err := pglogrepl.ParseLSN(s.VisibleLSN)
		return err == nil && visible >= at
	})
}

// answers compares the answer of the mirror with rows written as "a|b".
func answers(t testing.TB, m *Mirror, query string, want ...string) {
	t.Helper()
	expect(t, query, m.SQL(query), want...)
}

func expect(t testing.TB, what string, got [][]string, want ...string) {
	t.Helper()
	if show(got) != strings.Join(want, "\n") {
		t.Fatalf("%s:\n%s\nwant\n%s", what, show(got), strings.Join(want, "\n"))
	}
}

func show(rows [][]string) string {
	lines := make([]string, len(rows))
	for i, row := range rows {
		lines[i] = strings.Join(row, "|")
	}
	return strings.Join(lines, "\n")
}

// within polls until ok and fails the test when patience ends.
func within(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// refusedTable waits until a table has failed for the given reason and checks everything that is promised of it: status has the
// reason and a remedy, a query gets the reason, its last good content (lastGood, the answer of `select * from table order by
// 1`; none when it never had one) can still be read, and the mirror goes on.
func refusedTable(t testing.TB, m *Mirror, table, reason string, lastGood ...string) mirror.TableStatus {
	t.Helper()
	status := m.WaitStatus(table+" has failed", func(s *mirror.Status) bool {
		return Table(t, s, table).State == "failed" || Table(t, s, table).State == "gone"
	})
	f := Table(t, status, table)
	if !strings.Contains(f.Error, reason) || f.Remedy == "" || f.ErrorLSN == "" {
		t.Fatalf("%s failed with %+v, want the reason %q and a remedy", table, f, reason)
	}
	if status.State != "streaming" {
		t.Fatalf("the mirror is %s (%s) because %s failed", status.State, status.Reason, table)
	}
	schema, name, _ := strings.Cut(table, ".")
	quoted := harness.Ident(schema) + "." + harness.Ident(name)
	if _, err := m.TrySQL("select * from " + quoted); err == nil || !strings.Contains(err.Error(), f.Error) || !strings.Contains(err.Error(), f.Remedy) || !strings.Contains(err.Error(), "exit code 1") {
		t.Fatalf("a query on %s: %v, want %q and %q", table, err, f.Error, f.Remedy)
	}
	if lastGood != nil {
		rows, err := m.TrySQL("select * from "+quoted+" order by 1", "--at", f.DurableLSN)
		if err != nil {
			t.Fatalf("read %s at its last good LSN: %v", table, err)
		}
		expect(t, table+" at its last good LSN", rows, lastGood...)
	}
	return f
}

// httpAddress finds a free port for --listen.
func httpAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// lsnAtLeast says whether the source's answer to an expression of type pg_lsn is at or above lsn.
func lsnAtLeast(pg *harness.Postgres, expression, lsn string) bool {
	return pg.QueryRow(fmt.Sprintf("select coalesce((%s) >= '%s'::pg_lsn, false)", expression, lsn)) == "t"
}

const (
	confirmedLSN = "select confirmed_flush_lsn from pg_replication_slots where slot_name = 'pgmirror_postgres'"
	insertLSN    = "select pg_current_wal_insert_lsn()"
)

func itoa(n int) string { return strconv.Itoa(n) }

func copyTree(from, to string) ([]byte, error) {
	return exec.Command("cp", "-a", from, to).CombinedOutput()
}

func httpGet(t testing.TB, url string) (code int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
