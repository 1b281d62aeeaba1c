package iceberg

import (
	"fmt"
	"testing"

	"pgmirror/deletion"
)

// One checkpoint of tables that each got a file and a new vector, with all their snapshots retained.
func BenchmarkCommit(b *testing.B) {
	for _, tables := range []int{1, 20} {
		b.Run(fmt.Sprintf("tables=%d", tables), func(b *testing.B) {
			w, _ := openLoaded(b, Config{Dir: b.TempDir()})
			var locations []TableLocation
			var files []DataFile
			var create []TableCommit
			for i := range tables {
				loc := newLocation(b, fmt.Sprintf("t%d", i))
				locations, files = append(locations, loc), append(files, writeRows(b, w, loc, 1, make([]int64, 1000)...))
				create = append(create, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: files[i:]})
			}
			commit(b, w, 1, create...)
			lsn, deleted := LSN(1), uint32(0)
			for b.Loop() {
				lsn, deleted = lsn+1, deleted+1
				if deleted > 1000 {
					b.Fatal("too many iterations")
				}
				v := deletion.NewVector(1000)
				v.SetRange(0, deleted)
				v.Freeze()
				var changes []TableCommit
				for i, loc := range locations {
					changes = append(changes, TableCommit{Name: loc.Name, UUID: loc.UUID, Add: []DataFile{writeRows(b, w, loc, lsn, 1, 2)}, Vectors: vectors(files[i].Path, v)})
				}
				commit(b, w, lsn, changes...)
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N*tables), "ms/table")
		})
	}
}
