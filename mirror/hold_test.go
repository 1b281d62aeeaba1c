package mirror

import (
	"slices"
	"testing"

	"pgmirror/iceberg"
)

// TestFilesAreHeldInCreateOrder: a commit lists what a compaction made last; the table has its files in the order of their rows again.
func TestFilesAreHeldInCreateOrder(t *testing.T) {
	tab := &table{}
	tab.hold(&Mirror{}, []iceberg.DataFile{{Path: "c", MinLSN: 7, MaxLSN: 9}, {Path: "b", MinLSN: 5, MaxLSN: 6}, {Path: "d", MinLSN: 7, MaxLSN: 12}, {Path: "a", MinLSN: 1, MaxLSN: 4}}, 12)
	var got []string
	for _, s := range tab.files {
		got = append(got, s.file.data.Path)
	}
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("the files are %v, want %v", got, want)
	}
}
