package mirror

import (
	"context"
	"errors"
	"fmt"
)

// CompactRequest names the tables to compact, as InspectRequest does; none means all.
type CompactRequest struct {
	Tables []string `json:"tables,omitempty"`
}

// CompactReport is what came of it.
type CompactReport struct {
	Tables []CompactTable `json:"tables"`
}

// CompactTable is one table's part: its data files before and after, those among the latter that are left alone while a read state or the window is below
// their newest row, and the longest time for which its changes, and all others, were not applied because of it.
type CompactTable struct {
	Name    string  `json:"name"`
	Before  int     `json:"files_before"`
	After   int     `json:"files_after"`
	Waiting int     `json:"files_waiting"`
	Stalled float64 `json:"longest_stall_seconds"`
}

// Compact makes as few files as it can of those that checkpoints have committed, and commits the result. Tables that are not followed are left as they
// are.
func (m *Mirror) Compact(ctx context.Context, req CompactRequest, progress func(string)) (*CompactReport, error) {
	if opening := m.shared.opening(); opening != "" {
		return nil, fmt.Errorf("compact: %s", opening)
	}
	var tables []*table
	for _, name := range req.Tables {
		t, err := m.findTable(name)
		if err != nil {
			return nil, fmt.Errorf("compact: %w", err)
		}
		tables = append(tables, t)
	}
	if len(req.Tables) == 0 {
		for _, v := range m.shared.views() {
			tables = append(tables, v.table)
		}
	}
	// What is in memory or was flushed since goes into files that the checkpoint names.
	if err := m.checkpoint(ctx); err != nil {
		return nil, err
	}
	rep := &CompactReport{Tables: make([]CompactTable, len(tables))}
	for i, t := range tables {
		if len(tables) > 1 {
			progress("compact " + t.String())
		}
		r := &rep.Tables[i]
		r.Name = t.String()
		if err := m.inAnyTurn(ctx, func() error { r.Before = len(t.files); return nil }); err != nil {
			return nil, err
		}
		for {
			rw, err := m.compact(ctx, t, true)
			if err != nil {
				return nil, errors.Join(err, m.failDamaged(ctx, t, err))
			}
			if rw == nil {
				break
			}
			r.Stalled = max(r.Stalled, rw.stall.Seconds())
		}
		if err := m.inAnyTurn(ctx, func() error { r.count(t); return nil }); err != nil {
			return nil, err
		}
	}
	signal(m.flusher.wake) // their FileIndexes were not merged meanwhile
	return rep, m.checkpoint(ctx)
}

// count takes in what the table has now. The applier's turn.
func (r *CompactTable) count(t *table) {
	r.After = len(t.files)
	for _, s := range t.files {
		if s.file.cuts.Load() != nil {
			r.Waiting++
		}
	}
}
