package globalindex

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Probe finds for each hash what Candidates finds, in any order of hashes, hashes that many rows share among them, and never more
// than it may.
func TestProbeEqualsCandidates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.IntRange(0, 2000).Draw(t, "rows")
		distinct := rapid.Uint64Range(1, 3000).Draw(t, "distinct")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		hashes := make([]uint64, rows)
		for i := range hashes {
			hashes[i] = HashInt(int64(random.Uint64N(distinct)))
		}
		data, err := BuildFileIndex(intHeader(uint64(rows)), [][]uint64{hashes})
		if err != nil {
			t.Fatal(err)
		}
		x, err := OpenFileIndex(data)
		if err != nil {
			t.Fatal(err)
		}
		sought := make([]uint64, rapid.IntRange(0, 300).Draw(t, "sought"))
		for i := range sought {
			sought[i] = HashInt(int64(random.Uint64N(2 * distinct)))
		}
		if rapid.Bool().Draw(t, "sorted") {
			slices.Sort(sought)
		}
		most := rapid.IntRange(0, 5).Draw(t, "most")
		var want []Found
		for i, hash := range sought {
			for _, loc := range x.CandidatesFrom(hash, 0, most, nil) {
				want = append(want, Found{i, loc})
			}
		}
		if got := x.Probe(sought, most, nil); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// A transaction's keys sought in one pass, beside one by one, in an index that does not fit the processor's caches.
func BenchmarkProbe(b *testing.B) {
	const rows, keys = 8_000_000, 1024
	hashes := make([]uint64, rows)
	for i := range hashes {
		hashes[i] = HashInt(int64(i))
	}
	data, err := BuildFileIndex(intHeader(rows), [][]uint64{hashes})
	if err != nil {
		b.Fatal(err)
	}
	x := mustOpen(b, data)
	random := rand.New(rand.NewPCG(1, 2))
	sought := make([]uint64, keys)
	draw := func() {
		for i := range sought {
			sought[i] = HashInt(random.Int64N(rows))
		}
	}
	var oneByOne float64
	b.Run("one by one", func(b *testing.B) {
		dst := make([]FileLocation, 0, keys)
		for b.Loop() {
			draw()
			dst = dst[:0]
			for _, hash := range sought {
				dst = x.Candidates(hash, dst)
			}
			if len(dst) != keys {
				b.Fatal(len(dst))
			}
		}
		oneByOne = float64(b.Elapsed()) / float64(b.N)
		b.ReportMetric(oneByOne/keys, "ns/key")
	})
	b.Run("one pass", func(b *testing.B) {
		dst := make([]Found, 0, keys)
		for b.Loop() {
			draw()
			slices.Sort(sought)
			if dst = x.Probe(sought, 4, dst[:0]); len(dst) != keys {
				b.Fatal(len(dst))
			}
		}
		own := float64(b.Elapsed()) / float64(b.N)
		b.ReportMetric(own/keys, "ns/key")
		b.ReportMetric(own/oneByOne, "×one-by-one")
	})
}
