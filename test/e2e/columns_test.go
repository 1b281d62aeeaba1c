package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"pgmirror/pgcdc"
)

// column is one column of a driven table: its type on the source, what the mirror must hold it as, and random values.
type column struct {
	name    string
	ddl     string
	typ     *pgcdc.Type
	literal func(*rand.Rand) string // an SQL literal; NULL is added by the caller
}

func kind(k pgcdc.Kind) *pgcdc.Type { return &pgcdc.Type{Kind: k} }

func decimal(precision, scale int) *pgcdc.Type {
	return &pgcdc.Type{Kind: pgcdc.KindDecimal, Precision: precision, Scale: scale}
}

func listOf(elem *pgcdc.Type) *pgcdc.Type { return &pgcdc.Type{Kind: pgcdc.KindList, Elem: elem} }

// typesSQL makes the types of our own that everyColumn uses.
const typesSQL = `CREATE TYPE mood AS ENUM ('sad', 'ok', 'very "happy"');
CREATE DOMAIN posint AS int CHECK (VALUE > 0);
CREATE DOMAIN price AS numeric(9,3);
CREATE DOMAIN label AS varchar(20)`

// everyColumn has a column of each supported type. Some types can only be sent as text, and then all of the stream is text:
// without them it is binary.
func everyColumn(binary bool) []column {
	text := kind(pgcdc.KindText)
	var textOnly []column
	if !binary {
		textOnly = []column{
			{"c_range", "int4range", text, oneOf("'empty'", "'[1,5)'", "'(,3)'", "'[7,)'")},
			{"c_money", "money", text, oneOf("'12.34'", "'-1234567.89'", "'0'")},
		}
	}
	return append(textOnly, []column{
		{"c_bool", "bool", kind(pgcdc.KindBool), oneOf("true", "false")},
		{"c_int2", "int2", kind(pgcdc.KindInt2), numbers(-32768, 32767)},
		{"c_int4", "int4", kind(pgcdc.KindInt4), numbers(-2147483648, 2147483647)},
		{"c_int8", "int8", kind(pgcdc.KindInt8), numbers(-9223372036854775808, 9223372036854775807)},
		{"c_oid", "oid", kind(pgcdc.KindOID), numbers(0, 4294967295)},
		{"c_float4", "float4", kind(pgcdc.KindFloat4), floats("1.17549435e-38", "3.4028235e38", "0.1", "16777217")},
		{"c_float8", "float8", kind(pgcdc.KindFloat8), floats("5e-324", "1.7976931348623157e308", "0.1", "1e22", "9007199254740993")},
		{"c_decimal", "numeric(12,2)", decimal(12, 2), decimals(10, 2)},
		{"c_large", "numeric(38,10)", decimal(38, 10), decimals(28, 10)},
		{"c_whole", "numeric(5,0)", decimal(5, 0), decimals(5, 0)},
		{"c_numeric", "numeric", text, numerics},
		{"c_text", "text", text, texts},
		{"c_varchar", "varchar(40)", text, texts},
		{"c_char", "char(7)", text, oneOf("''", "'a'", "'abc'", "'seven77'", "'żółw'")},
		{"c_bytea", "bytea", kind(pgcdc.KindBytea), byteas},
		{"c_uuid", "uuid", kind(pgcdc.KindUUID), func(r *rand.Rand) string { return uuidLiteral(r.Uint64(), r.Uint64()) }},
		{"c_date", "date", kind(pgcdc.KindDate), oneOf("'infinity'", "'-infinity'", "'4713-01-01 BC'", "'0044-03-15 BC'", "'0001-01-01'",
			"'1969-12-31'", "'1970-01-01'", "'2024-02-29'", "'9999-12-31'", "'5874897-12-31'")},
		{"c_time", "time", kind(pgcdc.KindTime), oneOf("'00:00'", "'23:59:59.999999'", "'12:34:56.000001'", "'06:00'")},
		{"c_timestamp", "timestamp", kind(pgcdc.KindTimestamp), moments("")},
		{"c_timestamptz", "timestamptz", kind(pgcdc.KindTimestampTZ), moments("+00")},
		{"c_json", "json", kind(pgcdc.KindJSON), oneOf("'null'", "'{\"b\": 1,  \"a\":[1,2 , \"x\"], \"b\":2}'", "'[]'", "'\"it''s\"'", "' 1e400 '")},
		{"c_jsonb", "jsonb", kind(pgcdc.KindJSON), oneOf("'null'", "'{\"b\": 1, \"a\":[1,2.50,\"ż\"]}'", "'[]'", "'{}'", "'1.10'")},
		{"c_mood", "mood", text, oneOf("'sad'", "'ok'", "'very \"happy\"'")},
		{"c_posint", "posint", kind(pgcdc.KindInt4), numbers(1, 2147483647)},
		{"c_price", "price", decimal(9, 3), decimals(6, 3)},
		{"c_label", "label", text, oneOf("''", "'label'", "'NULL'")},
		{"c_interval", "interval", text, oneOf("'1 mon 2 days 03:04:05.000006'", "'-1 year'", "'0'", "'-00:00:01'", "'1000 years 40 days'")},
		{"c_inet", "inet", text, oneOf("'10.0.0.1'", "'10.1.0.0/16'", "'::1'", "'fe80::1:0:0:1/64'", "'::ffff:1.2.3.4'")},
		{"c_timetz", "timetz", text, oneOf("'24:00:00+05:30'", "'01:02:03.4-08'")},
		{"c_bits", "varbit", text, oneOf("B''", "B'1'", "B'0101010101'")},
		{"c_ints", "int[]", listOf(kind(pgcdc.KindInt4)), oneOf("'{}'", "'{NULL}'", "'{1,NULL,-2147483648}'", "'{1,2,3,4,5,6,7,8,9}'")},
		{"c_texts", "text[]", listOf(text), oneOf("'{}'", "'{NULL,\"NULL\",\"\"}'", "'{a,\"b,c\",\"d\\\"e\\\\f\",\"{}\",\"it''s\"}'")},
		{"c_floats", "float8[]", listOf(kind(pgcdc.KindFloat8)), oneOf("'{}'", "'{NaN,-0,Infinity,-Infinity,0.1}'", "'{NULL}'")},
		{"c_prices", "numeric(8,2)[]", listOf(decimal(8, 2)), oneOf("'{}'", "'{1.10,NULL,-999999.99}'")},
		{"c_moods", "mood[]", listOf(text), oneOf("'{}'", "'{ok,NULL,sad}'")},
		{"c_moments", "timestamptz[]", listOf(kind(pgcdc.KindTimestampTZ)), oneOf("'{}'", "'{infinity,NULL,\"2024-01-01 00:00:00.5+00\"}'")},
		{"c_uuids", "uuid[]", listOf(kind(pgcdc.KindUUID)), oneOf("'{}'", "'{00000000-0000-0000-0000-0000000000ff,NULL}'")},
	}...)
}

// bigColumn holds values that are stored outside of the row and not compressed, 9 kB and more.
func bigColumn(name string) column {
	return column{name, "text", kind(pgcdc.KindText), func(r *rand.Rand) string {
		if r.IntN(4) == 0 {
			return "'small'"
		}
		return bigText(r, 9000+r.IntN(3000))
	}}
}

// bigText is an expression for a text of about the given length which does not compress.
func bigText(r *rand.Rand, length int) string {
	return fmt.Sprintf("left((SELECT string_agg(md5((%d + g)::text), '') FROM generate_series(1, %d) g), %d)", r.Uint32(), length/32+1, length)
}

func oneOf(literals ...string) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return literals[r.IntN(len(literals))] }
}

// numbers are small ones, ones of any size, and the two bounds.
func numbers(low, high int64) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		n := int64(1 + r.IntN(100))
		switch r.IntN(6) {
		case 0:
			n = low
		case 1:
			n = high
		case 2:
			n = low + int64(r.Uint64N(uint64(high)-uint64(low)))
		}
		return fmt.Sprintf("'%d'", n)
	}
}

func floats(more ...string) func(*rand.Rand) string {
	special := append([]string{"NaN", "Infinity", "-Infinity", "0", "-0"}, more...)
	return func(r *rand.Rand) string {
		if r.IntN(2) == 0 {
			return fmt.Sprintf("'%s'", special[r.IntN(len(special))])
		}
		return fmt.Sprintf("'%g'", float32(r.NormFloat64()))
	}
}

func digits(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('0' + r.IntN(10))
	}
	return string(b)
}

func decimals(whole, scale int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		sign := []string{"", "-"}[r.IntN(2)]
		if r.IntN(6) == 0 {
			return fmt.Sprintf("'%s%s.%s'", sign, strings.Repeat("9", whole), strings.Repeat("9", scale))
		}
		return fmt.Sprintf("'%s%s.%s'", sign, digits(r, 1+r.IntN(whole)), digits(r, scale))
	}
}

// numerics have no precision: their trailing zeros, length and NaN are kept as text.
func numerics(r *rand.Rand) string {
	switch r.IntN(6) {
	case 0:
		return []string{"'NaN'", "'Infinity'", "'-Infinity'", "'0.000067'", "'1e-20'", "'1.100'", "'10000'", "'0'", "'0.0'"}[r.IntN(9)]
	case 1:
		return "'" + digits(r, 60) + "." + digits(r, 30) + "'"
	}
	return "'-" + digits(r, 1+r.IntN(9)) + "." + digits(r, 1+r.IntN(6)) + "'"
}

func texts(r *rand.Rand) string {
	special := []string{"", " ", "null", "NULL", "it''s", "a,b", "\"q\"", "line\nbreak", "cr\r\nlf", "\ttab\\", "żółw 🐢", "\U0010ffff", "#"}
	if r.IntN(2) == 0 {
		return "'" + special[r.IntN(len(special))] + "'"
	}
	return fmt.Sprintf("'t%d'", r.IntN(1000))
}

func byteas(r *rand.Rand) string {
	b := make([]byte, r.IntN(12))
	for i := range b {
		b[i] = byte(r.Uint32() >> (8 * r.UintN(4)))
	}
	return fmt.Sprintf(`'\x%x'`, b)
}

func uuidLiteral(a, b uint64) string { return fmt.Sprintf("'%016x%016x'", a, b) }

func moments(zone string) func(*rand.Rand) string {
	special := []string{"infinity", "-infinity", "4713-01-01 00:00:00" + zone + " BC", "0044-03-15 12:00:00.5" + zone + " BC",
		"0001-01-01 00:00:00" + zone, "1969-12-31 23:59:59.999999" + zone, "1970-01-01 00:00:00" + zone, "294246-12-31 23:59:59.999999" + zone}
	return func(r *rand.Rand) string {
		if r.IntN(2) == 0 {
			return "'" + special[r.IntN(len(special))] + "'"
		}
		return fmt.Sprintf("'20%s-1%d-0%d %d:00:00.%s%s'", digits(r, 2), r.IntN(3), 1+r.IntN(9), r.IntN(24), digits(r, 6), zone)
	}
}
