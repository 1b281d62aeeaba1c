package globalindex

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Entries are sorted however their hashes are spread: evenly, crowded in few high or low bits, equal, in any order of file
// and row; and the caller's stay as they are.
func TestSortEntries(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 2, 17, 100, sortPart - 1, 5000, 40_000, 3 * sortLeast}).Draw(rt, "entries")
		mask := rapid.SampledFrom([]uint64{^uint64(0), 0, 7, 7 << 61, 0xffff << 30, 1<<63 | 1}).Draw(rt, "mask")
		equal := rapid.SampledFrom([]uint64{1, 3, 200}).Draw(rt, "equal")
		descending := rapid.Bool().Draw(rt, "descending")
		seed := rapid.Uint64().Draw(rt, "seed")
		entries := make([]FileEntry, n)
		for i := range entries {
			e := FileEntry{Hash: HashInt(int64(seed+uint64(i)/equal)) & mask, File: uint32(i % 3), Row: uint32(i)}
			if descending {
				e.Row = uint32(n - i)
			}
			entries[i] = e
		}
		before := slices.Clone(entries)
		want := slices.SortedFunc(slices.Values(entries), compareEntries)
		var got []FileEntry
		if err := eachSorted(entryList(entries), n, func(part []FileEntry) error { got = append(got, part...); return nil }); err != nil {
			rt.Fatal(err)
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%d entries are not in order", n)
		}
		if !slices.Equal(entries, before) {
			rt.Fatal("the caller's entries changed")
		}
	})
}
