package mirror

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

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

// TestWrittenFilesAreCounted: the rows that flushes and compaction write to files are counted apart, and each checkpoint that commits something.
func TestWrittenFilesAreCounted(t *testing.T) {
	w := newWorld(t, 11)
	w.faults, w.pressure, w.history = 0, false, 0
	w.start()
	defer w.end()
	w.m.compactRows = 1000
	tab := w.flushed(1, 4)
	flushed := w.exported("pgmirror_file_rows_total", "flush")
	if checkpoints := w.exported("pgmirror_checkpoints_total", ""); flushed < 4 || checkpoints < 4 || w.exported("pgmirror_files_written_total", "compaction") != 0 {
		t.Fatalf("4 files or more: %v rows, %v checkpoints, %v files compacted", flushed, checkpoints, w.exported("pgmirror_files_written_total", "compaction"))
	}
	if _, err := w.m.compact(t.Context(), tab, true); err != nil {
		t.Fatal(err)
	}
	rows, bytes := int64(0), int64(0)
	for _, s := range tab.files {
		if !s.file.published { // the new one: no commit has named it yet
			rows, bytes = rows+s.file.data.Rows, bytes+s.file.data.Bytes
		}
	}
	got := []float64{w.exported("pgmirror_files_written_total", "compaction"), w.exported("pgmirror_file_rows_total", "compaction"), w.exported("pgmirror_written_bytes_total", "compaction")}
	if want := []float64{1, float64(rows), float64(bytes)}; rows == 0 || !slices.Equal(got, want) {
		t.Errorf("files, rows and bytes of compaction are %v, want %v", got, want)
	}
	if again := w.exported("pgmirror_file_rows_total", "flush"); again != flushed {
		t.Errorf("compaction counts as %v flushed rows", again-flushed)
	}
}

// exported is a counter's value, with a label if it has one; −1 without such a metric.
func (w *world) exported(name, label string) float64 {
	w.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	w.check(registry.Register(w.m))
	families, err := registry.Gather()
	w.check(err)
	for _, f := range families {
		for _, x := range f.GetMetric() {
			if f.GetName() == name && (label == "" || x.GetLabel()[0].GetValue() == label) {
				return x.GetCounter().GetValue()
			}
		}
	}
	return -1
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
