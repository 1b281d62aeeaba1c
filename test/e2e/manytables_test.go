package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

var manyTables = flag.Int("many.tables", 200, "tables of TestManyTables")

// usage is what a process has taken of the machine: resident memory now and at its highest in bytes, open files, threads.
type usage struct {
	resident, highest int64
	files, threads    int
}

// usageOf reads it from /proc.
func usageOf(t testing.TB, pid int) (u usage) {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	text, err := os.ReadFile(filepath.Join(dir, "status"))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		number := func() int64 {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			must(t, err)
			return n
		}
		switch fields[0] {
		case "VmRSS:":
			u.resident = number() << 10
		case "VmHWM:":
			u.highest = number() << 10
		case "Threads:":
			u.threads = int(number())
		}
	}
	open, err := os.ReadDir(filepath.Join(dir, "fd"))
	must(t, err)
	u.files = len(open)
	return u
}

// A mirror of very many small tables starts, copies them, follows writes to all of them in one transaction and in many, makes checkpoints and
// starts again, and neither its open files nor its threads grow with their number.
func TestManyTables(t *testing.T) {
	pg := harness.StartPostgres(t, harness.Setting("max_locks_per_transaction", "1024"))
	pg.CreateMirrorRole(mirrorRole, "postgres")
	each := func(statement string) string {
		return fmt.Sprintf(`do $$ begin for i in 1..%d loop execute format('%s', i); end loop; end $$`, *manyTables, statement)
	}
	pg.Exec("begin; "+each("create table t%s (id int primary key, n int, note text)")+"; commit", each("insert into t%s select g, g, ''row'' from generate_series(1, 10) g"),
		"create publication p for all tables")
	m := NewMirror(t, pg, "p", "--checkpoint-interval", "1h")
	var before usage
	step := func(what string, do func()) {
		t.Helper()
		began := time.Now()
		do()
		before = usageOf(t, m.run.PID())
		t.Logf("%-28s %8s  resident %4d MiB (highest %4d)  %3d files  %2d threads", what, time.Since(began).Round(10*time.Millisecond),
			before.resident>>20, before.highest>>20, before.files, before.threads)
		if before.files > 200 || before.threads > 100 {
			t.Errorf("%s: %d open files and %d threads", what, before.files, before.threads)
		}
	}
	step("first copy", func() { m.Start(); m.WaitReady() })
	step("a write to each, one commit", func() { pg.Exec(each("insert into t%s values (11, 1, ''new'')")); caughtUp(pg, m) })
	step("a write to each, own commits", func() {
		pg.Exec(strings.ReplaceAll(each("update t%s set n = 2 where id < 4"), "; end loop", "; commit; end loop"))
		caughtUp(pg, m)
	})
	step("checkpoint of all", m.Checkpoint)
	step("checkpoint of one", func() { pg.Exec("update t1 set n = 3 where id = 4"); caughtUp(pg, m); m.Checkpoint() })
	step("status", func() {
		if s, err := m.Status(); err != nil || len(s.Tables) != *manyTables {
			t.Fatal(len(s.Tables), err)
		}
	})
	step("a query", func() { answers(t, m, "select count(*), sum(n) from t7", "11|56") })
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	step("start again", func() { m.Start(); m.WaitReady() })
	step("delete from each", func() { pg.Exec(each("delete from t%s where id = 1")); caughtUp(pg, m) })
	step("checkpoint of all", m.Checkpoint)
	step("a query", func() { answers(t, m, "select count(*), sum(n) from t7", "10|54") })
	m.WaitStatus("all are in files", func(s *mirror.Status) bool {
		for _, table := range s.Tables {
			if table.Rows != 10 || table.MemoryRows != 0 {
				return false
			}
		}
		return true
	})
}
