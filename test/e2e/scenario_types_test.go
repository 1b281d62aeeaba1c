package e2e

import (
	"strings"
	"testing"

	"pgmirror/mirror"
)

// nothing stands for the empty text as an expected value.
const nothing = "(empty)"

// value is one value of a type as an SQL literal, and what DuckDB must show for it as text; "" stands for PostgreSQL's own text.
type value struct{ literal, shown string }

// Values come out exactly, those of the initial copy and those of the stream alike, and the two are the same (S-T1, S-T3, S-T4,
// S-T6, S-T7).
func TestScenarioValues(t *testing.T) {
	t.Parallel()
	columns := []struct {
		name, typ, duck string // duck is typeof in DuckDB
		values          []value
	}{
		{"f8", "float8", "DOUBLE", []value{{"'NaN'", "nan"}, {"'Infinity'", "inf"}, {"'-Infinity'", "-inf"}, {"'-0'", "-0.0"}, {"0.1::float8 + 0.2", "0.30000000000000004"}, {"1e-323", "1e-323"}, {"1.7976931348623157e308", "1.7976931348623157e+308"}, {"null", null}}},
		{"f4", "float4", "FLOAT", []value{{"'NaN'", "nan"}, {"'Infinity'", "inf"}, {"'-Infinity'", "-inf"}, {"'-0'", "-0.0"}, {"0.1", "0.1"}, {"1e-45", "1e-45"}, {"16777216", "16777216.0"}, {"null", null}}},
		{"n", "numeric", "VARCHAR", []value{{"'NaN'", ""}, {"'Infinity'", ""}, {"'-Infinity'", ""}, {"0", ""}, {"1.10", ""}, {"1234567890123456789012345678901234567890", ""}, {"0.00000000000000000000000000000000000000000001", ""}, {"null", null}}},
		{"a", "numeric(38,10)", "DECIMAL(38,10)", []value{{"12345678901234567890.0123456789", ""}, {"-9999999999999999999999999999.9999999999", ""}, {"0", ""}, {"-0.0000000001", ""}, {"0.000067", ""}, {"1", ""}, {"9999999999999999999999999999.9999999999", ""}, {"null", null}}},
		{"b", "numeric(10,-2)", "VARCHAR", []value{{"123456", ""}, {"0", ""}, {"-99", ""}, {"999999999949", ""}, {"1", ""}, {"50", ""}, {"'NaN'", ""}, {"null", null}}},
		{"d", "numeric(50,0)", "VARCHAR", []value{{"1234567890123456789012345678901234567890", ""}, {"-1", ""}, {"0", ""}, {"'NaN'", ""}, {"7", ""}, {"8", ""}, {"9", ""}, {"null", null}}},
		{"w", "numeric(3,3)", "DECIMAL(3,3)", []value{{"0.999", ".999"}, {"-0.999", "-.999"}, {"0.001", ".001"}, {"0", ".000"}, {"0.5", ".500"}, {"0.25", ".250"}, {"0.1", ".100"}, {"null", null}}},
		{"o", "numeric(3,5)", "VARCHAR", []value{{"0.00999", ""}, {"-0.00001", ""}, {"0", ""}, {"'NaN'", ""}, {"0.00005", ""}, {"0.00025", ""}, {"0.001", ""}, {"null", null}}},
		{"u", "uuid", "UUID", []value{{"'00112233-4455-6677-8899-aabbccddeeff'", ""}, {"'ffeeddcc-bbaa-9988-7766-554433221100'", ""}, {"'00000000-0000-0000-0000-000000000000'", ""}, {"'ffffffff-ffff-ffff-ffff-ffffffffffff'", ""}, {"'80000000-0000-0000-0000-000000000000'", ""}, {"'7fffffff-ffff-ffff-ffff-ffffffffffff'", ""}, {"'0123abcd-0123-abcd-0123-abcdef012345'", ""}, {"null", null}}},
		{"dt", "date", "DATE", []value{{"'infinity'", ""}, {"'-infinity'", ""}, {"'0044-03-15 BC'", "0044-03-15 (BC)"}, {"'1970-01-01'", ""}, {"'1969-12-31'", ""}, {"'9999-12-31'", ""}, {"'0001-01-01'", ""}, {"null", null}}},
		{"ts", "timestamp", "TIMESTAMP", []value{{"'infinity'", ""}, {"'-infinity'", ""}, {"'0044-03-15 01:02:03 BC'", "0044-03-15 (BC) 01:02:03"}, {"'2024-02-29 01:02:03.000004'", ""}, {"'1969-12-31 23:59:59.999999'", ""}, {"'9999-12-31'", "9999-12-31 00:00:00"}, {"'0001-01-01 00:00:00.5'", ""}, {"null", null}}},
		{"tz", "timestamptz", "TIMESTAMP WITH TIME ZONE", []value{{"'infinity'", ""}, {"'-infinity'", ""}, {"'2024-02-29 01:02:03+05:30'", "2024-02-28 19:32:03+00"}, {"'1970-01-01 00:00:00+00'", ""}, {"'1969-12-31 23:59:59.999999+00'", ""}, {"'2024-07-01 12:00:00-09'", ""}, {"'9999-12-31 00:00:00+00'", ""}, {"null", null}}},
		{"tm", "time", "TIME", []value{{"'00:00'", ""}, {"'23:59:59.999999'", ""}, {"'12:34:56'", ""}, {"'01:02:03.5'", ""}, {"'00:00:00.000001'", ""}, {"'10:00'", ""}, {"'11:11:11'", ""}, {"null", null}}},
		{"bo", "bool", "BOOLEAN", []value{{"true", "true"}, {"false", "false"}, {"true", "true"}, {"false", "false"}, {"true", "true"}, {"false", "false"}, {"true", "true"}, {"null", null}}},
		{"i8", "int8", "BIGINT", []value{{"9223372036854775807", ""}, {"-9223372036854775808", ""}, {"0", ""}, {"-1", ""}, {"1", ""}, {"2", ""}, {"3", ""}, {"null", null}}},
		{"byt", "bytea", "BLOB", []value{{`'\x'`, nothing}, {`'\x00'`, `\x00`}, {`'\xff00'`, `\xFF\x00`}, {`'\x61'`, "a"}, {`'\x62'`, "b"}, {`'\x63'`, "c"}, {`'\x64'`, "d"}, {"null", null}}},
		{"tx", "text", "VARCHAR", []value{{"''", ""}, {"'a'", ""}, {"'NULL'", ""}, {`E'a"b,c\nd\te'`, ""}, {"'äöü€𝄞'", ""}, {`'\'`, ""}, {"' '", ""}, {"null", null}}},
		{"ch", "char(4)", "VARCHAR", []value{{"'a'", "a   "}, {"''", "    "}, {"'abcd'", ""}, {"'ü'", "ü   "}, {"'b'", "b   "}, {"'c'", "c   "}, {"'d'", "d   "}, {"null", null}}},
		{"js", "json", "VARCHAR", []value{{`'{"b": 1,  "a":2, "a":3}'`, ""}, {"'null'", ""}, {"'\"\"'", ""}, {"'[]'", ""}, {"'1e400'", ""}, {"'12345678901234567890123'", ""}, {"'true'", ""}, {"null", null}}},
		{"jb", "jsonb", "VARCHAR", []value{{`'{"b": 1,  "a":2, "a":3}'`, `{"a": 3, "b": 1}`}, {"'null'", ""}, {"'\"\"'", ""}, {"'[]'", ""}, {"'1e40'", ""}, {"'12345678901234567890123'", ""}, {"'true'", ""}, {"null", null}}},
		{"en", "mood", "VARCHAR", []value{{"'sad'", ""}, {"'ok'", ""}, {"'happy \"x\"'", ""}, {"'sad'", ""}, {"'ok'", ""}, {"'ok'", ""}, {"'ok'", ""}, {"null", null}}},
		{"iv", "interval", "VARCHAR", []value{{"'1 mon 2 days 03:04:05.000006'", ""}, {"'-1 year'", ""}, {"'0'", ""}, {"'178000000 years'", ""}, {"'1 day -00:00:01'", ""}, {"'1'", ""}, {"'2'", ""}, {"null", null}}},
		{"ttz", "timetz", "VARCHAR", []value{{"'24:00:00+05:30'", ""}, {"'00:00:00-15:59'", ""}, {"'12:00+00'", ""}, {"'1:00+01'", ""}, {"'2:00+01'", ""}, {"'3:00+01'", ""}, {"'4:00+01'", ""}, {"null", null}}},
		{"ip", "inet", "VARCHAR", []value{{"'10.0.0.1'", ""}, {"'10.0.0.0/8'", ""}, {"'::1'", ""}, {"'fe80::/10'", ""}, {"'2001:db8::1'", ""}, {"'0.0.0.0/0'", ""}, {"'255.255.255.255'", ""}, {"null", null}}},
		{"bi", "bit(3)", "VARCHAR", []value{{"B'101'", ""}, {"B'000'", ""}, {"B'111'", ""}, {"B'001'", ""}, {"B'010'", ""}, {"B'100'", ""}, {"B'110'", ""}, {"null", null}}},
		{"mo", "money", "VARCHAR", []value{{"'1.23'", ""}, {"'-92233720368547758.08'", ""}, {"'0'", ""}, {"'1'", ""}, {"'2'", ""}, {"'3'", ""}, {"'4'", ""}, {"null", null}}},
		{"ra", "numrange", "VARCHAR", []value{{"'[1.10,2.0)'", ""}, {"'empty'", ""}, {"'(,)'", ""}, {"'(1,]'", ""}, {"'[1,1]'", ""}, {"'[2,3]'", ""}, {"'[3,4]'", ""}, {"null", null}}},
		{"xm", "xml", "VARCHAR", []value{{"'<a>ü</a>'", ""}, {"'<b/>'", ""}, {"'x'", ""}, {"'<c d=\"e\"/>'", ""}, {"'1'", ""}, {"'2'", ""}, {"'3'", ""}, {"null", null}}},
		{"ia", "int[]", "INTEGER[]", []value{{"'{}'", "[]"}, {"'{1,NULL,3}'", "[1, NULL, 3]"}, {"'[2:3]={7,8}'", "[7, 8]"}, {"'{NULL}'", "[NULL]"}, {"'{-1}'", "[-1]"}, {"'{2}'", "[2]"}, {"'{3}'", "[3]"}, {"null", null}}},
		{"dom", "posint", "INTEGER", []value{{"1", ""}, {"2", ""}, {"3", ""}, {"4", ""}, {"5", ""}, {"6", ""}, {"7", ""}, {"null", null}}},
	}
	const count = 8
	definition := []string{"id int primary key"}
	var types, printed, cast []string
	for _, c := range columns {
		definition = append(definition, c.name+" "+c.typ)
		types = append(types, "typeof("+c.name+")")
		cast = append(cast, c.name+"::varchar")
		printed = append(printed, "case when "+c.name+" is not null then format('%s', "+c.name+") end")
		if len(c.values) != count {
			t.Fatalf("column %s has %d values", c.name, len(c.values))
		}
	}
	insert := func(first int) (statements []string) {
		for i := range count {
			row := []string{""}
			for _, c := range columns {
				row = append(row, c.values[i].literal)
			}
			statements = append(statements, "insert into v select "+string(rune('0'+first))+"00 + "+string(rune('0'+i))+strings.Join(row, ", "))
		}
		return statements
	}
	setup := append([]string{"create type mood as enum('sad', 'ok', 'happy \"x\"')", "create domain posint as int check(value > 0)", "create table v(" + strings.Join(definition, ", ") + ")"}, insert(1)...)
	pg, m := scene(t, setup)
	pg.Exec(insert(2)...)
	check := func(when string) {
		t.Helper()
		texts, err := pg.Query("set timezone = 'UTC'; select id, " + strings.Join(printed, ", ") + " from v order by id")
		if err != nil {
			t.Fatal(err)
		}
		rows := m.SQL("set timezone = 'UTC'; select id, " + strings.Join(cast, ", ") + " from v order by id")
		if len(rows) != 2*count {
			t.Fatalf("%s: %d rows", when, len(rows))
		}
		for i, row := range rows {
			for j, c := range columns {
				v := c.values[i%count]
				want := v.shown
				switch want {
				case "":
					want = texts[i][j+1]
				case nothing:
					want = ""
				}
				if row[0] != texts[i][0] || row[j+1] != want {
					t.Errorf("%s: %s %s of row %s is %q, want %q", when, c.typ, v.literal, row[0], row[j+1], want)
				}
			}
		}
		m.Verify()
	}
	check("in memory")
	for i, got := range m.SQL("select " + strings.Join(types, ", ") + " from v limit 1")[0] {
		if got != columns[i].duck {
			t.Errorf("%s is %s in DuckDB, want %s", columns[i].typ, got, columns[i].duck)
		}
	}
	m.Checkpoint()
	check("in a file")
	pg.Exec("update v set id = id + 800")
	check("updated")
	restart(m)
	check("after a crash")
}

// What role and database set for output does not change what is mirrored, and neither does the clients' own (S-T15).
func TestScenarioOutputSettings(t *testing.T) {
	t.Parallel()
	set := []string{"datestyle = 'German'", "intervalstyle = 'iso_8601'", "bytea_output = 'escape'", "timezone = 'Asia/Kolkata'", "extra_float_digits = 0", "lc_monetary = 'C'", "xmlbinary = 'hex'", "statement_timeout = '100ms'", "idle_in_transaction_session_timeout = '100ms'", "lock_timeout = '100ms'", "search_path = 'nowhere'", "default_transaction_read_only = on"}
	statements := []string{"create table public.s(id int primary key, d date, ts timestamptz, iv interval, b bytea, f float8, tz timetz, a timestamptz[], r tstzrange)"}
	row := func(id string) string {
		return "insert into public.s select " + id + ", '2024-02-01', '2024-02-01 03:04:05.5+00', '1 mon 2 days 03:04:05', '\\x00ff61', 0.1::float8 + 0.2, '03:04:05+05:30', array['2024-02-01 03:04:05+00'::timestamptz], tstzrange('2024-02-01 00:00+00', null)"
	}
	statements = append(statements, row("1"))
	pg := server(t, statements)
	for _, one := range set {
		pg.Exec("alter role "+mirrorRole+" set "+one, "alter database postgres set "+strings.Replace(one, "default_transaction_read_only = on", "default_transaction_read_only = off", 1))
	}
	m := StartMirror(t, pg, "p")
	s := pg.Open("postgres", "postgres")
	for _, one := range set {
		if !strings.HasPrefix(one, "default_transaction") {
			s.Exec("set " + one)
		}
	}
	s.Exec(row("2"))
	const want = "2024-02-01|2024-02-01 03:04:05.5+00|1 mon 2 days 03:04:05|\\x00\\xFFa|0.30000000000000004|03:04:05+05:30|['2024-02-01 03:04:05+00']|[\"2024-02-01 00:00:00+00\",)"
	answers(t, m, "set timezone='UTC'; select d::varchar, ts::varchar, iv, b::varchar, f, tz, a::varchar, r from public.s order by id", want, want)
}

// A value that the mirror cannot represent stops its table with the key and the column, or is NULL and counted; the same in the
// copy and in the stream, and the other tables go on (S-T2, S-T3, S-T4).
func TestScenarioUnrepresentable(t *testing.T) {
	t.Parallel()
	bad := []struct{ table, typ, value, says string }{
		{"dec", "numeric(12,2)", "'NaN'", "NaN and infinity have no decimal form"},
		{"inf", "numeric(38,0)", "null", ""}, // a numeric with a precision holds no infinity
		{"clock", "time", "'24:00:00'", "24:00:00 is no time of day"},
		{"far", "timestamptz", "'294276-12-31 00:00+00'", "beyond the timestamps"},
		{"farther", "timestamp", "'294276-12-31'", "beyond the timestamps"},
		{"old", "timestamp", "'4700-01-01 BC'", ""},
		{"multi", "int[]", "'{{1,2},{3,4}}'", "more than one dimension"},
		{"elem", "time[]", "'{12:00,24:00}'", "24:00:00 is no time of day"},
	}
	statements := []string{"create table good(id int primary key)", "create table copied(id int primary key, v numeric(12,2))", "insert into copied values (1, 1), (2, 'NaN'), (3, 3)"}
	for _, b := range bad {
		statements = append(statements, "create table "+b.table+"(id int primary key, v "+b.typ+")", "insert into "+b.table+" values (1, null)")
	}
	pg := server(t, statements)
	fail := StartMirror(t, pg, "p")
	null := StartMirror(t, pg, "p", "--on-unrepresentable", "null", "--slot", "other")
	f := refusedTable(t, fail, "public.copied", "NaN and infinity")
	if f.ErrorKey != "id=2" || f.ErrorCol != "v" {
		t.Fatalf("copied failed at key %q, column %q", f.ErrorKey, f.ErrorCol)
	}
	answers(t, null, "select * from copied order by id", "1|1.00", "2|<null>", "3|3.00")
	for _, b := range bad {
		pg.Exec("insert into "+b.table+" values (2, "+b.value+")", "insert into "+b.table+" values (3, null)", "update "+b.table+" set id = 4 where id = 2")
	}
	pg.Exec("insert into good values (1)")
	for _, b := range bad {
		switch {
		case b.says != "":
			f := refusedTable(t, fail, "public."+b.table, b.says, "1|<null>")
			if f.ErrorKey != "id=2" || f.ErrorCol != "v" {
				t.Errorf("%s failed at key %q, column %q", b.table, f.ErrorKey, f.ErrorCol)
			}
			answers(t, null, "select * from "+b.table+" order by id", "1|<null>", "3|<null>", "4|<null>")
			if n := Table(t, null.WaitReady(), "public."+b.table).Unrepresentable; n != 2 { // the insert's and the update's
				t.Errorf("%s counts %d unrepresentable values", b.table, n)
			}
		default:
			fail.Verify(b.table)
			null.Verify(b.table)
		}
	}
	answers(t, fail, "select * from good", "1")
	answers(t, null, "select sum(v) from dec", "<null>")
	if n := Table(t, null.WaitReady(), "public.copied").Unrepresentable; n != 1 {
		t.Errorf("copied counts %d unrepresentable values", n)
	}
	restart(null)
	// The source sends again what no checkpoint holds.
	null.WaitStatus("dec to count 2 unrepresentable values after a restart", func(s *mirror.Status) bool {
		return Table(t, s, "public.dec").Unrepresentable == 2
	})
}
