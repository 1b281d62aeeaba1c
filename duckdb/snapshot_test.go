package duckdb

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/duckdb/duckdb-go/v2/mapping"

	"pgmirror/readstate"
)

var oneInt = arrow.NewSchema([]arrow.Field{col("v", 1, arrow.PrimitiveTypes.Int64)}, nil)

// moving serves a new state with every pin: in state n both tables a and b hold the single value n. a is a file, b is in
// memory.
func moving(t testing.TB) *fakePinner {
	p := &fakePinner{}
	p.make = func(n int) (*readstate.State, error) {
		row := fmt.Sprintf(`[{"v":%d}]`, n)
		return &readstate.State{LSN: readstate.LSN(n), Tables: []*readstate.Table{
			table("a", oneInt, []readstate.File{fileOf(t, record(t, oneInt, row), nil, 10)}, nil),
			table("b", oneInt, nil, []readstate.Batch{batchOf(record(t, oneInt, row), nil)}),
		}}, nil
	}
	return p
}

// All tables of one statement, of whatever kind, show one state although every pin gives another; the next statement
// shows a newer one; and no pin is left.
func TestOneStatementOneState(t *testing.T) {
	p := moving(t)
	db := openTest(t, p)
	csv := filepath.Join(t.TempDir(), "out.csv")
	last := int64(0)
	for _, sql := range []string{
		"SELECT a.v, b.v FROM a, b",
		"SELECT x.v, y.v FROM a x JOIN a y ON true",
		"SELECT (SELECT v FROM a), (SELECT max(v) FROM public.b)",
		"WITH c AS MATERIALIZED (SELECT v FROM a), d AS (SELECT v FROM b) SELECT c.v, d.v FROM c, d",
		"SELECT min(v), max(v) FROM (SELECT v FROM a UNION ALL SELECT v FROM b)",
		"SELECT v, (SELECT v FROM b WHERE b.v = a.v) FROM a",
		"WITH RECURSIVE r(v, n) AS (SELECT v, 0 FROM a UNION ALL SELECT b.v, n + 1 FROM r, b WHERE n < 3) SELECT min(v), max(v) FROM r",
		"CREATE OR REPLACE TEMP TABLE got AS SELECT a.v AS x, b.v AS y FROM a, b; FROM got",
		"DELETE FROM got; INSERT INTO got SELECT a.v, b.v FROM a, b; FROM got",
		"COPY (SELECT a.v AS x, b.v AS y FROM a, b) TO " + literal(csv) + "; FROM read_csv(" + literal(csv) + ")",
		"PREPARE q AS SELECT a.v, b.v FROM a, b; EXECUTE q; DEALLOCATE q; SELECT a.v, b.v FROM a, b",
		"PREPARE q AS SELECT a.v, b.v FROM a, b WHERE a.v > $1; EXECUTE q(0)",
		"DEALLOCATE q; EXPLAIN ANALYZE SELECT a.v, b.v FROM a, b; SELECT a.v, b.v FROM a, b",
		"CREATE OR REPLACE MACRO pair() AS TABLE SELECT a.v AS x, b.v AS y FROM a, b; FROM pair()",
		"CREATE VIEW mine AS SELECT a.v AS x, b.v AS y FROM a, b; FROM mine",
	} {
		got := query(t, db, sql)
		if len(got) != 1 || got[0][0] != got[0][1] {
			t.Errorf("%s: two states in one statement: %v", sql, got)
			continue
		}
		var v int64
		fmt.Sscan(got[0][0], &v)
		if v <= last {
			t.Errorf("%s: state %d after state %d", sql, v, last)
		}
		last = v
		if n := p.open.Load(); n != 0 {
			t.Errorf("%s: %d states are pinned after it", sql, n)
		}
	}
}

// From BEGIN to COMMIT or ROLLBACK every statement shows the state pinned for the first one, also after USE of another
// database, whose transaction ids are counted separately; the state is released at the end.
func TestTransactionKeepsOneState(t *testing.T) {
	p := moving(t)
	db := openTest(t, p)
	query(t, db, "ATTACH ':memory:' AS other")
	for _, end := range []string{"COMMIT", "ROLLBACK", "SELECT error('x'); ROLLBACK"} {
		first := query(t, db, "BEGIN; SELECT a.v, b.v FROM a, b")
		if n := p.open.Load(); n != 1 {
			t.Fatalf("%d states are pinned inside a transaction", n)
		}
		query(t, db, "USE other")
		again := query(t, db, "SELECT x.v, y.v FROM pgmirror.public.a x, pgmirror.public.b y")
		query(t, db, "CREATE TEMP TABLE tmp AS FROM pgmirror.public.a; DROP TABLE tmp")
		if fmt.Sprint(first) != fmt.Sprint(again) || first[0][0] != first[0][1] {
			t.Errorf("in one transaction: %v, then %v", first, again)
		}
		for part := range strings.SplitSeq(end, "; ") {
			db.Run(context.Background(), part, io.Discard, FormatCSV)
		}
		if n := p.open.Load(); n != 0 {
			t.Errorf("%d states are pinned after %s", n, end)
		}
		query(t, db, "SET search_path = 'pgmirror.main,pgmirror.public'")
		if after := query(t, db, "SELECT v, v FROM a"); fmt.Sprint(after) == fmt.Sprint(first) {
			t.Errorf("after %s the transaction's state is still shown: %v", end, after)
		}
	}
}

// The ids that txid_current gives do name the statement and the BEGIN block within one database, as hosts without our
// statement borders need it.
func TestTransactionIDNamesStatement(t *testing.T) {
	db := openTest(t, moving(t))
	seen := make(map[uint64]bool)
	for range 5 {
		query(t, db, "SELECT a.v FROM a, b")
		if id := db.session.lastTxid; seen[id] {
			t.Fatalf("transaction id %d came twice", id)
		}
		seen[db.session.lastTxid] = true
	}
	query(t, db, "BEGIN; FROM a")
	id := db.session.lastTxid
	query(t, db, "FROM b; COMMIT")
	if db.session.lastTxid != id {
		t.Fatalf("ids %d and %d in one transaction", id, db.session.lastTxid)
	}
}

// PREPARE keeps no state: DuckDB binds the statement anew for each EXECUTE, so each shows the state of its own time, one
// for all its tables.
func TestPreparedStatementReadsAnew(t *testing.T) {
	p := moving(t)
	db := openTest(t, p)
	query(t, db, "PREPARE q AS SELECT a.v, b.v FROM a, b")
	last := ""
	for range 3 {
		got := query(t, db, "EXECUTE q")
		if got[0][0] != got[0][1] || got[0][0] == last {
			t.Errorf("got %v after %s", got, last)
		}
		last = got[0][0]
		if n := p.open.Load(); n != 0 {
			t.Errorf("%d states are pinned between uses of a prepared statement", n)
		}
	}
	first, second := query(t, db, "BEGIN; EXECUTE q"), query(t, db, "EXECUTE q")
	if fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("in one transaction: %v, then %v", first, second)
	}
	query(t, db, "COMMIT")
}

// A bound plan that needs more of its state than files holds it, and the handles its text names, after the statement that made
// it has ended. Its end releases them.
func TestPlanHoldsItsState(t *testing.T) {
	f := fileOf(t, record(t, oneInt, `[{"v":1},{"v":2}]`), []uint32{1}, 10)
	p := fixed(table("a", oneInt, []readstate.File{f}, nil), table("b", oneInt, nil, []readstate.Batch{batchOf(record(t, oneInt, `[{"v":1}]`), nil)}))
	db := openTest(t, p)
	if err := db.beginStatement(context.Background()); err != nil {
		t.Fatal(err)
	}
	var plan mapping.PreparedStatement
	if mapping.Prepare(db.conn, "SELECT a.v, b.v FROM a, b, a c", &plan) == mapping.StateError {
		t.Fatal(mapping.PrepareError(plan))
	}
	db.endScope()
	query(t, db, "FROM a")
	if n, handles := p.open.Load(), len(db.handles.open); n != 1 || handles != 2 {
		t.Errorf("one plan over two tables holds %d states and %d handles", n, handles)
	}
	mapping.DestroyPrepare(&plan)
	if n, handles := p.open.Load(), len(db.handles.open); n != 0 || handles != 0 {
		t.Errorf("after its end %d states and %d handles are held", n, handles)
	}
}

// The pin request goes with every pin; the one that Open makes waits for nothing.
func TestPinRequestIsPassedOn(t *testing.T) {
	p := fixed(table("a", oneInt, nil, nil))
	want := readstate.PinRequest{WaitLSN: 42, WaitSource: true}
	db, err := Open(context.Background(), Config{Source: p, ScratchDir: t.TempDir(), Request: want})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	query(t, db, "FROM a")
	want.VectorsLater = true
	if p.reqs[0] != (readstate.PinRequest{VectorsLater: true}) {
		t.Errorf("Open pins with %+v", p.reqs[0])
	}
	for _, got := range p.reqs[1:] {
		if got != want {
			t.Fatalf("pin with %+v, want %+v", got, want)
		}
	}
	if len(p.reqs) < 2 {
		t.Fatalf("only %d pins", len(p.reqs))
	}
}

// Tables that appear, change their columns or go away are shown so by the next statement.
func TestTablesFollowTheState(t *testing.T) {
	two := arrow.NewSchema([]arrow.Field{col("v", 1, arrow.PrimitiveTypes.Int64), col("w", 2, arrow.BinaryTypes.String)}, nil)
	var tables []*readstate.Table
	p := &fakePinner{make: func(int) (*readstate.State, error) { return &readstate.State{LSN: 5, Tables: tables}, nil }}
	db := openTest(t, p)
	if _, err := db.Query(context.Background(), "FROM late"); err == nil {
		t.Fatal("a table that is not there was read")
	}
	batch := batchOf(record(t, two, `[{"v":1,"w":"x"}]`), nil)
	tables = []*readstate.Table{table("late", oneInt, []readstate.File{fileOf(t, record(t, oneInt, `[{"v":1}]`), nil, 10)}, nil)}
	if got := query(t, db, "FROM late"); fmt.Sprint(got) != "[[1]]" {
		t.Fatalf("got %v", got)
	}
	tables = []*readstate.Table{table("late", two, tables[0].Files, []readstate.Batch{batch})}
	if got := query(t, db, "FROM late ORDER BY w"); fmt.Sprint(got) != "[[1 x] [1 <NULL>]]" {
		t.Fatalf("after a column was added: %v", got)
	}
	if got := query(t, db, "SELECT column_name FROM duckdb_columns() WHERE table_name = 'late'"); fmt.Sprint(got) != "[[v] [w]]" {
		t.Fatalf("the catalogue shows %v", got)
	}
	tables = nil
	if _, err := db.Query(context.Background(), "FROM late"); err == nil || !strings.Contains(err.Error(), "late") {
		t.Fatalf("a table that is gone: %v", err)
	}
	var out bytes.Buffer
	if err := db.Run(context.Background(), "SHOW ALL TABLES", &out, FormatCSV); err != nil || strings.Contains(out.String(), "late") {
		t.Fatalf("%v %s", err, out.String())
	}
}
