package mirror

import (
	"context"
	"errors"

	"pgmirror/iceberg"
)

const remedyDamaged = "restore it from a copy and start again to read what the table held, or " + copyAnew

// damaged fails a table whose files cannot be read, or were changed by somebody else. It fails alone: what the others hold and
// where the slot stands does not depend on it. Its files stay as they are. The failure is stored with the next commit and stays
// when the files are restored, since the source no longer keeps what the table has missed; what it held can then be read at Good. For
// recover, before the applier runs.
func (m *Mirror) damaged(t *table, fault error) {
	t.damage, t.created = fault.Error(), true
	if t.state == stateFailed {
		m.cfg.Log.Warn("files of a failed table are damaged", "relation", t.String(), "err", fault)
		return
	}
	t.state, t.dirty = stateFailed, true
	t.failure = &failure{Reason: fault.Error(), LSN: m.doc.Cut, Good: m.doc.Cut, Remedy: remedyDamaged, Damaged: true}
	m.closeIndexes(t)
	for _, s := range t.files {
		s.file.index = ""
	}
	if t.open != nil {
		t.forget(m, m.doc.Cut)
	}
	m.logFailure(t.String(), m.doc.Cut, t.failure)
}

// failDamaged fails a table when err is that one of its files is damaged, which it takes for settled; any other error it returns. Its rows are what they
// were, as far as they can be read. The caller holds no lock that a flush needs: a transaction may have to end first.
func (m *Mirror) failDamaged(ctx context.Context, t *table, err error) error {
	if !errors.Is(err, iceberg.ErrCorrupt) {
		return err
	}
	return m.inTurn(ctx, func() error {
		if t.state == stateStreaming && t.retired == 0 {
			m.fail(t, m.applied, &failure{Reason: err.Error(), Remedy: remedyDamaged, Damaged: true})
		}
		return nil
	})
}
