package deletion

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkFold makes 10,000 deletions at random in ten million rows and folds them into the base, again and again until all
// rows are deleted.
func BenchmarkFold(b *testing.B) {
	const rows, anew = 10_000_000, 10_000
	order := rand.New(rand.NewPCG(5, 6)).Perm(rows)
	var v *Visibility
	x, next := LSN(1), rows
	for b.Loop() {
		if next+anew > rows {
			b.StopTimer()
			v, next = NewVisibility(1), 0
			b.StartTimer()
		}
		for _, row := range order[next : next+anew] {
			x++
			if err := v.Delete(uint32(row), x); err != nil {
				b.Fatal(err)
			}
		}
		next += anew
		v.Fold(x)
	}
	b.ReportMetric(anew*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mdeletes/s")
}

// BenchmarkExport lists deletions with their LSNs, as a rewrite does that carries them over: 100,000 in a million rows.
func BenchmarkExport(b *testing.B) {
	const rows, deleted = 1_000_000, 100_000
	v := NewVisibility(1)
	for i, row := range rand.New(rand.NewPCG(7, 8)).Perm(rows)[:deleted] {
		if err := v.Delete(uint32(row), LSN(2+i)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		list, err := v.Between(1, 2+deleted)
		if err != nil || len(list) != deleted {
			b.Fatalf("%d deletions (%v)", len(list), err)
		}
	}
	b.ReportMetric(deleted*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mdeletes/s")
}

// BenchmarkVector encodes and decodes the deletion vectors of a file of ten million rows.
func BenchmarkVector(b *testing.B) {
	const rows = 10_000_000
	for _, percent := range []int{1, 30} {
		random := rand.New(rand.NewPCG(9, 10))
		v := NewVector(rows)
		for row := range uint32(rows) {
			if random.IntN(100) < percent {
				v.Set(row)
			}
		}
		v.Freeze()
		blob, err := v.MarshalBlob()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("encode/%d%%", percent), func(b *testing.B) {
			b.SetBytes(int64(len(blob)))
			for b.Loop() {
				if _, err := v.MarshalBlob(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(blob))*8/rows, "bits/row")
		})
		b.Run(fmt.Sprintf("decode/%d%%", percent), func(b *testing.B) {
			b.SetBytes(int64(len(blob)))
			for b.Loop() {
				if _, err := UnmarshalBlob(blob, rows); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
