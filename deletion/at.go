package deletion

import (
	"fmt"
	"iter"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

// At returns the positions below rows that are deleted at x, or nil if there are none. For any goroutine.
//
// The vector is frozen and shared: as long as the answer and rows stay the same, further calls return the same vector and do
// no work; with newer deletions only those are added to a copy. Every deletion at or below x must have been made before the
// call. Below Base the error is ErrFolded: the reader's LSN was not held, and what it should see is forgotten.
func (v *Visibility) At(x LSN, rows uint32) (*Vector, error) {
	// Loaded before any entry is read: what is published later is looked for again by the next call.
	added := v.added.Load()
	last := LSN(v.last.Load())
	base := v.Base()
	if x < base {
		return nil, foldedError(x, base)
	}
	if v.rows.empty() {
		return nil, nil
	}
	found := v.kept(x, last, added)
	if found == nil {
		found = &answer{at: x, certain: x}
		if x >= last { // everything, and more with the newest LSN may come unless it is folded
			found = &answer{at: max(last, base), certain: base, complete: true, added: added}
			if last > base {
				found.certain = last - 1
			}
		}
		var err error
		if found.vector, err = v.read(x, rows); err != nil {
			return nil, err
		}
		found = v.keep(found)
	}
	return v.forRows(found, rows), nil
}

func foldedError(x, base LSN) error {
	return fmt.Errorf("deleted rows at %s, base %s: %w", x, base, ErrFolded)
}

// read finds the deletions at x: those of a kept answer below x and what came since, or all from the tiles.
func (v *Visibility) read(x LSN, rows uint32) (*Vector, error) {
	older := v.keptBelow(x)
	if older != nil {
		newer := v.entriesBetween(older, x)
		// A fold that went past the kept answer may have taken entries out of our sight.
		if v.Base() <= older.certain {
			return older.vector.with(newer, rows), nil
		}
	}
	bitmap := v.readTiles(x)
	if base := v.Base(); x < base { // a tile that we read may have been folded past x
		return nil, foldedError(x, base)
	}
	if bitmap.IsEmpty() {
		return nil, nil
	}
	return holding(bitmap, rows), nil
}

// holding freezes a bitmap that is not empty, for rows rows or as many as it needs.
func holding(bitmap *roaring.Bitmap, rows uint32) *Vector {
	return (&Vector{rows: max(rows, bitmap.Maximum()+1), bitmap: bitmap}).Freeze()
}

// entriesBetween lists the rows deleted at or below x that are not in older, in any order.
func (v *Visibility) entriesBetween(older *answer, x LSN) (rows []uint32) {
	if x < v.first || x == older.certain {
		return nil
	}
	for row := range v.entries(older.certain, x) {
		if !older.vector.Contains(row) {
			rows = append(rows, row)
		}
	}
	return rows
}

// entries goes through the rows that have an entry above after and at or below upTo, which is not below the segment's first LSN, and their LSNs; tile
// after tile, the newest of each first.
func (v *Visibility) entries(after, upTo LSN) iter.Seq2[uint32, LSN] {
	return func(yield func(uint32, LSN) bool) {
		from, to := v.delta(after+1), v.delta(upTo)
		for first, c := range v.rows.all() {
			if c.last.Load() < from {
				continue
			}
			for i := range c.tiles {
				t := c.tiles[i].Load()
				if t == nil {
					continue
				}
				for e := range t.entries {
					if e.delta() < from {
						break
					}
					if e.delta() <= to && !yield(first+uint32(i*tileRows)+uint32(e.offset()), v.first+LSN(e.delta())) {
						return
					}
				}
			}
		}
	}
}

// delta is lsn as entries hold it; what lies below the segment's first LSN is 0.
func (v *Visibility) delta(lsn LSN) uint64 {
	return uint64(max(lsn, v.first) - v.first)
}

// readTiles reads the deletions at x from every tile.
func (v *Visibility) readTiles(x LSN) *roaring.Bitmap {
	all := roaring.New()
	words := make([]uint64, chunkRows/64)
	for first, c := range v.rows.all() {
		clear(words)
		for i := range c.tiles {
			t := c.tiles[i].Load()
			if t == nil {
				continue
			}
			part := words[i*tileWords : (i+1)*tileWords]
			t.addBaseTo(part)
			if x >= v.first {
				t.addEntriesTo(part, v.delta(x))
			}
		}
		container := roaring.FromDense(words, true)
		if first > 0 {
			container = roaring.AddOffset64(container, int64(first))
		}
		all.Or(container)
	}
	return all
}

// with returns a frozen vector that has rows added to v's, or v itself when there are none. v may be nil.
func (v *Vector) with(added []uint32, rows uint32) *Vector {
	if len(added) == 0 {
		return v
	}
	bitmap := roaring.New()
	if v != nil {
		bitmap = v.bitmap.Clone()
	}
	slices.Sort(added)
	bitmap.AddMany(added)
	return holding(bitmap, rows)
}

// forRows returns the answer's vector as that of rows rows. Kept vectors are never cut, so that they can be added to.
func (v *Visibility) forRows(a *answer, rows uint32) *Vector {
	switch {
	case a.vector == nil || a.vector.rows == rows:
		return a.vector
	case a.vector.bitmap.Maximum() < rows:
		again := *a
		again.vector = holding(a.vector.bitmap, rows)
		return v.keep(&again).vector
	}
	cut := &Vector{rows: rows, bitmap: a.vector.bitmap.Clone()}
	cut.bitmap.RemoveRange(uint64(rows), 1<<32)
	if cut.bitmap.IsEmpty() {
		return nil
	}
	return cut.Freeze()
}
