package deletion

import "slices"

// Between lists the rows that were deleted above from and at or below to, with their LSNs, by row. For any goroutine; every deletion at or
// below to must have been made before the call. When from lies below Base the error is ErrFolded: LSNs above it may be forgotten.
func (v *Visibility) Between(from, to LSN) ([]Deletion, error) {
	var list []Deletion
	if v.last.Load() > uint64(from) && to > from && to >= v.first {
		above, upTo := v.delta(from+1), v.delta(to)
		for first, c := range v.rows.all() {
			if c.last.Load() < above {
				continue
			}
			for i := range c.tiles {
				t := c.tiles[i].Load()
				if t == nil {
					continue
				}
				for e := range t.entries {
					if e.delta() < above {
						break
					}
					if e.delta() <= upTo {
						list = append(list, Deletion{Row: first + uint32(i*tileRows) + uint32(e.offset()), At: v.first + LSN(e.delta())})
					}
				}
			}
		}
	}
	if base := v.Base(); from < base { // a tile that we read may have been folded past from
		return nil, foldedError(from, base)
	}
	slices.SortFunc(list, func(a, b Deletion) int { return int(int64(a.Row) - int64(b.Row)) })
	return list, nil
}
