package mirror

import "slices"

// A full batch whose rows have all been deleted is of no use but to readers below its last deletion. When LWM has passed that, it is buried: its memory is
// let go at once, and no flush writes what is dead. Tables of few rows that change all the time so take the memory of few batches, however long it is until
// the next checkpoint. (A checkpoint in flight holds LWM, so what its cut needs stays.)
//
// A batch with one live row stays whole: rows keep their order, and their places, which locations name.

// deadBatch is one that waits for LWM.
type deadBatch struct {
	table   *table
	segment *segment
	at      LSN // of the last deletion
}

// dead says whether the segment is a full batch without a live row. The applier's turn.
func (s *segment) dead() bool {
	return s.batch != nil && s.batch.sealed && s.batch.rows > 0 && s.vis.Count() == s.batch.rows
}

// noteDead notes a batch that has just lost its last row, or that is full and has none. The applier's.
func (m *Mirror) noteDead(t *table, s *segment) {
	if s.dead() {
		m.dead = append(m.dead, deadBatch{t, s, s.vis.Last()})
	}
}

// buryDead lets the batches go that nobody sees any more. The applier's, after a commit has become visible.
func (m *Mirror) buryDead() {
	if len(m.dead) == 0 {
		return
	}
	low, n := m.marks.low(), 0
	for ; n < len(m.dead) && m.dead[n].at <= low; n++ {
		m.dead[n].table.bury(m, m.dead[n].segment)
	}
	m.dead = slices.Delete(m.dead, 0, n)
}

// bury takes a dead batch out of the table. A flush that has begun with it goes on with what it holds; a failed table keeps what it had.
func (t *table) bury(m *Mirror, s *segment) {
	at := slices.Index(t.sealed, s)
	if at < 0 || t.failure != nil || t.retired != 0 {
		return
	}
	t.sealed = slices.Delete(slices.Clone(t.sealed), at, at+1)
	m.letGo(s.batch)
	t.install()
}
