package deletion

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A vector answers like a plain set.
func TestVectorIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawVector(t)
		set := map[uint32]bool{}
		for p := range v.Rows() {
			if v.Contains(p) {
				set[p] = true
			}
		}
		want := slices.Sorted(maps.Keys(set))
		if got := slices.Collect(v.Positions()); !slices.Equal(got, want) {
			t.Fatalf("positions %d, want %d", len(got), len(want))
		}
		if v.Cardinality() != uint64(len(want)) {
			t.Fatalf("cardinality %d, want %d", v.Cardinality(), len(want))
		}
		pos := rapid.Uint32Range(0, v.Rows()).Draw(t, "pos")
		below, _ := slices.BinarySearch(want, pos)
		if got := v.Rank(pos); got != uint32(below) {
			t.Fatalf("rank of %d is %d, want %d", pos, got, below)
		}
	})
}

func TestVectorCloneOrEqual(t *testing.T) {
	a := NewVector(100)
	a.Set(3)
	a.SetRange(10, 20)
	b := a.Freeze().Clone()
	if !a.Equal(b) || b.ID() != 0 {
		t.Fatalf("a clone is equal and not frozen, id %d", b.ID())
	}
	b.Set(99)
	if a.Equal(b) || a.Contains(99) {
		t.Fatal("a clone shares nothing")
	}
	c := NewVector(100)
	c.Set(50)
	c.Or(b)
	c.Or(nil)
	if want := append([]uint32{3, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}, 50, 99); !slices.Equal(slices.Collect(c.Positions()), want) {
		t.Fatalf("or gives %v, want %v", slices.Collect(c.Positions()), want)
	}
}

// Freezing gives an id of its own to each vector, once.
func TestVectorID(t *testing.T) {
	a, b := NewVector(1), NewVector(1)
	if a.ID() != 0 {
		t.Fatal("no id before Freeze")
	}
	id := a.Freeze().ID()
	if id == 0 || a.Freeze().ID() != id || b.Freeze().ID() == id {
		t.Fatalf("ids %d, %d, %d", id, a.ID(), b.ID())
	}
}

// A nil vector reads as one with no position set.
func TestVectorNil(t *testing.T) {
	var v *Vector
	if v.Contains(0) || v.Cardinality() != 0 || v.Rows() != 0 || v.Rank(9) != 0 || v.ID() != 0 || v.Bytes() != 0 ||
		len(slices.Collect(v.Positions())) != 0 || !v.Equal(NewVector(9)) || !NewVector(9).Equal(v) || !v.Equal(nil) {
		t.Fatal("a nil vector is not empty")
	}
	blob, err := v.MarshalBlob()
	if err != nil {
		t.Fatal(err)
	}
	if want := "\x00\x00\x00\x0c\xd1\xd3\x39\x64\x00\x00\x00\x00\x00\x00\x00\x00"; string(blob[:16]) != want {
		t.Fatalf("blob % x", blob)
	}
}

// Changing a frozen vector, or marking a position past its rows, is caught.
func TestVectorPanics(t *testing.T) {
	full := NewVector(10)
	full.Set(9)
	for name, change := range map[string]func(){
		"frozen":     func() { NewVector(10).Freeze().Set(1) },
		"frozen or":  func() { NewVector(10).Freeze().Or(full) },
		"past":       func() { NewVector(10).Set(10) },
		"range past": func() { NewVector(10).SetRange(5, 11) },
		"backwards":  func() { NewVector(10).SetRange(5, 4) },
		"or past":    func() { NewVector(9).Or(full) },
		"last":       func() { NewVector(10).Set(1<<32 - 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			change()
		}()
	}
}
