package e2e

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"pgmirror/mirror"
	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

// load writes to table t(id, n, v) over some connections until its context ends: inserts, updates, deletes and key changes of rows
// old and new.
func load(ctx context.Context, pg *harness.Postgres, connections, rows int) (wait func()) {
	var group sync.WaitGroup
	for c := range connections {
		group.Go(func() {
			s := pg.Open("postgres", "postgres")
			r := rand.New(rand.NewPCG(1, uint64(c)))
			next := 10_000_000 * (c + 1)
			for ctx.Err() == nil {
				id := itoa(1 + r.IntN(rows))
				var change string
				switch r.IntN(5) {
				case 0:
					next++
					change = "insert into t values (" + itoa(next) + ", 1, 'new')"
				case 1:
					change = "delete from t where id = " + id
				case 2:
					next++
					change = "update t set id = " + itoa(next) + " where id = " + id
				default:
					change = "update t set n = n + 1, v = v || 'x' where id between " + id + " and " + id + " + 20"
				}
				s.Query(change)              // a conflict with another connection is no fault
				time.Sleep(time.Millisecond) // a rate that the smallest machine follows
			}
		})
	}
	return group.Wait
}

const loadTable = "create table t(id bigint primary key, n int, v text)"

// loadedTable is loadTable as checkRetained reads it.
var loadedTable = &driven{name: "t", columns: []column{{"id", "bigint", kind(pgcdc.KindInt8), nil}, {"n", "int", kind(pgcdc.KindInt4), nil}, {"v", "text", kind(pgcdc.KindText), nil}}}

// kill -9 at any point under inserts, updates and deletes loses and doubles nothing (S-R1).
func TestScenarioKilledUnderLoad(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{loadTable, "insert into t select g, 0, 'v' || g from generate_series(1, 5000) g"}, "--checkpoint-interval", "100ms")
	ctx, stop := context.WithCancel(context.Background())
	wait := load(ctx, pg, 1, 5000)
	r := rand.New(rand.NewPCG(2, 2))
	for range 5 {
		// Any moment is as good as another: the pause only varies where the kill falls.
		time.Sleep(time.Duration(r.IntN(700)) * time.Millisecond)
		restart(m)
	}
	stop()
	wait()
	m.Verify()
	alike(t, pg, m, "select count(*), sum(id), sum(n), sum(length(v)) from t")
}

// copying starts a mirror's first copy and returns when its slot, and with it its snapshot, is there, and the first table's copy was asked for:
// the source hears of that when the gate is opened.
func copying(m *Mirror, gate *copyGate) {
	m.t.Helper()
	m.SetSource(gate.url())
	m.Start()
	within(m.t, "the copy begins", gate.isReached)
}

const largeTable = "create table a_large as select g id, repeat('v', 200) v from generate_series(1, 150000) g"

// A slot is made only when every older transaction has ended: the log names the session that it waits for, queries say that
// nothing can be read yet, and SIGTERM is followed (S-W13).
func TestScenarioSlotWaits(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{"create table u(id int primary key)"})
	s := pg.Open("postgres", "postgres")
	s.Exec("begin", "insert into u values (1)")
	pid, err := s.Query("select pg_backend_pid()")
	if err != nil {
		t.Fatal(err)
	}
	m := NewMirror(t, pg, "p")
	m.Start()
	within(t, "the log names the session", func() bool { return strings.Contains(m.Log(), "blocking_pids="+pid[0][0]) })
	if _, err := m.TrySQL("select count(*) from u"); err == nil || !strings.Contains(err.Error(), "nothing can be read yet: copying") {
		t.Fatalf("a query before the first copy: %v", err)
	}
	if code := m.Stop(); code != 0 {
		t.Fatalf("SIGTERM: exit code %d", code)
	}
	m.Start()
	m.WaitStatus("copying", func(s *mirror.Status) bool { return s.State == "copying" })
	s.Exec("commit")
	m.WaitReady()
	answers(t, m, "select * from u", "1")
}

// A copy that was cut short, by a kill or by SIGTERM, begins again: it is never taken for done (S-R4, S-R7). The slot that it made
// goes with it.
func TestScenarioCopyCut(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{largeTable, "create table u(id int primary key)", "insert into u select generate_series(1, 1000)"})
	m := NewMirror(t, pg, "p", "--copy-workers", "1")
	for i, table := range []string{"a_large", "a_large", "u", "u"} {
		gate := newCopyGate(t, pg, table)
		copying(m, gate)
		if i%2 == 0 {
			m.Kill()
		} else if code := m.Stop(); code != 0 {
			t.Fatalf("SIGTERM during the copy: exit code %d", code)
		}
		gate.open()
		if strings.Contains(m.Log(), "msg=copied") {
			t.Fatal("the copy was done before it could be cut")
		}
		pg.Exec("insert into u values (" + itoa(10000+i) + ")")
		if i < 2 {
			pg.Exec("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
		}
	}
	m.SetSource(pg.URL(mirrorRole, "postgres"))
	m.Start()
	within(t, "the copy is done", func() bool { return strings.Contains(m.Log(), "msg=copied") })
	m.Kill() // right after it
	restart(m)
	alike(t, pg, m, "select count(*), sum(id), (select count(*) from u) from a_large")
	m.Verify()
	if got := pg.QueryRow("select string_agg(slot_name, ',') from pg_replication_slots"); got != "pgmirror_postgres" {
		t.Fatalf("slots %s", got)
	}
}

// Inserts, updates, deletes and key changes of rows that are being copied: the copy and the stream join without a gap (S-R5).
func TestScenarioWritesDuringCopy(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{loadTable, "insert into t select g, 0, repeat('v', 50) from generate_series(1, 200000) g"})
	ctx, stop := context.WithCancel(context.Background())
	wait := load(ctx, pg, 2, 200000)
	m := StartMirror(t, pg, "p")
	stop()
	wait()
	alike(t, pg, m, "select count(*), sum(id), sum(n), sum(length(v)) from t")
	m.Verify()
	m.Checkpoint()
	m.Verify()
}

// After a restart the first thing to come is a change, with no Relation message that the mirror has seen before (S-R6). Stops
// and starts keep the slot (S-R8).
func TestScenarioRestarts(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{loadTable, "insert into t values (1, 0, 'a'), (2, 0, 'b')"})
	for i := range 6 {
		if i%2 == 0 {
			if code := m.Stop(); code != 0 {
				t.Fatalf("SIGTERM: exit code %d", code)
			}
		} else {
			m.Kill()
		}
		if got := pg.QueryRow("select count(*) from pg_replication_slots where not active"); i%2 == 0 && got != "1" {
			t.Fatalf("%s slots after a stop", got)
		}
		pg.Exec("update t set n = n + 1 where id = 1", "insert into t values ("+itoa(10+i)+", 0, 'c')", "delete from t where id = "+itoa(9+i))
		restart(m)
		alike(t, pg, m, "select * from t order by id")
	}
	m.Verify()
}
