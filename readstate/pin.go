package readstate

import (
	"sync/atomic"

	"pgmirror/deletion"
)

// pin is a provider's state held for a connection. It is released when its owner and every request that reads through it
// have left.
type pin struct {
	state   *State
	users   atomic.Int64
	vectors map[uint64]*deletion.Vector
	batches map[uint64]pinnedBatch
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

func (p *pin) leave() {
	if p.users.Add(-1) == 0 {
		p.state.Release()
	}
}
