package globalindex

import "math"

// tierRatio is how many times the rows of all newer indexes together an index must have to stay as it is.
const tierRatio = 2

// Tiers chooses the indexes of a table to merge into one: those at positions from to to−1, neighbours, at least two; from and to are equal if
// there is nothing to do. rows are the entries of each index, oldest first.
//
// Each index that stays has at least twice as many rows as all newer ones together, so each has at least three times the rows
// from itself on than the next has. Hence
//   - with the newest index of n rows and N in all, there are at most 1 + log3(N/n) indexes: 7 after 1,000 equal flushes (in fact 6), and
//     one more that was there before, however large;
//   - a row comes by a merge into an index at least 1.5 times as large as its own, unless its own is the newest: it is written at most
//     2 + log1.5(N/n) times. For 1,000 equal flushes that is 8 times on average, the flush included.
//
// Applied after every flush, the chosen ones always end with the newest. A caller with indexes that another job holds passes the
// neighbours that are free.
func Tiers(rows []uint64) (from, to int) {
	from, to = len(rows), len(rows)
	newer := uint64(0)
	for i := len(rows) - 1; i >= 0; i-- {
		own := max(rows[i], 1)     // an empty index counts too, else there could be any number of them
		if own/tierRatio < newer { // own is less than twice newer
			from = i
		}
		newer += min(own, math.MaxUint64-newer)
	}
	return from, to
}
