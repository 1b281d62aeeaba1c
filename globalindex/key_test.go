package globalindex

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The published first outputs of splitmix64 from seed 0, and of xxHash64 with seed 0.
func TestHashGolden(t *testing.T) {
	for v, want := range map[uint64]uint64{
		0:                                    0xE220A8397B1DCDAF,
		0x9E3779B97F4A7C15:                   0x6E789E6AA1B965F4,
		2 * 0x9E3779B97F4A7C15 & (1<<64 - 1): 0x06C45D188009454F,
	} {
		if got := HashInt(int64(v)); got != want {
			t.Errorf("HashInt(%#x) = %#x, want %#x", v, got, want)
		}
	}
	for s, want := range map[string]uint64{"": 0xEF46DB3751D8E999, "abc": 0x44BC2CF5AD770999} {
		if got := HashBytes([]byte(s)); got != want {
			t.Errorf("HashBytes(%q) = %#x, want %#x", s, got, want)
		}
	}
}

// unhash undoes HashInt, step by step backwards.
func unhash(z uint64) int64 {
	unshift := func(z uint64, n uint) uint64 {
		x := z
		for range 64/n + 1 {
			x = z ^ x>>n
		}
		return x
	}
	z = unshift(z, 31) * 0x319642B2D24D8EC3 // inverses of the multipliers modulo 2^64
	z = unshift(z, 27) * 0x96DE1B173F119089
	z = unshift(z, 30) - 0x9E3779B97F4A7C15
	return int64(z)
}

// HashInt loses nothing: every key can be computed back.
func TestHashIntIsBijection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64().Draw(t, "v")
		if got := unhash(HashInt(v)); got != v {
			t.Fatalf("%d hashes to what %d does", v, got)
		}
	})
}

// The examples of docs/formats/keys.md.
func TestCanonicalGolden(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"('é', 7)", AppendFixed(AppendBytes(nil, []byte("é")), le.AppendUint32(nil, 7)), "0102c3a9" + "0107000000"},
		{"(NULL, 7)", AppendFixed(AppendNull(nil), le.AppendUint32(nil, 7)), "00" + "0107000000"},
		{"('', NULL)", AppendNull(AppendBytes(nil, nil)), "0100" + "00"},
		{"{1,NULL}", AppendNull(AppendFixed(AppendList(nil, 2), le.AppendUint32(nil, 1))), "0102" + "0101000000" + "00"},
		{"{}", AppendList(nil, 0), "0100"},
		{"200 bytes", AppendBytes(nil, bytes.Repeat([]byte{'x'}, 200)), "01c801" + hex.EncodeToString(bytes.Repeat([]byte{'x'}, 200))},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// value is a column's value for the model: nil is NULL; elements is set for a list.
type value struct {
	raw      []byte
	elements []value
}

func (v *value) equal(w *value) bool {
	if v == nil || w == nil {
		return v == w
	}
	return bytes.Equal(v.raw, w.raw) && slices.EqualFunc(v.elements, w.elements, func(a, b value) bool { return bytes.Equal(a.raw, b.raw) })
}

// Two rows of one column type list share an encoding only if they are equal.
func TestCanonicalIsInjective(t *testing.T) {
	// Few symbols, among them the tags, so that rows nearly collide.
	symbols := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2}), 0, 3)
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.SampledFrom([]string{"fixed", "bytes", "list"}), 1, 4).Draw(t, "types")
		draw := func() (row []*value, encoded []byte) {
			for _, kind := range kinds {
				if rapid.Bool().Draw(t, "null") {
					row, encoded = append(row, nil), AppendNull(encoded)
					continue
				}
				v := new(value)
				switch kind {
				case "fixed":
					v.raw = rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2}), 2, 2).Draw(t, "fixed")
					encoded = AppendFixed(encoded, v.raw)
				case "bytes":
					v.raw = symbols.Draw(t, "bytes")
					encoded = AppendBytes(encoded, v.raw)
				case "list":
					list := rapid.SliceOfN(symbols, 0, 3).Draw(t, "list")
					encoded = AppendList(encoded, len(list))
					for _, raw := range list {
						v.elements = append(v.elements, value{raw: raw})
						encoded = AppendBytes(encoded, raw)
					}
				}
				row = append(row, v)
			}
			return row, encoded
		}
		a, encodedA := draw()
		b, encodedB := draw()
		if same := slices.EqualFunc(a, b, (*value).equal); same != bytes.Equal(encodedA, encodedB) {
			t.Fatalf("rows equal: %v, encodings %x and %x", same, encodedA, encodedB)
		}
	})
}
