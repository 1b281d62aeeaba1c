package e2e

import (
	"bytes"
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

// usage is what a process has taken of the machine: resident memory now and at its highest in bytes, open files, mappings, threads, and the time of
// processors since its start.
type usage struct {
	resident, highest    int64
	files, maps, threads int
	processor            time.Duration
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
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	must(t, err)
	u.maps = bytes.Count(maps, []byte("\n"))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	must(t, err)
	const tick = time.Second / 100                                            // sysconf(_SC_CLK_TCK) on every Linux
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third on, proc_pid_stat(5)
	for _, field := range fields[14-3 : 16-3] {
		n, err := strconv.ParseInt(field, 10, 64)
		must(t, err)
		u.processor += time.Duration(n) * tick
	}
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
		now := usageOf(t, m.run.PID())
		if now.processor < before.processor { // another process
			before.processor = 0
		}
		t.Logf("%-28s %8s, processor %8s  resident %4d MiB (highest %4d)  %3d files  %5d maps  %2d threads", what, time.Since(began).Round(10*time.Millisecond),
			now.processor-before.processor, now.resident>>20, now.highest>>20, now.files, now.maps, now.threads)
		if before = now; now.files > 200 || now.threads > 100 {
			t.Errorf("%s: %d open files and %d threads", what, now.files, now.threads)
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
