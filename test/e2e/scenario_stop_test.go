package e2e

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// stops is how often TestScenarioStopped stops a mirror; the first stopsInCopy of them come while the copy of its last table is held back.
const (
	stops       = 100
	stopsInCopy = 30
)

// SIGTERM at any point of the copy and of the stream, under writes, ends with exit code 0; the next start goes on from there: a copy
// that was cut short begins again, one that was done never does, and nothing is lost or doubled (S-R7).
func TestScenarioStopped(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{largeTable, loadTable, "insert into t select g, 0, 'v' || g from generate_series(1, 2000) g"}, harness.KeepWAL())
	m := NewMirror(t, pg, "p", "--checkpoint-interval", "100ms", "--copy-workers", "1")
	gate := newCopyGate(t, pg, "t") // the smaller table is copied last
	m.SetSource(gate.url())
	ctx, stop := context.WithCancel(context.Background())
	wait := load(ctx, pg, 1, 2000)
	r := rand.New(rand.NewPCG(3, 3))
	begun := time.Now()
	phases := map[string]int{}
	for i := range stops {
		said := len(m.Log())
		m.Start()
		within(t, "pgmirror hears signals", func() bool { return len(m.Log()) > said })
		// Any moment is as good as another: the pause only varies where the signal falls. A slow machine may take longer to
		// connect than the pause, so every other time what is to be stopped is waited for.
		pause := 150
		if i < stopsInCopy {
			if i%2 == 0 {
				m.WaitStatus("copying", func(s *mirror.Status) bool { return s.State == "copying" })
			}
		} else {
			pause = 250
			if i == stopsInCopy {
				gate.open()
			}
			within(t, "the copy is done", func() bool { return strings.Contains(m.Log(), "msg=copied") })
			if i%2 == 0 {
				m.WaitReady()
			}
		}
		time.Sleep(time.Duration(r.IntN(pause)) * time.Millisecond)
		state := "starting"
		if status, err := m.Status(); err == nil {
			state = status.State
		}
		if code := m.Stop(); code != 0 {
			t.Fatalf("SIGTERM %d: exit code %d", i+1, code)
		}
		phases[state]++
	}
	t.Logf("%d stops in %s: %v", stops, time.Since(begun).Round(time.Millisecond), phases)
	if phases["copying"] < stopsInCopy/2 || phases["streaming"] < (stops-stopsInCopy)/2 {
		t.Errorf("the stops missed what they were to hit: %v", phases)
	}
	m.Start()
	m.WaitReady()
	stop()
	wait()
	const sums = "select count(*), sum(id), sum(n), sum(length(v)) from t"
	alike(t, pg, m, sums)
	alike(t, pg, m, "select count(*), sum(id) from a_large")
	m.Verify()
	copiedOnce(m)
	if got := pg.QueryRow("select string_agg(slot_name, ',') from pg_replication_slots"); got != "pgmirror_postgres" {
		t.Errorf("slots %s", got)
	}
	// What was visible at a stop is durable: without a run the answer is the source's.
	if code := m.Stop(); code != 0 {
		t.Fatalf("SIGTERM: exit code %d", code)
	}
	readableAlone(t, m, sums, pg.QueryRow(sums))
	pg.Stop(harness.Fast)
	checkRetained(t, pg, m, []*driven{loadedTable})
}
