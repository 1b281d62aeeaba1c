package duckdb

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/readstate"
)

var itemSchema = arrow.NewSchema([]arrow.Field{
	col("id", 11, arrow.PrimitiveTypes.Int64), col("a", 12, arrow.PrimitiveTypes.Int32),
	col("b", 13, arrow.PrimitiveTypes.Float64), col("s", 15, arrow.BinaryTypes.String),
}, nil)

// itemRows builds rows [from, to) of the test table; every 13th a and 17th s is NULL.
func itemRows(from, to int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, itemSchema)
	for i := from; i < to; i++ {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		if i%13 == 0 {
			b.Field(1).AppendNull()
		} else {
			b.Field(1).(*array.Int32Builder).Append(int32(i * 7919 % 1000))
		}
		b.Field(2).(*array.Float64Builder).Append(float64(i) / 4)
		if i%17 == 0 {
			b.Field(3).AppendNull()
		} else {
			b.Field(3).(*array.StringBuilder).Append(itemText(i))
		}
	}
	return b.NewRecordBatch()
}

func itemText(i int) string { return fmt.Sprintf("item-%d%s", i, strings.Repeat("x", i%23)) }

// itemCSV is the model's own list of the rows that are not deleted.
func itemCSV(out *bytes.Buffer, from, to int, dead []uint32) {
	for i := from; i < to; i++ {
		if _, found := slices.BinarySearch(dead, uint32(i-from)); found {
			continue
		}
		a, s := fmt.Sprint(i*7919%1000), itemText(i)
		if i%13 == 0 {
			a = ""
		}
		if i%17 == 0 {
			s = ""
		}
		fmt.Fprintf(out, "%d,%s,%v,%s\n", i, a, float64(i)/4, s)
	}
}

// deadRows picks rows to delete.
func deadRows(rng *rand.Rand, rows int, ratio float64) []uint32 {
	var out []uint32
	for i := range rows {
		if rng.Float64() < ratio {
			out = append(out, uint32(i))
		}
	}
	return out
}

// shapes are queries over one table, %s.
var shapes = []string{
	"SELECT count(*) FROM %s",
	"SELECT count(a), count(DISTINCT s), sum(b), min(id), max(s) FROM %s",
	"SELECT a % 10 AS g, count(*), sum(b) FROM %s GROUP BY g ORDER BY g NULLS LAST",
	"SELECT * FROM %s WHERE id BETWEEN 3000 AND 3300 ORDER BY id",
	"SELECT * FROM %s WHERE id = 4321",
	"SELECT id, s FROM %s WHERE s LIKE '%-77%' ORDER BY id",
	"SELECT * FROM %s ORDER BY b DESC, id LIMIT 17 OFFSET 5",
	"SELECT DISTINCT a FROM %s ORDER BY a NULLS LAST",
	"SELECT count(*), sum(x.b * y.b) FROM %s x JOIN %s y ON x.a = y.a AND x.id < y.id AND y.id < 900",
	"SELECT count(*) FROM %s WHERE a IN (SELECT a FROM %s WHERE id % 97 = 0)",
	"SELECT count(*) FROM %s x WHERE NOT EXISTS (SELECT 1 FROM %s y WHERE y.id = x.id + 1)",
	"SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY a ORDER BY id) AS r FROM %s)",
	"WITH c AS MATERIALIZED (SELECT a, b, id FROM %s) SELECT count(*), sum(x.b) FROM c x JOIN c y ON x.id = y.id + 1",
	"SELECT sum(hash(id, a, b, s)::HUGEINT) FROM %s",
	"SELECT count(*) FROM %s WHERE s IS NULL AND a IS NOT NULL",
	"(SELECT id FROM %s WHERE id < 10) UNION ALL (SELECT a FROM %s WHERE id < 10) ORDER BY 1 NULLS LAST",
	"SELECT count(*) FROM %s WHERE false",
	"SELECT id FROM %s WHERE s = 'no such text'",
}

// Every query shape answers alike over the union read and over a plain table of the rows that a list in this test says
// are there: with nothing, 2 %, 30 % and everything deleted, in files and in memory.
func TestUnionReadEqualsPlainTable(t *testing.T) {
	for _, layout := range []struct {
		name        string
		files, mems []int // rows of each
	}{
		{"files and memory", []int{3000, 1, 2049}, []int{2048, 4100, 1}},
		{"files only", []int{3000, 2000}, nil},
		{"memory only", nil, []int{5000, 500}},
		{"nothing", nil, nil},
	} {
		for _, ratio := range []float64{0, 0.02, 0.3, 1} {
			t.Run(fmt.Sprintf("%s/%v", layout.name, ratio), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, uint64(ratio*100)))
				var truth bytes.Buffer
				var files []readstate.File
				var batches []readstate.Batch
				next := 0
				for _, rows := range layout.files {
					dead := deadRows(rng, rows, ratio)
					files = append(files, fileOf(t, itemRows(next, next+rows), dead, 1024))
					itemCSV(&truth, next, next+rows, dead)
					next += rows
				}
				if len(files) > 1 { // a file without deletes among others
					rows := 2100
					files = append(files, fileOf(t, itemRows(next, next+rows), nil, 1024))
					itemCSV(&truth, next, next+rows, nil)
					next += rows
				}
				for _, rows := range layout.mems {
					dead := deadRows(rng, rows, ratio)
					batches = append(batches, batchOf(itemRows(next, next+rows), dead))
					itemCSV(&truth, next, next+rows, dead)
					next += rows
				}
				path := filepath.Join(t.TempDir(), "truth.csv")
				if err := os.WriteFile(path, truth.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
				p := fixed(table("items", itemSchema, files, batches))
				db := openTest(t, p)
				query(t, db, "CREATE TEMP TABLE truth(id BIGINT, a INTEGER, b DOUBLE, s VARCHAR)")
				if truth.Len() > 0 {
					query(t, db, "INSERT INTO truth FROM read_csv("+literal(path)+", header=false, columns={id:'BIGINT',a:'INTEGER',b:'DOUBLE',s:'VARCHAR'})")
				}
				for _, shape := range shapes {
					want := query(t, db, strings.ReplaceAll(shape, "%s", "truth"))
					got := query(t, db, strings.ReplaceAll(shape, "%s", "public.items"))
					if fmt.Sprint(want) != fmt.Sprint(got) {
						t.Errorf("%s\n got %.300v\nwant %.300v", shape, got, want)
					}
				}
				if n := p.open.Load(); n != 0 {
					t.Errorf("%d states are pinned after Run", n)
				}
			})
		}
	}
}

// A predicate that throws on a deleted row's value does not, because that row is not there.
func TestDeletedRowsDoNotThrow(t *testing.T) {
	s := arrow.NewSchema([]arrow.Field{col("s", 1, arrow.BinaryTypes.String)}, nil)
	f := fileOf(t, record(t, s, `[{"s":"1"},{"s":"bad"},{"s":"3"}]`), []uint32{1}, 100)
	b := batchOf(record(t, s, `[{"s":"bad"},{"s":"3"}]`), []uint32{0})
	db := openTest(t, fixed(table("n", s, []readstate.File{f}, []readstate.Batch{b})))
	if got := query(t, db, "SELECT count(*) FROM n WHERE s::INTEGER = 3"); got[0][0] != "2" {
		t.Fatalf("got %v", got)
	}
}

// The read's text names only what has a visible row, filters only when a file has a deleted row, and never leaves a file alone.
func TestUnionText(t *testing.T) {
	clean, some := fileOf(t, itemRows(0, 3), nil, 10), fileOf(t, itemRows(3, 6), []uint32{1}, 10)
	dead := fileOf(t, itemRows(6, 8), []uint32{0, 1}, 10)
	many := fileOf(t, itemRows(0, apartRows), nil, apartRows)
	live, gone := batchOf(itemRows(8, 10), nil), batchOf(itemRows(8, 10), []uint32{0, 1})
	const alone = "/nothing.parquet'], "
	for _, c := range []struct {
		files    []readstate.File
		batch    readstate.Batch
		has, not []string
	}{
		{[]readstate.File{clean, dead}, live, []string{clean.Path, alone, "UNION ALL FROM pgmirror_memory("}, []string{dead.Path, "pgmirror_live("}},
		{[]readstate.File{clean, dead}, gone, []string{clean.Path, alone}, []string{dead.Path, "pgmirror_live(", "pgmirror_memory("}},
		{[]readstate.File{dead, clean, some}, gone, []string{some.Path + "', '" + clean.Path + "'], ", "pgmirror_live("}, []string{dead.Path, "UNION ALL", alone}},
		{[]readstate.File{many, some}, gone, []string{many.Path + "', '", "UNION ALL", some.Path + "', '", "pgmirror_live("}, []string{"pgmirror_memory("}},
		{[]readstate.File{dead}, gone, []string{"pgmirror_memory("}, []string{"read_parquet", "UNION ALL"}},
	} {
		db := openTest(t, fixed(table("items", itemSchema, c.files, []readstate.Batch{c.batch})))
		text := query(t, db, "SELECT pgmirror_sql('public.items', txid_current())")[0][0]
		for _, s := range c.has {
			if !strings.Contains(text, s) {
				t.Errorf("no %s in %s", s, text)
			}
		}
		for _, s := range c.not {
			if strings.Contains(text, s) {
				t.Errorf("%s in %s", s, text)
			}
		}
	}
}

// Files without deleted rows that are read apart from the others have all their rows, and the others only theirs.
func TestFilesReadApart(t *testing.T) {
	files := []readstate.File{
		fileOf(t, itemRows(0, apartRows), nil, 50_000),
		fileOf(t, itemRows(apartRows, apartRows+10), []uint32{0, 9}, 10),
		fileOf(t, itemRows(apartRows+10, apartRows+20), []uint32{5}, 10),
	}
	db := openTest(t, fixed(table("items", itemSchema, files, nil)))
	n, gone := apartRows+20, apartRows+apartRows+9+apartRows+15
	want := fmt.Sprintf("[[%d %d]]", n-3, n*(n-1)/2-gone)
	if got := query(t, db, "SELECT count(id), sum(id) FROM items"); fmt.Sprint(got) != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func BenchmarkUnionRead(b *testing.B) {
	const rows = 400_000
	rng := rand.New(rand.NewPCG(1, 2))
	var files []readstate.File
	var paths []string
	for i := range 4 {
		f := fileOf(b, itemRows(i*rows/4, (i+1)*rows/4), deadRows(rng, rows/4, 0.02), 122_880)
		files, paths = append(files, f), append(paths, literal(f.Path))
	}
	db := openTest(b, fixed(table("items", itemSchema, files, []readstate.Batch{batchOf(itemRows(rows, rows+8192), nil)})))
	plain := "read_parquet([" + strings.Join(paths, ",") + "])"
	for _, q := range []struct{ name, sql string }{
		{"count", "SELECT count(*) FROM %s"},
		{"group", "SELECT a % 100 AS g, sum(b) FROM %s GROUP BY g"},
		{"range", "SELECT sum(b) FROM %s WHERE id BETWEEN 200000 AND 204000"},
		{"point", "SELECT * FROM %s WHERE id = 300001"},
		{"all", "SELECT sum(hash(id, a, b, s)::HUGEINT) FROM %s"},
	} {
		for _, from := range []string{plain, "public.items"} {
			name := "plain"
			if from != plain {
				name = "union"
			}
			sql := strings.ReplaceAll(q.sql, "%s", from)
			b.Run(q.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					if err := db.Run(context.Background(), sql, &bytes.Buffer{}, FormatCSV); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
