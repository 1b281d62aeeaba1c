package mirror

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
