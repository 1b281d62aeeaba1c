package pgcdc

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// call is one call of a Sink, its argument in a form that == compares bit by bit.
type call struct {
	method string
	value  any
}

// recorder is a Sink that remembers its calls.
type recorder struct{ calls []call }

func (r *recorder) add(method string, value any) { r.calls = append(r.calls, call{method, value}) }
func (r *recorder) Null()                        { r.add("Null", nil) }
func (r *recorder) Bool(v bool)                  { r.add("Bool", v) }
func (r *recorder) Int32(v int32)                { r.add("Int32", v) }
func (r *recorder) Int64(v int64)                { r.add("Int64", v) }
func (r *recorder) Float32(v float32)            { r.add("Float32", math.Float32bits(v)) }
func (r *recorder) Float64(v float64)            { r.add("Float64", math.Float64bits(v)) }
func (r *recorder) String(v []byte)              { r.add("String", string(v)) }
func (r *recorder) Binary(v []byte)              { r.add("Binary", string(v)) }
func (r *recorder) UUID(v *[16]byte)             { r.add("UUID", *v) }
func (r *recorder) Date(v int32)                 { r.add("Date", v) }
func (r *recorder) Time(v int64)                 { r.add("Time", v) }
func (r *recorder) Timestamp(v int64)            { r.add("Timestamp", v) }
func (r *recorder) BeginList(n int)              { r.add("BeginList", n) }
func (r *recorder) EndList()                     { r.add("EndList", nil) }

func (r *recorder) Decimal(hi int64, lo uint64) {
	v := new(big.Int).Lsh(big.NewInt(hi), 64)
	r.add("Decimal", v.Add(v, new(big.Int).SetUint64(lo)).String())
}

func decodeCalls(typ *Type, format Format, data []byte) ([]call, error) {
	var r recorder
	err := typ.Decode(format, data, &r)
	return r.calls, err
}

// serverType is a column type with values for it. A value that begins with "!" is one the mirror cannot represent.
type serverType struct {
	sql    string
	kind   Kind
	binary bool
	random string // an expression over i, run many times
	values []string
}

const (
	isBinary = true
	isText   = false
)

var serverTypes = []serverType{
	{"bool", KindBool, isBinary, "random() < 0.5", []string{"t", "f"}},
	{"int2", KindInt2, isBinary, "trunc(random() * 65535 - 32768)", []string{"0", "-32768", "32767", "-1"}},
	{"int4", KindInt4, isBinary, "trunc(random() * 4294967295 - 2147483648)", []string{"0", "-2147483648", "2147483647"}},
	{"int8", KindInt8, isBinary, "(random() - 0.5) * 1.8e19", []string{"0", "-9223372036854775808", "9223372036854775807"}},
	{"oid", KindOID, isBinary, "trunc(random() * 4294967295)::int8", []string{"0", "4294967295"}},
	{"float4", KindFloat4, isBinary, "(random() - 0.5) * exp(random() * 160 - 80)", []string{"0", "-0", "NaN", "Infinity", "-Infinity", "1e-45", "3.4028235e38", "0.1", "1e15", "16777216"}},
	{"float8", KindFloat8, isBinary, "(random() - 0.5) * exp(random() * 1200 - 600)", []string{"0", "-0", "NaN", "Infinity", "-Infinity", "5e-324", "1.7976931348623157e308", "0.30000000000000004", "1e22", "9007199254740993"}},
	{"numeric(10,2)", KindDecimal, isBinary, "(random() - 0.5) * 1e8", []string{"0", "0.01", "-0.01", "99999999.99", "-99999999.99", "10000", "100000000e-1", "!NaN"}},
	{"numeric(38,10)", KindDecimal, isBinary, "(random() - 0.5)::numeric * 1e27 * random()::numeric", []string{"12345678901234567890.0123456789", "9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999", "1e-10", "1e27"}},
	{"numeric(38,0)", KindDecimal, isBinary, "random()::numeric * power(10::numeric, 38 * random()::numeric)", []string{"99999999999999999999999999999999999999", "-99999999999999999999999999999999999999", "18446744073709551616", "18446744073709551615", "0"}},
	{"numeric(38,38)", KindDecimal, isBinary, "random()::numeric * random()::numeric", []string{"0.99999999999999999999999999999999999999", "-1e-38", "0"}},
	{"numeric(5,5)", KindDecimal, isBinary, "(random() - 0.5)", []string{"0.99999", "0.00001", "0.0001"}},
	{"numeric(7,3)", KindDecimal, isBinary, "(random() - 0.5) * 9e3", []string{"9999.999", "1", "0.1"}},
	{"numeric(1)", KindDecimal, isBinary, "random() * 9", []string{"9", "-9", "0"}},
	{"numeric", KindText, isBinary, "round(random()::numeric * power(10::numeric, trunc(random() * 60 - 30)::int), (random() * 50)::int) * sign(random() - 0.5)::numeric",
		[]string{"0", "0.00", "-0", "NaN", "Infinity", "-Infinity", "0.000067", "1e-19", "10000", "9999.9999", "100000000", "-1234567890123456789012345678901234567890.5", "1e131071", "1e-16383", "1.10", "0.00010000"}},
	{"numeric(50,0)", KindText, isBinary, "", []string{"12345678901234567890123456789012345678901234567890", "NaN"}},
	{"numeric(39,1)", KindText, isBinary, "", []string{"12345678901234567890123456789012345678.9"}},
	{"numeric(10,-2)", KindText, isBinary, "random() * 1e10", []string{"12345", "0"}},
	{"numeric(2,5)", KindText, isBinary, "random() * 0.0009", []string{"0.000067", "0"}},
	{"text", KindText, isBinary, "md5(i::text)", []string{"", "NULL", "ünïcødé 🐘", "a\nb\tc\\d", "'quoted'"}},
	{"varchar(10)", KindText, isBinary, "", []string{"", "abc  "}},
	{"char(5)", KindText, isBinary, "", []string{"", "a", "abcde", "é"}},
	{"name", KindText, isBinary, "", []string{"", "pg_class"}},
	{"citext", KindText, isBinary, "", []string{"MiXed"}},
	{"refcursor", KindText, isBinary, "", []string{"c1"}},
	{"xml", KindText, isBinary, "", []string{"<a>ü</a>", `<?xml version="1.0" encoding="UTF-8"?><a/>`, `<?xml version="1.0" standalone="yes"?><a/>`, `<?xml version="1.1"?><a/>`, "text"}},
	{"json", KindJSON, isBinary, "", []string{`{"a":1, "a":2 }`, "null", `"é"`, "1e400"}},
	{"jsonb", KindJSON, isBinary, `jsonb_build_object(i::text, random())`, []string{`{"b":1, "a":[2,null,1.50]}`, "null", `"é"`}},
	{"bytea", KindBytea, isBinary, "decode(md5(i::text), 'hex')", []string{`\x`, `\x00ff80`, "text"}},
	{"uuid", KindUUID, isBinary, "gen_random_uuid()", []string{"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "12345678-9abc-def0-1234-56789abcdef0"}},
	{"date", KindDate, isBinary, "date '4713-01-01 BC' + trunc(random() * 4000000)::int", []string{"1970-01-01", "1969-12-31", "2000-02-29", "1900-02-28", "0044-03-15 BC", "0001-12-31 BC", "0001-01-01", "4713-01-01 BC", "5874897-12-31", "infinity", "-infinity"}},
	{"time", KindTime, isBinary, "random() * interval '24 hours'", []string{"00:00", "23:59:59.999999", "12:34:56.7", "!24:00:00"}},
	{"time(2)", KindTime, isBinary, "", []string{"12:34:56.789", "!23:59:59.999"}},
	{"timestamp", KindTimestamp, isBinary, "timestamp '4713-01-01 BC' + trunc(random() * 100000000) * interval '1 hour 1.234567 s'", []string{"1970-01-01", "1969-12-31 23:59:59.999999", "0044-03-15 01:02:03.000004 BC", "4713-01-01 BC", "294247-01-10 04:00:54.775806", "!294247-01-10 04:00:54.775807", "!294276-12-31 23:59:59.999999", "infinity", "-infinity"}},
	{"timestamptz", KindTimestampTZ, isBinary, "timestamptz '4713-01-01 BC' + trunc(random() * 100000000) * interval '1 hour 1.234567 s'", []string{"1970-01-01 00:00+00", "1969-12-31 23:59:59.999999+00", "0044-03-15 01:02:03+01 BC", "2024-01-01 00:00+05:30", "!294276-12-31", "infinity", "-infinity"}},
	{"timetz", KindText, isBinary, "", []string{"00:00+00", "24:00:00+05:30", "12:34:56.000007-08", "01:02:03+15:59:59", "01:02:03-00:00:01", "04:05:06.789-15:59"}},
	{"interval", KindText, isBinary, "make_interval(years => trunc(random()*5-2)::int, months => trunc(random()*5-2)::int, days => trunc(random()*5-2)::int, secs => trunc(random()*3-1) * random() * 100000)",
		[]string{"0", "1 mon 2 days 03:04:05", "-1 year", "1 year -1 day", "-1 mon +2 days", "1 day -00:00:00.000001", "-1 day 00:00:01", "1 year 1 mon 1 day 01:01:01.100000", "100000:00:00", "178956970 years", "-178956970 years -8 mons", "-9223372036854775807 microseconds", "13 mons"}},
	{"inet", KindText, isBinary, "('::'::inet + trunc(random() * 9e18)::int8) + trunc(random() * 70000)::int8", []string{"1.2.3.4", "1.2.3.4/24", "0.0.0.0/0", "::", "::1", "::2", "::1.2.3.4", "::ffff:1.2.3.4", "1::", "1:0:0:2::3", "1:0:0:2:0:0:3:4", "1:0:0:2:3:0:0:0", "0:0:1:0:0:1:0:0", "1:0:2:3:4:5:6:7", "2001:db8::1/64", "0:0:1::", "1:0:0:1:0:0:0:1", "::fffe:1.2.3.4", "::1:2:3", "0:0:0:0:0:0:1:2/100", "::ffff:0:1.2.3.4", "0:0:0:0:1:0:0:0"}},
	{"cidr", KindText, isBinary, "", []string{"10.0.0.0/8", "1.2.3.4/32", "::/0", "2001:db8::/32", "::1/128"}},
	{"macaddr", KindText, isBinary, "", []string{"08:00:2b:01:02:03", "ff:ff:ff:ff:ff:ff"}},
	{"macaddr8", KindText, isBinary, "", []string{"08:00:2b:01:02:03:04:05"}},
	{"bit(5)", KindText, isBinary, "trunc(random() * 31)::int::bit(5)", []string{"10101", "00000"}},
	{"varbit", KindText, isBinary, "", []string{"", "1", "101010101", "11111111"}},
	{`"char"`, KindText, isBinary, "", []string{"a", ""}},
	{"xid", KindText, isBinary, "", []string{"0", "4294967295"}},
	{"cid", KindText, isBinary, "", []string{"7"}},
	{"xid8", KindText, isBinary, "", []string{"18446744073709551615"}},
	{"tid", KindText, isBinary, "", []string{"(0,0)", "(4294967295,65535)"}},
	{"pg_lsn", KindText, isBinary, "", []string{"0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"}},
	{"money", KindText, isText, "", []string{"-12345.67"}},
	{"int4range", KindText, isText, "", []string{"empty", "[1,5)"}},
	{"nummultirange", KindText, isText, "", []string{"{[1.5,2),(3,)}"}},
	{"tsvector", KindText, isText, "", []string{"'a' 'b':1"}},
	{"point", KindText, isText, "", []string{"(1.5,-2)"}},
	{"regclass", KindText, isText, "", []string{"pg_class"}},
	{"jsonpath", KindText, isText, "", []string{"$.a"}},
	{"int2vector", KindText, isText, "", []string{"1 2 3", ""}},
	{"oidvector", KindText, isText, "", []string{"1 2 3"}},
	{"pg_snapshot", KindText, isText, "", []string{"10:20:10,14"}},
	{"mood", KindText, isBinary, "", []string{"happy", "so, so"}},
	{"posint", KindInt4, isBinary, "i", []string{"1"}},
	{"price", KindDecimal, isBinary, "random() * 1000", []string{"1.50", "!NaN"}},
	{"discount", KindDecimal, isBinary, "random() * 1000", []string{"0.25"}},
	{"intlist", KindList, isBinary, "", []string{"{1,2}", "!{{1}}"}},
	{"int4[]", KindList, isBinary, "array(select trunc(random() * 1000)::int from generate_series(1, i % 7))", []string{"{}", "{NULL}", "{1,NULL,3}", "[2:3]={7,8}", "[-1:0]={7,NULL}", "!{{1,NULL},{3,4}}", "![0:0][1:2]={{1,2}}"}},
	{"text[]", KindList, isBinary, "array[md5(i::text), null, repeat('\"', i % 3), repeat('\\', i % 4), 'x y']", []string{`{a,"b,c",NULL,"NULL",""}`, `{"{}","}"," ","\\\"","null"}`, "{ü,🐘}", `{"{a"}`, `!{{a},{b}}`, `{"[1:2]={1}"}`}},
	{"varchar(3)[]", KindList, isBinary, "", []string{"{abc,d}"}},
	{"char(3)[]", KindList, isBinary, "", []string{"{abc,d}"}},
	{"numeric(10,2)[]", KindList, isBinary, "array[random() * 1000, null, i]", []string{"{1.5,NULL,-2}", "!{1,NaN}"}},
	{"numeric[]", KindList, isBinary, "", []string{"{1.50,NULL,NaN,1e40}"}},
	{"bool[]", KindList, isBinary, "", []string{"{t,f,NULL}"}},
	{"float8[]", KindList, isBinary, "", []string{"{1.5,NaN,-Infinity,-0}"}},
	{"float4[]", KindList, isBinary, "", []string{"{0.1}"}},
	{"bytea[]", KindList, isBinary, "", []string{`{"\\x00ff",NULL,"\\x"}`}},
	{"uuid[]", KindList, isBinary, "array[gen_random_uuid(), gen_random_uuid()]", []string{"{}"}},
	{"date[]", KindList, isBinary, "", []string{`{2020-01-01,"0044-03-15 BC",infinity}`}},
	{"time[]", KindList, isBinary, "", []string{"{12:00,NULL}", "!{12:00,24:00}"}},
	{"timestamp[]", KindList, isBinary, "", []string{`{"2020-01-01 12:00:00.5",-infinity}`}},
	{"timestamptz[]", KindList, isBinary, "", []string{`{"2020-01-01 12:00:00.5+00",NULL}`}},
	{"json[]", KindList, isBinary, "", []string{`{"{\"a\": [1, \"x\\\\y\"]}",NULL}`}},
	{"jsonb[]", KindList, isBinary, "", []string{`{"{\"a\": 1}"}`}},
	{"interval[]", KindList, isBinary, "", []string{`{"1 day","-1 mon 01:00:00"}`}},
	{"inet[]", KindList, isBinary, "", []string{"{1.2.3.4/24,::1}"}},
	{`"char"[]`, KindList, isBinary, "", []string{`{a,"",","}`}},
	{"mood[]", KindList, isBinary, "", []string{`{happy,"so, so",NULL}`}},
	{"posint[]", KindList, isBinary, "", []string{"{1,2}"}},
	{"price[]", KindList, isBinary, "", []string{"{1.50,2}"}},
	{"citext[]", KindList, isBinary, "", []string{"{A,b}"}},
	{"box[]", KindList, isText, "", []string{"{(2,2),(1,1);(4,4),(3,3)}", "{}"}},
	{"cube[]", KindList, isText, "", []string{`{"(1, 2)","(3)"}`}},
	{"pair", KindText, isText, "row(i, repeat('\"', i % 3))::pair", []string{`(1,a)`, `(,)`, `(1,"")`, `(,"a ""b"" \\\\ , () NULL")`, `(-1,NULL)`, "(1,\"ü\n🐘\")"}},
	{"nest", KindText, isText, "", []string{`("(1,""a b"")","{""(2,c)"",NULL,""(,)""}",1.10,2020-01-01,"so, so")`, `(,,,,)`, `("(,)",{},NaN,"0044-03-15 BC",sad)`}},
	{"checkedpair", KindText, isText, "", []string{`(1,a)`}},
	{"pair[]", KindList, isText, "", []string{`{"(1,\"a \\\"b\\\"\")",NULL,"(,)"}`, "{}", `!{{"(1,a)"}}`}},
	{"nest[]", KindList, isText, "", []string{`{"(\"(1,\"\"a b\"\")\",,1.10,2020-01-01,\"so, so\")"}`}},
	{"moods", KindText, isText, "", []string{`[happy,"so, so"]`, "empty"}},
	{"hstore", KindText, isBinary, `hstore(array[i::text, md5(i::text), repeat('"', i % 4), repeat('\', i % 3) || 'x'], array[null, random()::text, E'\n', ''])`,
		[]string{"", "a=>1", `"a"=>NULL, "b"=>"NULL"`, `"a b"=>"c, d=>e", "q\"uo\\te"=>"b\\\"s"`, `""=>""`, "ü=>🐘, \"k\"=>\"line\nbreak\""}},
	{"hstore[]", KindList, isBinary, "", []string{`{"\"a\"=>\"1\"",NULL,""}`, "{}"}},
	{"int4range[]", KindList, isText, "", []string{`{"[1,5)",empty}`}},
}

// testValues holds for every type that a value's text and its binary form make the same calls, and that
// what they hand over is, when the server prints it, the text the server prints for the value itself.
func testValues(t *testing.T, server *decodeServer) {
	if *captureFlag {
		if err := os.WriteFile(capturedValuesFile, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	server.exec(t, `
		create extension citext; create extension cube; create extension hstore;
		create type mood as enum ('sad', 'happy', 'so, so');
		create domain posint as int check (value > 0);
		create domain price as numeric(10,2);
		create domain discount as price check (value >= 0);
		create domain intlist as int[];
		create type pair as (a int, gone float8, b text);
		alter type pair drop attribute gone;
		create type nest as (p pair, ps pair[], n numeric, d date, m mood);
		create domain checkedpair as pair check ((value).a > 0);
		create type moods as range (subtype = mood);
		select setseed(0.25)`)
	catalog := server.typeCatalog(t)
	for _, c := range serverTypes {
		t.Run(c.sql, func(t *testing.T) { c.test(t, server, catalog) })
	}
	for _, sql := range []string{"intlist[]"} {
		t.Run("refused "+sql, func(t *testing.T) {
			if typ := server.columnType(t, catalog, sql); typ.Unsupported == "" || typ.Kind != KindInvalid || typ.BinaryOK {
				t.Errorf("resolved to %+v, want it unsupported", typ)
			}
		})
	}
}

// columnType resolves a column of a type, in a new table v.
func (s *decodeServer) columnType(t *testing.T, catalog *typeCatalog, sql string) *Type {
	t.Helper()
	s.exec(t, "drop table if exists v; create table v (id int generated always as identity, v "+sql+")")
	row := s.query(t, 0, "select atttypid, atttypmod, format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'v'::regclass and attname = 'v'")[0]
	oid, err := strconv.ParseUint(string(row[0]), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := strconv.ParseInt(string(row[1]), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return catalog.resolve(uint32(oid), int32(mod), string(row[2]))
}

func (c serverType) test(t *testing.T, server *decodeServer, catalog *typeCatalog) {
	typ := server.columnType(t, catalog, c.sql)
	if typ.Kind != c.kind || typ.BinaryOK != c.binary || typ.Unsupported != "" {
		t.Fatalf("resolved to %+v, want kind %d and binary %v", typ, c.kind, c.binary)
	}
	refused := make([]bool, 0, len(c.values))
	for _, value := range c.values {
		value, bad := strings.CutPrefix(value, "!")
		refused = append(refused, bad)
		server.query(t, 0, "insert into v (v) values ($1)", value)
	}
	if c.random != "" {
		server.exec(t, "insert into v (v) select "+c.random+" from generate_series(1, 40) i")
	}
	texts := server.query(t, 0, "select v from v order by id")
	binaries := texts
	if c.binary {
		binaries = server.query(t, 1, "select v from v order by id")
	}
	if *captureFlag && typ.OID < 16384 { // built in
		captureValues(t, typ, texts[:len(c.values)], binaries)
	}
	for i := range texts {
		text, bin := texts[i][0], binaries[i][0]
		fromText, err := decodeCalls(typ, FormatText, text)
		if i < len(refused) && refused[i] {
			var reason *UnrepresentableError
			if !errors.As(err, &reason) || !errors.Is(err, ErrUnrepresentable) {
				t.Errorf("%s as text: error %v, want it unrepresentable", text, err)
			}
			if _, binErr := decodeCalls(typ, FormatBinary, bin); c.binary && (binErr == nil || err == nil || binErr.Error() != err.Error()) {
				t.Errorf("%s: binary error %v, text error %v", text, binErr, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%.100s as text: %v", text, err)
			continue
		}
		if c.binary {
			fromBinary, err := decodeCalls(typ, FormatBinary, bin)
			if err != nil || !reflect.DeepEqual(fromBinary, fromText) {
				t.Errorf("%.100s: binary gives %.200v (%v), text %.200v", text, fromBinary, err, fromText)
				continue
			}
		}
		if typ.Kind != KindList {
			if len(fromText) != 1 {
				t.Fatalf("%d calls for a scalar", len(fromText))
			}
			server.checkScalar(t, typ, fromText[0], text)
			continue
		}
		elements := server.query(t, 0, "select v[i] from v, generate_subscripts(v, 1) i where id = $1 order by i", strconv.Itoa(i+1))
		if want := (call{"BeginList", len(elements)}); len(fromText) != len(elements)+2 || fromText[0] != want || fromText[len(fromText)-1] != (call{"EndList", nil}) {
			t.Errorf("%s: calls %v for %d elements", text, fromText, len(elements))
			continue
		}
		for j, element := range elements {
			server.checkScalar(t, typ.Elem, fromText[j+1], element[0])
		}
	}
}

// checkScalar holds the one call of a value against the server's text for it (nil for NULL).
func (s *decodeServer) checkScalar(t *testing.T, typ *Type, got call, text []byte) {
	t.Helper()
	if text == nil {
		if got != (call{"Null", nil}) {
			t.Errorf("NULL became %v", got)
		}
		return
	}
	if printed := s.print(t, typ, got); printed != string(text) {
		t.Errorf("%v prints as %.100q, the server printed %.100q", got, printed, text)
	}
}

// print turns a call back into the type's text, without any of the code under test.
func (s *decodeServer) print(t *testing.T, typ *Type, got call) string {
	t.Helper()
	method := map[Kind]string{
		KindBool: "Bool", KindInt2: "Int32", KindInt4: "Int32", KindInt8: "Int64", KindOID: "Int64", KindFloat4: "Float32",
		KindFloat8: "Float64", KindDecimal: "Decimal", KindText: "String", KindJSON: "String", KindBytea: "Binary", KindUUID: "UUID",
		KindDate: "Date", KindTime: "Time", KindTimestamp: "Timestamp", KindTimestampTZ: "Timestamp",
	}[typ.Kind]
	if got.method != method {
		t.Fatalf("call %v for kind %d", got, typ.Kind)
	}
	switch v := got.value.(type) {
	case bool:
		return map[bool]string{true: "t", false: "f"}[v]
	case uint32:
		return s.value(t, "select $1::float4", strconv.FormatFloat(float64(math.Float32frombits(v)), 'e', -1, 32))
	case uint64:
		return s.value(t, "select $1::float8", strconv.FormatFloat(math.Float64frombits(v), 'e', -1, 64))
	case [16]byte:
		return fmt.Sprintf("%x-%x-%x-%x-%x", v[:4], v[4:6], v[6:8], v[8:10], v[10:])
	case string:
		switch typ.Kind {
		case KindDecimal:
			return printDecimal(v, typ.Scale)
		case KindBytea:
			return `\x` + hex.EncodeToString([]byte(v))
		}
		return v
	}
	number := fmt.Sprint(got.value)
	switch {
	case typ.Kind == KindDate && (got.value == DateInfinity || got.value == DateMinusInfinity):
		return map[any]string{DateInfinity: "infinity", DateMinusInfinity: "-infinity"}[got.value]
	case typ.Kind == KindDate:
		return s.value(t, "select date '1970-01-01' + $1::int", number)
	case typ.Kind == KindTime:
		return s.value(t, "select time '00:00' + ($1::text || ' microseconds')::interval", number)
	case method == "Timestamp" && (got.value == TimestampInfinity || got.value == TimestampNegInfinity):
		return map[any]string{TimestampInfinity: "infinity", TimestampNegInfinity: "-infinity"}[got.value]
	case typ.Kind == KindTimestamp:
		return s.value(t, "select timestamp '1970-01-01' + ($1::text || ' microseconds')::interval", number)
	case typ.Kind == KindTimestampTZ:
		return s.value(t, "select timestamptz '1970-01-01 00:00+00' + ($1::text || ' microseconds')::interval", number)
	}
	return number
}

// captureValues appends values that are not huge to the captured ones.
func captureValues(t *testing.T, typ *Type, texts, binaries [][][]byte) {
	t.Helper()
	file, err := os.OpenFile(capturedValuesFile, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for i := range texts {
		text, bin := texts[i][0], binaries[i][0]
		if !typ.BinaryOK {
			bin = nil
		}
		if len(text) < 200 {
			fmt.Fprintf(file, "%d %d %q %x\n", typ.OID, typ.Mod, text, bin)
		}
	}
}

func printDecimal(unscaled string, scale int) string {
	digits, negative := strings.CutPrefix(unscaled, "-")
	digits = strings.Repeat("0", max(0, scale+1-len(digits))) + digits
	if scale > 0 {
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	if negative {
		return "-" + digits
	}
	return digits
}
