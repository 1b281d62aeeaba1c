package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"pgmirror/readstate"
)

// Call runs a command for a client: "checkpoint", "compact", "expire", "forget", "hold", "inspect", "resync" or "verify". A panic in one that only reads is its error;
// in one that changes something, and in the applier's turn of it, it ends the process: what was half changed must not become durable.
func (m *Mirror) Call(ctx context.Context, command string, args []byte, progress func(string)) ([]byte, error) {
	if progress == nil {
		progress = func(string) {}
	}
	switch command {
	case "checkpoint":
		return m.callCheckpoint(ctx)
	case "verify":
		var req VerifyRequest
		if err := decodeArgs(args, &req); err != nil {
			return nil, err
		}
		var rep *VerifyReport
		err := m.guarded(func() (err error) { rep, err = m.Verify(ctx, req, progress); return err })
		if err != nil {
			return nil, err
		}
		return json.Marshal(rep)
	case "inspect":
		var req InspectRequest
		if err := decodeArgs(args, &req); err != nil {
			return nil, err
		}
		var rep *InspectReport
		err := m.guarded(func() (err error) { rep, err = m.Inspect(ctx, req); return err })
		if err != nil {
			return nil, err
		}
		return json.Marshal(rep)
	case "compact":
		var req CompactRequest
		if err := decodeArgs(args, &req); err != nil {
			return nil, err
		}
		rep, err := m.Compact(ctx, req, progress)
		if err != nil {
			return nil, err
		}
		return json.Marshal(rep)
	case "expire":
		var req ExpireRequest
		if err := decodeArgs(args, &req); err != nil {
			return nil, err
		}
		rep, err := m.Expire(ctx, req)
		if err != nil {
			return nil, err
		}
		return json.Marshal(rep)
	case "forget":
		var req ForgetRequest
		if err := decodeArgs(args, &req); err != nil {
			return nil, err
		}
		rep, err := m.Forget(ctx, req)
		if err != nil {
			return nil, err
		}
		return json.Marshal(rep)
	case "hold":
		var req HoldRequest
		if err := decodeArgs(args, &req); err != nil {
			return nil, err
		}
		return nil, m.holdCheckpoint(ctx, req, progress)
	case "resync":
		var req ResyncRequest
		if err := decodeArgs(args, &req); err != nil {
			return nil, err
		}
		rep, err := m.Resync(ctx, req, progress)
		if err != nil {
			return nil, err
		}
		return json.Marshal(rep)
	}
	return nil, fmt.Errorf("unknown command %q", command)
}

func decodeArgs(args []byte, into any) error {
	if len(args) == 0 {
		return nil
	}
	if err := json.Unmarshal(args, into); err != nil {
		return fmt.Errorf("read the command's arguments: %w", err)
	}
	return nil
}

// CheckpointReport is the answer of the command "checkpoint".
type CheckpointReport struct {
	DurableLSN string `json:"durable_lsn"`
}

// callCheckpoint makes everything that is visible durable.
func (m *Mirror) callCheckpoint(ctx context.Context) ([]byte, error) {
	if opening := m.shared.opening(); opening != "" {
		return nil, fmt.Errorf("no checkpoint: %s", opening)
	}
	if err := m.checkpoint(context.WithoutCancel(ctx)); err != nil { // seen through, even if who asked has gone
		return nil, err
	}
	return json.Marshal(CheckpointReport{DurableLSN: m.shared.get().durable.String()})
}

// InspectRequest names the table to look at: schema.table, or the table alone when that is unambiguous.
type InspectRequest struct {
	Table string `json:"table"`
}

// InspectReport is what one table consists of.
type InspectReport struct {
	Table   string         `json:"table"`
	State   string         `json:"state"`
	UUID    string         `json:"uuid"`
	Copied  string         `json:"copied_lsn,omitempty"` // of the snapshot that its rows were copied from; empty when that was before the last start
	LSN     string         `json:"lsn"`                  // visible
	Key     []string       `json:"key"`                  // columns that find old rows
	Columns []string       `json:"columns"`
	Files   []InspectFile  `json:"files"`
	Batches []InspectBatch `json:"batches"`
	Indexes []InspectIndex `json:"indexes"`
	// Snapshots are the Iceberg snapshots that the table retains, oldest first.
	Snapshots []InspectSnapshot `json:"snapshots"`
}

// InspectSnapshot is one Iceberg snapshot.
type InspectSnapshot struct {
	ID        int64  `json:"id"`
	LSN       string `json:"lsn"`
	Time      string `json:"time"` // RFC 3339
	Operation string `json:"operation"`
	// HeldBy says what keeps it: current, checkpoint, read state, tag NAME, branch NAME; nothing does when it is to expire.
	HeldBy []string `json:"held_by"`
}

// InspectFile is one data file. Pending counts the position deletes that no committed vector holds yet.
type InspectFile struct {
	Path      string `json:"path"`
	Rows      int64  `json:"rows"`
	Bytes     int64  `json:"bytes"`
	MinLSN    string `json:"min_lsn"`
	MaxLSN    string `json:"max_lsn"`
	Published bool   `json:"published"`
	Deleted   int    `json:"deleted"`
	Vector    uint64 `json:"vector"` // deletions in the committed Puffin vector
	Pending   int64  `json:"pending"`
	DroppedAt string `json:"dropped_at,omitempty"`
}

// InspectBatch is one memory batch.
type InspectBatch struct {
	ID      uint32 `json:"id"`
	Sealed  bool   `json:"sealed"`
	Rows    int    `json:"rows"`
	Bytes   int64  `json:"bytes"`
	Deleted int    `json:"deleted"`
}

// InspectIndex is one FileIndex.
type InspectIndex struct {
	Path    string `json:"path"`
	Entries uint64 `json:"entries"`
	Bytes   int64  `json:"bytes"`
}

// findTable finds a table by schema.table, or by its bare name when only one has it. Each of the two may be quoted as in SQL.
func (m *Mirror) findTable(name string) (*table, error) {
	candidates := []string{name}
	if plain, ok := unquoteTable(name); ok {
		candidates = append(candidates, plain)
	}
	for _, candidate := range candidates {
		var found []*table
		for _, v := range m.shared.views() {
			if v.table.String() == candidate {
				return v.table, nil
			}
			if v.table.name.Name == candidate {
				found = append(found, v.table)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return nil, fmt.Errorf("several tables are called %q; give the schema too", candidate)
		}
	}
	return nil, fmt.Errorf("no table %q is mirrored", candidates[len(candidates)-1])
}

// unquoteTable takes the quotes off the parts of a name; ok says that there were any.
func unquoteTable(name string) (plain string, ok bool) {
	if !strings.Contains(name, `"`) {
		return "", false
	}
	var b strings.Builder
	quoted := false
	for i := 0; i < len(name); i++ {
		switch {
		case name[i] != '"':
			b.WriteByte(name[i])
		case quoted && strings.HasPrefix(name[i+1:], `"`): // doubled: one of the name's own
			b.WriteByte('"')
			i++
		default:
			quoted = !quoted
		}
	}
	return b.String(), !quoted && b.String() != name
}

// Inspect describes one table. Until reads are open, all that there is of a table is its copy's, which status shows.
func (m *Mirror) Inspect(ctx context.Context, req InspectRequest) (*InspectReport, error) {
	if opening := m.shared.opening(); opening != "" {
		return nil, fmt.Errorf("inspect: %s", opening)
	}
	t, err := m.findTable(req.Table)
	if err != nil {
		return nil, err
	}
	rep := &InspectReport{Table: t.String(), UUID: t.uuid, Key: []string{}, Columns: []string{}, Files: []InspectFile{}, Batches: []InspectBatch{}, Indexes: []InspectIndex{}, Snapshots: []InspectSnapshot{}}
	err = m.inReadingTurn(ctx, func() error {
		rep.State, rep.LSN = t.state.shown(t.failure), m.marks.high().String()
		if t.copiedAt != 0 {
			rep.Copied = t.copiedAt.String()
		}
		if t.shape == nil {
			return nil
		}
		for _, c := range t.shape.columns {
			rep.Columns = append(rep.Columns, c.name)
		}
		for _, k := range t.shape.key {
			rep.Key = append(rep.Key, t.shape.columns[k].name)
		}
		version := t.version.Load()
		if version == nil { // its copy failed, or has not ended
			return nil
		}
		for _, s := range version.segments {
			if b := s.batch; b != nil {
				rep.Batches = append(rep.Batches, InspectBatch{ID: s.id, Sealed: b.sealed, Rows: b.rows, Bytes: b.bytes(), Deleted: s.vis.Count()})
				continue
			}
			d := s.file.data
			f := InspectFile{Path: d.Path, Rows: d.Rows, Bytes: d.Bytes, MinLSN: d.MinLSN.String(), MaxLSN: d.MaxLSN.String(),
				Published: s.file.published, Deleted: s.vis.Count(), Vector: s.file.vector, Pending: int64(s.vis.Count()) - int64(s.file.vector)}
			if at := LSN(s.droppedAt.Load()); at != 0 {
				f.DroppedAt = at.String()
			}
			rep.Files = append(rep.Files, f)
		}
		for _, x := range t.indexes {
			rep.Indexes = append(rep.Indexes, InspectIndex{Path: x.path, Entries: x.index.Header().Entries, Bytes: x.index.Bytes()})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, sn := range m.warehouse.Retained(t.uuid) { // not in the applier's turn: it waits for a commit
		rep.Snapshots = append(rep.Snapshots, InspectSnapshot{ID: sn.ID, LSN: sn.LSN.String(), Time: time.UnixMilli(sn.TimestampMs).UTC().Format(time.RFC3339Nano),
			Operation: sn.Operation, HeldBy: append([]string{}, sn.HeldBy...)})
	}
	return rep, nil
}

var _ readstate.Provider = (*Mirror)(nil)
