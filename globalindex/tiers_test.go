package globalindex

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tiered flushes those numbers of rows one after the other and applies Tiers after each. It returns the largest number of indexes after a
// flush, and all entries written.
func tiered(indexes, flushes []uint64) (most int, written uint64) {
	for _, rows := range flushes {
		indexes = append(indexes, rows)
		written += rows
		if from, to := Tiers(indexes); from < to {
			total := uint64(0)
			for _, n := range indexes[from:to] {
				total += n
			}
			written += total
			indexes = slices.Replace(indexes, from, to, total)
		}
		most = max(most, len(indexes))
	}
	return most, written
}

// After each of 1,000 equal flushes a table has at most 7 indexes, 8 with one that was there before; a row is written 8.1 times
// on average.
func TestTiersThousandFlushes(t *testing.T) {
	flushes := slices.Repeat([]uint64{5_000}, 1000)
	most, written := tiered(nil, flushes)
	times := float64(written) / (1000 * 5_000)
	if most > 7 || times > 8.5 {
		t.Errorf("%d indexes, each row written %.2f times", most, times)
	}
	for _, before := range []uint64{1, 7_000, 3_000_000, 1_000_000_000} {
		if most, _ := tiered([]uint64{before}, flushes); most > 8 {
			t.Errorf("%d indexes beside one of %d rows", most, before)
		}
	}
}

// Whatever the sizes: what Tiers chooses are at least two neighbours, afterwards there is nothing to do, no more indexes than 1 + log3 of
// all rows by the newest's stay, and the entries written for each row grow with the logarithm only.
func TestTiersAnySizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flushes := rapid.SliceOfN(rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64Range(1, 1000), rapid.Uint64Range(1, 1_000_000_000)), 1, 200).Draw(t, "flushes")
		var indexes []uint64
		all, written := 0.0, 0.0
		smallest := math.Inf(1)
		for _, rows := range flushes {
			rows = max(rows, 1)
			indexes = append(indexes, rows)
			all, written, smallest = all+float64(rows), written+float64(rows), min(smallest, float64(rows))
			if from, to := Tiers(indexes); from < to {
				if to != len(indexes) || to-from < 2 {
					t.Fatalf("%d to %d of %v", from, to, indexes)
				}
				total := uint64(0)
				for _, n := range indexes[from:to] {
					total += n
				}
				written += float64(total)
				indexes = append(indexes[:from], total)
			}
			if from, to := Tiers(indexes); from != to {
				t.Fatalf("once more: %d to %d of %v", from, to, indexes)
			}
			newest := float64(indexes[len(indexes)-1])
			if bound := 1 + math.Log(all/newest)/math.Log(3); float64(len(indexes)) > bound+1e-9 {
				t.Fatalf("%d indexes, at most %.2f: %v", len(indexes), bound, indexes)
			}
		}
		if bound := 2 + math.Log(all/smallest)/math.Log(1.5); written/all > bound {
			t.Fatalf("each row written %.2f times, at most %.2f: %v", written/all, bound, flushes)
		}
	})
}

// Few sizes whose answer is plain.
func TestTiersExamples(t *testing.T) {
	for _, c := range []struct {
		rows     []uint64
		from, to int
	}{
		{nil, 0, 0},
		{[]uint64{5}, 1, 1},
		{[]uint64{2, 1}, 2, 2},
		{[]uint64{1, 1}, 0, 2},
		{[]uint64{100, 2, 2}, 1, 3},
		{[]uint64{100, 49, 2}, 0, 3},
		{[]uint64{101, 50, 1}, 0, 3},
		{[]uint64{102, 50, 1}, 3, 3},
		{[]uint64{0, 0}, 0, 2},
		{[]uint64{8, 0}, 2, 2},
		{[]uint64{10, 1 << 63, 1 << 63}, 0, 3},
	} {
		if from, to := Tiers(c.rows); from != c.from || to != c.to {
			t.Errorf("%v: %d to %d, want %d to %d", c.rows, from, to, c.from, c.to)
		}
	}
}

// A random key that exists, sought in the indexes that Tiers leaves, the newest or the oldest first, beside one index of all rows.
func BenchmarkTiers(b *testing.B) {
	const rows = 4_000_000
	var tiers []*FileIndex
	key := int64(0)
	index := func(rows uint64) *FileIndex {
		hashes := make([]uint64, rows)
		for i := range hashes {
			hashes[i] = HashInt(key)
			key++
		}
		data, err := BuildFileIndex(intHeader(rows), [][]uint64{hashes})
		if err != nil {
			b.Fatal(err)
		}
		return mustOpen(b, data)
	}
	for left, n := uint64(rows), 0; n < 7; n++ { // each twice as large as all that follow
		own := left * 2 / 3
		tiers = append(tiers, index(own))
		left -= own
	}
	keys := key
	key = 0
	one := index(uint64(keys))
	var alone float64 // ns a lookup in the one index
	newest := slices.Clone(tiers)
	slices.Reverse(newest)
	for _, c := range []struct {
		name    string
		indexes []*FileIndex
	}{{"one", []*FileIndex{one}}, {"seven, newest first", newest}, {"seven, oldest first", tiers}} {
		b.Run(c.name, func(b *testing.B) {
			random := rand.New(rand.NewPCG(7, 8))
			dst := make([]FileLocation, 0, 8)
			for b.Loop() {
				hash := HashInt(random.Int64N(keys))
				dst = dst[:0]
				for i := 0; i < len(c.indexes) && len(dst) == 0; i++ {
					dst = c.indexes[i].Candidates(hash, dst)
				}
				if len(dst) != 1 {
					b.Fatal(dst)
				}
			}
			own := float64(b.Elapsed()) / float64(b.N)
			if len(c.indexes) == 1 {
				alone = own
			}
			b.ReportMetric(own/alone, "×one")
		})
	}
}
