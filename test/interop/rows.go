package interop

import (
	"fmt"
	"slices"
	"strings"
)

// Row is one row's values in the textual form of the package, in the order of the columns.
type Row []string

func compareRows(a, b Row) int { return slices.Compare(a, b) }

// SortRows brings rows into the one order in which equal multisets are equal slices.
func SortRows(rows []Row) { slices.SortFunc(rows, compareRows) }

// maxShown bounds how many rows of each kind Diff prints.
const maxShown = 10

// Diff compares two multisets of rows and says what is missing and what is too much, or "" when they are equal.
func Diff(want, got []Row) string {
	want, got = slices.Clone(want), slices.Clone(got)
	SortRows(want)
	SortRows(got)
	var missing, extra []Row
	i, j := 0, 0
	for i < len(want) || j < len(got) {
		switch {
		case j == len(got):
			missing, i = append(missing, want[i]), i+1
		case i == len(want):
			extra, j = append(extra, got[j]), j+1
		default:
			switch c := compareRows(want[i], got[j]); {
			case c < 0:
				missing, i = append(missing, want[i]), i+1
			case c > 0:
				extra, j = append(extra, got[j]), j+1
			default:
				i, j = i+1, j+1
			}
		}
	}
	if len(missing) == 0 && len(extra) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "want %d rows, got %d\n", len(want), len(got))
	show(&b, "missing", missing)
	show(&b, "too much", extra)
	return b.String()
}

func show(b *strings.Builder, label string, rows []Row) {
	for i, r := range rows {
		if i == maxShown {
			fmt.Fprintf(b, "%s: %d more\n", label, len(rows)-i)
			return
		}
		fmt.Fprintf(b, "%s: %s\n", label, strings.Join(r, " | "))
	}
}
