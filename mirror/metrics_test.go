package mirror

import (
	"testing"

	"pgmirror/readstate"
)

// TestMetricsOfALostSource: what only the source knows is left out while it is not connected, and there when it is.
func TestMetricsOfALostSource(t *testing.T) {
	b := newBank(9)
	m := b.begin(t)
	opened(t, m)
	until(t, m, func(st *Status) bool { return st.SlotWALStatus != "" })
	for _, state := range []string{"streaming", "reconnecting", "refused", "streaming"} {
		m.setState(state, "planted")
		for _, name := range []string{"pgmirror_lag_bytes", "pgmirror_slot_retained_bytes"} {
			if there := metric(t, m, name) >= 0; there != (state == "streaming") {
				t.Errorf("%s: %s is there: %v", state, name, there)
			}
		}
		if metric(t, m, "pgmirror_lag_seconds") < 0 {
			t.Errorf("%s: no lag in seconds", state)
		}
	}
}

// What the server of read states counts is in the metrics.
func TestMetricsOfSettledReadStates(t *testing.T) {
	b := newBank(9)
	m := b.mirror(t)
	m.ServedBy(func() readstate.Stats { return readstate.Stats{Settled: 3, SettledBytes: 4096, Ended: 2} })
	b.going(t, m)
	opened(t, m)
	for name, want := range map[string]float64{"pgmirror_read_states_settled": 3, "pgmirror_read_states_settled_bytes": 4096} {
		if got := metric(t, m, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
