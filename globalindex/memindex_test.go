package globalindex

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A MemIndex agrees with a map from hash to rows: puts, removals and look-ups over few hashes that share their home slots.
func TestMemIndexAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMemIndex(rapid.IntRange(0, 1000).Draw(t, "rows"))
		model := map[uint64][]uint32{} // oldest first
		var next uint32
		// High bits choose the slot; few of them make long runs, also around the end of the table.
		hash := rapid.Custom(func(t *rapid.T) uint64 {
			return rapid.SampledFrom([]uint64{0, 1, 0xFFFF, 0xF000, 0xEFFF}).Draw(t, "high")<<48 | rapid.Uint64Range(0, 9).Draw(t, "low")
		})
		length := 0
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				h := hash.Draw(t, "hash")
				next += rapid.Uint32Range(0, 2).Draw(t, "skip")
				m.Put(h, next)
				model[h] = append(model[h], next)
				next++
				length++
			},
			"remove": func(t *rapid.T) {
				h := hash.Draw(t, "hash")
				row := rapid.Uint32Range(0, next+1).Draw(t, "row")
				if rows := model[h]; len(rows) > 0 && rapid.Bool().Draw(t, "there") {
					row = rapid.SampledFrom(rows).Draw(t, "which")
				}
				i := slices.Index(model[h], row)
				if got := m.Remove(h, row); got != (i >= 0) {
					t.Fatalf("remove row %d: %v", row, got)
				}
				if i >= 0 {
					model[h] = slices.Delete(model[h], i, i+1)
					length--
				}
			},
			"": func(t *rapid.T) {
				h := hash.Draw(t, "hash")
				want := slices.Clone(model[h])
				slices.Reverse(want)
				if got := m.Candidates(h, nil); !slices.Equal(got, want) {
					t.Fatalf("candidates of %#x: %v, want %v", h, got, want)
				}
				if m.Len() != length {
					t.Fatalf("length %d, want %d", m.Len(), length)
				}
			},
		})
		for h, rows := range model {
			if got := m.Candidates(h, nil); len(got) != len(rows) {
				t.Fatalf("in the end %d candidates of %#x, want %d", len(got), h, len(rows))
			}
		}
	})
}

// Candidates keeps what dst has, and a reader may stop early.
func TestMemIndexRows(t *testing.T) {
	m := NewMemIndex(0)
	for row := range uint32(4) {
		m.Put(9, row)
	}
	if got := m.Candidates(9, []uint32{77}); !slices.Equal(got, []uint32{77, 3, 2, 1, 0}) {
		t.Errorf("candidates %v", got)
	}
	for row := range m.Rows(9) {
		if row == 2 {
			break
		}
	}
}

// 8,192 equal rows (identity FULL, no key) are put and their newest removed in no more than a step each.
func TestMemIndexEqualRows(t *testing.T) {
	m := NewMemIndex(8192)
	for row := range uint32(100_000) {
		m.Put(1, row)
	}
	for row := uint32(100_000); row > 0; row-- {
		if !m.Remove(1, row-1) {
			t.Fatalf("row %d is not there", row-1)
		}
	}
	if m.Len() != 0 || len(m.Candidates(1, nil)) != 0 {
		t.Fatal("not empty in the end")
	}
}

// Five thousand tables with a row or two take under 256 bytes each; a full batch at most 32 bytes a row.
func TestMemIndexSize(t *testing.T) {
	small := NewMemIndex(8192)
	small.Put(HashInt(1), 0)
	small.Put(HashInt(2), 1)
	if small.Bytes() > 256 {
		t.Errorf("two rows take %d bytes", small.Bytes())
	}
	full := NewMemIndex(8192)
	for row := range uint32(8192) {
		full.Put(HashInt(int64(row)), row)
	}
	if full.Bytes() > 32*8192 {
		t.Errorf("8192 rows take %d bytes", full.Bytes())
	}
}

func BenchmarkMemIndexPut(b *testing.B) {
	for _, rows := range []int{8192, 1 << 20} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			var m *MemIndex
			for i := 0; i < b.N; i++ {
				if i%rows == 0 {
					m = NewMemIndex(rows)
				}
				m.Put(HashInt(int64(i)), uint32(i%rows))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mputs/s")
			b.ReportMetric(float64(m.Bytes())/float64(m.Len()), "bytes/row")
		})
	}
}
