package globalindex

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The worked examples of Mooncake's article: the number of buckets, and where a hash goes (it prints 326 for the last,
// but the high 9 bits of A3B1 are 327).
func TestBucketsGolden(t *testing.T) {
	for entries, want := range map[uint64]uint64{1000: 256, 500: 128, 2000: 512, 3500: 1024, 0: 2, 1: 2, 8: 4, 9: 4, 10_000_000: 4 << 20} {
		if got := (layout{bucketBits: bucketBits(entries)}).buckets(); got != want {
			t.Errorf("%d entries: %d buckets, want %d", entries, got, want)
		}
	}
	for n, want := range map[uint]uint64{8: 163, 7: 81, 9: 327} {
		if got := (layout{bucketBits: n}).bucket(0xA3B1_C2D4_E5F6_0718); got != want {
			t.Errorf("%d bits: bucket %d, want %d", n, got, want)
		}
	}
}

// DESIGN 6: as many bits for the file as the last ordinal has, and for the row as the largest file needs.
func TestWidthsGolden(t *testing.T) {
	for _, c := range []struct {
		files     int
		rows      uint64
		file, row uint
	}{{1, 1, 0, 0}, {1, 2, 0, 1}, {2, 4096, 1, 12}, {3, 4097, 2, 13}, {4, 10_000_000, 2, 24}, {5, 1<<32 - 1, 3, 32}} {
		h := Header{Files: make([]FileRef, c.files)}
		h.Files[0].Rows = c.rows
		if l := h.layout(); l.fileBits != c.file || l.rowBits != c.row {
			t.Errorf("%d files of %d rows: %d and %d bits, want %d and %d", c.files, c.rows, l.fileBits, l.rowBits, c.file, c.row)
		}
	}
}

// golden is a sidecar of testdata/golden.py, which made the index of these keys without our code.
type golden struct {
	Kind    KeyKind `json:"kind"`
	Columns []int32 `json:"columns"`
	Files   []struct {
		Path string   `json:"path"`
		Keys []string `json:"keys"`
	} `json:"files"`
}

// hash reads a key of the sidecar: a number, or canonical bytes in hexadecimal.
func (g golden) hash(t *testing.T, key string) uint64 {
	t.Helper()
	if g.Kind == KeyInt {
		v, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return HashInt(v)
	}
	raw, err := hex.DecodeString(key)
	if err != nil {
		t.Fatal(err)
	}
	return HashBytes(raw)
}

// We write the bytes that another implementation of docs/formats/file-index.md wrote, and find every key in them.
func TestFileIndexGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.pgmindex")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no golden index files in testdata")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(strings.TrimSuffix(file, ".pgmindex") + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var g golden
			if err := json.Unmarshal(text, &g); err != nil {
				t.Fatal(err)
			}
			h := Header{KeyKind: g.Kind, HashID: g.Kind.Hash(), Columns: g.Columns}
			var hashes [][]uint64
			for _, f := range g.Files {
				h.Files = append(h.Files, FileRef{Path: f.Path, Rows: uint64(len(f.Keys))})
				var ofFile []uint64
				for _, key := range f.Keys {
					ofFile = append(ofFile, g.hash(t, key))
				}
				hashes = append(hashes, ofFile)
			}
			built, err := BuildFileIndex(h, hashes)
			if err != nil {
				t.Fatal(err)
			}
			if h.Entries = mustOpen(t, data).header.Entries; h.Size() != uint64(len(data)) {
				t.Errorf("the header tells of %d bytes, the index has %d", h.Size(), len(data))
			}
			if !bytes.Equal(built, data) {
				t.Errorf("built\n%swant\n%s", hex.Dump(built[:min(len(built), 256)]), hex.Dump(data[:min(len(data), 256)]))
			}
			x, err := OpenFileIndex(data)
			if err != nil {
				t.Fatal(err)
			}
			if err := x.Verify(); err != nil {
				t.Error(err)
			}
			for file := range hashes {
				for row, hash := range hashes[file] {
					if loc := (FileLocation{uint32(file), uint32(row)}); !slices.Contains(x.Candidates(hash, nil), loc) {
						t.Errorf("key %s is not found at %v", g.Files[file].Keys[row], loc)
					}
				}
			}
		})
	}
}

func intHeader(rows ...uint64) Header {
	h := Header{KeyKind: KeyInt, HashID: SplitMix64, Columns: []int32{1}}
	for i, n := range rows {
		h.Files = append(h.Files, FileRef{Path: fmt.Sprintf("f%d.parquet", i), Rows: n})
	}
	return h
}

// A file index agrees with a map: all rows of a hash, nothing for other hashes, everything in hash order, whatever the order in which the
// entries came, and with equal bytes.
func TestFileIndexAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Uint64Range(0, 60), 0, 9).Draw(t, "rows")
		h := intHeader(rows...)
		// Full-width hashes, with many equal and many in one bucket.
		hash := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 5), rapid.Uint64Range(1<<64-5, 1<<64-1))
		var entries []FileEntry
		model := map[uint64][]FileLocation{}
		for file, n := range rows {
			for row := range n {
				if rapid.IntRange(0, 3).Draw(t, "left out") == 0 {
					continue
				}
				e := FileEntry{hash.Draw(t, "hash"), uint32(file), uint32(row)}
				entries = append(entries, e)
				model[e.Hash] = append(model[e.Hash], FileLocation{e.File, e.Row})
			}
		}
		var data, shuffled bytes.Buffer
		if err := WriteFileIndex(&data, h, entries); err != nil {
			t.Fatal(err)
		}
		if err := WriteFileIndex(&shuffled, h, rapid.Permutation(entries).Draw(t, "order")); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data.Bytes(), shuffled.Bytes()) {
			t.Fatal("the bytes depend on the order of the entries")
		}
		x, err := OpenFileIndex(data.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Verify(); err != nil {
			t.Fatal(err)
		}
		for want, locations := range model {
			if got := x.Candidates(want, nil); !slices.Equal(got, locations) {
				t.Fatalf("candidates of %#x: %v, want %v", want, got, locations)
			}
			skip, limit := rapid.IntRange(-1, len(locations)+1).Draw(t, "skip"), rapid.IntRange(-1, len(locations)+1).Draw(t, "limit")
			some := locations[min(max(skip, 0), len(locations)):]
			some = some[:min(max(limit, 0), len(some))]
			if got := x.CandidatesFrom(want, skip, limit, nil); !slices.Equal(got, some) {
				t.Fatalf("candidates of %#x from %d, at most %d: %v, want %v", want, skip, limit, got, some)
			}
		}
		if other := hash.Draw(t, "other"); model[other] == nil && len(x.Candidates(other, nil)) != 0 {
			t.Fatalf("candidates of an absent hash: %v", x.Candidates(other, nil))
		}
		slices.SortFunc(entries, func(a, b FileEntry) int {
			return cmp.Or(cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.File, b.File), cmp.Compare(a.Row, b.Row))
		})
		if got := slices.Collect(x.All()); !slices.Equal(got, entries) {
			t.Fatalf("all: %v, want %v", got, entries)
		}
		got := x.Header()
		if got.Entries != uint64(len(entries)) || !slices.Equal(got.Files, h.Files) || !slices.Equal(got.Columns, h.Columns) || got.KeyKind != KeyInt {
			t.Fatalf("header %+v", got)
		}
	})
}

// Wrong input is refused when an index is built.
func TestWriteFileIndexRefuses(t *testing.T) {
	good := intHeader(3, 2)
	with := func(change func(*Header)) Header {
		h := good.clone()
		change(&h)
		return h
	}
	for name, c := range map[string]struct {
		h       Header
		entries []FileEntry
	}{
		"file":         {good, []FileEntry{{1, 2, 0}}},
		"row":          {good, []FileEntry{{1, 1, 2}}},
		"twice":        {good, []FileEntry{{1, 1, 1}, {1, 1, 1}}},
		"too many":     {intHeader(1), []FileEntry{{1, 0, 0}, {2, 0, 0}}},
		"kind":         {with(func(h *Header) { h.KeyKind = 3 }), nil},
		"no kind":      {with(func(h *Header) { h.KeyKind, h.HashID = 0, 0 }), nil},
		"hash":         {with(func(h *Header) { h.HashID = XXHash64 }), nil},
		"no column":    {with(func(h *Header) { h.Columns = nil }), nil},
		"two ints":     {with(func(h *Header) { h.Columns = []int32{1, 2} }), nil},
		"rows of file": {intHeader(1 << 32), nil},
	} {
		if err := WriteFileIndex(new(bytes.Buffer), c.h, c.entries); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := BuildFileIndex(good, [][]uint64{{1, 2, 3}}); err == nil {
		t.Error("a file without hashes: no error")
	}
	if _, err := BuildFileIndex(good, [][]uint64{{1, 2, 3}, {4}}); err == nil {
		t.Error("a row without hash: no error")
	}
	if err := WriteFileIndex(fullDisk{}, good, nil); !errors.Is(err, errFull) {
		t.Errorf("full disk: %v", err)
	}
}

var errFull = errors.New("disk full")

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func someIndex(t testing.TB, rows int) []byte {
	hashes := make([]uint64, rows)
	for i := range hashes {
		hashes[i] = HashInt(int64(i))
	}
	data, err := BuildFileIndex(intHeader(uint64(rows)), [][]uint64{hashes})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A torn file is found when it is opened: every single flipped bit, every length cut off, bytes added, and another version
// by its name.
func TestOpenFindsDamage(t *testing.T) {
	data := someIndex(t, 20)
	for i := range data {
		for bit := range 8 {
			torn := slices.Clone(data)
			torn[i] ^= 1 << bit
			if _, err := OpenFileIndex(torn); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
		}
		if _, err := OpenFileIndex(data[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
		if _, err := OpenFileIndex(seal(data[:i])); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes, with the right checksums: %v", i, err)
		}
	}
	if _, err := OpenFileIndex(append(slices.Clone(data), 0)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("one byte more: %v", err)
	}
	newer := slices.Clone(data)
	newer[versionAt]++
	if _, err := OpenFileIndex(newer); !errors.Is(err, ErrVersion) {
		t.Errorf("newer version: %v", err)
	}
	older := slices.Clone(data)
	older[versionAt]--
	if _, err := OpenFileIndex(older); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "version 1, known is 2") {
		t.Errorf("version 1: %v", err)
	}
}

// seal makes magic, version and checksums right, so that what else is wrong comes to light.
func seal(data []byte) []byte {
	data = slices.Clone(data)
	if len(data) < fixedSize+sumSize {
		return data
	}
	le := binary.LittleEndian
	copy(data, magic)
	le.PutUint32(data[versionAt:], version)
	size := uint64(le.Uint32(data[headerSizeAt:]))
	if size < fixedSize+sumSize || size > uint64(len(data)) {
		return data
	}
	h := Header{Entries: le.Uint64(data[entriesAt:]), KeyKind: KeyKind(data[keyKindAt]), HashID: HashID(data[hashIDAt])}
	content := data[size:]
	if h.readLists(data[:size-sumSize]) == nil && h.check() == nil && h.layout().contentSize() == uint64(len(content)) {
		for i, part := range h.layout().split(content) {
			le.PutUint32(data[sumsAt+i*sumSize:], crc32.Checksum(part, castagnoli))
		}
	}
	le.PutUint32(data[size-sumSize:], crc32.Checksum(data[:size-sumSize], castagnoli))
	return data
}

// Wrong content behind right checksums is found by Verify, and leads no lookup out of the files.
func TestVerifyFindsWrongContent(t *testing.T) {
	hashes := [][]uint64{{1, 2, 3, 4, 5}, {6, 1 << 63}, {7}} // 2 bits for the file, 3 for the row; all but one in bucket 0 or 1 of 4
	data, err := BuildFileIndex(intHeader(5, 2, 1), hashes)
	if err != nil {
		t.Fatal(err)
	}
	good := mustOpen(t, data)
	l := good.layout
	overwrite := func(section []byte, at uint64, n uint, value uint64) {
		for i := range uint64(n) {
			bit := at + i
			section[bit/8] = section[bit/8]&^(1<<(bit%8)) | byte(value>>i&1)<<(bit%8)
		}
	}
	setEntry := func(x *FileIndex, i int, e FileEntry) {
		at := uint64(i) * uint64(l.entryBits())
		overwrite(x.packed, at, l.lowBits(), e.Hash)
		overwrite(x.packed, at+uint64(l.lowBits()), l.fileBits, uint64(e.File))
		overwrite(x.packed, at+uint64(l.lowBits()+l.fileBits), l.rowBits, uint64(e.Row))
	}
	setStart := func(x *FileIndex, bucket int, start uint64) {
		overwrite(x.directory, uint64(bucket)*uint64(l.offsetBits), l.offsetBits, start)
	}
	for name, damage := range map[string]func(*FileIndex){
		"row past its file":         func(x *FileIndex) { setEntry(x, 0, FileEntry{1, 0, 5}) },
		"row past a smaller file":   func(x *FileIndex) { setEntry(x, 0, FileEntry{1, 1, 2}) },
		"no such file":              func(x *FileIndex) { setEntry(x, 0, FileEntry{1, 3, 0}) },
		"out of order":              func(x *FileIndex) { setEntry(x, 0, FileEntry{9, 0, 0}) },
		"twice":                     func(x *FileIndex) { setEntry(x, 1, FileEntry{1, 0, 0}) },
		"does not begin at 0":       func(x *FileIndex) { setStart(x, 0, 1) },
		"does not ascend":           func(x *FileIndex) { setStart(x, 1, 8); setStart(x, 2, 7) },
		"past the last entry":       func(x *FileIndex) { setStart(x, 3, 15) },
		"leaves the last entry out": func(x *FileIndex) { setStart(x, 4, 7) },
		"a filter without bits":     func(x *FileIndex) { clear(x.filter) },
	} {
		wrong := slices.Clone(data)
		damage(mustOpen(t, wrong))
		if _, err := OpenFileIndex(wrong); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: opened without seal: %v", name, err)
		}
		x := mustOpen(t, seal(wrong))
		if err := x.Verify(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		lookAround(t, x)
	}
	if err := good.Verify(); err != nil {
		t.Errorf("undamaged: %v", err)
	}
}

func mustOpen(t testing.TB, data []byte) *FileIndex {
	x, err := OpenFileIndex(data)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// lookAround looks up what the index says it has, and other hashes; every location lies in a file.
func lookAround(t *testing.T, x *FileIndex) {
	check := func(loc FileLocation) {
		if files := x.header.Files; int(loc.File) >= len(files) || uint64(loc.Row) >= files[loc.File].Rows {
			t.Fatalf("location %v of files %v", loc, files)
		}
	}
	n := 0
	for e := range x.All() {
		check(FileLocation{e.File, e.Row})
		for _, loc := range x.Candidates(e.Hash, nil) {
			check(loc)
		}
		if n++; n > 1000 {
			break
		}
	}
	for hash := uint64(0); hash < 1<<63; hash = hash*3 + 1 {
		for _, loc := range x.Candidates(^hash, x.Candidates(hash, nil)) {
			check(loc)
		}
		some := x.CandidatesFrom(hash, int(hash%5), 2, nil)
		if len(some) > 2 {
			t.Fatalf("%d of 2 candidates", len(some))
		}
		for _, loc := range some {
			check(loc)
		}
	}
}

// Any bytes give an error or an index that can be searched, listed and verified without leaving its bytes or files.
func FuzzOpenFileIndex(f *testing.F) {
	files, err := filepath.Glob("testdata/*.pgmindex")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(data) < 1000 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, bytes := range [][]byte{data, seal(data)} {
			x, err := OpenFileIndex(bytes)
			if err != nil {
				if x != nil || !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
					t.Fatalf("got %v, %v", x, err)
				}
				continue
			}
			lookAround(t, x)
			if err := x.Verify(); err == nil {
				var again writer
				if err := WriteFileIndex(&again, x.Header(), slices.Collect(x.All())); err != nil {
					t.Fatal(err)
				}
			}
			twin := x.Header()
			for i := range twin.Files {
				twin.Files[i].Path = strconv.Itoa(i)
			}
			_ = Merge(new(writer), twin, []MergeSource{{Index: x, Move: func(loc FileLocation) (FileLocation, bool) { return loc, true }}})
		}
	})
}

type writer []byte

func (w *writer) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }

// A lookup allocates nothing.
func TestCandidatesAllocatesNothing(t *testing.T) {
	x := mustOpen(t, someIndex(t, 5000))
	dst := make([]FileLocation, 0, 8)
	k := int64(0)
	if n := testing.AllocsPerRun(10_000, func() { k++; dst = x.Candidates(HashInt(k), dst[:0]) }); n != 0 { // half of them are not there
		t.Errorf("%v allocations a lookup", n)
	}
}

// Equal rows, as of a table without a key, can be taken one by one without going through those before: for 300,000 rows that would be 45
// billion steps.
func TestCandidatesFromSkips(t *testing.T) {
	const rows = 300_000
	x := mustOpen(t, equalRows(t, rows))
	var dst []FileLocation
	for i := range rows {
		if dst = x.CandidatesFrom(1<<40, i, 1, dst[:0]); len(dst) != 1 || dst[0] != (FileLocation{0, uint32(i)}) {
			t.Fatalf("row %d: %v", i, dst)
		}
	}
	if dst = x.CandidatesFrom(1<<40, rows, 1, dst[:0]); len(dst) != 0 {
		t.Fatalf("after the last row: %v", dst)
	}
}

// equalRows is an index of one hash.
func equalRows(t testing.TB, rows int) []byte {
	data, err := BuildFileIndex(intHeader(uint64(rows)), [][]uint64{slices.Repeat([]uint64{1 << 40}, rows)})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// 10M rows of one file take at most 10 bytes a row (DESIGN 15), and 10 bits more for the filter, to a whole block. It is the sizes that are
// computed.
func TestFileIndexSize(t *testing.T) {
	for _, rows := range []uint64{1_000_000, 8_388_600, 10_000_000, 100_000_000} {
		h := intHeader(rows)
		h.Entries = rows
		sizes := h.layout().sizes()
		if size := float64(sizes[directorySection]+sizes[entriesSection]) / float64(rows); size > 10 {
			t.Errorf("%d rows: %.2f bytes a row", rows, size)
		}
		if size := sizes[filterSection]; size*8 >= rows*10+filterBits {
			t.Errorf("%d rows: a filter of %d bytes", rows, size)
		}
	}
}

func BenchmarkFileIndex(b *testing.B) {
	const rows = 10_000_000
	data := someIndex(b, rows)
	b.Run("open", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			mustOpen(b, data)
		}
	})
	x := mustOpen(b, data)
	dst := make([]FileLocation, 0, 8)
	b.Run("hit", func(b *testing.B) {
		random := rand.New(rand.NewPCG(1, 2))
		for b.Loop() {
			if dst = x.Candidates(HashInt(random.Int64N(rows)), dst[:0]); len(dst) != 1 {
				b.Fatal(dst)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mlookups/s")
		b.ReportMetric(float64(x.Bytes())/rows, "bytes/row")
	})
	misses := func(b *testing.B, x *FileIndex) {
		random := rand.New(rand.NewPCG(3, 4))
		for b.Loop() {
			dst = x.Candidates(HashInt(rows+random.Int64N(1<<40)), dst[:0])
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mlookups/s")
	}
	b.Run("miss", func(b *testing.B) { misses(b, x) })
	b.Run("miss without filter", func(b *testing.B) {
		bare := *x
		bare.filter = bytes.Repeat([]byte{0xFF}, filterBlock)
		bare.blocks = 1 // every hash passes
		misses(b, &bare)
		b.ReportMetric(float64(x.Bytes()-int64(len(x.filter)))/rows, "bytes/row")
	})
	b.Run("equal rows", func(b *testing.B) {
		const rows = 1_000_000
		x := mustOpen(b, equalRows(b, rows))
		for i := 0; b.Loop(); i++ {
			dst = x.CandidatesFrom(1<<40, i%rows, 1, dst[:0])
		}
	})
}

// Building an index takes its own size, about 11 bytes a row, and 2 bytes a row more; 16 more where all rows share a hash. Buffers take 300 KB.
func TestBuildMemory(t *testing.T) {
	const rows = 1_000_000
	even := make([]uint64, rows)
	for i := range even {
		even[i] = HashInt(int64(i))
	}
	for name, c := range map[string]struct {
		hashes []uint64
		more   uint64 // bytes a row
	}{
		"even":  {even, 2},
		"equal": {slices.Repeat([]uint64{1 << 40}, rows), 16},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		data, err := BuildFileIndex(intHeader(rows), [][]uint64{c.hashes})
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		took, size := after.TotalAlloc-before.TotalAlloc, uint64(len(data))
		t.Logf("%s: %.2f bytes a row for an index of %.2f", name, float64(took)/rows, float64(size)/rows)
		if took > size+c.more*rows+300<<10 || size > 11*rows {
			t.Errorf("%s: %d bytes allocated for an index of %d over %d rows", name, took, size, rows)
		}
	}
}

func BenchmarkBuildFileIndex(b *testing.B) {
	const rows = 1_000_000
	for b.Loop() {
		someIndex(b, rows)
	}
	b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds()/1e6, "Mrows/s")
}
