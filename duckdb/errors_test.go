package duckdb

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"pgmirror/readstate"
)

func mustFail(t *testing.T, db *DB, sql, want string) {
	t.Helper()
	err := db.Run(context.Background(), sql, io.Discard, FormatCSV)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want one with %q", sql, err, want)
	}
}

// A table that cannot be read says why, word for word; the others work; no pin is left behind by any error.
func TestErrors(t *testing.T) {
	good := table("good", oneInt, []readstate.File{fileOf(t, record(t, oneInt, `[{"v":1},{"v":2}]`), []uint32{0}, 10)}, nil)
	bad := &readstate.Table{Name: readstate.TableName{Schema: "public", Name: "bad"}, Err: `public.bad is failed since 0/AB: key "x" is missing; run "pgmirror resync public.bad"`}
	broken := batchOf(record(t, oneInt, `[{"v":1}]`), nil)
	broken.Columns = &recordColumns{err: errors.New("the mirror went away")}
	torn := table("torn", oneInt, nil, []readstate.Batch{broken})
	bare := table("bare", nil, nil, nil)
	lost := table("lost", oneInt, []readstate.File{{Path: "/nonexistent/x.parquet", Rows: 1}}, nil)
	p := fixed(good, bad, torn, bare, lost)
	db := openTest(t, p)
	mustFail(t, db, "FROM bad", bad.Err)
	mustFail(t, db, "SELECT * FROM good, public.bad", bad.Err)
	mustFail(t, db, "SELECT count(v) FROM torn", "the mirror went away")
	mustFail(t, db, "FROM bare", "table public.bare cannot be read: the table has no columns")
	mustFail(t, db, "FROM lost", "/nonexistent/x.parquet")
	mustFail(t, db, "SELEC 1", `Parser Error: syntax error at or near "SELEC"`)
	mustFail(t, db, "SELECT nope FROM good", `Binder Error: Referenced column "nope" not found`)
	mustFail(t, db, "SELECT error('boom') FROM good", "boom")
	mustFail(t, db, "SELECT ?", "parameter")
	mustFail(t, db, "FROM pgmirror_memory(12345)", "there is no read handle 12345")
	mustFail(t, db, "SELECT pgmirror_live(12345, 0, 0)", "read handle 12345")
	mustFail(t, db, "SELECT pgmirror_sql('public.no', 1)", "table public.no is not mirrored")
	mustFail(t, db, "SELECT 1; SELECT nope FROM good", `Referenced column "nope" not found`)
	mustFail(t, db, "SELECT 1; FROM bad", bad.Err)
	mustFail(t, db, "SELECT 1\x00 + 1; SELECT 2", "NUL byte")
	mustFail(t, db, "SELECT 1; SELECT 1 // 0, error('boom') FROM good", "boom")
	if got := query(t, db, "FROM good"); len(got) != 1 || got[0][0] != "2" {
		t.Errorf("the good table shows %v", got)
	}
	if n := p.open.Load(); n != 0 {
		t.Errorf("%d states are pinned", n)
	}
}

// Without a read state statements on mirrored tables give the reason; all others work.
func TestNoReadState(t *testing.T) {
	down := false
	p := &fakePinner{make: func(int) (*readstate.State, error) {
		if down {
			return nil, errors.New("nobody is listening")
		}
		return &readstate.State{LSN: 1, Tables: []*readstate.Table{table("a", oneInt, nil, nil)}}, nil
	}}
	db := openTest(t, p)
	down = true
	mustFail(t, db, "FROM a", "nobody is listening")
	if got := query(t, db, "SELECT 42"); got[0][0] != "42" {
		t.Errorf("got %v", got)
	}
}

// When there never was a read state, there are no views: the reason is told all the same.
func TestNeverAReadState(t *testing.T) {
	db := openTest(t, &fakePinner{make: func(int) (*readstate.State, error) { return nil, errors.New("nobody is listening") }})
	mustFail(t, db, "FROM a", "nobody is listening")
	mustFail(t, db, "SELECT 1; FROM a", "nobody is listening")
	if err := db.Run(context.Background(), "FROM a", io.Discard, FormatCSV); err == nil || strings.Contains(err.Error(), "does not exist") {
		t.Errorf("the error is %v, want the reason alone", err)
	}
}

// A script stops at its first error; what came before was written.
func TestRunStopsAtError(t *testing.T) {
	db := openTest(t, fixed())
	var out strings.Builder
	err := db.Run(context.Background(), "SELECT 1 AS x; SELECT error('stop'); SELECT 3 AS z", &out, FormatCSV)
	if err == nil || out.String() != "x\n1\n" {
		t.Fatalf("%v after %q", err, out.String())
	}
}

// Statements are taken apart as DuckDB does: semicolons in texts, comments and dollar quotes do not end one.
func TestScriptIsSplitByDuckDB(t *testing.T) {
	db := openTest(t, fixed())
	var out strings.Builder
	err := db.Run(context.Background(), "SELECT ';' AS a; -- ; \nSELECT $$;'$$ AS b /* ; */;;", &out, FormatCSV)
	if want := "a\n;\nb\n;'\n"; err != nil || out.String() != want {
		t.Fatalf("%v, %q", err, out.String())
	}
}

// The end of the context interrupts a running query, and the DB works on.
func TestCancel(t *testing.T) {
	p := fixed(table("a", oneInt, nil, nil))
	db := openTest(t, p)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := db.Run(ctx, "SELECT sum(x.range * y.range) FROM a, range(10000000) x, range(1000000) y; SELECT sum(x.range * y.range) FROM range(10000000) x, range(1000000) y", io.Discard, FormatCSV)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "INTERRUPT") {
		t.Fatalf("got %v", err)
	}
	if err := db.Run(ctx, "SELECT 1", io.Discard, FormatCSV); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("with an ended context: %v", err)
	}
	if got := query(t, db, "SELECT 1"); got[0][0] != "1" || p.open.Load() != 0 {
		t.Fatalf("afterwards: %v, %d pins", got, p.open.Load())
	}
}

// Mirrored tables cannot be changed; what is dropped or replaced is back for the next statement; everything of the
// user's own works.
func TestMirroredTablesAreReadOnly(t *testing.T) {
	p := fixed(table("a", oneInt, []readstate.File{fileOf(t, record(t, oneInt, `[{"v":1}]`), nil, 10)}, nil))
	db := openTest(t, p)
	mustFail(t, db, "INSERT INTO a VALUES (1)", "Mirrored tables are views")
	mustFail(t, db, "UPDATE a SET v = 2", "Mirrored tables are views")
	mustFail(t, db, "DELETE FROM a", "Mirrored tables are views")
	mustFail(t, db, "TRUNCATE a", "Mirrored tables are views")
	mustFail(t, db, "ALTER TABLE a ADD COLUMN x INTEGER", "Mirrored tables are views")
	mustFail(t, db, "DROP TABLE public.a", "Mirrored tables are views")
	mustFail(t, db, "MERGE INTO a USING (SELECT 1 AS v) s ON s.v = a.v WHEN MATCHED THEN DELETE", "Mirrored tables are views")
	mustFail(t, db, "CREATE INDEX i ON a(v)", "Mirrored tables are views")
	mustFail(t, db, "CREATE TABLE public.a(x INTEGER)", `View with name "a" already exists`)
	for _, sql := range []string{
		"DROP VIEW public.a", "CREATE OR REPLACE VIEW public.a AS SELECT 9 AS v", "DROP SCHEMA public CASCADE",
		"ALTER VIEW public.a RENAME TO b", "BEGIN; DROP VIEW public.a; COMMIT",
		"BEGIN; DROP VIEW public.a; CREATE TABLE public.a AS SELECT 7 AS v; COMMIT; SELECT 1; DROP TABLE public.a",
	} {
		query(t, db, sql)
		if got := query(t, db, "SELECT v FROM public.a"); len(got) != 1 || got[0][0] != "1" {
			t.Errorf("after %s: %v", sql, got)
		}
	}
	other := literal(t.TempDir() + "/other.duckdb")
	for _, sql := range []string{
		"CREATE TEMP TABLE t AS FROM public.a; INSERT INTO t VALUES (5); UPDATE t SET v = 6; DROP TABLE t",
		"CREATE TABLE mine(x INTEGER); INSERT INTO mine VALUES (1); FROM main.mine; DROP TABLE mine",
		"ATTACH " + other + " AS o; CREATE TABLE o.t AS FROM public.a; FROM o.t; DETACH o",
		"SET threads = 1; PRAGMA database_size; CREATE MACRO twice(x) AS 2 * x; SELECT twice(v) FROM public.a",
		"PIVOT (SELECT v, 'k' AS k FROM public.a) ON k USING sum(v)", "DESCRIBE public.a", "SUMMARIZE public.a",
	} {
		query(t, db, sql)
	}
}

// Close in the middle of a transaction gives everything back.
func TestCloseInTransaction(t *testing.T) {
	p := fixed(table("a", oneInt, nil, []readstate.Batch{batchOf(record(t, oneInt, `[{"v":1}]`), nil)}))
	db := openTest(t, p) // checks at the end of the test
	query(t, db, "PREPARE q AS SELECT sum(v) FROM a; BEGIN; EXECUTE q; CREATE TEMP TABLE t AS FROM a")
	if p.open.Load() != 1 {
		t.Errorf("%d states are pinned in a transaction", p.open.Load())
	}
}

// Two DBs on one scratch directory do not meet, and leave nothing behind.
func TestSideBySide(t *testing.T) {
	dir := t.TempDir()
	p := fixed(table("a", oneInt, nil, nil))
	var dbs []*DB
	for range 2 {
		db, err := Open(context.Background(), Config{Source: p, ScratchDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		dbs = append(dbs, db)
	}
	for i, db := range dbs {
		query(t, db, "CREATE TABLE mine AS SELECT "+string(rune('1'+i))+" AS x")
	}
	if got := query(t, dbs[0], "FROM mine"); got[0][0] != "1" {
		t.Errorf("got %v", got)
	}
	for _, db := range dbs {
		for range 2 {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
