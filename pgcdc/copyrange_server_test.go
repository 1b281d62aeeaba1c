package pgcdc_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

var copyRangeTests = map[string]serverTest{"Ranges": copyRanges, "Extents": copyExtents, "RangeReadsItsBlocksOnly": copyReadsItsBlocks}

// idsIn copies a part of a table whose first column is an int, and returns its ids in the order they came.
func (r *rig) idsIn(snapshot pgcdc.ExportedSnapshot, table *pgcdc.Table, part pgcdc.Range) (ids []int) {
	r.t.Helper()
	err := r.CopyRange(r.t.Context(), snapshot, table, part, func(tuple pgcdc.Tuple) error {
		ids = append(ids, int(binary.BigEndian.Uint32(tuple[0].Data)))
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return ids
}

// Ranges that follow each other hold exactly the rows of the snapshot, each once, while rows are updated into other blocks,
// deleted, inserted and vacuumed between two of them, the table grows, and its name needs quotes.
func copyRanges(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	table := `"Order Lines"`
	const rows = 3000
	r.exec(`CREATE TABLE `+table+`("Id" int PRIMARY KEY, pad text) WITH (fillfactor = 60, autovacuum_enabled = off)`,
		fmt.Sprintf(`INSERT INTO %s SELECT i, repeat('x', 100 + i %% 300) FROM generate_series(1, %d) i`, table, rows),
		`DELETE FROM `+table+` WHERE "Id" % 7 = 0`, `UPDATE `+table+` SET pad = pad || 'y' WHERE "Id" % 5 = 0`) // dead rows, and rows out of order
	r.publish("FOR TABLE " + table)
	snapshot := r.createSlot()
	shape := r.table("Order Lines")
	extents, err := r.Extents(t.Context(), []*pgcdc.Table{shape})
	if err != nil {
		t.Fatal(err)
	}
	blocks := extents[0].Blocks
	if blocks < 50 {
		t.Fatalf("the table has %d blocks: too few to move rows between them", blocks)
	}
	var got []int
	parts := 0
	for from := uint32(0); from < blocks; parts++ {
		to := from + 1 + uint32(parts*parts)%17
		if to >= blocks {
			to = 0
		}
		got = append(got, r.idsIn(snapshot, shape, pgcdc.Range{From: from, To: to})...)
		// Rows that were copied and rows that were not go to the end of the table, and some of them back into freed space.
		r.exec(fmt.Sprintf(`UPDATE %s SET pad = pad || 'z' WHERE "Id" %% 11 = %d`, table, parts%11), fmt.Sprintf(`DELETE FROM %s WHERE "Id" %% 97 = %d`, table, parts),
			fmt.Sprintf(`INSERT INTO %s VALUES (%d, 'new')`, table, 1_000_000+parts), `VACUUM `+table)
		if from = to; to == 0 {
			break
		}
	}
	var want []int
	for id := 1; id <= rows; id++ {
		if id%7 != 0 {
			want = append(want, id)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%d ranges hold %d rows, want the %d of the snapshot", parts+1, len(got), len(want))
	}
	if whole := r.idsIn(snapshot, shape, pgcdc.Range{}); len(whole) != len(want) {
		t.Errorf("the whole table has %d rows, want %d", len(whole), len(want))
	}
	r.exec("TRUNCATE " + table)
	none := func(pgcdc.Tuple) error { return nil }
	if err := r.CopyRange(t.Context(), snapshot, shape, pgcdc.Range{From: 1, To: 2}, none); !errors.Is(err, pgcdc.ErrRewritten) {
		t.Errorf("after TRUNCATE a range ends with %v", err)
	}
}

// number asks the rig's database for an integer.
func (r *rig) number(expression string) int64 {
	r.t.Helper()
	session := r.p.Open("postgres", r.name)
	defer session.Close()
	rows, err := session.Query("SELECT " + expression)
	if err != nil {
		r.t.Fatal(err)
	}
	n, err := strconv.ParseInt(rows[0][0], 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// Extents are what the server's own functions say, and nothing for a table that is gone or that is not a heap.
func copyExtents(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE small(id int PRIMARY KEY)", "CREATE TABLE gone(id int PRIMARY KEY)", "CREATE TABLE large(id int PRIMARY KEY, v text)",
		"ALTER TABLE large ALTER v SET STORAGE EXTERNAL", "INSERT INTO large SELECT i, repeat('x', 5000) FROM generate_series(1, 500) i", "ANALYZE large",
		"CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler", "CREATE TABLE foreign_am(id int PRIMARY KEY) USING other",
		"INSERT INTO foreign_am SELECT generate_series(1, 1000)")
	r.publish("FOR TABLE small, gone, large, foreign_am")
	var tables []*pgcdc.Table
	for _, name := range []string{"small", "gone", "large", "foreign_am"} {
		tables = append(tables, r.table(name))
	}
	r.exec("DROP TABLE gone")
	got, err := r.Extents(t.Context(), tables)
	if err != nil {
		t.Fatal(err)
	}
	want := []pgcdc.Extent{
		{Bytes: r.number("pg_table_size('small')"), Rows: -1},
		{},
		{Blocks: uint32(r.number("pg_relation_size('large') / 8192")), Bytes: r.number("pg_table_size('large')"), Rows: 500},
		{Bytes: r.number("pg_table_size('foreign_am')"), Rows: -1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if want[2].Blocks == 0 || want[2].Bytes < 500*5000 {
		t.Errorf("the large table is %+v", want[2])
	}
}

// A range is read by visiting its own blocks: the server counts the rows it returned from the table, and no scan of the whole.
func copyReadsItsBlocks(t *testing.T, p *harness.Postgres) {
	p.For(t).Needs(15, "statistics that an idle connection sends by itself")
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY, v text) WITH (autovacuum_enabled = off)",
		"INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 4000) i")
	r.publish("FOR TABLE t")
	snapshot := r.createSlot()
	table := r.table("t")
	statistics := func() (scans, rows int64) {
		return r.number("(SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 't')"), r.number("(SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 't')")
	}
	scans, rows := statistics() // of making the primary key
	wide := r.idsIn(snapshot, table, pgcdc.Range{From: 2})
	narrow := r.idsIn(snapshot, table, pgcdc.Range{From: 0, To: 2})
	if len(narrow) == 0 || len(narrow) > 20 || len(wide)+len(narrow) != 4000 {
		t.Fatalf("%d and %d rows", len(wide), len(narrow))
	}
	scansAfter, rowsAfter := int64(0), int64(0)
	eventually(t, "the statistics of both copies arrive", func() bool {
		scansAfter, rowsAfter = statistics()
		return rowsAfter >= rows+4000
	})
	if scansAfter != scans || rowsAfter != rows+4000 {
		t.Errorf("%d scans of the whole table returned %d rows, want none and 4000", scansAfter-scans, rowsAfter-rows)
	}
}
