package harness

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// A replica holds a commit from the LSN on at which the commit's record ends: not below it, and nothing that comes after.
// Kills and restarts of the source, and transactions that are open at that point, change nothing of it.
func TestReplicaStopsExactly(t *testing.T) {
	p := StartPostgres(t, KeepWAL(), Setting("autovacuum", "off"))
	position := func() pglogrepl.LSN {
		t.Helper()
		lsn, err := pglogrepl.ParseLSN(p.QueryRow("select pg_current_wal_insert_lsn()"))
		if err != nil {
			t.Fatal(err)
		}
		return lsn
	}
	p.Exec("create table t(id int)", "create table u(id int)", "insert into u values (7)")
	open := p.Open("postgres", "postgres")
	var ends, before []pglogrepl.LSN
	for i := range 5 {
		switch i {
		case 2:
			open.Exec("begin", "insert into t values (100)", "truncate u")
		case 3:
			open.Close()
			p.Kill()
			p.Start()
		case 4:
			p.Exec("select pg_switch_wal()")
		}
		p.Exec("checkpoint") // so that the insert has nothing to clean up
		before = append(before, position())
		p.Exec("insert into t values (1)")
		ends = append(ends, position())
	}
	p.Exec("insert into t values (1)")
	p.Stop(Fast)

	r := StartReplica(t, p)
	for i, end := range ends {
		r.Advance(before[i])
		if err := r.provide(end - 8); err != nil { // records end at multiples of 8; this is all of the commit's but its end
			t.Fatal(err)
		}
		r.QueryRow("select pg_reload_conf()")
		for left := 1; left > 0; time.Sleep(time.Millisecond) {
			entries, err := os.ReadDir(r.archive)
			if err != nil {
				t.Fatal(err)
			}
			left = len(entries)
		}
		for r.QueryRow("select wait_event from pg_stat_activity where backend_type = 'startup'") != "RecoveryRetrieveRetryInterval" {
			time.Sleep(time.Millisecond)
		}
		if got := r.QueryRow("select count(*) from t"); got != strconv.Itoa(i) {
			t.Errorf("%s rows just below the end of commit %d", got, i+1)
		}
		r.Advance(end)
		if got := r.QueryRow("select count(*) from t"); got != strconv.Itoa(i+1) {
			t.Errorf("%s rows at the end of commit %d", got, i+1)
		}
	}

	locked := StartReplica(t, p)
	locked.Advance(ends[2])
	if got := locked.QueryRow("select count(*) from pg_locks where mode = 'AccessExclusiveLock' and relation = 'u'::regclass"); got != "1" {
		t.Fatalf("%s locks of the open truncate", got)
	}
	locked.Promote()
	if got := locked.QueryRow("select (select count(*) from t), (select count(*) from u)"); got != "3|1" {
		t.Errorf("promoted at the end of commit 3: %s rows", got)
	}
}
