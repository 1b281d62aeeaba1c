package mirror

import (
	"math/bits"

	"github.com/zeebo/xxh3"
)

// tally is the order-free sum of one side's rows: how many there are, and the sum modulo 2^128 of a 128-bit hash of each. The
// same sums are kept for each of some buckets, into which a row falls by its key: they tell where two sides differ.
type tally struct {
	total   sum
	buckets []sum
}

type sum struct {
	rows   int64
	hi, lo uint64
}

func (s *sum) add(hash xxh3.Uint128) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, hash.Lo, 0)
	s.hi, _ = bits.Add64(s.hi, hash.Hi, carry)
	s.rows++
}

// maxBuckets takes 1.5 MiB a side, and leaves 15,000 rows a bucket of a thousand million.
const maxBuckets = 1 << 16

// bucketsFor is the number of buckets for a table of about so many rows, a power of two.
func bucketsFor(rows int64) int {
	n := 1
	for n < maxBuckets && int64(n)*16 < rows {
		n *= 2
	}
	return n
}

func newTally(buckets int) *tally { return &tally{buckets: make([]sum, buckets)} }

func (t *tally) add(hash xxh3.Uint128, bucket int) {
	t.total.add(hash)
	t.buckets[bucket].add(hash)
}

// maxRemembered bounds the rows that are looked at again to name their keys.
const maxRemembered = 1 << 16

// differing lists buckets that differ: as many as hold maxRemembered rows together, at least one if there is one. all says that
// there are no others.
func (t *tally) differing(other *tally) (wanted map[int]bool, all bool) {
	wanted = map[int]bool{}
	rows := int64(0)
	for i := range t.buckets {
		if t.buckets[i] == other.buckets[i] {
			continue
		}
		rows += t.buckets[i].rows + other.buckets[i].rows
		if len(wanted) > 0 && rows > maxRemembered {
			return wanted, false
		}
		wanted[i] = true
	}
	return wanted, true
}
