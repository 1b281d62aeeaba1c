package readstate

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/deletion"
)

// pin is a provider's state held for a connection. It is released when its owner and every request that reads through it
// have left.
type pin struct {
	session *session
	id      uint64
	state   *State
	users   atomic.Int64

	mu      sync.RWMutex
	vectors map[uint64]*deletion.Vector // nil when settled or ended
	batches map[uint64]pinnedBatch
	settled *settled // what came in their place; nil before
	ended   error    // why it was taken from its owner; nil while it was not

	warned bool // that it cannot be settled; the settler's
}

type pinnedBatch struct {
	Batch
	table *Table
}

// newPin takes state over; the caller has entered.
func newPin(state *State) *pin {
	p := &pin{state: state, vectors: map[uint64]*deletion.Vector{}, batches: map[uint64]pinnedBatch{}}
	p.users.Store(1)
	for _, table := range state.Tables {
		for _, file := range table.Files {
			if file.Deleted != nil {
				p.vectors[file.Deleted.ID()] = file.Deleted
			}
		}
		for _, batch := range table.Batches {
			if batch.Deleted != nil {
				p.vectors[batch.Deleted.ID()] = batch.Deleted
			}
			p.batches[batch.ID] = pinnedBatch{Batch: batch, table: table}
		}
	}
	return p
}

// enter needs a user who has not left.
func (p *pin) enter() { p.users.Add(1) }

// leave frees the state when it was the last user.
func (p *pin) leave() {
	if p.users.Add(-1) == 0 {
		p.free()
	}
}

// free releases the state and removes its file. Calling it again does nothing.
func (p *pin) free() {
	p.state.Release()
	p.mu.Lock()
	kept := p.settled
	p.vectors, p.batches, p.settled = nil, nil, nil
	p.mu.Unlock()
	if kept == nil {
		return
	}
	s := p.session.server
	s.counters.settled.Add(-1)
	s.counters.settledBytes.Add(-kept.size)
	if err := kept.remove(); err != nil {
		s.log.Warn("remove the file of a read state", "err", err)
	}
}

// blobs are those of some of the state's vectors, in the order asked.
func (p *pin) blobs(ids []uint64) ([][]byte, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.ended != nil {
		return nil, p.ended
	}
	for _, id := range ids {
		known := p.vectors[id] != nil
		if p.settled != nil {
			_, known = p.settled.vectors[id]
		}
		if !known {
			return nil, fmt.Errorf("the read state has no vector %d", id)
		}
	}
	if p.settled != nil {
		return p.settled.blobs(ids)
	}
	blobs := make([][]byte, len(ids))
	for i, id := range ids {
		var err error
		if blobs[i], err = p.vectors[id].MarshalBlob(); err != nil {
			return nil, err
		}
	}
	return blobs, nil
}

// batch finds a batch: its table and the rows that the state shows of it.
func (p *pin) batch(id uint64) (table *Table, rows int, err error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.ended != nil {
		return nil, 0, p.ended
	}
	if b, ok := p.batches[id]; ok {
		return b.table, b.Rows, nil
	}
	if p.settled != nil {
		if b, ok := p.settled.batches[id]; ok {
			return b.table, b.rows, nil
		}
	}
	return nil, 0, fmt.Errorf("the read state has no batch %d", id)
}

// read reads columns of a batch that batch has found. The state does not settle meanwhile: the provider may read files that only its LSN keeps.
func (p *pin) read(id uint64, columns []int, from, to int) ([]arrow.Array, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	switch {
	case p.ended != nil:
		return nil, p.ended
	case p.settled != nil:
		return p.settled.batches[id].read(p.settled, columns, from, to)
	}
	return p.batches[id].Columns.Read(columns, from, to)
}
