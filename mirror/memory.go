package mirror

import "sync"

// What the bound of memory, Config.Memory, is about:
//
//	batches, their MemIndexes included ─▶ flushed, from half of their room on; at all of it the applier waits
//	visibility                         ─▶ folded early when it grows
//	pinned: flushed, but a read state sees them still;
//	the vectors that read states see                  ─▶ the state settles (read_state_limit, or at once when these take a quarter)
//	rows that copies have read and not written        ─▶ written, each worker at a bound of its own
//	commit times of the window                        ─▶ stay as long as history says
//
// The batches' room is what the others leave of the bound, and a quarter of it at least: what nobody can win back at once must not make every
// batch a file. Mapped FileIndexes are the system's to drop and do not count; transactions that are staged or wait to be applied have a bound of their own.

// room is what the batches may take, in bytes. The applier's turn.
func (m *Mirror) room() int64 {
	others := m.visible.Load() + m.pinned.Load() + m.copyRows.Load()
	return max(m.cfg.Memory-others, m.cfg.Memory/4)
}

// short says that memory runs short, so that batches are to be flushed, and full, that changes must wait for that.
func (m *Mirror) short() bool { return m.memory.Load() > m.room()/2 }
func (m *Mirror) full() bool  { return m.memory.Load() >= m.room() }

// ReadersWeigh says that what only read states keep in memory is a quarter of the bound or more, so that they are to settle whatever their age. Any goroutine.
func (m *Mirror) ReadersWeigh() bool { return m.pinned.Load() >= m.cfg.Memory/4 }

// weighVisibility brings the account up to date with what is known of deletions, and has them folded when that has grown. The applier's turn.
func (m *Mirror) weighVisibility() {
	var n int64
	for _, t := range m.withMemory() {
		if v := t.version.Load(); v != nil {
			for _, s := range v.segments {
				n += s.vis.Bytes()
			}
		}
	}
	m.visible.Store(n + m.marks.timesBytes())
	if n > m.cfg.Memory/8 && n > m.folded+m.folded/4 {
		signal(m.wantFold)
	}
}

// pins counts the read states that see a batch. One that is flushed meanwhile stays in memory until the last of them has ended. The zero value is ready.
type pins struct {
	mu    sync.Mutex
	count int
	bytes int64 // that the pins alone keep; 0 before the flush
}

// pin notes that a read state sees the batch. Any goroutine.
func (b *batch) pin(m *Mirror) {
	b.pins.mu.Lock()
	defer b.pins.mu.Unlock()
	if b.pins.count++; b.pins.count == 1 { // flushed, perhaps, after its version was taken
		m.pinned.Add(b.pins.bytes)
	}
}

// unpin takes that back.
func (b *batch) unpin(m *Mirror) {
	b.pins.mu.Lock()
	defer b.pins.mu.Unlock()
	if b.pins.count--; b.pins.count == 0 {
		m.pinned.Add(-b.pins.bytes)
	}
}

// letGo takes a batch that is not the table's any more off the account, but for what read states see of it. The applier's turn.
func (m *Mirror) letGo(b *batch) {
	m.memory.Add(-b.weight)
	b.weight = 0
	b.pins.mu.Lock()
	defer b.pins.mu.Unlock()
	if b.pins.bytes > 0 { // by a flush that it had ended under
		return
	}
	b.pins.bytes = b.bytes()
	if b.pins.count > 0 {
		m.pinned.Add(b.pins.bytes)
	}
}
