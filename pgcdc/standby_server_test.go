package pgcdc_test

import (
	"slices"
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

// A standby can be looked at and waited for; its promotion shows as a timeline with its history.
func TestStandby(t *testing.T) {
	p := harness.StartPostgres(t)
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	r.publish("FOR TABLE t")
	p.Stop(harness.Fast)
	p.WriteFile("standby.signal", nil)
	p.Start()
	replayed := parseLSN(t, p.QueryRow("SELECT pg_last_wal_replay_lsn()"))
	if lsn, err := r.WaitPoint(t.Context()); err != nil || lsn != replayed {
		t.Errorf("wait point %s, %v; replayed %s", lsn, err, replayed)
	}
	if catalog := r.look(); catalog.LSN != replayed || catalog.CheckedLSN != replayed || len(catalog.Tables) != 1 {
		t.Errorf("look at %s with %d tables, replayed %s", catalog.LSN, len(catalog.Tables), replayed)
	}
	p.Exec("SELECT pg_promote()")
	var id pgcdc.Identification
	eventually(t, "the new timeline", func() bool {
		var err error
		if id, err = r.Identify(t.Context()); err != nil {
			t.Fatal(err)
		}
		return id.Timeline == 2
	})
	if want := []pgcdc.TimelineSwitch{{Timeline: 1, End: replayed}}; !slices.Equal(id.History, want) {
		t.Errorf("history %v, want %v", id.History, want)
	}
}
