package e2e

import (
	"testing"

	"github.com/jackc/pglogrepl"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

const systemIdentifier = "select system_identifier from pg_control_system()"

// Another server in the place of the source, alike in everything but its system identifier (role, tables, publication and slot have
// the same names), is refused with reason and remedy: by a running mirror that finds it behind the same address and goes on
// answering, and at the start, with exit code 3. Nothing is lost and nothing is done to that server; back at the right one the
// mirror goes on.
func TestScenarioAnotherServer(t *testing.T) {
	t.Parallel()
	tables := []string{"create table t(id int primary key, v text)", "insert into t values (1, 'a')"}
	pg := server(t, tables)
	other := server(t, append(tables, "insert into t values (100, 'other')"), harness.Stranger())
	if pg.QueryRow(systemIdentifier) == other.QueryRow(systemIdentifier) {
		t.Fatal("both servers have the same system identifier")
	}
	// Its slot stands where the mirror's own does, or below: nothing but the identifier tells it apart.
	other.Exec("select pg_create_logical_replication_slot('pgmirror_postgres', 'pgoutput')")
	otherSlot := other.QueryRow(confirmedLSN)
	for !lsnAtLeast(pg, insertLSN, otherSlot) {
		pg.Exec("select pg_switch_wal()", "insert into t select max(id) + 1 from t")
	}
	wire := newAckWire(t, pg, func(pglogrepl.LSN) bool { return true })
	m := NewMirror(t, pg, "p")
	m.SetSource(wire.url())
	m.Start()
	m.WaitReady()
	pg.Exec("update t set v = 'b' where id = 1")
	answers(t, m, "select v from t where id = 1", "b")

	refused := func(reason string) {
		t.Helper()
		refusal(t, reason, "the source has system identifier "+other.QueryRow(systemIdentifier), "the mirror follows "+pg.QueryRow(systemIdentifier),
			"connect to the right server", "drop the mirror and run again")
		if got := other.QueryRow("select confirmed_flush_lsn, active from pg_replication_slots"); got != otherSlot+"|f" {
			t.Errorf("the other server's slot is at %s, was at %s", got, otherSlot)
		}
	}
	wire.lead(other)
	refused(m.WaitStatus("refused", func(s *mirror.Status) bool { return s.State == "refused" }).Reason)
	expect(t, "a query while refused", m.SQLWith("select v from t where id = 1"), "b")
	if code := m.Stop(); code != 0 {
		t.Fatalf("SIGTERM while refused: exit code %d", code)
	}
	for range 2 {
		said := len(m.Log())
		refusedRun(t, m)
		refused(m.Log()[said:])
		readableAlone(t, m, "select v from t where id = 1", "b")
	}

	wire.lead(pg)
	pg.Exec("insert into t values (1000, 'while away')", "delete from t where id = 1")
	m.Start()
	m.WaitReady()
	alike(t, pg, m, "select * from t order by id")
	m.Verify()
	copiedOnce(m)
}

// Another database of the same server is refused alike, also when it is asked for with the mirror's own slot.
func TestScenarioAnotherDatabase(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key)", "insert into t values (1)"})
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	mine := m.source
	pg.Exec("create database second")
	pg.ExecIn("second", "create table t(id int primary key)", "create publication p for all tables")
	m.SetSource(pg.URL(mirrorRole, "second"))
	said := len(m.Log())
	m.Start("--slot", "pgmirror_postgres")
	if code := m.WaitExit(); code != 3 {
		t.Fatalf("exit code %d", code)
	}
	refusal(t, m.Log()[said:], `the source database is "second", the mirror follows "postgres"`, "connect to the right server", "drop the mirror and run again")
	readableAlone(t, m, "select * from t", "1")
	pg.Exec("insert into t values (2)")
	m.SetSource(mine)
	m.Start()
	m.WaitReady()
	answers(t, m, "select * from t order by id", "1", "2")
}
