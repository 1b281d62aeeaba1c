package mirror

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"pgmirror/pgcdc"
)

// counters count changes applied since the start.
type counters struct {
	inserts, updates, deletes, truncates atomic.Int64
	commits, checkpoints                 atomic.Int64
	copied, flushed, compacted           writtenFiles
	freshness                            atomic.Int64  // of the newest commit: nanoseconds from commit to visible
	lastCommit                           atomic.Int64  // its commit time, Unix nanoseconds
	currentAt                            atomic.Int64  // when the newest look that HWM has passed began, Unix nanoseconds
	sourceEnd                            atomic.Uint64 // the end of the source's WAL that the newest look read
}

// noteCommit measures the freshness of a commit that has just become visible.
func (m *Mirror) noteCommit(tx *pgcdc.Transaction, now time.Time) {
	m.counts.commits.Add(1)
	m.counts.freshness.Store(int64(max(0, now.Sub(tx.CommitTime))))
	m.counts.lastCommit.Store(tx.CommitTime.UnixNano())
}

// Status is the document of `status --json`.
func (m *Mirror) Status(ctx context.Context) ([]byte, error) {
	st, err := m.status(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(st)
}

func (m *Mirror) status(ctx context.Context) (*Status, error) {
	sh := m.shared.get()
	connected := sh.state == "streaming"
	if why := m.cfg.Disk.Paused(); why != "" && connected {
		sh.state, sh.reason = "paused", why
	} else if why != "" && sh.reason == "" {
		sh.reason = why
	}
	st := &Status{State: sh.state, Reason: sh.reason, Version: m.cfg.Version, Slot: m.cfg.Slot, Publications: m.cfg.Publications,
		FreshnessSeconds: time.Duration(m.counts.freshness.Load()).Seconds(), Readers: m.readers.openStates(),
		Tables: []TableStatus{}, OnUnrepresentable: "fail"}
	if m.cfg.NullUnrepresentable {
		st.OnUnrepresentable = "null"
	}
	st.Written = m.written.status(m)
	st.SlotLimitBytes, st.SlotWarning = m.cfg.MaxSlotWAL, sh.slotTold
	st.DiskFree, st.DiskLeast, _ = m.cfg.Disk.status()
	if st.Reason == "" && st.State == "copying" {
		st.Reason = m.source.Waiting()
	}
	if m.serving != nil {
		served := m.serving()
		st.SettledReaders, st.SettledBytes, st.EndedReaders = int(served.Settled), served.SettledBytes, served.Ended
	}
	heard := max(m.source.Received(), LSN(m.counts.sourceEnd.Load()))
	if ns := m.counts.lastCommit.Load(); ns != 0 {
		st.LastCommitTime = time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
	}
	if connected {
		slotCtx, cancel := context.WithTimeout(ctx, 2*time.Second)
		if slot, found, err := m.source.Slot(slotCtx); err == nil && found {
			st.SlotRetainedBytes, st.SlotWALStatus = slot.RetainedBytes, slot.WALStatus
			heard = max(heard, slot.WALEnd)
		}
		cancel()
	}
	if !sh.opened {
		for _, v := range sh.tables {
			ts := TableStatus{Name: v.table.String(), State: v.state.shown(v.failure), Types: v.table.forms}
			if v.copied != nil {
				ts.CopiedRows = v.copied.Load()
			}
			ts.setFailure(v.failure)
			st.Tables = append(st.Tables, ts)
		}
		return st, nil
	}
	err := m.inReadingTurn(ctx, func() error { m.describeStatus(st); return nil })
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	m.describeLag(st, heard)
	return st, nil
}

// describeLag says how far queries are behind the end of the source's WAL. The distance is a lower bound while the source is
// not connected; the time is not: it counts from the newest moment of which everything is known to be visible.
func (m *Mirror) describeLag(st *Status, heard LSN) {
	visible := m.marks.high()
	heard = max(heard, visible)
	st.VisibleLSN, st.SourceLSN, st.LagBytes = visible.String(), heard.String(), int64(heard-visible)
	current := max(m.counts.currentAt.Load(), m.counts.lastCommit.Load())
	if current != 0 && (st.State != "streaming" || st.LagBytes > 0) {
		st.LagSeconds = max(0, m.clock.Now().Sub(time.Unix(0, current)).Seconds())
	}
}

// describeStatus fills in what the applier knows. Its turn.
func (m *Mirror) describeStatus(st *Status) {
	st.SystemID, st.Timeline = m.doc.SystemID, m.doc.Timeline
	st.ReceivedLSN = max(m.source.Received(), m.applied).String()
	st.AppliedLSN = m.applied.String()
	st.DurableLSN = m.durable.String()
	st.AcknowledgedLSN = m.durable.String()
	st.CatalogLSN = m.catalogLSN.String()
	floor, since := m.marks.floor()
	st.WindowFloorLSN = floor.String()
	if !since.IsZero() {
		st.WindowFloorTime = since.Format(time.RFC3339Nano)
	}
	if !m.lastCheckpoint.IsZero() {
		st.LastCheckpoint = m.lastCheckpoint.UTC().Format(time.RFC3339Nano)
		st.CheckpointSeconds = m.checkpointTook.Seconds()
	}
	for _, g := range m.garbage {
		st.WaitingFiles += len(g.paths)
	}
	st.Memory = MemoryStatus{Batches: m.memory.Load(), Pinned: m.pinned.Load(), Copies: m.copyRows.Load(), Times: m.marks.timesBytes(), Limit: m.cfg.Memory}
	if m.cfg.Staged != nil {
		st.Memory.Staged = m.cfg.Staged()
	}
	for _, t := range m.tables {
		ts := TableStatus{Name: t.String(), State: t.state.shown(t.failure), Rows: t.rows, Unrepresentable: t.unrepresentable, DurableLSN: m.durable.String(), Types: t.forms}
		ts.setFailure(t.failure)
		if t.copied != nil {
			ts.CopiedRows = t.copied.Load()
		}
		if j := t.joining; j != nil {
			if ts.Resync = j.why; t.state != stateCopying {
				ts.State = "resyncing"
			}
			ts.ResyncWaits = j.trouble
		}
		if t.shape != nil {
			ts.InsertOnly = t.shape.mode == insertOnly
		}
		if v := t.version.Load(); v != nil {
			for _, s := range v.segments {
				ts.add(s)
				st.Memory.Visibility += s.vis.Bytes()
				if s.batch != nil && s.batch.index != nil {
					st.Memory.MemIndex += s.batch.index.Bytes()
				}
			}
		}
		for _, x := range t.indexes {
			st.Memory.FileIndex += x.index.Bytes()
		}
		st.Tables = append(st.Tables, ts)
	}
}

func (ts *TableStatus) add(s *segment) {
	ts.DeletedRows += int64(s.vis.Count())
	if s.file != nil {
		ts.Files++
		ts.Bytes += s.file.data.Bytes
		if s.file.vector > 0 {
			ts.Vectors++
		}
		return
	}
	ts.MemoryRows += int64(s.batch.rows)
	ts.MemoryBytes += s.batch.weight
}

func (ts *TableStatus) setFailure(f *failure) {
	if f == nil {
		return
	}
	ts.Error, ts.ErrorLSN, ts.ErrorKey, ts.ErrorCol, ts.Remedy = f.Reason, f.LSN.String(), f.Key, f.Column, f.Remedy
	ts.DurableLSN = f.Good.String()
}

// Ready says why the mirror is not ready: its first copy is not done, reads are not open, a table is still being copied, or
// the source is not connected. Nil when it is.
func (m *Mirror) Ready() error {
	sh := m.shared.get()
	if sh.state != "streaming" {
		if reason := cmp.Or(sh.reason, m.source.Waiting()); reason != "" {
			return fmt.Errorf("%s: %s", sh.state, reason)
		}
		return errors.New(sh.state)
	}
	if why := m.cfg.Disk.Paused(); why != "" {
		return fmt.Errorf("paused: %s", why)
	}
	if !sh.opened {
		return errors.New("reads are not open yet")
	}
	for _, v := range sh.tables {
		if v.state == stateCopying {
			return fmt.Errorf("table %s is being copied", v.table)
		}
	}
	return nil
}
