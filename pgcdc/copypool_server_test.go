package pgcdc_test

import (
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

// Copies of one snapshot use each other's connections, hold no lock when they are done, and leave no connection behind when the snapshot is closed.
func copiesShareConnections(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE a(id int PRIMARY KEY); INSERT INTO a VALUES (1); CREATE TABLE b(id int PRIMARY KEY); INSERT INTO b VALUES (1), (2)")
	r.publish("FOR TABLE a, b")
	// The sum of their process ids tells whether they are the same ones.
	sessions := func() int64 {
		return r.number("coalesce(sum(pid), 0) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle' AND application_name = 'pgmirror'")
	}
	tables := r.look().Tables
	r.Close() // the look's connection
	snapshot, release := snapshotOf(t, r.Source)
	rows, before := 0, int64(0)
	for round := range 3 {
		for i := range tables {
			if err := r.Copy(t.Context(), snapshot, &tables[i], func(pgcdc.Tuple) error { rows++; return nil }); err != nil {
				t.Fatal(err)
			}
			r.exec("ALTER TABLE " + tables[i].Name + " SET (fillfactor = 90)") // nobody holds its lock
		}
		if now := sessions(); now == 0 || round > 0 && now != before {
			t.Errorf("round %d: the connections are %d, before %d", round, now, before)
		} else {
			before = now
		}
	}
	if rows != 9 {
		t.Errorf("%d rows were copied", rows)
	}
	release()
	eventually(t, "the connections end", func() bool { return sessions() == 0 })
}
