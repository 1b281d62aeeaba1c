package globalindex

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The worked example of Mooncake's article: files {10, 20, 30} with 30 deleted and {40, 50} are compacted to {10, 20, 40, 50} by the map
// (1,0)→0, (1,1)→1, (2,0)→2, (2,1)→3, and so is the index. The bytes are those that testdata/golden.py wrote for the new file.
func TestMergeGoldenCompaction(t *testing.T) {
	keys := map[uint32][]int64{1: {10, 20, 30}, 2: {40, 50}}
	moved := map[FileLocation]uint32{{1, 0}: 0, {1, 1}: 1, {2, 0}: 2, {2, 1}: 3}
	var sources []MergeSource
	for file := uint32(1); file <= 2; file++ {
		var hashes []uint64
		for _, k := range keys[file] {
			hashes = append(hashes, HashInt(k))
		}
		data, err := BuildFileIndex(intHeader(uint64(len(hashes))), [][]uint64{hashes})
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, MergeSource{Index: mustOpen(t, data), Move: func(loc FileLocation) (FileLocation, bool) {
			to, kept := moved[FileLocation{file, loc.Row}]
			return FileLocation{0, to}, kept
		}})
	}
	want, err := os.ReadFile("testdata/compacted.pgmindex")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := Merge(&got, mustOpen(t, want).Header(), sources); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got %x, want %x", got.Bytes(), want)
	}
	x := mustOpen(t, got.Bytes())
	for key, want := range map[int64][]FileLocation{10: {{0, 0}}, 20: {{0, 1}}, 30: nil, 40: {{0, 2}}, 50: {{0, 3}}} {
		if got := x.Candidates(HashInt(key), nil); !slices.Equal(got, want) {
			t.Errorf("key %d is at %v, want %v", key, got, want)
		}
	}
}

// A merged index has the bytes of one that is built at once, however the files are spread over sources and in whatever order the header
// has them, and wherever rows moved.
func TestMergeEqualsBuild(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hash := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 3), rapid.Uint64Range(1<<64-3, 1<<64-1))
		var from []FileLocation // every row of every source: the source, and the row counted over its files
		var all []FileEntry     // with File the position among the files of all sources
		var sources []MergeSource
		h := intHeader()
		for s := range rapid.IntRange(0, 5).Draw(t, "sources") {
			own := intHeader(rapid.SliceOfN(rapid.Uint64Range(0, 12), 0, 4).Draw(t, "rows")...)
			var entries []FileEntry
			first := uint32(len(h.Files))
			for f := range own.Files {
				own.Files[f].Path = fmt.Sprintf("s%df%d.parquet", s, f)
				for row := range uint32(own.Files[f].Rows) {
					e := FileEntry{hash.Draw(t, "hash"), uint32(f), row}
					entries = append(entries, e)
					all = append(all, FileEntry{e.Hash, first + e.File, e.Row})
					from = append(from, FileLocation{first + e.File, e.Row})
				}
			}
			h.Files = append(h.Files, own.Files...)
			var data bytes.Buffer
			if err := WriteFileIndex(&data, own, entries); err != nil {
				t.Fatal(err)
			}
			x, err := OpenFileIndex(data.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, MergeSource{Index: x})
		}

		merged := h.clone()
		switch rapid.SampledFrom([]string{"as they come", "files in another order", "rows moved"}).Draw(t, "how") {
		case "files in another order":
			order := rapid.Permutation(numbers(len(h.Files))).Draw(t, "order") // order[f] is the new position of file f
			for f, to := range order {
				merged.Files[to] = h.Files[f]
			}
			for i := range all {
				all[i].File = uint32(order[all[i].File])
			}
		case "rows moved":
			// All rows that stay go to two files, in any order.
			order := rapid.Permutation(numbers(len(from))).Draw(t, "order")
			half := uint32(len(from) / 2)
			merged.Files = []FileRef{{"a.parquet", uint64(half)}, {"b.parquet", uint64(len(from)) - uint64(half)}}
			to := map[FileLocation]FileLocation{}
			for i, n := range order {
				if rapid.IntRange(0, 3).Draw(t, "dropped") == 0 {
					continue
				}
				if n := uint32(n); n < half {
					to[from[i]] = FileLocation{0, n}
				} else {
					to[from[i]] = FileLocation{1, n - half}
				}
			}
			first := uint32(0)
			for i := range sources {
				offset := first
				sources[i].Move = func(loc FileLocation) (FileLocation, bool) {
					at, kept := to[FileLocation{offset + loc.File, loc.Row}]
					return at, kept
				}
				first += uint32(len(sources[i].Index.header.Files))
			}
			var kept []FileEntry
			for _, e := range all {
				if at, ok := to[FileLocation{e.File, e.Row}]; ok {
					kept = append(kept, FileEntry{e.Hash, at.File, at.Row})
				}
			}
			all = kept
		}

		var got, want bytes.Buffer
		if err := Merge(&got, merged, sources); err != nil {
			t.Fatal(err)
		}
		if err := WriteFileIndex(&want, merged, all); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Fatalf("merged\n%x\nbuilt\n%x", got.Bytes(), want.Bytes())
		}
	})
}

func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// One source may move rows while the files of another stay.
func TestMergeMovesSome(t *testing.T) {
	source := func(path string, hashes ...uint64) *FileIndex {
		h := intHeader(uint64(len(hashes)))
		h.Files[0].Path = path
		data, err := BuildFileIndex(h, [][]uint64{hashes})
		if err != nil {
			t.Fatal(err)
		}
		return mustOpen(t, data)
	}
	stays, moves := source("stays", 7, 8), source("moves", 7, 9, 8)
	h := intHeader(2, 2)
	h.Files[0].Path, h.Files[1].Path = "new", "stays"
	var got bytes.Buffer
	if err := Merge(&got, h, []MergeSource{{Index: stays}, {Index: moves, Move: func(loc FileLocation) (FileLocation, bool) {
		return FileLocation{0, loc.Row / 2}, loc.Row != 1
	}}}); err != nil {
		t.Fatal(err)
	}
	want, err := BuildFileIndex(h, [][]uint64{{7, 8}, {7, 8}})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("entries %v", slices.Collect(mustOpen(t, got.Bytes()).All()))
	}
}

// What cannot be merged is refused, and what is wrong is named.
func TestMergeRefuses(t *testing.T) {
	data, err := BuildFileIndex(intHeader(3, 2), [][]uint64{{1, 2, 3}, {4, 5}})
	if err != nil {
		t.Fatal(err)
	}
	good := mustOpen(t, data)
	damaged := func(at uint64, value FileEntry) *FileIndex {
		x := mustOpen(t, slices.Clone(data))
		var b bytes.Buffer
		w := entriesWriter{layout: x.layout, out: bitWriter{out: &b}}
		i := uint64(0)
		for e := range good.All() {
			if i == at {
				e = value
			}
			w.add(e)
			i++
		}
		if err := w.finish(); err != nil {
			t.Fatal(err)
		}
		x.packed = b.Bytes()
		return x
	}
	with := func(change func(*Header)) Header {
		h := intHeader(3, 2)
		change(&h)
		return h
	}
	to := func(loc FileLocation, kept bool) func(FileLocation) (FileLocation, bool) {
		return func(FileLocation) (FileLocation, bool) { return loc, kept }
	}
	for name, c := range map[string]struct {
		h       Header
		sources []MergeSource
		want    string
		corrupt bool
	}{
		"another kind":       {with(func(h *Header) { h.KeyKind, h.HashID = KeyBytes, XXHash64 }), []MergeSource{{Index: good}}, "key kind 1", false},
		"other columns":      {with(func(h *Header) { h.Columns = []int32{2} }), []MergeSource{{Index: good}}, "of columns [1], not 1 of [2]", false},
		"a file left out":    {intHeader(3), []MergeSource{{Index: good}}, "f1.parquet of source 0 is not in the header", false},
		"another row count":  {intHeader(3, 4), []MergeSource{{Index: good}}, "f1.parquet of source 0 is not in the header with its 2 rows", false},
		"a file twice":       {with(func(h *Header) { h.Files[1].Path = "f0.parquet" }), nil, "f0.parquet comes twice", false},
		"a source twice":     {intHeader(3, 2), []MergeSource{{Index: good}, {Index: good}}, "10 entries for 5 rows", false},
		"two rows to one":    {intHeader(3, 9), []MergeSource{{Index: good, Move: to(FileLocation{0, 0}, true)}, {Index: mustOpen(t, data), Move: to(FileLocation{0, 0}, true)}}, "row 0 of file 0 has two entries", false},
		"past the last row":  {intHeader(3, 2), []MergeSource{{Index: good, Move: to(FileLocation{0, 3}, true)}}, "moves past the end", false},
		"past the last file": {intHeader(3, 2), []MergeSource{{Index: good, Move: to(FileLocation{2, 0}, true)}}, "moves past the end", false},
		"a bad header":       {with(func(h *Header) { h.Columns = nil }), nil, "0 columns", false},
		"an entry of no row": {intHeader(3, 2), []MergeSource{{Index: damaged(0, FileEntry{1, 1, 2})}}, "4 of 5 entries name a row", true},
		"no order":           {intHeader(3, 2), []MergeSource{{Index: damaged(0, FileEntry{4, 0, 0})}}, "out of order", true},
	} {
		err := Merge(io.Discard, c.h, c.sources)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrCorrupt) != c.corrupt {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// shortDisk takes that many bytes.
type shortDisk struct{ room int }

func (d *shortDisk) Write(p []byte) (int, error) {
	if d.room -= len(p); d.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// A disk that is full, at the first byte or the last, is reported.
func TestMergeReportsFullDisk(t *testing.T) {
	x := mustOpen(t, someIndex(t, 20_000))
	size := int(x.Bytes())
	for _, room := range []int{0, size / 20, size / 6, size / 2, size - 1} {
		if err := Merge(&shortDisk{room}, x.Header(), []MergeSource{{Index: x}}); !errors.Is(err, errFull) {
			t.Errorf("room for %d of %d bytes: %v", room, size, err)
		}
	}
	if err := Merge(&shortDisk{size}, x.Header(), []MergeSource{{Index: x}}); err != nil {
		t.Errorf("room for all: %v", err)
	}
}

// parts are four indexes over one file each, and the header of all.
func parts(t testing.TB, rows int) (Header, []MergeSource) {
	h := intHeader()
	var sources []MergeSource
	for s := range 4 {
		own := intHeader(uint64(rows))
		own.Files[0].Path = fmt.Sprintf("f%d.parquet", s)
		h.Files = append(h.Files, own.Files[0])
		hashes := make([]uint64, rows)
		for i := range hashes {
			hashes[i] = HashInt(int64(s*rows + i))
		}
		data, err := BuildFileIndex(own, [][]uint64{hashes})
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, MergeSource{Index: mustOpen(t, data)})
	}
	return h, sources
}

// A merge takes the same memory for any number of rows: far less than the index it writes.
func TestMergeMemory(t *testing.T) {
	h, sources := parts(t, 100_000)
	for i := range sources[2:] { // with and without rows that move
		file := uint32(i + 2)
		sources[i+2].Move = func(loc FileLocation) (FileLocation, bool) { return FileLocation{file, loc.Row}, true }
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var size countingWriter
	if err := Merge(&size, h, sources); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<19 || size < 4_000_000 {
		t.Errorf("%d bytes allocated for an index of %d", took, size)
	}
}

type countingWriter int

func (w *countingWriter) Write(p []byte) (int, error) {
	*w += countingWriter(len(p))
	return len(p), nil
}

func BenchmarkMerge(b *testing.B) {
	const rows = 250_000
	h, sources := parts(b, rows)
	for b.Loop() {
		if err := Merge(io.Discard, h, sources); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*4*rows/b.Elapsed().Seconds()/1e6, "Mrows/s")
}
