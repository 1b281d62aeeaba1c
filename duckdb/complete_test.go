package duckdb

import (
	"context"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/readstate"
)

// DuckDB completes keywords, mirrored tables and their columns, and what the user made, in a transaction too. A start counts bytes.
func TestComplete(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{col("customer", 1, arrow.PrimitiveTypes.Int64), col("Amount due", 2, arrow.PrimitiveTypes.Int64)}, nil)
	batch := batchOf(record(t, schema, `[{"customer":1,"Amount due":2}]`), nil)
	p := fixed(table("orders", schema, nil, []readstate.Batch{batch}), table("a b", schema, nil, nil))
	db := openTest(t, p)
	query(t, db, "CREATE TEMP TABLE scratched AS SELECT 1 AS n; BEGIN; SELECT count(*) FROM orders")
	pins := p.pins
	for text, want := range map[string]Suggestion{
		"SEL":                    {"SELECT ", 0},
		"select * from ord":      {"orders", 14},
		"from a":                 {`"a b"`, 5},
		"select 'é', custo":      {"customer", 13},
		"from orders where amou": {`"Amount due"`, 18},
		"select * from scra":     {"scratched", 14},
		"select 'it''s', custo":  {"customer", 16},
	} {
		got, err := db.Complete(context.Background(), text)
		if err != nil || !slices.Contains(got, want) {
			t.Errorf("%q: no %+v in %+v, %v", text, want, got, err)
		}
	}
	if p.pins != pins {
		t.Errorf("completion pinned %d states", p.pins-pins)
	}
	query(t, db, "COMMIT")
	if _, err := db.Complete(context.Background(), ""); err != nil {
		t.Error(err)
	}
}
