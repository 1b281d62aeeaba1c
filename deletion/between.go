package deletion

import "slices"

// Between lists the rows that were deleted above from and at or below to, with their LSNs, by row. For any goroutine; every deletion at or
// below to must have been made before the call. When from lies below Base the error is ErrFolded: LSNs above it may be forgotten.
func (v *Visibility) Between(from, to LSN) ([]Deletion, error) {
	var list []Deletion
	if v.last.Load() > uint64(from) && to > from && to >= v.first {
		for row, at := range v.entries(from, to) {
			list = append(list, Deletion{Row: row, At: at})
		}
	}
	if base := v.Base(); from < base { // a tile that we read may have been folded past from
		return nil, foldedError(from, base)
	}
	slices.SortFunc(list, func(a, b Deletion) int { return int(int64(a.Row) - int64(b.Row)) })
	return list, nil
}
