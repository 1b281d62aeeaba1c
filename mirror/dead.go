package mirror

import "slices"

// A full batch whose rows have all been deleted is of no use but to readers below its last deletion. When LWM has passed that, it is buried: its memory is
// let go at once, and no flush writes what is dead. Tables of few rows that change all the time so take the memory of few batches, however long it is until
// the next checkpoint. (A checkpoint in flight holds LWM, so what its cut needs stays.)
//
// A batch with one live row stays whole: rows keep their order, and their places, which locations name. One that a flush moves is the flush's.

// death says that a full batch of a table has lost its last row. It does not name the batch, which a flush may let go first.
type death struct {
	table *table
	at    LSN // of the last deletion
}

// dead says whether the segment is a full batch without a live row. The applier's turn.
func (s *segment) dead() bool {
	return s.batch != nil && s.batch.sealed && s.batch.rows > 0 && s.vis.Count() == s.batch.rows
}

// buriable says whether nobody needs the dead batch, now that no reader is below low. The applier's turn.
func (s *segment) buriable(low LSN) bool {
	return s.dead() && s.vis.Last() <= low && s.moving.to == nil
}

// noteDead notes the death of a batch that has just lost its last row, or that is full and has none. The applier's.
func (m *Mirror) noteDead(t *table, s *segment) {
	if s.dead() {
		m.deaths = append(m.deaths, death{t, s.vis.Last()})
	}
}

// buryDead lets the batches go that nobody sees any more. The applier's, after a commit has become visible.
func (m *Mirror) buryDead() {
	if len(m.deaths) == 0 {
		return
	}
	low, n := m.marks.low(), 0
	var last *table
	for ; n < len(m.deaths) && m.deaths[n].at <= low; n++ {
		if t := m.deaths[n].table; t != last {
			t.bury(m, low)
			last = t
		}
	}
	m.deaths = slices.Delete(m.deaths, 0, n)
}

// bury takes the table's dead batches away; of a failed table not those that it had at its last good LSN.
func (t *table) bury(m *Mirror, low LSN) {
	if t.failure != nil {
		low = min(low, t.failure.Good)
	}
	if t.retired != 0 || !slices.ContainsFunc(t.sealed, func(s *segment) bool { return s.buriable(low) }) {
		return
	}
	t.sealed = slices.DeleteFunc(slices.Clone(t.sealed), func(s *segment) bool {
		if !s.buriable(low) {
			return false
		}
		m.letGo(s.batch)
		return true
	})
	t.install()
}
