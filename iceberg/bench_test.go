package iceberg

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/google/uuid"

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

// The start of a mirror of many small tables, each with two files and a vector.
func BenchmarkLoad(b *testing.B) {
	const tables = 200
	dir := b.TempDir()
	w, _ := openLoaded(b, Config{Dir: dir})
	var create, change []TableCommit
	for i := range tables {
		loc := newLocation(b, fmt.Sprintf("t%d", i))
		first := writeRows(b, w, loc, 1, make([]int64, 10)...)
		create = append(create, TableCommit{Name: loc.Name, UUID: loc.UUID, Create: true, Schema: loc.Schema, Add: []DataFile{first}})
		change = append(change, TableCommit{Name: loc.Name, UUID: loc.UUID, Add: []DataFile{writeRows(b, w, loc, 2, 1, 2)}, Vectors: vectors(first.Path, vectorOf(10, 3))})
	}
	commit(b, w, 1, create...)
	commit(b, w, 2, change...)
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		w, err := Open(b.Context(), Config{Dir: dir})
		if err == nil {
			_, err = w.Load(b.Context())
		}
		if err == nil {
			_, err = w.RemoveOrphans(b.Context())
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*tables), "µs/table")
}

// BenchmarkWrite writes a file of half a million account rows, in batches of 8,192, with create LSNs as a mix of small and of
// large transactions leaves them.
func BenchmarkWrite(b *testing.B) {
	const batches, batchRows = 60, 8_192
	w, _ := openLoaded(b, Config{Dir: b.TempDir()})
	schema, _ := AssignFieldIDs(arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int32}, {Name: "userid", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "balance", Type: arrow.PrimitiveTypes.Float32, Nullable: true}, {Name: "isblocked", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "ts", Type: &arrow.TimestampType{Unit: arrow.Microsecond}, Nullable: true}, {Name: "type", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil), 0)
	loc := TableLocation{Name: TableName{Schema: "public", Name: "accounts"}, UUID: uuid.NewString(), Schema: schema}
	fields := append(append([]arrow.Field{}, schema.Fields()...), arrow.Field{Name: LSNColumn, Type: arrow.PrimitiveTypes.Int64})
	random := rand.New(rand.NewPCG(1, 2))
	lsn, left := int64(1<<40), 0
	var records []arrow.RecordBatch
	for range batches {
		r := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
		for range batchRows {
			if left == 0 { // the next commit, some kilobytes of WAL later
				left = []int{1, 2, 2, 29}[random.IntN(4)]
				lsn += 8 * int64(math.Exp(5+1.5*random.NormFloat64()))
			}
			left--
			id := random.Int32N(302_000)
			r.Field(0).(*array.Int32Builder).Append(id)
			r.Field(1).(*array.Int32Builder).Append(id)
			r.Field(2).(*array.Float32Builder).Append(random.Float32() * 2000)
			r.Field(3).(*array.Int32Builder).Append(0)
			r.Field(4).(*array.TimestampBuilder).Append(arrow.Timestamp(lsn))
			r.Field(5).(*array.StringBuilder).Append([]string{"transfer", "red_packet", "donate", "invest"}[id%4])
			r.Field(6).(*array.Int64Builder).Append(lsn)
		}
		records = append(records, r.NewRecordBatch())
	}
	var written DataFile
	for b.Loop() {
		x, err := w.NewWriter(context.Background(), loc)
		if err != nil {
			b.Fatal(err)
		}
		for _, rec := range records {
			if err := x.Write(rec); err != nil {
				b.Fatal(err)
			}
		}
		if written, err = x.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(batches*batchRows*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
	b.ReportMetric(float64(written.Bytes)/batches/batchRows, "bytes/row")
	pq, err := file.OpenParquetFile(written.Path, false)
	if err != nil {
		b.Fatal(err)
	}
	defer pq.Close()
	hidden := int64(0)
	for i := range pq.NumRowGroups() {
		chunk, err := pq.MetaData().RowGroup(i).ColumnChunk(len(fields) - 1)
		if err != nil {
			b.Fatal(err)
		}
		hidden += chunk.TotalCompressedSize()
	}
	b.ReportMetric(float64(hidden)*8/batches/batchRows, "hidden-bits/row")
}
