package deletion

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

func lsn(t testing.TB, text string) LSN {
	t.Helper()
	l, err := pglogrepl.ParseLSN(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// at collects what At says.
func at(t testing.TB, v *Visibility, x LSN, rows uint32) []uint32 {
	t.Helper()
	vector, err := v.At(x, rows)
	if err != nil {
		t.Fatal(err)
	}
	if vector != nil && (vector.ID() == 0 || vector.Rows() != rows || vector.Cardinality() == 0) {
		t.Fatalf("at %s: vector id %d, rows %d, cardinality %d", x, vector.ID(), vector.Rows(), vector.Cardinality())
	}
	return slices.Collect(vector.Positions())
}

// DESIGN 7's golden entries: the last offset of a tile, a far LSN, and one close to the end of the range.
func TestEntryGolden(t *testing.T) {
	for _, c := range []struct {
		first, at string
		row       uint32
		want      entry
	}{
		{"0/1", "0/1", 0, 0},
		{"0/0", "0/1", 4095, 0xFFF0_0000_0000_0001},
		{"0/10", "100000/0", 4096 + 4095, 0xFFF0_0000_0000_0000 | 0xF_FFFF_FFFF_FFF0},
		{"FFFFFFFF/FFFFFF00", "FFFFFFFF/FFFFFFFF", 1, 0x0010_0000_0000_00FF},
		{"FFFFFFFF/FFFFFF00", "FFFFFFFF/FFFFFF00", 2, 0x0020_0000_0000_0000},
	} {
		v := NewVisibility(lsn(t, c.first))
		x := lsn(t, c.at)
		if err := v.Delete(c.row, x); err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if got := slices.Collect(v.rows.tile(c.row).entries); !slices.Equal(got, []entry{c.want}) {
			t.Errorf("%+v: entry %x", c, got)
		}
		if got := at(t, v, x, 10_000); !slices.Equal(got, []uint32{c.row}) {
			t.Errorf("%+v: at its LSN %v", c, got)
		}
		if x > v.first {
			if got := at(t, v, x-1, 10_000); len(got) != 0 {
				t.Errorf("%+v: before its LSN %v", c, got)
			}
		}
	}
}

// What cannot be recorded is an error that names the reason, and changes nothing.
func TestDeleteRefuses(t *testing.T) {
	v := NewVisibility(1000)
	for _, d := range []Deletion{{5, 1000}, {6, 2000}, {7, 2000}} {
		if err := v.Delete(d.Row, d.At); err != nil {
			t.Fatal(err)
		}
	}
	v.Fold(1500)
	folded := FromVector(nil, 3000)
	tooFar := LSN(1000 + 1<<52)
	for _, c := range []struct {
		name string
		v    *Visibility
		row  uint32
		at   LSN
		want error
	}{
		{"entry again", v, 6, 2000, ErrDeleted},
		{"base again", v, 5, 2000, ErrDeleted},
		{"below the last", v, 8, 1999, ErrOrder},
		{"below the segment", NewVisibility(1000), 8, 999, ErrOrder},
		{"at the base", folded, 8, 3000, ErrOrder},
		{"no LSN", NewVisibility(0), 8, 0, ErrOrder},
		{"52 bits", v, 8, tooFar, ErrRange},
		{"row", v, 1<<32 - 1, 2000, ErrRange},
	} {
		before := c.v.Count()
		if err := c.v.Delete(c.row, c.at); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		if c.v.Count() != before {
			t.Errorf("%s: count changed", c.name)
		}
	}
	if err := v.Delete(8, tooFar-1); err != nil {
		t.Errorf("largest difference: %v", err)
	}
	if err := v.Delete(1<<32-2, tooFar-1); err != nil {
		t.Errorf("largest row: %v", err)
	}
	if got := at(t, v, tooFar, 1<<32-1); !slices.Equal(got, []uint32{5, 6, 7, 8, 1<<32 - 2}) {
		t.Errorf("in the end %v are deleted", got)
	}
}

// Below the base LSN nothing is known any more; at it everything is.
func TestAtBelowBase(t *testing.T) {
	v := NewVisibility(10)
	for row := range uint32(3) {
		if err := v.Delete(row, LSN(20+10*row)); err != nil {
			t.Fatal(err)
		}
	}
	v.Fold(30)
	v.Fold(25) // never goes back
	if v.Base() != 30 {
		t.Fatalf("base %s", v.Base())
	}
	if _, err := v.At(29, 3); !errors.Is(err, ErrFolded) {
		t.Errorf("below the base: %v", err)
	}
	if got := at(t, v, 30, 3); !slices.Equal(got, []uint32{0, 1}) {
		t.Errorf("at the base: %v", got)
	}
	if got := at(t, v, 40, 3); !slices.Equal(got, []uint32{0, 1, 2}) {
		t.Errorf("above: %v", got)
	}
	if err := v.Delete(3, 30); !errors.Is(err, ErrOrder) {
		t.Errorf("a deletion at the base: %v", err)
	}
}

// The same question gets the same vector without work; newer entries give a new one and leave the old one as it is.
func TestAtIsShared(t *testing.T) {
	v := NewVisibility(0)
	remove := func(row uint32, x LSN) {
		t.Helper()
		if err := v.Delete(row, x); err != nil {
			t.Fatal(err)
		}
	}
	get := func(x LSN, rows uint32) *Vector {
		t.Helper()
		vector, err := v.At(x, rows)
		if err != nil {
			t.Fatal(err)
		}
		return vector
	}
	if get(5, 10) != nil {
		t.Fatal("nothing is deleted")
	}
	remove(1, 10)
	remove(2, 20)
	first := get(20, 10)
	if get(20, 10) != first || get(99, 10) != first {
		t.Error("no newer entry, yet another vector")
	}
	if allocs := testing.AllocsPerRun(100, func() { get(99, 10) }); allocs != 0 {
		t.Errorf("%v allocations for a kept answer", allocs)
	}
	old := get(15, 10)
	if old.Cardinality() != 1 || get(15, 10) != old || get(99, 10) != first {
		t.Error("an older LSN disturbs the newest answer, or is not kept")
	}
	remove(3, 20) // the same commit goes on
	second := get(20, 10)
	if second == first || second.ID() == first.ID() || first.Cardinality() != 2 || second.Cardinality() != 3 {
		t.Error("a later entry of the same LSN is missing, or in the frozen vector")
	}
	if get(15, 10) != old || v.other.Load() == nil {
		t.Error("the answer at an older LSN is gone")
	}
	v.Fold(20)
	if v.other.Load() != nil {
		t.Error("an answer below the base is kept")
	}
	if get(20, 10) != second || get(99, 10) != second {
		t.Error("a fold changes no answer")
	}
	remove(5, 21)
	get(21, 10)
	remove(6, 21)
	v.Fold(21)
	if got := get(21, 10); !got.Contains(6) {
		t.Error("an entry folded after its LSN was read is missing")
	}
	remove(4, 30)
	if third := get(30, 11); third.Cardinality() != 6 || third.Rows() != 11 {
		t.Error("an entry after a fold is missing")
	}
	wider, wide := get(30, 12), get(30, 12)
	if wider != wide || wide.Rows() != 12 {
		t.Error("more rows, yet not shared")
	}
	if cut := get(30, 3); !slices.Equal(slices.Collect(cut.Positions()), []uint32{1, 2}) || cut.Rows() != 3 {
		t.Errorf("cut to 3 rows: %v", slices.Collect(cut.Positions()))
	}
	if get(30, 12) != wide || get(30, 1) != nil {
		t.Error("a cut is kept instead of the whole")
	}
}

// Carry takes deletions in any order; a row named twice, and one before the segment, is an error.
func TestCarry(t *testing.T) {
	list := []Deletion{{70_000, 40}, {1, 15}, {0, 20}, {5000, 30}, {2, 30}}
	v, err := Carry(10, list)
	if err != nil {
		t.Fatal(err)
	}
	if v.Base() != 0 || v.Count() != 5 || v.Last() != 40 {
		t.Errorf("base %s, count %d, last %s", v.Base(), v.Count(), v.Last())
	}
	for x, want := range map[LSN][]uint32{14: nil, 15: {1}, 20: {0, 1}, 30: {0, 1, 2, 5000}, 39: {0, 1, 2, 5000}, 40: {0, 1, 2, 5000, 70_000}} {
		if got := at(t, v, x, 80_000); !slices.Equal(got, want) {
			t.Errorf("at %s: %v, want %v", x, got, want)
		}
	}
	if _, err := Carry(10, []Deletion{{1, 25}, {1, 26}}); !errors.Is(err, ErrDeleted) {
		t.Errorf("twice: %v", err)
	}
	if _, err := Carry(30, list); !errors.Is(err, ErrOrder) {
		t.Errorf("before the segment: %v", err)
	}
}

// The base of a tile changes from a list to a bitmap at 256 rows; both answer alike at the border, for one row a word and for
// neighbours.
func TestBaseAtTheBorder(t *testing.T) {
	for _, count := range []uint32{1, 255, 256, 257, 4096} {
		for _, stride := range []uint32{1, 13, 16} {
			if count*stride > tileRows {
				continue
			}
			v := NewVisibility(1)
			var want []uint32
			for i := range count {
				want = append(want, tileRows+i*stride)
				if err := v.Delete(tileRows+i*stride, 1); err != nil {
					t.Fatal(err)
				}
			}
			v.Fold(1)
			if got := at(t, v, 1, 3*tileRows); !slices.Equal(got, want) {
				t.Errorf("%d rows, every %d: %d are deleted", count, stride, len(got))
			}
			for row := range uint32(3 * tileRows) {
				if _, gone := slices.BinarySearch(want, row); v.Deleted(row) != gone {
					t.Fatalf("%d rows, every %d: row %d deleted: %v", count, stride, row, v.Deleted(row))
				}
			}
		}
	}
}

// A Visibility agrees with a plain map from row to delete LSN: random deletions, folds below every reader, and reads at random
// LSNs at or above the fold, some of them repeated, over dense and sparse tiles; also when it is carried to a new one.
func TestVisibilityAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := LSN(rapid.Uint64Range(1, 1<<60).Draw(t, "first"))
		rows := rapid.SampledFrom([]uint32{10, 4096, 9000, 200_000}).Draw(t, "rows")
		model := map[uint32]LSN{}
		v := NewVisibility(first)
		now, base := first, first
		deletedAt := func(x LSN) []uint32 {
			var list []uint32
			for row, at := range model {
				if at <= x {
					list = append(list, row)
				}
			}
			slices.Sort(list)
			return list
		}
		t.Repeat(map[string]func(*rapid.T){
			"delete": func(t *rapid.T) {
				now += LSN(rapid.Uint64Range(0, 3).Draw(t, "step"))
				if now <= v.Base() {
					now = v.Base() + 1
				}
				from := rapid.Uint32Range(0, rows-1).Draw(t, "row")
				stride := rapid.SampledFrom([]uint32{1, 2, 61, 5000}).Draw(t, "stride")
				for i := range rapid.SampledFrom([]uint32{1, 3, 40, 700}).Draw(t, "count") {
					row := uint32((uint64(from) + uint64(i)*uint64(stride)) % uint64(rows))
					_, gone := model[row]
					switch err := v.Delete(row, now); {
					case gone && !errors.Is(err, ErrDeleted):
						t.Fatalf("row %d again: %v", row, err)
					case !gone && err != nil:
						t.Fatal(err)
					case !gone:
						model[row] = now
					}
				}
			},
			"fold": func(t *rapid.T) {
				base = LSN(rapid.Uint64Range(uint64(base), uint64(now)).Draw(t, "base"))
				v.Fold(base)
			},
			"read": func(t *rapid.T) {
				x := LSN(rapid.Uint64Range(uint64(base), uint64(now)+5).Draw(t, "x"))
				vector, err := v.At(x, rows)
				if err != nil {
					t.Fatal(err)
				}
				want := deletedAt(x)
				if got := slices.Collect(vector.Positions()); !slices.Equal(got, want) {
					t.Fatalf("at %s: %d rows, want %d", x, len(got), len(want))
				}
				row := rapid.Uint32Range(0, rows-1).Draw(t, "one row")
				at, gone := model[row]
				if got := v.DeletedAt(row, x); got != (gone && at <= x) {
					t.Fatalf("row %d at %s: %v", row, x, got)
				}
			},
			"carry": func(t *rapid.T) {
				x := LSN(rapid.Uint64Range(uint64(base), uint64(now)).Draw(t, "x"))
				before, err := v.At(x, rows)
				if err != nil {
					t.Fatal(err)
				}
				later, err := v.Between(v.Base(), now)
				if err != nil {
					t.Fatal(err)
				}
				list := slices.Clone(later)
				for row, at := range model { // what is folded is known here alone
					if at <= v.Base() {
						list = append(list, Deletion{row, at})
					}
				}
				if v, err = Carry(first, list); err != nil {
					t.Fatal(err)
				}
				v.Fold(base)
				after, err := v.At(x, rows)
				if err != nil || !after.Equal(before) {
					t.Fatalf("carried over, %d are deleted at %s instead of %d (%v)", after.Cardinality(), x, before.Cardinality(), err)
				}
			},
			"": func(t *rapid.T) {
				if v.Count() != len(model) {
					t.Fatalf("count %d, want %d", v.Count(), len(model))
				}
				row := rapid.Uint32Range(0, rows+5).Draw(t, "any row")
				if _, gone := model[row]; gone != v.Deleted(row) {
					t.Fatalf("row %d: deleted is %v", row, v.Deleted(row))
				}
			},
		})
		recovered := FromVector(mustAt(t, v, now, rows), now)
		if vector := mustAt(t, recovered, now, rows); !slices.Equal(slices.Collect(vector.Positions()), deletedAt(now)) || recovered.Count() != len(model) {
			t.Fatal("recovered from its vector, other rows are deleted")
		}
	})
}

func mustAt(t *rapid.T, v *Visibility, x LSN, rows uint32) *Vector {
	vector, err := v.At(x, rows)
	if err != nil {
		t.Fatal(err)
	}
	return vector
}

// Readers at any LSN between the low and the high watermark see exactly its deletions while one writer deletes and folds
// (run with -race). Row k is deleted at LSN 10 + k/3, in scattered order, so the answer at every LSN is known.
func TestReadersWhileWriting(t *testing.T) {
	const rows, readers = 30_000, 3
	order := rand.New(rand.NewPCG(1, 2)).Perm(rows)
	v := NewVisibility(10)
	var high atomic.Uint64
	var reading [readers]atomic.Uint64 // the LSN a reader holds; 0 is none
	var mu sync.Mutex                  // registers readers and computes the low watermark in one step, as the engine does
	high.Store(10 - 1)

	var group sync.WaitGroup
	done := make(chan struct{})
	for r := range readers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(r)))
			for {
				select {
				case <-done:
					return
				default:
				}
				mu.Lock()
				x := LSN(high.Load())
				low := v.Base()
				if x > low && r > 0 { // some read the past that is still known
					x -= LSN(random.Uint64N(uint64(x-low) + 1))
				}
				reading[r].Store(uint64(x))
				mu.Unlock()

				want := 0
				if x >= 10 {
					want = min(rows, int(x-10+1)*3)
				}
				vector, err := v.At(x, rows)
				if err != nil {
					t.Errorf("at %s: %v", x, err)
					return
				}
				if vector.Cardinality() != uint64(want) {
					t.Errorf("at %s: %d rows are deleted, want %d", x, vector.Cardinality(), want)
					return
				}
				for range 20 {
					k := random.IntN(rows)
					row := uint32(order[k])
					if gone := k < want; vector.Contains(row) != gone || v.DeletedAt(row, x) != gone {
						t.Errorf("at %s: row %d deleted: %v, want %v", x, row, vector.Contains(row), gone)
						return
					}
				}
				reading[r].Store(0)
			}
		})
	}
	for k, row := range order {
		x := LSN(10 + k/3)
		if err := v.Delete(uint32(row), x); err != nil {
			t.Error(err)
			break
		}
		if k%3 == 2 {
			high.Store(uint64(x))
		}
		if k%1000 == 999 {
			mu.Lock()
			low := high.Load()
			for r := range reading {
				if held := reading[r].Load(); held != 0 {
					low = min(low, held)
				}
			}
			v.Fold(LSN(low))
			mu.Unlock()
			runtime.Gosched()
		}
	}
	close(done)
	group.Wait()
}

// heapOf measures what make leaves on the heap.
func heapOf(make func() any) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // what the tests before left in pools
	runtime.ReadMemStats(&before)
	kept := make()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// scattered returns a visibility of rows rows, every step-th of them deleted.
func scattered(t testing.TB, rows, step uint32) *Visibility {
	v := NewVisibility(1)
	for row := uint32(0); row < rows; row += step {
		if err := v.Delete(row, 2); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// Sizes stay within DESIGN 15, measured on the heap, and Bytes says the same: nothing deleted (many segments, as one is lost in the noise), 1 % deleted, half (the worst
// case, a bitmap in every tile), and one row at the far end; and before a fold, where each deletion is an entry.
func TestBytesMatchesTheHeap(t *testing.T) {
	const rows = 4_000_000
	farAway := func() *Visibility {
		v := NewVisibility(1)
		if err := v.Delete(1<<32-2, 2); err != nil {
			t.Fatal(err)
		}
		return v
	}
	var segments [1000]*Visibility
	idle := func() *Visibility {
		for i := range segments {
			segments[i] = NewVisibility(1)
		}
		return segments[0]
	}
	fold := func(v *Visibility) *Visibility {
		v.Fold(2)
		return v
	}
	defer runtime.KeepAlive(&segments)
	for _, c := range []struct {
		name       string
		rows       float64
		bitsPerRow float64
		make       func() *Visibility
	}{
		{"nothing, 1000 segments", 1000 * rows, 0.02, idle},
		{"1 %", rows, 0.3, func() *Visibility { return fold(scattered(t, rows, 100)) }},
		{"half", rows, 1.16, func() *Visibility { return fold(scattered(t, rows, 2)) }},
		{"all", rows, 1.16, func() *Visibility { return fold(scattered(t, rows, 1)) }},
		{"last of 2^32", 1 << 32, 0.02, farAway},
		{"1 % unfolded", rows, 2.3, func() *Visibility { return scattered(t, rows, 100) }},
		{"a few unfolded", rows, 0.5, func() *Visibility { return scattered(t, rows, 1000) }},
	} {
		var v *Visibility
		heap := heapOf(func() any { v = c.make(); return v })
		bits := float64(heap) * 8 / c.rows
		t.Logf("%s: %.5f bits a row", c.name, bits)
		if bits > c.bitsPerRow {
			t.Errorf("%s: %.5f bits a row, want at most %.2f", c.name, bits, c.bitsPerRow)
		}
		if off := float64(v.Bytes()-heap) / float64(heap); heap > 100_000 && (off < -0.05 || off > 0.05) {
			t.Errorf("%s: Bytes says %d, the heap %d", c.name, v.Bytes(), heap)
		}
	}
}

func BenchmarkDelete(b *testing.B) {
	const rows = 100_000
	order := rand.New(rand.NewPCG(1, 2)).Perm(rows)
	b.ReportAllocs()
	var v *Visibility
	for i := 0; i < b.N; i++ {
		k := i % rows
		if k == 0 {
			v = NewVisibility(1)
		}
		if err := v.Delete(uint32(order[k]), LSN(1+k)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mdeletes/s")
}

// BenchmarkAt reads a tile with so many entries anew, and one entry more than the kept answer has.
func BenchmarkAt(b *testing.B) {
	for _, entries := range []uint32{0, 32, 256} {
		v := NewVisibility(1)
		v.Delete(4095, 1)
		v.Fold(1)
		for i := range entries {
			v.Delete(i*7, LSN(2+i))
		}
		b.Run(fmt.Sprintf("anew/%d", entries), func(b *testing.B) {
			for b.Loop() {
				v.newest.Store(nil)
				v.At(LSN(2+entries), tileRows)
			}
		})
		b.Run(fmt.Sprintf("kept/%d", entries), func(b *testing.B) {
			for b.Loop() {
				v.At(LSN(2+entries), tileRows)
			}
		})
	}
}

// BenchmarkAtFile asks for 10M rows with 1 % deleted: all anew, and after one more deletion.
func BenchmarkAtFile(b *testing.B) {
	const rows = 10_000_000
	v := scattered(b, rows, 100)
	v.Fold(2)
	b.Run("anew", func(b *testing.B) {
		bits := float64(v.Bytes()) * 8 / rows
		for b.Loop() {
			v.newest.Store(nil)
			v.At(3, rows)
		}
		b.ReportMetric(bits, "bits/row")
	})
	x := LSN(3)
	b.Run("one more", func(b *testing.B) {
		for b.Loop() {
			x++
			if err := v.Delete(uint32(x)*100+1, x); err != nil {
				b.Fatal(err)
			}
			v.At(x, rows)
		}
	})
}
