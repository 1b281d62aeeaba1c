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

func byLSN(a, b Deletion) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Row, b.Row))
}

// FromVector returns the visibility of a segment whose deletions up to at are those of vector, which may be nil. at is
// the LSN of the snapshot that holds the vector: everything later is deleted above it.
func FromVector(vector *Vector, at LSN) *Visibility {
	v := NewVisibility(at)
	v.base.Store(uint64(at))
	v.addBase(vector.Positions())
	return v
}

// Carry returns the visibility of a segment to which a rewrite moved rows, with what Beyond said of the inputs, translated
// to the new rows. The deletions may come in any order. Those at or before base become the base; base is the largest Base of
// the inputs, 0 if none was folded. first is the output's first LSN. The error is ErrDeleted, ErrOrder or ErrRange.
func Carry(first, base LSN, deletions []Deletion) (*Visibility, error) {
	sorted := slices.Clone(deletions)
	slices.SortFunc(sorted, byLSN)
	folded := 0
	for folded < len(sorted) && sorted[folded].At <= base {
		folded++
	}

	v := NewVisibility(first)
	v.base.Store(uint64(base))
	rows := make([]uint32, folded)
	for i, d := range sorted[:folded] {
		rows[i] = d.Row
	}
	slices.Sort(rows)
	for i := 1; i < len(rows); i++ {
		if rows[i] == rows[i-1] {
			return nil, fmt.Errorf("carry over row %d: %w", rows[i], ErrDeleted)
		}
	}
	v.addBase(slices.Values(rows))
	for _, d := range sorted[folded:] {
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

// Beyond goes through the rows that are deleted now and are not in at, which may be nil: first those folded into the base, in
// row order, with Base as their LSN (their own is forgotten and is not above it), then the entries in LSN order, with
// their LSNs. For the writer, who must not change v meanwhile.
func (v *Visibility) Beyond(at *Vector) iter.Seq2[uint32, LSN] {
	return func(yield func(uint32, LSN) bool) {
		for first, c := range v.rows.all() {
			for i := range c.tiles {
				t := c.tiles[i].Load()
				if t == nil {
					continue
				}
				for offset := range t.baseOffsets {
					row := first + uint32(i*tileRows) + uint32(offset)
					if !at.Contains(row) && !yield(row, v.Base()) {
						return
					}
				}
			}
		}
		for _, d := range v.entriesBeyond(at) {
			if !yield(d.Row, d.At) {
				return
			}
		}
	}
}

// entriesBeyond lists the entries whose rows are not in at, by LSN and row.
func (v *Visibility) entriesBeyond(at *Vector) (list []Deletion) {
	for first, c := range v.rows.all() {
		for i := range c.tiles {
			t := c.tiles[i].Load()
			if t == nil {
				continue
			}
			for e := range t.entries {
				row := first + uint32(i*tileRows) + uint32(e.offset())
				if !at.Contains(row) {
					list = append(list, Deletion{Row: row, At: v.first + LSN(e.delta())})
				}
			}
		}
	}
	slices.SortFunc(list, byLSN)
	return list
}
