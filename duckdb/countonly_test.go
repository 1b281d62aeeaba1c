package duckdb

import (
	"fmt"
	"path/filepath"
	"testing"

	"pgmirror/readstate"
)

// countable is a table of 7 rows of which no byte can be read: its file is not there, and its batch has no columns.
func countable() *readstate.Table {
	file := readstate.File{Path: "/nonexistent/data.parquet", Rows: 6, Deleted: vectorOf(6, []uint32{0, 3})}
	whole := readstate.File{Path: "/nonexistent/whole.parquet", Rows: 1}
	gone := readstate.File{Path: "/nonexistent/gone.parquet", Rows: 2, Deleted: vectorOf(2, []uint32{0, 1})}
	batch := readstate.Batch{ID: batchIDs.Add(1), Rows: 3, Deleted: vectorOf(3, []uint32{2}), Columns: &recordColumns{err: fmt.Errorf("read")}}
	return table("items", itemSchema, []readstate.File{file, whole, gone}, []readstate.Batch{batch})
}

// The question for a table's number of rows is answered without reading any, however it is written.
func TestCountReadsNothing(t *testing.T) {
	db := openTest(t, fixed(countable()))
	for _, sql := range []string{
		"SELECT count(*) FROM items", "select\ncount ( * )\nfrom\npublic.items ;", "SELECT count() AS n FROM items",
		`SELECT COUNT(*) "number" FROM "public"."items" AS i;;`,
	} {
		if got := query(t, db, sql); fmt.Sprint(got) != "[[7]]" {
			t.Errorf("%s: %v", sql, got)
		}
	}
	mustFail(t, db, "SELECT count(id) FROM items", "nonexistent")
}

// What only looks like that question is answered by reading: here the relation's name is that of a view of the user's, and
// those that need no column may do without.
func TestCountOfOtherRelations(t *testing.T) {
	files := []readstate.File{fileOf(t, itemRows(0, 2500), []uint32{1, 5}, 1000)}
	db := openTest(t, fixed(table("items", itemSchema, files, []readstate.Batch{batchOf(itemRows(2500, 2600), []uint32{7})})))
	query(t, db, `CREATE VIEW odd AS SELECT * FROM items WHERE id % 2 = 1; CREATE VIEW pairs AS SELECT x.id FROM items x, items y;
		CREATE VIEW groups AS SELECT DISTINCT a FROM items WHERE a < 3; CREATE VIEW few AS FROM items ORDER BY id LIMIT 5;
		CREATE VIEW none AS FROM items WHERE id IS NULL; CREATE TABLE own AS FROM range(4)`)
	for relation, want := range map[string]int{"items": 2597, "odd": 1297, "pairs": 2597 * 2597, "groups": 3, "few": 5, "none": 0, "own": 4} {
		sql := "SELECT count(*) FROM " + relation
		if got := query(t, db, sql); got[0][0] != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %d", sql, got, want)
		}
		if got := query(t, db, "BEGIN; "+sql); got[0][0] != fmt.Sprint(want) {
			t.Errorf("%s in a transaction: %v, want %d", sql, got, want)
		}
		if got := query(t, db, sql+"; COMMIT"); len(got) > 0 && got[0][0] != fmt.Sprint(want) {
			t.Errorf("%s in a transaction, again: %v, want %d", sql, got, want)
		}
	}
}

// Several threads that count give each row once, also beyond what one takes.
func TestCountOfManyRows(t *testing.T) {
	const rows = 3*rowsPerThread + 17
	file := readstate.File{Path: filepath.Join(t.TempDir(), "none.parquet"), Rows: rows}
	db := openTest(t, fixed(table("items", itemSchema, []readstate.File{file}, nil)))
	if got := query(t, db, "SELECT count(*) FROM items"); got[0][0] != fmt.Sprint(rows) {
		t.Fatalf("got %v, want %d", got, rows)
	}
}
