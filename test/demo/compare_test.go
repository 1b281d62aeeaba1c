package main

import "testing"

// Rows are compared as multisets: order does not matter, a doubled, lost or changed row does, and no two columns run together.
func TestDifference(t *testing.T) {
	a, b, c := []string{"1", "x"}, []string{"2", "<null>"}, []string{"1x", ""}
	for name, d := range map[string]struct {
		theirs, ours     [][]string
		missing, surplus int
	}{
		"equal":       {[][]string{a, b, a}, [][]string{a, a, b}, 0, 0},
		"lost":        {[][]string{a, b}, [][]string{a}, 1, 0},
		"doubled":     {[][]string{a}, [][]string{a, a}, 0, 1},
		"changed":     {[][]string{a, b}, [][]string{a, c}, 1, 1},
		"resurrected": {nil, [][]string{b}, 0, 1},
		"run into":    {[][]string{{"1", "x"}}, [][]string{{"1x", ""}}, 1, 1},
	} {
		if missing, surplus := difference(d.theirs, d.ours); missing != d.missing || surplus != d.surplus {
			t.Errorf("%s: %d missing, %d too many", name, missing, surplus)
		}
	}
}
