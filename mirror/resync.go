package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pgmirror/pgcdc"
)

// ResyncRequest names the tables to copy again, as InspectRequest does.
type ResyncRequest struct {
	Tables []string `json:"tables"`
}

// ResyncReport is what came of it.
type ResyncReport struct {
	Tables []ResyncTable `json:"tables"`
}

// ResyncTable is one table's part: its rows when it joined, and the LSN from which on the new content is seen; or why it could not be copied.
type ResyncTable struct {
	Name  string `json:"name"`
	LSN   string `json:"lsn,omitempty"`
	Rows  int64  `json:"rows"`
	Error string `json:"error,omitempty"`
}

// resyncPoll is how often the progress of a resync is told.
const resyncPoll = 2 * time.Second

// Resync copies tables again and returns when all of them have joined or cannot be copied. A healthy table shows its old content, kept up to
// date, until the new one takes its place. When ctx ends, the copies go on.
func (m *Mirror) Resync(ctx context.Context, req ResyncRequest, progress func(string)) (*ResyncReport, error) {
	if len(req.Tables) == 0 {
		return nil, errors.New("resync: name the tables")
	}
	if opening := m.shared.opening(); opening != "" {
		return nil, fmt.Errorf("resync: %s", opening)
	}
	for _, name := range req.Tables {
		if _, err := m.findTable(name); err != nil {
			return nil, fmt.Errorf("resync: %w", err)
		}
	}
	catalog, err := m.source.Look(ctx)
	if err != nil {
		return nil, fmt.Errorf("resync: %w", err)
	}
	joins, names := make([]*join, len(req.Tables)), make([]string, len(req.Tables))
	err = m.inTurn(ctx, func() error {
		for i, name := range req.Tables {
			t, err := m.findTable(name) // again: another table may have taken its place meanwhile
			if err != nil {
				return fmt.Errorf("resync: %w", err)
			}
			src := catalogued(catalog, t)
			if src == nil {
				return fmt.Errorf("resync: table %s is not in the publication", t)
			}
			names[i] = t.String()
			if src.OID != t.oid && t.state == stateStreaming {
				m.outdated(t, src.OID, m.applied, reasonTaken)
			}
			joins[i] = m.wantJoin(src.OID, t, "asked for")
		}
		m.updateShared()
		return nil
	})
	if err != nil {
		return nil, err
	}
	rep := &ResyncReport{}
	for i, j := range joins {
		if err := m.await(ctx, j, progress); err != nil {
			return nil, err
		}
		r := ResyncTable{Name: names[i]}
		if j.err != nil {
			r.Error = j.err.Error()
		} else {
			r.LSN, r.Rows = j.joined.String(), j.rows
		}
		rep.Tables = append(rep.Tables, r)
	}
	return rep, nil
}

// catalogued finds a table in a look: by its OID, or, when it was made anew, by its name.
func catalogued(catalog *pgcdc.Catalog, t *table) (found *pgcdc.Table) {
	for i := range catalog.Tables {
		switch now := &catalog.Tables[i]; {
		case now.OID == t.oid:
			return now
		case nameOf(now) == t.name:
			found = now
		}
	}
	return found
}

// await tells how a join goes until it has ended.
func (m *Mirror) await(ctx context.Context, j *join, progress func(string)) error {
	for {
		select {
		case <-j.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("resync: %w; it goes on, see pgmirror status", context.Cause(ctx))
		case <-m.clock.After(resyncPoll):
		}
		var line string
		if err := m.inReadingTurn(ctx, func() error { line = j.progress(); return nil }); err != nil {
			return err
		}
		progress(line)
	}
}

// progress says how far a join is. The applier's turn.
func (j *join) progress() string {
	switch {
	case j.table != nil:
		return fmt.Sprintf("%s: %d rows, catching up", j.old, j.table.rows)
	case j.copy != nil:
		return fmt.Sprintf("%s: %d rows copied", j.old, j.copy.copied.Load())
	case j.trouble != "":
		return fmt.Sprintf("%s: waits: %s", j.old, j.trouble)
	}
	return fmt.Sprintf("%s: waits for a snapshot of the source", j.old)
}
