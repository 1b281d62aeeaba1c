package deletion

import (
	"fmt"
	"math"
	"sync/atomic"
)

// Visibility records when each row of one segment was deleted. See the package comment for who may call what.
// The number of rows need not be known. Rows run from 0 to 2^32 − 2.
type Visibility struct {
	first LSN // entries hold LSNs as differences to it
	rows  directory

	base  atomic.Uint64 // LSN; raised before a fold swaps the first tile
	last  atomic.Uint64 // LSN of the newest Delete; 0 before the first. Set after the entry is published
	added atomic.Uint64 // number of entries ever published; raised after last
	bytes atomic.Int64  // without the answers kept for At

	newest, other atomic.Pointer[answer] // what At found: at the highest LSN so far, and elsewhere

	count int // deleted rows; the writer's alone
}

// NewVisibility returns the visibility of a segment with no deleted row. first is the segment's first LSN: no row can be
// deleted before it.
func NewVisibility(first LSN) *Visibility {
	v := &Visibility{first: first}
	v.bytes.Store(visibilityBytes)
	return v
}

// visibilityBytes is a Visibility's own size.
const visibilityBytes = 80

// Delete records that row was deleted by the commit that ends at LSN at. LSNs never decrease from call to call, and lie above
// Base (which is 0 at first: no commit ends at 0). It changes nothing when it fails, with ErrDeleted, ErrOrder or ErrRange.
func (v *Visibility) Delete(row uint32, at LSN) error {
	if at < v.first || uint64(at) < v.last.Load() || at <= v.Base() {
		return fmt.Errorf("delete row %d at %s after %s, base %s, first %s: %w", row, at, LSN(v.last.Load()), v.Base(), v.first, ErrOrder)
	}
	delta := uint64(at - v.first)
	if delta > deltaMask || row == math.MaxUint32 {
		return fmt.Errorf("delete row %d at %s, first %s: %w", row, at, v.first, ErrRange)
	}
	offset := uint16(row & offsetMask)
	if t := v.rows.tile(row); t != nil && t.contains(offset) {
		return fmt.Errorf("delete row %d at %s: %w", row, at, ErrDeleted)
	}

	c, t, bytes := v.rows.makeTile(row)
	bytes += t.append(makeEntry(offset, delta))
	c.last.Store(delta)
	c.unfolded++
	v.last.Store(uint64(at))
	v.added.Add(1)
	v.count++
	if bytes != 0 {
		v.bytes.Add(bytes)
	}
	return nil
}

// Deleted tells whether row is deleted in the newest state. For the writer.
func (v *Visibility) Deleted(row uint32) bool {
	t := v.rows.tile(row)
	return t != nil && t.contains(uint16(row&offsetMask))
}

// DeletedAt tells whether row is deleted at x. For any goroutine; x must not lie below Base, where it answers as at Base.
func (v *Visibility) DeletedAt(row uint32, x LSN) bool {
	t := v.rows.tile(row)
	if t == nil {
		return false
	}
	if x < v.first {
		return t.baseContains(uint16(row & offsetMask))
	}
	return t.containsAt(uint16(row&offsetMask), uint64(x-v.first))
}

// Count is the number of deleted rows in the newest state. For the writer.
func (v *Visibility) Count() int { return v.count }

// Base is the LSN up to which deletions are folded: At answers from there on. 0 before the first Fold. For any goroutine.
func (v *Visibility) Base() LSN { return LSN(v.base.Load()) }

// Last is the LSN of the newest deletion, 0 before the first. For any goroutine.
func (v *Visibility) Last() LSN { return LSN(v.last.Load()) }

// Bytes is about how much memory v takes, the vectors it keeps for At included. For any goroutine.
func (v *Visibility) Bytes() int64 {
	return v.bytes.Load() + v.newest.Load().bytes() + v.other.Load().bytes()
}

// Fold merges the deletions at or before upTo into the base and raises Base to upTo; below Base it does nothing. For the writer.
// No reader below upTo may come or be under way, and no deletion at or below upTo may follow.
// Readers on the old tiles are not disturbed.
func (v *Visibility) Fold(upTo LSN) {
	if uint64(upTo) <= v.base.Load() {
		return
	}
	v.base.Store(uint64(upTo))
	v.settleAnswers(upTo)
	if upTo < v.first {
		return
	}
	delta := uint64(upTo - v.first)
	for _, c := range v.rows.all() {
		if c.unfolded == 0 {
			continue
		}
		c.unfolded = 0
		for i := range c.tiles {
			t := c.tiles[i].Load()
			if t == nil {
				continue
			}
			folded, bytes := t.fold(delta)
			if folded != t {
				c.tiles[i].Store(folded)
				v.bytes.Add(bytes)
			}
			if l := folded.log.Load(); l != nil {
				c.unfolded += l.entries
			}
		}
	}
}
