package e2e

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/jackc/pglogrepl"

	"pgmirror/test/harness"
	"pgmirror/test/interop"
)

// storedCut is the cut of the last Iceberg commit.
func storedCut(t testing.TB, m *Mirror) (lsn pglogrepl.LSN) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(m.Data(), "catalog.db")+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var stored int64
	if err := db.QueryRow("SELECT lsn FROM pgmirror_state").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	return pglogrepl.LSN(stored)
}

// newestSnapshot is the highest LSN of a snapshot of the only table.
func newestSnapshot(t testing.TB, m *Mirror) pglogrepl.LSN {
	t.Helper()
	tables, err := interop.Tables(m.Data())
	if err != nil || len(tables) != 1 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	snapshots, err := tables[0].Snapshots()
	if err != nil || len(snapshots) == 0 {
		t.Fatalf("snapshots %v, %v", snapshots, err)
	}
	return snapshots[len(snapshots)-1].LSN
}

// kill -9 exactly between an Iceberg commit and its acknowledgement, from the first commit after the copy on, under commits that
// their clients do not wait for: what is stored is ahead of the slot, and the next start goes on from there. It wipes nothing, copies
// nothing again, and loses and doubles nothing (S-W8, S-R1).
func TestScenarioKilledBeforeAcknowledgement(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{loadTable, "insert into t select g, 0, 'v' || g from generate_series(1, 5000) g"},
		harness.Setting("synchronous_commit", "off"), harness.Setting("wal_writer_delay", "200ms"), harness.KeepWAL())
	m := NewMirror(t, pg, "p", "--checkpoint-interval", "100ms")
	var floor atomic.Uint64 // what the source may hear of; the next higher position is held
	held := make(chan pglogrepl.LSN, 1)
	wire := newAckWire(t, pg, func(flushed pglogrepl.LSN) bool {
		if uint64(flushed) <= floor.Load() {
			return true
		}
		select {
		case held <- flushed:
		default: // said already, by this process that is about to die
		}
		return false
	})
	m.SetSource(wire.url())
	ctx, stop := context.WithCancel(context.Background())
	wait := load(ctx, pg, 2, 5000)

	const deaths = 12
	commits, round := 0, 0 // of rows; an idle moment stores a cut alone
	for ; commits < deaths; round++ {
		if round > 10*deaths {
			t.Fatalf("%d of %d deaths after a commit of rows", commits, round)
		}
		m.Start()
		var at pglogrepl.LSN
		within(t, "a position is acknowledged", func() bool {
			select {
			case at = <-held:
				return true
			default:
				return false
			}
		})
		m.Kill()
		select {
		case <-held: // said again while it was dying
		default:
		}
		stored := storedCut(t, m)
		confirmed := pg.QueryRow("select confirmed_flush_lsn from pg_replication_slots")
		if stored < at || !lsnAtLeast(pg, "select '"+at.String()+"'::pg_lsn - 1", confirmed) {
			t.Fatalf("killed before %s was acknowledged: stored is %s, confirmed is %s", at, stored, confirmed)
		}
		if newestSnapshot(t, m) == at {
			commits++
		}
		// Two deaths at the same position, then on to a later one.
		if round%2 == 1 {
			floor.Store(uint64(stored))
		}
	}
	t.Logf("%d deaths, %d of them after a commit of rows", round, commits)
	stop()
	wait()
	floor.Store(^uint64(0))
	m.Start()
	m.WaitReady()
	alike(t, pg, m, "select count(*), sum(id), sum(n), sum(length(v)) from t")
	m.Verify()
	copiedOnce(m)
	if code := m.Stop(); code != 0 {
		t.Fatalf("SIGTERM: exit code %d", code)
	}
	pg.Stop(harness.Fast)
	checkRetained(t, pg, m, []*driven{loadedTable})
}
