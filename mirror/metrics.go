package mirror

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	descWatermark    = prometheus.NewDesc("pgmirror_watermark_lsn_bytes", "LSN up to which everything is received, applied, visible, durable or acknowledged, as a byte position.", []string{"watermark"}, nil)
	descFreshness    = prometheus.NewDesc("pgmirror_freshness_seconds", "Time from the newest commit on the source to its being visible.", nil, nil)
	descLagBytes     = prometheus.NewDesc("pgmirror_lag_bytes", "WAL from what queries see to the end of the source's, as last heard.", nil, nil)
	descLagSeconds   = prometheus.NewDesc("pgmirror_lag_seconds", "Queries see the source as it was that long ago.", nil, nil)
	descSlot         = prometheus.NewDesc("pgmirror_slot_retained_bytes", "WAL that the source keeps for the slot.", nil, nil)
	descSlotLimit    = prometheus.NewDesc("pgmirror_slot_limit_bytes", "The setting max_slot_wal; 0 is no limit.", nil, nil)
	descDiskFree     = prometheus.NewDesc("pgmirror_disk_free_bytes", "Free on the data directory's disk.", nil, nil)
	descDiskLeast    = prometheus.NewDesc("pgmirror_disk_least_bytes", "What must stay free there, or the mirror is paused.", nil, nil)
	descPaused       = prometheus.NewDesc("pgmirror_paused", "1 while nothing is taken in for want of disk space.", nil, nil)
	descRows         = prometheus.NewDesc("pgmirror_rows_total", "Row changes applied.", []string{"operation"}, nil)
	descLookups      = prometheus.NewDesc("pgmirror_lookups_total", "Old rows looked for by their key.", nil, nil)
	descCandidates   = prometheus.NewDesc("pgmirror_lookup_candidates_total", "Rows with the right hash that lookups looked at.", nil, nil)
	descCommits      = prometheus.NewDesc("pgmirror_commits_total", "Source transactions applied.", nil, nil)
	descCheckpoints  = prometheus.NewDesc("pgmirror_checkpoints_total", "Checkpoints that committed something.", nil, nil)
	descMemory       = prometheus.NewDesc("pgmirror_memory_bytes", "Memory by kind.", []string{"kind"}, nil)
	descCheckpoint   = prometheus.NewDesc("pgmirror_checkpoint_seconds", "How long the last checkpoint took.", nil, nil)
	descReaders      = prometheus.NewDesc("pgmirror_read_states", "Open read states.", nil, nil)
	descTables       = prometheus.NewDesc("pgmirror_tables", "Tables by state.", []string{"state"}, nil)
	descTableRows    = prometheus.NewDesc("pgmirror_table_rows", "Rows of a table.", []string{"relation"}, nil)
	descTableFiles   = prometheus.NewDesc("pgmirror_table_files", "Live data files of a table.", []string{"relation"}, nil)
	descTableVectors = prometheus.NewDesc("pgmirror_table_vectors", "Live data files of a table with a deletion vector.", []string{"relation"}, nil)
	descTableDead    = prometheus.NewDesc("pgmirror_table_dead_rows", "Deleted rows of a table that its files and batches still hold.", []string{"relation"}, nil)
	descFailed       = prometheus.NewDesc("pgmirror_table_failed", "1 when the table has failed.", []string{"relation"}, nil)
	descGone         = prometheus.NewDesc("pgmirror_table_gone", "1 when the source does not publish the table any more.", []string{"relation"}, nil)
	descConnected    = prometheus.NewDesc("pgmirror_source_connected", "1 while the source is streaming.", nil, nil)
	descLongest      = prometheus.NewDesc("pgmirror_applier_turn_longest_seconds", "The longest such turn since the start.", nil, nil)
	descChanged      = prometheus.NewDesc("pgmirror_changes_bytes_total", "Row changes applied, as the source sent them.", nil, nil)
	descWritten      = prometheus.NewDesc("pgmirror_written_bytes_total", "Written to files, by what for.", []string{"kind"}, nil)
	descSettled      = prometheus.NewDesc("pgmirror_read_states_settled", "Open read states that are older than read_state_limit and in files now.", nil, nil)
	descSettledB     = prometheus.NewDesc("pgmirror_read_states_settled_bytes", "Those files.", nil, nil)
	descEnded        = prometheus.NewDesc("pgmirror_read_states_ended_total", "Read states that were ended because the settled ones held more than read_state_bytes.", nil, nil)
)

// Describe is prometheus.Collector's.
func (m *Mirror) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descWatermark, descLagBytes, descLagSeconds, descFreshness, descSlot, descRows, descLookups, descCandidates, descCommits, descMemory, descCheckpoint,
		descReaders, descTables, descTableRows, descTableFiles, descFailed, descGone, descConnected, descSlotLimit, descDiskFree, descDiskLeast, descPaused, descCheckpoints, descFilesWritten, descFileRows,
		descTableVectors, descTableDead, descLongest, descSettled, descSettledB, descEnded, descChanged, descWritten, newStalls().turns.Desc()} {
		ch <- d
	}
}

// Collect is prometheus.Collector's.
func (m *Mirror) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	counter(descRows, m.counts.inserts.Load(), "insert")
	counter(descRows, m.counts.updates.Load(), "update")
	counter(descRows, m.counts.deletes.Load(), "delete")
	counter(descRows, m.counts.truncates.Load(), "truncate")
	counter(descLookups, m.lookups.lookups.Load())
	counter(descCandidates, m.lookups.candidates.Load())
	counter(descCommits, m.counts.commits.Load())
	counter(descCheckpoints, m.counts.checkpoints.Load())
	m.counts.collectFiles(counter)
	gauge(descLongest, time.Duration(m.stalls.longest.Load()).Seconds())
	m.stalls.turns.Collect(ch)
	w := m.written.status(m)
	counter(descChanged, w.Changes)
	for kind, bytes := range map[string]int64{"flush": w.Flush, "compaction": w.Compaction, "copy": w.Copy, "vectors": w.Vectors, "metadata": w.Metadata, "index": w.Index} {
		counter(descWritten, bytes, kind)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	st, err := m.status(ctx)
	if err != nil {
		return
	}
	for name, text := range map[string]string{"received": st.ReceivedLSN, "applied": st.AppliedLSN, "visible": st.VisibleLSN,
		"durable": st.DurableLSN, "acknowledged": st.AcknowledgedLSN} {
		if lsn, err := pglogrepl.ParseLSN(text); err == nil {
			gauge(descWatermark, float64(lsn), name)
		}
	}
	gauge(descSlotLimit, float64(m.cfg.MaxSlotWAL))
	if free, least, ok := m.cfg.Disk.status(); ok {
		gauge(descDiskFree, float64(free))
		gauge(descDiskLeast, float64(least))
	}
	paused := 0.0
	if m.cfg.Disk.Paused() != "" {
		paused = 1
	}
	gauge(descPaused, paused)
	connected := 0.0
	if m.shared.get().state == "streaming" {
		connected = 1
	}
	gauge(descConnected, connected)
	if connected == 1 { // else nobody knows, and 0 would say that all is well
		gauge(descLagBytes, float64(st.LagBytes))
	}
	gauge(descLagSeconds, st.LagSeconds)
	gauge(descFreshness, st.FreshnessSeconds)
	if st.SlotWALStatus != "" {
		gauge(descSlot, float64(st.SlotRetainedBytes))
	}
	gauge(descMemory, float64(st.Memory.Batches), "batches")
	gauge(descMemory, float64(st.Memory.MemIndex), "mem_index")
	gauge(descMemory, float64(st.Memory.FileIndex), "file_index")
	gauge(descMemory, float64(st.Memory.Visibility), "visibility")
	gauge(descMemory, float64(st.Memory.Times), "commit_times")
	gauge(descMemory, float64(st.Memory.Pinned), "pinned")
	gauge(descMemory, float64(st.Memory.Copies), "copy")
	gauge(descMemory, float64(st.Memory.Staged), "staged")
	gauge(descCheckpoint, st.CheckpointSeconds)
	gauge(descReaders, float64(st.Readers))
	gauge(descSettled, float64(st.SettledReaders))
	gauge(descSettledB, float64(st.SettledBytes))
	counter(descEnded, st.EndedReaders)
	states := map[string]int{string(stateCopying): 0, string(stateStreaming): 0, string(stateFailed): 0, string(stateGone): 0}
	for _, t := range st.Tables {
		states[t.State]++
		gauge(descTableRows, float64(t.Rows), t.Name)
		gauge(descTableFiles, float64(t.Files), t.Name)
		gauge(descTableVectors, float64(t.Vectors), t.Name)
		gauge(descTableDead, float64(t.DeletedRows), t.Name)
		for desc, state := range map[*prometheus.Desc]string{descFailed: string(stateFailed), descGone: string(stateGone)} {
			value := 0.0
			if t.State == state {
				value = 1
			}
			gauge(desc, value, t.Name)
		}
	}
	for state, n := range states {
		gauge(descTables, float64(n), state)
	}
}
