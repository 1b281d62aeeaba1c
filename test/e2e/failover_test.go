package e2e

import (
	"strings"
	"testing"

	"pgmirror/test/harness"
)

// After a failover the mirror goes on from the slot that the standby had synchronized, and copies nothing again (S-W9): what was written before, what was
// on its way, and what the new primary writes are there.
func TestScenarioFailover(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{"create table t(id int primary key, v text)", "insert into t select i, 'copied' from generate_series(1, 100) i"}, harness.KeepWAL())
	pg.Needs(17, "failover slots")
	standby := harness.StartStandby(t, pg)
	pg.Exec("alter system set synchronized_standby_slots = 'standby'", "select pg_reload_conf()")
	m := StartMirror(t, pg, "p", "--checkpoint-interval", "200ms")
	const slot = "select coalesce(max(concat_ws(' ', failover, synced, temporary)), '') from pg_replication_slots where slot_name = 'pgmirror_postgres'"
	expect(t, "the slot on the primary", [][]string{{pg.QueryRow(slot)}}, "t f f")
	pg.Exec("insert into t select i, 'streamed' from generate_series(101, 200) i", "delete from t where id = 1")
	alike(t, pg, m, "select * from t order by id")
	m.Checkpoint()
	within(t, "the slot is synchronized", func() bool {
		pg.Exec("select pg_log_standby_snapshot()")
		standby.Query("select pg_sync_replication_slots()")
		return standby.QueryRow(slot) == "t t f"
	})
	pg.Exec("update t set v = 'not checkpointed' where id = 2")
	alike(t, pg, m, "select * from t order by id") // the server sends it only once the standby has it
	pg.Stop(harness.Immediate)
	standby.Promote()
	m.Kill()
	m.SetSource(standby.URL(mirrorRole, "postgres"))
	m.Start()
	m.WaitReady()
	standby.Exec("insert into t values (300, 'after')", "delete from t where id = 3")
	alike(t, standby.Postgres, m, "select * from t order by id")
	answers(t, m, "select v from t where id in (2, 300) order by id", "not checkpointed", "after")
	m.Checkpoint()
	if n := strings.Count(m.Log(), "msg=copied"); n != 1 {
		t.Errorf("copied %d times", n)
	}
	m.Verify()
}
