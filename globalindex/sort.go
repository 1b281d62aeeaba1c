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
)

// sortEntries returns a copy of the entries in order of hash, file and row.
//
// Hashes are spread evenly, so their high bits say where an entry goes: one pass deals the entries to parts that fit the
// caches, a second one within each part to places of one or two entries, and what is left is to compare neighbours. Entries with
// one hash come in order from the engine; where they do not, or where hashes crowd, the places are sorted.
func sortEntries(entries []FileEntry) []FileEntry {
	sorted := make([]FileEntry, len(entries))
	first := slotBits(len(entries) / sortPart)
	starts := make([]int, 1<<first+1)
	deal(sorted, entries, 64-first, starts)
	largest := 0
	for i := range 1 << first {
		largest = max(largest, starts[i+1]-starts[i])
	}
	copied := make([]FileEntry, largest)
	places := make([]int, sortSlots+1)
	for i := range 1 << first {
		part := sorted[starts[i]:starts[i+1]]
		within := slotBits(len(part))
		deal(copied[:len(part)], part, 64-first-within, places[:1<<within+1])
		copy(part, copied)
		sortPlaces(part, places[:1<<within+1])
	}
	return sorted
}

// slotBits is how many bits tell about n places apart.
func slotBits(n int) uint { return min(uint(bits.Len(uint(n))), uint(bits.Len(sortSlots)-1)) }

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

// sortPlaces sorts entries that are already in order from place to place.
func sortPlaces(entries []FileEntry, starts []int) {
	for i := range len(starts) - 1 {
		place := entries[starts[i]:starts[i+1]]
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
}
