package duckdb

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/readstate"
)

// manyTables are empty tables of three columns.
func manyTables(n int) (tables []*readstate.Table) {
	schema := arrow.NewSchema([]arrow.Field{col("id", 1, arrow.PrimitiveTypes.Int32), col("n", 2, arrow.PrimitiveTypes.Int64), col("v", 3, arrow.BinaryTypes.String)}, nil)
	for i := range n {
		tables = append(tables, table(fmt.Sprintf("t%d", i), schema, nil, nil))
	}
	return tables
}

// BenchmarkOpen opens a DuckDB over a thousand tables, and asks one of them.
func BenchmarkOpen(b *testing.B) {
	tables := manyTables(1000)
	for b.Loop() {
		db, err := Open(context.Background(), Config{Source: fixed(tables...), ScratchDir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := db.Query(context.Background(), "SELECT count(*) FROM t7"); err != nil {
			b.Fatal(err)
		}
		db.Close()
	}
}

// What the user has put in one table's place keeps no other table from being shown.
func TestOthersAreShown(t *testing.T) {
	db := openTest(t, fixed(manyTables(20)...))
	query(t, db, "BEGIN; DROP VIEW public.t3; CREATE TABLE public.t3 AS SELECT 'mine' AS v; DROP VIEW public.t2; DROP VIEW public.t4; COMMIT")
	for name, want := range map[string]string{"t2": "0", "t3": "1", "t4": "0", "t19": "0"} {
		if got := query(t, db, "SELECT count(*) FROM public."+name); got[0][0] != want {
			t.Errorf("%s has %s rows, want %s", name, got[0][0], want)
		}
	}
	query(t, db, "DROP TABLE public.t3")
	if got := query(t, db, "SELECT count(*) FROM public.t3"); got[0][0] != "0" {
		t.Errorf("the mirrored table has %s rows again", got[0][0])
	}
}
