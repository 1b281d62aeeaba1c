package duckdb

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/readstate"
)

// Columns and tables of any name read right, also when they are called like what the union read uses inside.
func TestOddNames(t *testing.T) {
	odd := []string{"f1", "k", "file_index", "file_row_number", "_pgmirror_lsn", `a"b`, "it's", "a.b", "sp ace", "", "f2", "SELECT",
		"Größe", "漢字", "filename", "true", "A", "a", "a_1", "K", "rowid", "column0", "$1", "%s", `back\slash`, "f14"}
	want := []string{"f1", "k", "file_index", "file_row_number", "_pgmirror_lsn", `a"b`, "it's", "a.b", "sp ace", "", "f2", "SELECT",
		"Größe", "漢字", "filename", "true", "A_2", "a", "a_1", "K_1", "rowid", "column0", "$1", "%s", `back\slash`, "f14"}
	var fields []arrow.Field
	var row []string
	for i, name := range odd {
		if name == "" { // PostgreSQL has no empty identifier
			odd[i], want[i] = "\t", "\t"
		}
		// Field ids run against the order of the columns.
		fields = append(fields, col(odd[i], len(odd)-i, arrow.PrimitiveTypes.Int32))
		row = append(row, fmt.Sprintf("%d", 100+i))
	}
	schema := arrow.NewSchema(fields, nil)
	rec := func(base int) arrow.RecordBatch {
		b := recordBuilder(schema)
		for i := range fields {
			appendInt32(b, i, int32(base+i), int32(base+100+i))
		}
		return b.NewRecordBatch()
	}
	names := []string{"order", `ta"ble`, "it's.dotted", "Ünï", "UPPER", "upper", "upper_1", "a b", "information_schema", "k"}
	wantNames := []string{"order", `ta"ble`, "it's.dotted", "Ünï", "UPPER_2", "upper", "upper_1", "a b", "information_schema", "k"}
	var tables []*readstate.Table
	for i, n := range names {
		tb := table(n, schema, []readstate.File{fileOf(t, rec(1000*i), []uint32{1}, 10)}, []readstate.Batch{batchOf(rec(1000*i+200), []uint32{0})})
		tb.Name.Schema = "Odd \"schema\"."
		tables = append(tables, tb)
	}
	p := fixed(tables...)
	p.path = []string{"Odd \"schema\".", "$user"}
	db := openTest(t, p)
	for i, n := range wantNames {
		rows, err := db.Query(context.Background(), `FROM "Odd ""schema"".".`+ident(n)+" ORDER BY 1")
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(rows.Columns) != fmt.Sprint(want) {
			t.Fatalf("table %q has columns %q, want %q", n, rows.Columns, want)
		}
		all := rows.All()
		if len(all) != 2 {
			t.Fatalf("table %q has %d rows", n, len(all))
		}
		for c := range want {
			if a, b := all[0][c].Value, all[1][c].Value; a != fmt.Sprint(1000*i+c) || b != fmt.Sprint(1000*i+300+c) {
				t.Errorf("table %q, column %q: %s and %s", n, want[c], a, b)
			}
		}
		sql := fmt.Sprintf("SELECT count(*) FROM %s WHERE %s = %d AND %s = %d", ident(n), ident(want[2]), 1000*i+2, ident(want[0]), 1000*i)
		if got := query(t, db, sql); got[0][0] != "1" {
			t.Errorf("%s: %v", sql, got)
		}
	}
}

// The order in which the state lists its tables does not decide which of two names gets the suffix: the one in lower case has none.
func TestCaseClashIsByName(t *testing.T) {
	low := table("item", oneInt, nil, []readstate.Batch{batchOf(record(t, oneInt, `[{"v":1}]`), nil)})
	up := table("Item", oneInt, nil, []readstate.Batch{batchOf(record(t, oneInt, `[{"v":2}]`), nil)})
	for _, tables := range [][]*readstate.Table{{low, up}, {up, low}} {
		db := openTest(t, fixed(tables...))
		if got := query(t, db, "SELECT x.v, y.v FROM item x, Item_1 y"); fmt.Sprint(got) != "[[1 2]]" {
			t.Errorf("got %v", got)
		}
	}
}

// A schema that differs from public only by case does not take its place.
func TestSchemaCaseClash(t *testing.T) {
	low := table("one", oneInt, nil, []readstate.Batch{batchOf(record(t, oneInt, `[{"v":1}]`), nil)})
	up := table("one", oneInt, nil, []readstate.Batch{batchOf(record(t, oneInt, `[{"v":2}]`), nil)})
	up.Name.Schema = "PUBLIC"
	db := openTest(t, fixed(up, low))
	if got := query(t, db, "SELECT x.v, y.v FROM public.one x, PUBLIC_1.one y"); low.Name.Schema != "public" || fmt.Sprint(got) != "[[1 2]]" {
		t.Errorf("got %v", got)
	}
}

// Unqualified names follow the source's search path; what the user creates goes to main.
func TestSearchPath(t *testing.T) {
	mk := func(schema string, v int) *readstate.Table {
		tb := table("x", oneInt, nil, []readstate.Batch{batchOf(record(t, oneInt, fmt.Sprintf(`[{"v":%d}]`, v)), nil)})
		tb.Name.Schema = schema
		return tb
	}
	p := fixed(mk("public", 1), mk("app", 2))
	p.path = []string{"$user", "app", "public"}
	db := openTest(t, p)
	if got := query(t, db, "FROM x"); got[0][0] != "2" {
		t.Errorf("x is %v", got)
	}
	var out bytes.Buffer
	if err := db.Run(context.Background(), "CREATE TABLE own(i INTEGER); SELECT table_schema FROM information_schema.tables WHERE table_name = 'own'", &out, FormatCSV); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "\nmain\n") {
		t.Errorf("a user's table is in %s", out.String())
	}
}

// Schemas of the source that are named as DuckDB's catalogs are there under their full names, and the others beside them.
func TestSchemasNamedAsCatalogs(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{col("v", 1, arrow.PrimitiveTypes.Int64)}, nil)
	var tables []*readstate.Table
	schemas := []string{"temp", "system", "pgmirror", "main", "memory", "plain"}
	for i, s := range schemas {
		tb := table("t", schema, nil, []readstate.Batch{batchOf(record(t, schema, fmt.Sprintf(`[{"v":%d}]`, i)), nil)})
		tb.Name.Schema = s
		tables = append(tables, tb)
	}
	db := openTest(t, fixed(tables...))
	for i, s := range schemas {
		if got := query(t, db, "FROM pgmirror."+s+".t"); got[0][0] != fmt.Sprint(i) {
			t.Errorf("schema %s: %v", s, got)
		}
	}
	if got := query(t, db, "FROM plain.t"); got[0][0] != "5" {
		t.Errorf("%v", got)
	}
}
