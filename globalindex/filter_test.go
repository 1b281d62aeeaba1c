package globalindex

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// Of absent keys at most one in a hundred passes the filter, and each present key does, for every kind of hash: sequential integers with
// absent ones between and beside them, canonical bytes, and random numbers.
func TestFilterRate(t *testing.T) {
	const keys, absent = 300_000, 1_000_000
	random := rand.New(rand.NewPCG(5, 6))
	canonical := func(i uint64) uint64 {
		return HashBytes(AppendFixed(nil, binary.LittleEndian.AppendUint64(nil, i)))
	}
	for name, c := range map[string]struct{ present, absent func(i uint64) uint64 }{
		"even integers": {func(i uint64) uint64 { return HashInt(int64(2 * i)) }, func(i uint64) uint64 { return HashInt(int64(2*i + 1)) }},
		"integers":      {func(i uint64) uint64 { return HashInt(int64(i)) }, func(i uint64) uint64 { return HashInt(int64(keys + i)) }},
		"bytes":         {canonical, func(i uint64) uint64 { return canonical(keys + i) }},
		"random":        {func(uint64) uint64 { return random.Uint64() }, func(uint64) uint64 { return random.Uint64() }},
	} {
		hashes := make([]uint64, keys)
		for i := range hashes {
			hashes[i] = c.present(uint64(i))
		}
		data, err := BuildFileIndex(intHeader(keys), [][]uint64{hashes})
		if err != nil {
			t.Fatal(err)
		}
		x := mustOpen(t, data)
		for _, hash := range hashes {
			if !x.mayHave(hash) {
				t.Fatalf("%s: hash %#x does not pass", name, hash)
			}
		}
		passed := 0
		for i := range uint64(absent) {
			if x.mayHave(c.absent(i)) {
				passed++
			}
		}
		if rate := float64(passed) / absent; rate > 0.01 {
			t.Errorf("%s: %.3f %% of absent keys pass", name, rate*100)
		}
	}
}

// A lookup whose hash the filter stops reads nothing else: with directory and entries gone it still answers.
func TestFilterStopsLookup(t *testing.T) {
	x := mustOpen(t, someIndex(t, 1000))
	stopped := 0
	bare := *x
	bare.directory, bare.packed = nil, nil
	for i := range int64(1000) {
		if hash := HashInt(1_000_000 + i); !x.mayHave(hash) {
			stopped++
			if got := bare.Candidates(hash, nil); len(got) != 0 {
				t.Fatal(got)
			}
		}
	}
	if stopped < 980 {
		t.Errorf("%d of 1000 absent keys were stopped", stopped)
	}
}
