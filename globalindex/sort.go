package globalindex

import (
	"math/bits"
	"slices"
)

const (
	// sortPart is about how many entries are sorted at once: they and their copy (64 KB) stay in the nearest caches.
	sortPart = 1 << 11
	// sortSlots is the most places that one pass deals entries to; more of them at once and every write misses the caches.
	sortSlots = 1 << 12
	// sortFew is the number of entries from which comparing one by one is slower than a real sort.
	sortFew = 16
	// sortRounds is how many times the source is gone through at the most. Each round holds that part of the entries, 16 bytes each, and reads
	// all hashes, which is fast as they lie one after the other. One round takes no longer than eight.
	sortRounds = 8
	// sortLeast is the number of entries that one round takes at least: 1 MB.
	sortLeast = 1 << 16
)

// entrySource is a number of entries in any order that can be gone through again and again. A place is the high bits of a hash, from shift on.
type entrySource interface {
	// count adds to counts, by place, how many entries there are.
	count(shift uint, counts []int)
	// deal copies the entries of the places from first up to end to where next says for each of these, which moves on, without changing
	// the order within a place.
	deal(to []FileEntry, shift uint, first, end uint64, next []int)
}

// hashList has the hashes of each file in row order.
type hashList [][]uint64

func (l hashList) count(shift uint, counts []int) {
	for _, hashes := range l {
		for _, hash := range hashes {
			counts[hash>>shift]++
		}
	}
}

func (l hashList) deal(to []FileEntry, shift uint, first, end uint64, next []int) {
	for file, hashes := range l {
		for row, hash := range hashes {
			if place := hash>>shift - first; place < end-first { // a place before first wraps around
				to[next[place]] = FileEntry{Hash: hash, File: uint32(file), Row: uint32(row)}
				next[place]++
			}
		}
	}
}

// entryList is entries as they come.
type entryList []FileEntry

func (l entryList) count(shift uint, counts []int) {
	for i := range l {
		counts[l[i].Hash>>shift]++
	}
}

func (l entryList) deal(to []FileEntry, shift uint, first, end uint64, next []int) {
	for i := range l {
		if place := l[i].Hash>>shift - first; place < end-first {
			to[next[place]] = l[i]
			next[place]++
		}
	}
}

// eachSorted calls f with the n entries of a source in order of hash, file and row, some thousands at a time, until f returns an error. Entries of one
// hash come together. What f gets is valid until it returns.
//
// Hashes are spread evenly, so their high bits say where an entry goes: one pass for each round deals some of the entries to parts that fit the
// caches, a second one within each part to places of one or two entries, and what is left is to compare neighbours. Entries with
// one hash come in order from the engine; where they do not, or where hashes crowd, the places are sorted.
func eachSorted(from entrySource, n int, f func([]FileEntry) error) error {
	first := slotBits(n / sortPart)
	counts := make([]int, 1<<first)
	from.count(64-first, counts)
	crowd := 4 * max(sortPart, n>>first) // a larger part is not copied: its hashes are not spread evenly

	ends, most := rounds(counts, max(sortLeast, (n+sortRounds-1)/sortRounds))
	entries := make([]FileEntry, most)
	copied := make([]FileEntry, min(crowd, slices.Max(counts)))
	next, starts := make([]int, len(counts)), make([]int, sortSlots+1)
	begin := 0
	for _, end := range ends {
		at := 0
		for i, count := range counts[begin:end] {
			next[i] = at
			at += count
		}
		from.deal(entries, 64-first, uint64(begin), uint64(end), next)
		at = 0
		for _, count := range counts[begin:end] {
			part := entries[at : at+count]
			at += count
			if count > crowd {
				slices.SortFunc(part, compareEntries)
			} else {
				part = sortPlaces(part, copied[:count], first, starts)
			}
			if err := f(part); err != nil {
				return err
			}
		}
		begin = end
	}
	return nil
}

// rounds cuts the places where at least that many entries have come together. It returns the end of each round, and the number of entries of the
// largest.
func rounds(counts []int, least int) (ends []int, most int) {
	sum := 0
	for i, count := range counts {
		sum += count
		if sum >= least || i == len(counts)-1 {
			ends, most, sum = append(ends, i+1), max(most, sum), 0
		}
	}
	return ends, most
}

// slotBits is how many bits tell about n places apart.
func slotBits(n int) uint { return min(uint(bits.Len(uint(n))), uint(bits.Len(sortSlots)-1)) }

// sortPlaces returns entries whose first high bits are alike in order, in the memory of copied. starts has room for where each place begins, and the
// end.
func sortPlaces(entries, copied []FileEntry, first uint, starts []int) []FileEntry {
	within := slotBits(len(entries))
	starts = starts[:1<<within+1]
	deal(copied, entries, 64-first-within, starts)
	for i := range len(starts) - 1 {
		place := copied[starts[i]:starts[i+1]]
		if len(place) > sortFew {
			slices.SortFunc(place, compareEntries)
			continue
		}
		for j := 1; j < len(place); j++ {
			for k := j; k > 0 && place[k].Hash <= place[k-1].Hash && compareEntries(place[k], place[k-1]) < 0; k-- {
				place[k], place[k-1] = place[k-1], place[k]
			}
		}
	}
	return copied
}

// deal copies entries to, each to the place that the bits of its hash from shift on name, without changing the order within a
// place. starts, one longer than there are places, gets where each begins.
func deal(to, entries []FileEntry, shift uint, starts []int) {
	mask := uint64(len(starts) - 2)
	clear(starts)
	for i := range entries {
		starts[entries[i].Hash>>shift&mask+1]++
	}
	for i := 1; i < len(starts); i++ {
		starts[i] += starts[i-1]
	}
	for i := range entries {
		place := entries[i].Hash >> shift & mask
		to[starts[place]] = entries[i]
		starts[place]++
	}
	copy(starts[1:], starts) // each had moved to the end of its place
	starts[0] = 0
}
