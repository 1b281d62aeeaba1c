package iceberg

import (
	"slices"
	"testing"

	icetable "github.com/apache/iceberg-go/table"
)

// A table's life, snapshot by snapshot, read back by iceberg-go's scan: created, appended to, deleted from twice in one file
// (the second vector replaces the first), truncated.
func TestSnapshotsReadBack(t *testing.T) {
	w, _ := openLoaded(t, Config{Dir: t.TempDir()})
	loc := newLocation(t, "Orders")
	first := writeRows(t, w, loc, 100, 1, 2, 3, 4)
	steps := []struct {
		change TableCommit
		want   []string
	}{
		{TableCommit{Create: true, Schema: loc.Schema}, nil},
		{TableCommit{Add: []DataFile{first}}, []string{"1|row 1|100|", "2|row 2|100|", "3|row 3|100|", "4|row 4|100|"}},
		{TableCommit{Vectors: vectors(first.Path, vectorOf(4, 1))}, []string{"1|row 1|100|", "3|row 3|100|", "4|row 4|100|"}},
		{TableCommit{Vectors: vectors(first.Path, vectorOf(4, 1, 3)), Add: []DataFile{writeRows(t, w, loc, 104, 5)}},
			[]string{"1|row 1|100|", "3|row 3|100|", "5|row 5|104|"}},
		{TableCommit{Remove: []string{first.Path}}, []string{"5|row 5|104|"}},
		{TableCommit{Add: []DataFile{writeRows(t, w, loc, 106, 6)}}, []string{"5|row 5|104|", "6|row 6|106|"}},
	}
	var ids []int64
	for i, step := range steps {
		step.change.Name, step.change.UUID = loc.Name, loc.UUID
		result := commit(t, w, LSN(101+i), step.change)
		state := result.Tables[loc.Name]
		ids = append(ids, state.SnapshotID)
		if state.LSN != LSN(101+i) {
			t.Fatalf("step %d: lsn %s", i, state.LSN)
		}
	}
	tbl := openIceberg(t, metadataPath(w, loc.Name))
	for i, step := range steps {
		got := scan(t, tbl, icetable.WithSnapshotID(ids[i]))
		slices.Sort(got)
		if !slices.Equal(got, step.want) {
			t.Errorf("snapshot %d: got %v, want %v", i, got, step.want)
		}
	}
	if s := tbl.CurrentSnapshot(); s.Summary.Properties["total-records"] != "2" || s.Summary.Properties["pgmirror.lsn"] != "0/6A" {
		t.Errorf("summary %v", s.Summary)
	}
	got := scan(t, tbl, icetable.WithRowLineage())
	slices.Sort(got)
	if want := []string{"5|row 5|104|4|4|", "6|row 6|106|5|6|"}; !slices.Equal(got, want) {
		t.Errorf("row lineage: got %v, want %v", got, want)
	}
}
