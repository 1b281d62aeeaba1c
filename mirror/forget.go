package mirror

import (
	"context"
	"errors"
	"fmt"

	"pgmirror/readstate"
)

// absent fails a table that the source does not publish any more. What it held stays readable until it is forgotten or comes back. The
// applier's turn.
func (m *Mirror) absent(t *table, lsn LSN, when string) {
	f := &failure{Reason: reasonGone + when, Remedy: remedyGone, Gone: true, Absent: true}
	m.cfg.Log.Warn("a table is gone", "relation", t.String(), "lsn", lsn.String(), "why", f.Reason)
	if t.state != stateFailed {
		m.freeze(t, lsn, f)
		return
	}
	f.LSN = lsn
	f.inherit(t.failure)
	t.failure, t.dirty = f, true
	m.updateShared()
}

// absent says why a table that is gone cannot be read above its last good LSN, and what can be done.
func absent(name readstate.TableName, f *failure) string {
	text := fmt.Sprintf("table %s is gone since %s: %s", name, f.LSN, f.Reason)
	if f.Good != 0 {
		text += fmt.Sprintf("; its last good content can be read with --at %s", f.Good)
	}
	return text + "; " + f.Remedy
}

// ForgetRequest names the tables to remove, as InspectRequest does.
type ForgetRequest struct {
	Tables []string `json:"tables"`
}

// ForgetReport names what was removed.
type ForgetReport struct {
	Tables []string `json:"tables"`
}

// Forget removes tables that are gone from the mirror, the catalog and the warehouse; reads that have begun keep their files until they end. A
// table that the source publishes is refused: it would be copied again at once.
func (m *Mirror) Forget(ctx context.Context, req ForgetRequest) (*ForgetReport, error) {
	if len(req.Tables) == 0 {
		return nil, errors.New("name the tables")
	}
	if opening := m.shared.opening(); opening != "" {
		return nil, errors.New(opening)
	}
	catalog, err := m.source.Look(ctx)
	if err != nil {
		return nil, fmt.Errorf("see what the source publishes: %w", err)
	}
	rep := &ForgetReport{}
	err = m.inTurn(ctx, func() error {
		var gone []*table
		for _, name := range req.Tables {
			t, err := m.findTable(name)
			switch {
			case err != nil:
				return err
			case catalogued(catalog, t) != nil || t.joining != nil:
				return fmt.Errorf("table %s is published by the source: take it out first (ALTER PUBLICATION … DROP TABLE …)", t)
			case t.failure == nil || !t.failure.Absent:
				return fmt.Errorf("table %s is not published any more, but its last changes are still arriving: try again", t)
			}
			gone = append(gone, t)
		}
		for _, t := range gone {
			if m.takeOut(t) {
				m.forgot = append(m.forgot, t)
				rep.Tables = append(rep.Tables, t.String())
				m.cfg.Log.Info("a table is forgotten", "relation", t.String())
			}
		}
		m.updateShared()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rep, m.checkpoint(context.WithoutCancel(ctx))
}
