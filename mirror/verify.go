package mirror

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/cespare/xxhash/v2"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// verifyAttempts is how often a table that changes while it is compared is compared again.
const verifyAttempts = 3

// Verify compares tables with the source: row counts and an order-free checksum over every column of every row. The source
// is read in one snapshot, the mirror at an LSN just after it; a table that differs and that was changed in between has
// moved, and is compared again a few times.
func (m *Mirror) Verify(ctx context.Context, req VerifyRequest, progress func(string)) (*VerifyReport, error) {
	if st := m.shared.get(); st.state != "streaming" || !st.opened {
		return nil, fmt.Errorf("verify: %w: %s %s", ErrNotConnected, st.state, st.reason)
	}
	var wanted []*table
	if len(req.Tables) == 0 {
		for _, v := range m.shared.views() {
			wanted = append(wanted, v.table)
		}
	}
	for _, name := range req.Tables {
		t, err := m.findTable(name)
		if err != nil {
			return nil, fmt.Errorf("verify: %w", err)
		}
		wanted = append(wanted, t)
	}
	results := make(map[*table]VerifyTable, len(wanted))
	rep := &VerifyReport{Equal: true}
	left := wanted
	for attempt := 0; attempt < verifyAttempts && len(left) > 0; attempt++ {
		at, err := m.compareTables(ctx, left, results, progress)
		if err != nil {
			return nil, fmt.Errorf("verify: %w", err)
		}
		rep.LSN = at.String()
		var again []*table
		for _, t := range left {
			// One that differs is looked at once more: a commit may lie below the snapshot's LSN and not be in it yet, while its
			// client waits for a synchronous standby.
			if o := results[t].Outcome; o == "moved" || o == "different" && attempt == 0 {
				again = append(again, t)
			}
		}
		left = again
	}
	for _, t := range wanted {
		r := results[t]
		rep.Tables = append(rep.Tables, r)
		switch r.Outcome {
		case "moved":
			rep.Moved = true
		case "different", "failed":
			rep.Equal = false
		}
	}
	return rep, nil
}

// compareTables compares once, all tables in one snapshot of the source.
func (m *Mirror) compareTables(ctx context.Context, tables []*table, results map[*table]VerifyTable, progress func(string)) (LSN, error) {
	catalog, err := m.source.Look(ctx)
	if err != nil {
		return 0, err
	}
	seen := make(map[uint32]*pgcdc.Table, len(catalog.Tables))
	for i := range catalog.Tables {
		seen[catalog.Tables[i].OID] = &catalog.Tables[i]
	}
	hold, err := m.marks.register(0) // keeps what comes after it readable
	if err != nil {
		return 0, err
	}
	defer m.marks.release(hold)
	snapshot, release, err := m.source.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	at, err := m.source.WaitPoint(ctx)
	if err != nil {
		return 0, err
	}
	state, err := m.Pin(ctx, readstate.PinRequest{At: max(at, hold.LSN)})
	if err != nil {
		return 0, err
	}
	defer state.Release()
	for _, t := range tables {
		r := VerifyTable{Name: t.String()}
		ours, _ := state.Table(t.name)
		switch {
		case ours == nil:
			return 0, fmt.Errorf("table %s is not mirrored any more", t)
		case ours.Err != "":
			r.Outcome, r.Reason = "failed", ours.Err
		case seen[t.oid] == nil:
			r.Outcome, r.Reason = "failed", "the source has no such table in the publication any more"
		default:
			if err := m.compareTable(ctx, t, seen[t.oid], snapshot, ours, &r); err != nil {
				return 0, fmt.Errorf("compare %s: %w", t, err)
			}
		}
		results[t] = r
		progress(fmt.Sprintf("%s: %s, %d rows", r.Name, r.Outcome, r.MirrorRows))
	}
	return state.LSN, nil
}

func (m *Mirror) compareTable(ctx context.Context, t *table, src *pgcdc.Table, snapshot pgcdc.ExportedSnapshot, ours *readstate.Table, r *VerifyTable) error {
	theirs, err := m.sumSource(ctx, t, src, snapshot)
	if err != nil {
		return err
	}
	mine, err := m.sumState(ctx, t.shape, ours)
	if err != nil {
		return err
	}
	r.SourceRows, r.MirrorRows = theirs.rows, mine.rows
	r.Outcome = "equal"
	if theirs != mine {
		r.Outcome, r.Reason = "different", "the checksums differ"
		if theirs.rows != mine.rows {
			r.Reason = "the row counts differ"
		}
		var changed bool
		err := m.inTurn(ctx, func() error { changed = t.lastChange > snapshot.ConsistentPoint; return nil })
		if err != nil {
			return err
		}
		if changed {
			r.Outcome, r.Reason = "moved", "the table changed while it was compared"
		}
	}
	return nil
}

// checksum is the order-free sum of a table's rows: their number and two independent hashes of each, added up.
type checksum struct {
	rows int64
	a, b uint64
}

// add adds the rows of cols, which all have n rows.
func (c *checksum) add(cols []*column, n int, buf []byte) []byte {
	for row := range n {
		buf = encodeKey(buf[:0], cols, row)
		c.a += xxhash.Sum64(buf)
		buf = append(buf, 0xff)
		c.b += xxhash.Sum64(buf)
		c.rows++
	}
	return buf
}

func (m *Mirror) sumSource(ctx context.Context, t *table, src *pgcdc.Table, snapshot pgcdc.ExportedSnapshot) (sum checksum, err error) {
	scratch := &table{name: t.name}
	scratch.setShape(t.shape)
	cols := t.shape.newColumns()
	rows, size := 0, int64(0)
	var buf []byte
	flush := func() {
		buf = sum.add(cols, rows, buf)
		for _, c := range cols {
			c.truncate(0)
		}
		rows, size = 0, 0
	}
	err = m.source.Copy(ctx, snapshot, src, func(tuple pgcdc.Tuple) error {
		if len(tuple) != len(cols) {
			return fmt.Errorf("the source sent %d columns, the mirror has %d", len(tuple), len(cols))
		}
		if err := scratch.fill(m, cols, rows, tuple, nil, location{}); err != nil {
			return err
		}
		for _, c := range cols {
			size += c.rowBytes(rows)
		}
		if rows++; rows == 1024 || size >= batchBytes {
			flush()
		}
		return nil
	})
	flush()
	return sum, err
}

func (m *Mirror) sumState(ctx context.Context, s *shape, t *readstate.Table) (sum checksum, err error) {
	ids := make([]int32, len(s.columns))
	indexes := make([]int, len(s.columns))
	for i, c := range s.columns {
		ids[i], indexes[i] = int32(c.fieldID), i
	}
	cols := s.newColumns()
	var buf []byte
	take := func(arrays []arrow.Array, n int, dead func(int) bool) error {
		rows := 0
		for i, c := range cols {
			c.truncate(0)
			rows = 0
			for row := range n {
				if dead(row) {
					continue
				}
				if err := c.appendArray(arrays[i], row); err != nil {
					return err
				}
				rows++
			}
		}
		buf = sum.add(cols, rows, buf)
		return nil
	}
	for _, f := range t.Files {
		r, err := m.warehouse.OpenData(f.Path)
		if err != nil {
			return sum, err
		}
		err = r.Columns(ctx, ids, func(rec arrow.RecordBatch, first int64) error {
			return take(rec.Columns(), int(rec.NumRows()), func(row int) bool { return f.Deleted.Contains(uint32(first) + uint32(row)) })
		})
		r.Close()
		if err != nil {
			return sum, fmt.Errorf("read %s: %w", f.Path, err)
		}
	}
	for _, b := range t.Batches {
		arrays, err := b.Columns.Read(indexes, 0, b.Rows)
		if err != nil {
			return sum, err
		}
		if err := take(arrays, b.Rows, func(row int) bool { return b.Deleted.Contains(uint32(row)) }); err != nil {
			return sum, err
		}
	}
	return sum, nil
}
