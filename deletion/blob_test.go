package deletion

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/iceberg-go/table/dv"
	"pgregory.net/rapid"
)

// sidecar says what a golden blob holds: single positions or ranges [from, to).
type sidecar struct {
	Rows      uint32      `json:"rows"`
	Positions []uint32    `json:"positions"`
	Ranges    [][2]uint64 `json:"ranges"`
}

func (s sidecar) vector() *Vector {
	v := NewVector(s.Rows)
	for _, p := range s.Positions {
		v.Set(p)
	}
	for _, r := range s.Ranges {
		v.SetRange(uint32(r[0]), uint32(r[1]))
	}
	return v
}

// Blobs that Iceberg Java wrote are read as the positions they were made of, and written back byte for byte.
func TestGoldenBlobs(t *testing.T) {
	files, err := filepath.Glob("testdata/*.puffin-blob")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no golden blobs in testdata")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			blob, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(strings.TrimSuffix(file, ".puffin-blob") + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var want sidecar
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			got, err := UnmarshalBlob(blob, want.Rows)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Equal(want.vector()) {
				t.Errorf("read %d positions, want %d, or others", got.Cardinality(), want.vector().Cardinality())
			}
			written, err := want.vector().MarshalBlob()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(written, blob) {
				t.Errorf("wrote %d bytes %s…, want %d bytes %s…", len(written), head(written), len(blob), head(blob))
			}
		})
	}
}

func head(b []byte) string { return hex.EncodeToString(b[:min(64, len(b))]) }

// drawVector makes a vector with scattered positions and ranges, so that all three kinds of container come up.
func drawVector(t *rapid.T) *Vector {
	rows := rapid.Uint32Range(1, 400_000).Draw(t, "rows")
	v := NewVector(rows)
	for _, p := range rapid.SliceOfN(rapid.Uint32Range(0, rows-1), 0, 50).Draw(t, "positions") {
		v.Set(p)
	}
	for range rapid.IntRange(0, 3).Draw(t, "ranges") {
		from := rapid.Uint32Range(0, rows).Draw(t, "from")
		v.SetRange(from, rapid.Uint32Range(from, rows).Draw(t, "to"))
	}
	if step := rapid.Uint32Range(0, 20).Draw(t, "step"); step > 0 {
		for p := uint32(0); p < rows; p += step {
			v.Set(p)
		}
	}
	return v
}

// iceberg-go writes the same bytes for the same positions, and reads ours.
func TestBlobAgreesWithIcebergGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawVector(t)
		theirs := dv.NewRoaringPositionBitmap()
		for p := range v.Positions() {
			theirs.Set(uint64(p))
		}
		want, err := dv.SerializeDV(theirs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.MarshalBlob()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("wrote %s…, iceberg-go %s…", head(got), head(want))
		}
		back, err := UnmarshalBlob(want, v.Rows())
		if err != nil {
			t.Fatal(err)
		}
		if !back.Equal(v) || back.Rows() != v.Rows() || back.ID() == 0 {
			t.Fatal("read other positions than were written")
		}
	})
}

// frame wraps bucket bytes as a blob with the right length and checksum.
func frame(buckets string) []byte {
	body := []byte(blobMagic + buckets)
	blob := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	blob = append(blob, body...)
	return binary.BigEndian.AppendUint32(blob, crc32.ChecksumIEEE(body))
}

// Each kind of damage is ErrCorrupt. The bytes are written out by hand from the two specifications.
func TestUnmarshalBlobRefuses(t *testing.T) {
	const (
		count1 = "\x01\x00\x00\x00\x00\x00\x00\x00"
		count2 = "\x02\x00\x00\x00\x00\x00\x00\x00"
		key0   = "\x00\x00\x00\x00"
		key1   = "\x01\x00\x00\x00"
		// cookie without runs, one container: key 0, cardinality 2, at offset 16: positions 3 and 7
		two       = "\x3A\x30\x00\x00\x01\x00\x00\x00\x00\x00\x01\x00\x10\x00\x00\x00\x03\x00\x07\x00"
		unsorted  = "\x3A\x30\x00\x00\x01\x00\x00\x00\x00\x00\x01\x00\x10\x00\x00\x00\x07\x00\x03\x00"
		emptyMap  = "\x3A\x30\x00\x00\x00\x00\x00\x00"
		bigHeader = "\x3A\x30\x00\x00\xFF\xFF\x00\x00"
	)
	good := frame(count1 + key0 + two)
	v, err := UnmarshalBlob(good, 8)
	if err != nil || !slices.Equal(slices.Collect(v.Positions()), []uint32{3, 7}) {
		t.Fatalf("good blob: %v", err)
	}
	if v, err := UnmarshalBlob(frame(count2+key0+two+key1+emptyMap), 8); err != nil || v.Cardinality() != 2 {
		t.Fatalf("an empty bucket is allowed: %v", err)
	}

	flip := func(i int) []byte {
		b := slices.Clone(good)
		b[i] ^= 1
		return b
	}
	for name, blob := range map[string][]byte{
		"empty":                nil,
		"too short":            good[:frameSize-1],
		"cut":                  good[:len(good)-1],
		"longer":               append(slices.Clone(good), 0),
		"length":               flip(3),
		"magic":                flip(4),
		"count":                flip(8),
		"position":             flip(len(good) - 5),
		"checksum":             flip(len(good) - 1),
		"count without bucket": frame(count2 + key0 + two),
		"huge count":           frame("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF" + key0 + two),
		"key twice":            frame(count2 + key0 + two + key0 + two),
		"keys descending":      frame(count2 + key1 + emptyMap + key0 + two),
		"past 2^32":            frame(count1 + key1 + two),
		"positions unsorted":   frame(count1 + key0 + unsorted),
		"containers missing":   frame(count1 + key0 + bigHeader),
		"bytes after":          frame(count1 + key0 + two + "\x00"),
		"count 0, bytes after": frame("\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
	} {
		if v, err := UnmarshalBlob(blob, 8); !errors.Is(err, ErrCorrupt) || v != nil {
			t.Errorf("%s: got %v, %v; want ErrCorrupt", name, v, err)
		}
	}
	if _, err := UnmarshalBlob(good, 7); !errors.Is(err, ErrCorrupt) {
		t.Errorf("position 7 of 7 rows: got %v, want ErrCorrupt", err)
	}
}

// Any bytes give an error or a vector whose positions ascend below rows and which is written and read back the same.
func FuzzUnmarshalBlob(f *testing.F) {
	for _, v := range []sidecar{
		{Rows: 10}, {Rows: 10, Positions: []uint32{0, 9}}, {Rows: 200_000, Ranges: [][2]uint64{{5, 150_000}}},
	} {
		blob, err := v.vector().MarshalBlob()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(blob[lengthSize+len(blobMagic):len(blob)-crcSize], v.Rows)
	}
	f.Fuzz(func(t *testing.T, buckets []byte, rows uint32) {
		// The fuzzer is spared the checksum; TestUnmarshalBlobRefuses has it.
		v, err := UnmarshalBlob(frame(string(buckets)), rows)
		if err != nil {
			if v != nil || !errors.Is(err, ErrCorrupt) {
				t.Fatalf("got %v, %v", v, err)
			}
			return
		}
		count, previous := uint64(0), int64(-1)
		for p := range v.Positions() {
			if int64(p) <= previous || p >= rows {
				t.Fatalf("position %d after %d in %d rows", p, previous, rows)
			}
			previous = int64(p)
			count++
			if count > 1<<20 {
				break // a few bytes of runs can name 2^32 positions
			}
		}
		if count <= 1<<20 && count != v.Cardinality() {
			t.Fatalf("%d positions, cardinality %d", count, v.Cardinality())
		}
		blob, err := v.MarshalBlob()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := UnmarshalBlob(blob, rows); err != nil || !back.Equal(v) {
			t.Fatalf("written and read back: %v", err)
		}
	})
}
