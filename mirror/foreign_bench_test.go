package mirror

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/iceberg"
)

// BenchmarkForeignMatch pairs the rows of both sides of a rewrite, without Parquet: in memory, and through files.
func BenchmarkForeignMatch(b *testing.B) {
	const files, rows = 16, 1 << 17
	m, tab, _ := benchTable(b, oidInt4, oidInt8, oidText)
	ware := newFakeWarehouse()
	m.warehouse, m.cfg.IndexDir, m.files = ware, b.TempDir(), OSFiles()
	f := &iceberg.Foreign{}
	schema := withLSN(tab.shape.arrow)
	for side, list := range []*[]iceberg.DataFile{&f.Removed, &f.Added} {
		for file := range files {
			ids, amounts, texts, lsns := array.NewInt32Builder(memory.DefaultAllocator), array.NewInt64Builder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator), array.NewInt64Builder(memory.DefaultAllocator)
			for row := range rows {
				id := file*rows + row
				if side == 1 {
					id = row*files + file
				}
				ids.Append(int32(id))
				amounts.Append(int64(id) * 7)
				texts.Append("a text of some length")
				lsns.Append(int64(id/100 + 1))
			}
			path := fmt.Sprintf("/w/%d-%d.parquet", side, file)
			ware.files[path] = []arrow.RecordBatch{array.NewRecordBatch(schema, []arrow.Array{ids.NewArray(), amounts.NewArray(), texts.NewArray(), lsns.NewArray()}, rows)}
			*list = append(*list, iceberg.DataFile{Path: path, Rows: rows})
		}
	}
	for _, most := range []int{files * rows, 1 << 17} {
		b.Run(fmt.Sprintf("sorted=%d", most), func(b *testing.B) {
			m.sortRows = most
			b.ReportAllocs()
			for b.Loop() {
				rw := &foreignRewrite{table: tab, foreign: f, shape: tab.shape, rows: tab.shape}
				if reason, err := rw.match(b.Context(), m); err != nil || reason != "" {
					b.Fatal(reason, err)
				}
				if err := rw.places.close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*2*files*rows/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
