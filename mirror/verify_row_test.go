package mirror

import (
	"bytes"
	"fmt"
	"math/big"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"pgmirror/pgcdc"
)

// A value decoded from what the source sends and the same value in an Arrow array have the same encoding, whatever the type, NULL
// included; unless it is long it is the encoding of an index's key.
func TestRowEncodings(t *testing.T) {
	w := newWorld(t, 1)
	for _, oid := range []uint32{oidBool, oidBytea, oidInt8, oidInt4, oidText, oidFloat8, oidDate, oidTimestampTZ, oidNumeric, oidUID, oidInt4List, oidNumericList} {
		typ := typeOf(oid)
		arrowed, err := arrowType(typ)
		if err != nil {
			t.Fatal(err)
		}
		c := newColumn(arrowed)
		var sent [][]byte
		for i := range 50 {
			e := &rowEncoder{}
			if i%7 == 3 {
				e.Null()
				c.Null()
			} else {
				value := w.value(oid)
				if err := typ.Decode(pgcdc.FormatText, []byte(value.wire), e); err != nil {
					t.Fatal(err)
				}
				if err := typ.Decode(pgcdc.FormatText, []byte(value.wire), c); err != nil {
					t.Fatal(err)
				}
			}
			sent = append(sent, e.buf)
		}
		value, err := appenderOf(c.array(0, 50), false)
		if err != nil {
			t.Fatal(err)
		}
		later, err := appenderOf(c.array(20, 50), false) // one whose offsets do not begin at 0
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range sent {
			if got := value(nil, i); !bytes.Equal(got, want) || !bytes.Equal(got, c.appendKey(nil, i)) {
				t.Errorf("type %d, row %d: %x, want %x", oid, i, got, want)
			}
			if i >= 20 && !bytes.Equal(later(nil, i-20), want) {
				t.Errorf("type %d, row %d of a slice: %x, want %x", oid, i, later(nil, i-20), want)
			}
		}
	}
}

// A long value takes few bytes, which depend on all of it; as part of a key it is written out.
func TestRowEncoderLongValues(t *testing.T) {
	seen := map[string]string{}
	for _, size := range []int{longValue - 1, longValue, longValue + 1, 50 * longValue} {
		for _, at := range []int{-1, 0, size / 2, size - 1} {
			value := bytes.Repeat([]byte{'x'}, size)
			if at >= 0 {
				value[at] = 'y'
			}
			e := &rowEncoder{}
			e.Binary(value)
			if size >= longValue && len(e.buf) > 32 {
				t.Errorf("%d bytes take %d", size, len(e.buf))
			}
			what := fmt.Sprintf("%d bytes, another at %d", size, at)
			if other, found := seen[string(e.buf)]; found {
				t.Errorf("%s look like %s", what, other)
			}
			seen[string(e.buf)] = what
			e = &rowEncoder{whole: true}
			e.Binary(value)
			if !bytes.Contains(e.buf, value) {
				t.Errorf("%d bytes of a key take %d", size, len(e.buf))
			}
		}
	}
}

// The sum of hashes is that of arithmetic modulo 2^128, in any order; so a row that is doubled changes it, and no two rows that are
// doubled take each other away.
func TestTally(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hashes := rapid.SliceOf(rapid.Custom(func(t *rapid.T) xxh3.Uint128 {
			return xxh3.Uint128{Hi: rapid.Uint64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")}
		})).Draw(t, "hashes")
		forth, back := newTally(4), newTally(4)
		want := new(big.Int)
		for _, h := range hashes {
			forth.add(h, int(h.Lo%4))
			one := new(big.Int).Lsh(new(big.Int).SetUint64(h.Hi), 64)
			want.Add(want, one.Add(one, new(big.Int).SetUint64(h.Lo)))
		}
		for _, h := range slices.Backward(hashes) {
			back.add(h, int(h.Lo%4))
		}
		want.Mod(want, new(big.Int).Lsh(big.NewInt(1), 128))
		got := new(big.Int).Lsh(new(big.Int).SetUint64(forth.total.hi), 64)
		got.Add(got, new(big.Int).SetUint64(forth.total.lo))
		if got.Cmp(want) != 0 || forth.total.rows != int64(len(hashes)) {
			t.Fatalf("%d rows make %x, want %x", forth.total.rows, got, want)
		}
		if wanted, all := forth.differing(back); len(wanted) != 0 || !all || forth.total != back.total {
			t.Fatalf("the order makes a difference: %v, %v", forth, back)
		}
	})
}

// Buckets that differ are found, as many as hold maxRemembered rows, and at least one.
func TestTallyDiffering(t *testing.T) {
	a, b := newTally(8), newTally(8)
	a.add(xxh3.Uint128{Lo: 1}, 3)
	b.add(xxh3.Uint128{Lo: 2}, 3)
	b.add(xxh3.Uint128{Lo: 3}, 5)
	if wanted, all := a.differing(b); !all || len(wanted) != 2 || !wanted[3] || !wanted[5] {
		t.Errorf("they differ in %v, %v", wanted, all)
	}
	a.buckets[3].rows = 2 * maxRemembered
	if wanted, all := a.differing(b); all || len(wanted) != 1 || !wanted[3] {
		t.Errorf("with many rows they differ in %v, %v", wanted, all)
	}
}

// A sample by a key that the source cannot choose by, and one of whole rows, take about their part.
func TestLocalSample(t *testing.T) {
	table := tableDef(1, "t", 'd', []int{0}, []int{0}, oidFloat8)
	for _, key := range [][]int{{0}, nil} {
		s := newSample(&table, key, 30)
		chosen := 0
		for i := range 2000 {
			e := &rowEncoder{}
			e.begin()
			e.Float64(float64(i) / 3)
			e.end()
			if s.has(e) {
				chosen++
			}
		}
		if s.remote || chosen < 500 || chosen > 700 {
			t.Errorf("key %v: %d of 2000 are chosen", key, chosen)
		}
	}
}
