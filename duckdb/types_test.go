package duckdb

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/readstate"
)

// A value of every type with the SQL literal that must equal it, written without this package.
type typeCase struct {
	name  string
	typ   arrow.DataType
	sql   string   // DuckDB's name of the type
	want  []string // literals
	build func(array.Builder)
}

var micros = arrow.FixedWidthTypes.Timestamp_us.(*arrow.TimestampType)

func typeCases() []typeCase {
	dec := func(p, s int32) arrow.DataType { return &arrow.Decimal128Type{Precision: p, Scale: s} }
	num := func(s string, p, scale int32) decimal128.Num {
		n, err := decimal128.FromString(s, p, scale)
		if err != nil {
			panic(err)
		}
		return n
	}
	decimals := func(p, s int32, vals ...string) func(array.Builder) {
		return func(b array.Builder) {
			for _, v := range vals {
				b.(*array.Decimal128Builder).Append(num(v, p, s))
			}
		}
	}
	return []typeCase{
		{name: "bool", typ: arrow.FixedWidthTypes.Boolean, sql: "BOOLEAN", want: []string{"true", "false"},
			build: func(b array.Builder) { b.(*array.BooleanBuilder).AppendValues([]bool{true, false}, nil) }},
		{name: "int4", typ: arrow.PrimitiveTypes.Int32, sql: "INTEGER", want: []string{"2147483647", "-2147483648"},
			build: func(b array.Builder) {
				b.(*array.Int32Builder).AppendValues([]int32{math.MaxInt32, math.MinInt32}, nil)
			}},
		{name: "int8", typ: arrow.PrimitiveTypes.Int64, sql: "BIGINT", want: []string{"9223372036854775807", "-9223372036854775808"},
			build: func(b array.Builder) {
				b.(*array.Int64Builder).AppendValues([]int64{math.MaxInt64, math.MinInt64}, nil)
			}},
		{name: "float4", typ: arrow.PrimitiveTypes.Float32, sql: "FLOAT", want: []string{"'nan'", "'-inf'", "1.5"},
			build: func(b array.Builder) {
				b.(*array.Float32Builder).AppendValues([]float32{float32(math.NaN()), float32(math.Inf(-1)), 1.5}, nil)
			}},
		{name: "float8", typ: arrow.PrimitiveTypes.Float64, sql: "DOUBLE", want: []string{"'nan'", "'inf'", "0.1"},
			build: func(b array.Builder) {
				b.(*array.Float64Builder).AppendValues([]float64{math.NaN(), math.Inf(1), 0.1}, nil)
			}},
		{name: "dec4", typ: dec(4, 1), sql: "DECIMAL(4,1)", want: []string{"'999.9'", "'-0.1'"}, build: decimals(4, 1, "999.9", "-0.1")},
		{name: "dec9", typ: dec(9, 0), sql: "DECIMAL(9,0)", want: []string{"'999999999'", "'-999999999'"}, build: decimals(9, 0, "999999999", "-999999999")},
		{name: "dec18", typ: dec(18, 6), sql: "DECIMAL(18,6)", want: []string{"'123456789012.345678'", "'-0.000001'"}, build: decimals(18, 6, "123456789012.345678", "-0.000001")},
		{name: "dec38", typ: dec(38, 10), sql: "DECIMAL(38,10)", want: []string{"'1234567890123456789012345678.0123456789'", "'-1'"}, build: decimals(38, 10, "1234567890123456789012345678.0123456789", "-1")},
		{name: "text", typ: arrow.BinaryTypes.String, sql: "VARCHAR", want: []string{"''", "'twelve bytes'", "'thirteen byte'", "'üñí ☃ 漢字 and more'"},
			build: func(b array.Builder) {
				b.(*array.StringBuilder).AppendValues([]string{"", "twelve bytes", "thirteen byte", "üñí ☃ 漢字 and more"}, nil)
			}},
		{name: "bytea", typ: arrow.BinaryTypes.Binary, sql: "BLOB", want: []string{`''`, `'\x00\xFF\x00'`},
			build: func(b array.Builder) {
				b.(*array.BinaryBuilder).AppendValues([][]byte{{}, {0, 255, 0}}, nil)
			}},
		{name: "uuid", typ: &arrow.FixedSizeBinaryType{ByteWidth: 16}, sql: "UUID", want: []string{"'00000000-0000-0000-0000-000000000001'", "'ffeeddcc-bbaa-9988-7766-554433221100'"},
			build: func(b array.Builder) {
				b.(*array.FixedSizeBinaryBuilder).AppendValues([][]byte{
					{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
					{0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0}}, nil)
			}},
		{name: "uuidext", typ: extensions.NewUUIDType(), sql: "UUID", want: []string{"'80000000-0000-0000-0000-000000000002'"},
			build: func(b array.Builder) {
				if err := b.AppendValueFromString("80000000-0000-0000-0000-000000000002"); err != nil {
					panic(err)
				}
			}},
		{name: "date", typ: arrow.FixedWidthTypes.Date32, sql: "DATE", want: []string{"'infinity'", "'-infinity'", "'2020-02-29'", "'4713-01-01 (BC)'"},
			build: func(b array.Builder) {
				b.(*array.Date32Builder).AppendValues([]arrow.Date32{math.MaxInt32, -math.MaxInt32, 18321, -2440550}, nil)
			}},
		{name: "time", typ: arrow.FixedWidthTypes.Time64us, sql: "TIME", want: []string{"'00:00:00'", "'23:59:59.999999'"},
			build: func(b array.Builder) {
				b.(*array.Time64Builder).AppendValues([]arrow.Time64{0, 86_400_000_000 - 1}, nil)
			}},
		{name: "ts", typ: &arrow.TimestampType{Unit: arrow.Microsecond}, sql: "TIMESTAMP", want: []string{"'infinity'", "'-infinity'", "'2001-09-09 01:46:40.000001'"},
			build: func(b array.Builder) {
				b.(*array.TimestampBuilder).AppendValues([]arrow.Timestamp{math.MaxInt64, -math.MaxInt64, 1_000_000_000_000_001}, nil)
			}},
		{name: "tstz", typ: micros, sql: "TIMESTAMP WITH TIME ZONE", want: []string{"'infinity'", "'-infinity'", "'2001-09-09 01:46:40.000001+00'"},
			build: func(b array.Builder) {
				b.(*array.TimestampBuilder).AppendValues([]arrow.Timestamp{math.MaxInt64, -math.MaxInt64, 1_000_000_000_000_001}, nil)
			}},
		{name: "ints", typ: listOf(101, arrow.PrimitiveTypes.Int32), sql: "INTEGER[]", want: []string{"[1, NULL, 3]", "[]", "[7]"},
			build: func(b array.Builder) {
				l := b.(*array.ListBuilder)
				v := l.ValueBuilder().(*array.Int32Builder)
				l.Append(true)
				v.AppendValues([]int32{1, 0, 3}, []bool{true, false, true})
				l.Append(true)
				l.Append(true)
				v.Append(7)
			}},
		{name: "texts", typ: listOf(102, arrow.BinaryTypes.String), sql: "VARCHAR[]", want: []string{"['a', NULL, 'a longer text than twelve']"},
			build: func(b array.Builder) {
				l := b.(*array.ListBuilder)
				l.Append(true)
				l.ValueBuilder().(*array.StringBuilder).AppendValues([]string{"a", "", "a longer text than twelve"}, []bool{true, false, true})
			}},
		{name: "uuids", typ: listOf(103, &arrow.FixedSizeBinaryType{ByteWidth: 16}), sql: "UUID[]", want: []string{"['0f000000-0000-0000-0000-000000000000'::UUID]"},
			build: func(b array.Builder) {
				l := b.(*array.ListBuilder)
				l.Append(true)
				l.ValueBuilder().(*array.FixedSizeBinaryBuilder).Append(append([]byte{15}, make([]byte, 15)...))
			}},
		{name: "decs", typ: listOf(104, dec(6, 2)), sql: "DECIMAL(6,2)[]", want: []string{"[1.25::DECIMAL(6,2)]"},
			build: func(b array.Builder) {
				l := b.(*array.ListBuilder)
				l.Append(true)
				l.ValueBuilder().(*array.Decimal128Builder).Append(num("1.25", 6, 2))
			}},
		{name: "dates", typ: listOf(105, arrow.FixedWidthTypes.Date32), sql: "DATE[]", want: []string{"['infinity'::DATE, '1970-01-02']"},
			build: func(b array.Builder) {
				l := b.(*array.ListBuilder)
				l.Append(true)
				l.ValueBuilder().(*array.Date32Builder).AppendValues([]arrow.Date32{math.MaxInt32, 1}, nil)
			}},
		{name: "bools", typ: listOf(106, arrow.FixedWidthTypes.Boolean), sql: "BOOLEAN[]", want: []string{"[true, false]"},
			build: func(b array.Builder) {
				l := b.(*array.ListBuilder)
				l.Append(true)
				l.ValueBuilder().(*array.BooleanBuilder).AppendValues([]bool{true, false}, nil)
			}},
		{name: "tstzs", typ: listOf(107, micros), sql: "TIMESTAMP WITH TIME ZONE[]", want: []string{"['infinity'::TIMESTAMPTZ, '1970-01-01 00:00:00+00']"},
			build: func(b array.Builder) {
				l := b.(*array.ListBuilder)
				l.Append(true)
				l.ValueBuilder().(*array.TimestampBuilder).AppendValues([]arrow.Timestamp{math.MaxInt64, 0}, nil)
			}},
	}
}

// allTypes holds the cases' values, one row a value; each column then has a NULL and repeats.
func allTypes() (arrow.RecordBatch, []typeCase) {
	cases := typeCases()
	const rows = 6
	fields := []arrow.Field{col("row", 1, arrow.PrimitiveTypes.Int32)}
	n := array.NewInt32Builder(memory.DefaultAllocator)
	for i := range rows {
		n.Append(int32(i))
	}
	arrays := []arrow.Array{n.NewArray()}
	for i, c := range cases {
		fields = append(fields, col(c.name, i+2, c.typ))
		b := array.NewBuilder(memory.DefaultAllocator, c.typ)
		c.build(b)
		for b.Len() < rows {
			b.AppendNull()
		}
		arrays = append(arrays, b.NewArray())
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, rows), cases
}

// Every type has the same DuckDB type and the same value from a file and from memory, and both equal a literal.
func TestTypes(t *testing.T) {
	rec, cases := allTypes()
	db := openTest(t, fixed(
		table("infile", rec.Schema(), []readstate.File{fileOf(t, rec, nil, 4)}, nil),
		table("inmemory", rec.Schema(), nil, []readstate.Batch{batchOf(rec, nil)}),
		table("both", rec.Schema(), []readstate.File{fileOf(t, rec, nil, 4)}, []readstate.Batch{batchOf(rec, []uint32{0, 1, 2, 3, 4, 5})}),
	))
	for _, from := range []string{"infile", "inmemory", "both"} {
		for _, c := range cases {
			if got := query(t, db, fmt.Sprintf("SELECT DISTINCT typeof(%s) FROM public.%q", c.name, from)); fmt.Sprint(got) != "[["+c.sql+"]]" {
				t.Errorf("%s.%s has type %v, want %s", from, c.name, got, c.sql)
			}
			for row := range 6 {
				want := "NULL"
				if row < len(c.want) {
					want = c.want[row]
				}
				sql := fmt.Sprintf("SELECT %[1]s IS NOT DISTINCT FROM CAST(%[2]s AS %[3]s), %[1]s FROM public.%[4]q WHERE row = %[5]d", c.name, want, c.sql, from, row)
				if got := query(t, db, sql); len(got) != 1 || got[0][0] != "true" {
					t.Errorf("%s.%s row %d is %v, want %s", from, c.name, row, got, want)
				}
			}
		}
	}
}

// Lists, NULLs and long texts keep their values over vector borders and beside deleted rows: memory agrees with Parquet,
// which DuckDB reads by itself.
func TestLongColumnsFromMemory(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{
		col("row", 1, arrow.PrimitiveTypes.Int32), col("l", 2, listOf(3, arrow.BinaryTypes.String)),
		col("d", 4, &arrow.Decimal128Type{Precision: 12, Scale: 2}), col("b", 5, arrow.FixedWidthTypes.Boolean),
		col("ll", 6, listOf(7, listOf(8, arrow.PrimitiveTypes.Int64))),
	}, nil)
	const rows = 5000
	rng := rand.New(rand.NewPCG(3, 4))
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i := range rows {
		b.Field(0).(*array.Int32Builder).Append(int32(i))
		l, ll := b.Field(1).(*array.ListBuilder), b.Field(4).(*array.ListBuilder)
		inner := ll.ValueBuilder().(*array.ListBuilder)
		if rng.IntN(5) == 0 {
			l.AppendNull()
			ll.AppendNull()
			b.Field(2).AppendNull()
			b.Field(3).AppendNull()
			continue
		}
		l.Append(true)
		ll.Append(true)
		for range rng.IntN(4) {
			inner.Append(true)
			inner.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{rng.Int64(), int64(i)}, []bool{true, rng.IntN(2) == 0})
			if rng.IntN(3) == 0 {
				l.ValueBuilder().AppendNull()
			} else {
				l.ValueBuilder().(*array.StringBuilder).Append(strings.Repeat("é", rng.IntN(12)))
			}
		}
		b.Field(2).(*array.Decimal128Builder).Append(decimal128.FromI64(rng.Int64N(2e11) - 1e11))
		b.Field(3).(*array.BooleanBuilder).Append(rng.IntN(2) == 0)
	}
	rec := b.NewRecordBatch()
	dead := deadRows(rng, rows, 0.4)
	db := openTest(t, fixed(
		table("infile", schema, []readstate.File{fileOf(t, rec, dead, 1000)}, nil),
		table("inmemory", schema, nil, []readstate.Batch{batchOf(rec, dead)}),
	))
	want := fmt.Sprintf("[[%d 0]]", rows-len(dead))
	got := query(t, db, `SELECT count(*), count(*) FILTER ((f.l, f.d, f.b, f.ll) IS DISTINCT FROM (m.l, m.d, m.b, m.ll) OR f.row IS DISTINCT FROM m.row)
		FROM infile f FULL JOIN inmemory m ON f.row = m.row`)
	if fmt.Sprint(got) != want {
		t.Errorf("rows and differences: %v, want %s", got, want)
	}
}

// CSV of every type, and of texts with every ASCII character, is byte for byte what DuckDB's own CSV writer makes.
func TestCSVEqualsDuckDB(t *testing.T) {
	rec, _ := allTypes()
	db := openTest(t, fixed(table("all", rec.Schema(), []readstate.File{fileOf(t, rec, nil, 4)}, []readstate.Batch{batchOf(rec, nil)})))
	for i, sql := range []string{
		`SELECT * FROM public."all" ORDER BY "row"`,
		`SELECT range AS i, chr(range::INTEGER) || 'z' AS a, 'z' || chr(range::INTEGER) AS "b""q,", chr(range::INTEGER) AS c FROM range(1, 300)`,
		`SELECT NULL AS n, '' AS e, 'NULL' AS w, ' ' AS s, 'a"b' AS q, {'a': 1, 'b': 'x,y'} AS st, MAP {'k': [1, NULL]} AS m, 1::HUGEINT AS h, INTERVAL 3 DAY AS iv, '10'::BIT AS bits, '{"a": 1}'::JSON AS j`,
		`SELECT NULL AS n UNION ALL SELECT 'x'`,
		`SELECT 1 AS none WHERE false`,
		`SELECT range AS r, range::VARCHAR || '-text that is long' AS s FROM range(5000)`,
	} {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("%d.csv", i))
		query(t, db, "COPY ("+sql+") TO "+literal(path)+" (FORMAT csv, HEADER)")
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := db.Run(context.Background(), sql, &got, FormatCSV); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s\n got %.2000q\nwant %.2000q", sql, got.String(), want)
		}
	}
}

// JSON and the table's cells are what the duckdb 1.5.6 shell printed for the same query (duckdb -json, byte for byte).
func TestJSONEqualsDuckDBShell(t *testing.T) {
	db := openTest(t, fixed())
	for _, name := range []string{"shell", "empty"} {
		script, err := os.ReadFile(filepath.Join("testdata", name+".sql"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := db.Run(context.Background(), string(script), &got, FormatJSON); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s:\n got %s\nwant %s", name, got.String(), want)
		}
	}
}

// The table format draws every row, numbers at the right, NULL by name, control characters made visible.
func TestTableFormat(t *testing.T) {
	db := openTest(t, fixed())
	var got bytes.Buffer
	script := "SELECT 1 AS id, E'a\\nb' AS text, 1.50::DECIMAL(5,2) AS d UNION ALL SELECT 22, NULL, NULL ORDER BY id; SELECT 1 AS x WHERE false; SET threads = 2; EXPLAIN SELECT 1"
	if err := db.Run(context.Background(), script, &got, FormatTable); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"┌─────────┬─────────┬──────────────┐",
		"│   id    │  text   │      d       │",
		"│ integer │ varchar │ decimal(5,2) │",
		"├─────────┼─────────┼──────────────┤",
		"│       1 │ a\\nb    │         1.50 │",
		"│      22 │ NULL    │         NULL │",
		"└─────────┴─────────┴──────────────┘",
		"┌─────────┐",
		"│    x    │",
		"│ integer │",
		"└─────────┘",
		"  0 rows",
		"┌───────────────────────────┐",
		"│         PROJECTION        │",
	}, "\n")
	if !strings.HasPrefix(got.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}
