package deletion

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
)

// Deletion is one deleted row and the LSN from which it is deleted.
type Deletion struct {
	Row uint32
	At  LSN
}

// FromVector returns the visibility of a segment whose deletions up to at are those of vector, which may be nil. at is
// the LSN of the snapshot that holds the vector: everything later is deleted above it.
func FromVector(vector *Vector, at LSN) *Visibility {
	v := NewVisibility(at)
	v.base.Store(uint64(at))
	v.addBase(vector.Positions())
	return v
}

// Carry returns the visibility of a segment to which a rewrite moves rows, with what Between said of the inputs, translated to the new rows. The
// deletions may come in any order. first is the output's first LSN. The error is ErrDeleted, ErrOrder or ErrRange.
func Carry(first LSN, deletions []Deletion) (*Visibility, error) {
	sorted := slices.Clone(deletions)
	slices.SortFunc(sorted, func(a, b Deletion) int { return cmp.Compare(a.At, b.At) })
	v := NewVisibility(first)
	for _, d := range sorted {
		if err := v.Delete(d.Row, d.At); err != nil {
			return nil, fmt.Errorf("carry over: %w", err)
		}
	}
	return v, nil
}

// addBase puts ascending rows into the bases of tiles that do not exist yet.
func (v *Visibility) addBase(rows iter.Seq[uint32]) {
	var words [tileWords]uint64
	tileFirst, pending := uint32(0), false
	flush := func() {
		if !pending {
			return
		}
		c, t, bytes := v.rows.makeTile(tileFirst)
		withBase := &tile{base: makeBase(&words)}
		c.tiles[tileFirst%chunkRows/tileRows].Store(withBase)
		v.bytes.Add(bytes + withBase.bytes() - t.bytes())
		clear(words[:])
	}
	for row := range rows {
		if row&^offsetMask != tileFirst {
			flush()
			tileFirst = row &^ offsetMask
		}
		words[row&offsetMask/64] |= 1 << (row % 64)
		pending = true
		v.count++
	}
	flush()
}
