package e2e

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"pgmirror/pgcdc"
)

// roundTypesSQL makes the types of roundColumns, beside those of everyColumn.
const roundTypesSQL = `CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE EXTENSION cube;
CREATE TYPE pair AS (a int, b text);
CREATE TYPE nest AS (p pair, ps pair[], n numeric, d date, grid int[], m mood);
CREATE DOMAIN checked AS pair CHECK ((VALUE).b IS DISTINCT FROM 'refused');
CREATE DOMAIN texts AS text[]`

// roundColumns are the columns of everyColumn with values from the whole of each type, and those of all other types. Some can only be sent as text.
func roundColumns(binary bool) []column {
	text := kind(pgcdc.KindText)
	columns := everyColumn(binary)
	wider := map[string]func(*rand.Rand) string{
		"c_text": anyText, "c_varchar": func(r *rand.Rand) string { return "left(" + anyText(r) + ", 40)" }, "c_bytea": anyBytes, "c_date": anyDate, "c_timestamp": func(r *rand.Rand) string { return anyMoment(r, "") },
		"c_timestamptz": func(r *rand.Rand) string { return anyMoment(r, "+00") }, "c_time": anyTime, "c_interval": anyInterval, "c_timetz": anyTimeTZ, "c_float8": anyFloat8, "c_float4": anyFloat4,
		"c_inet": anyInet, "c_bits": func(r *rand.Rand) string { return "B'" + bits(r, r.IntN(70)) + "'" }, "c_json": anyJSON, "c_jsonb": anyJSON,
		"c_ints": arrayOf(numbers(math.MinInt32, math.MaxInt32)), "c_texts": arrayOf(anyText), "c_floats": arrayOf(anyFloat8), "c_uuids": arrayOf(anyUUID),
		"c_moments": arrayOf(func(r *rand.Rand) string { return anyMoment(r, "+00") }),
	}
	for i, c := range columns {
		if literal := wider[c.name]; literal != nil {
			columns[i].literal = literal
		}
	}
	columns = append(columns, []column{
		{"c_name", "name", text, func(r *rand.Rand) string { return "left(" + anyText(r) + ", 15)" }},
		{"c_onechar", `"char"`, text, func(r *rand.Rand) string { return sqlText(string(rune(' ' + r.IntN(95)))) }},
		{"c_citext", "citext", text, anyText},
		{"c_hstore", "hstore", text, anyHstore},
		{"c_xml", "xml", text, func(r *rand.Rand) string {
			return "xmlelement(name x, xmlattributes(" + xmlText(r) + " as a), " + xmlText(r) + ")"
		}},
		{"c_xid8", "xid8", text, func(r *rand.Rand) string { return fmt.Sprintf("'%d'", r.Uint64()) }},
		{"c_xid", "xid", text, func(r *rand.Rand) string { return fmt.Sprintf("'%d'", r.Uint32()) }},
		{"c_tid", "tid", text, func(r *rand.Rand) string { return fmt.Sprintf("'(%d,%d)'", r.Uint32(), r.UintN(1<<16)) }},
		{"c_lsn", "pg_lsn", text, func(r *rand.Rand) string { return fmt.Sprintf("'%X/%X'", r.Uint32(), r.Uint32()) }},
		{"c_bit", "bit(11)", text, func(r *rand.Rand) string { return "B'" + bits(r, 11) + "'" }},
		{"c_cidr", "cidr", text, func(r *rand.Rand) string { return "network(" + anyInet(r) + "::inet)" }},
		{"c_mac", "macaddr", text, func(r *rand.Rand) string { return fmt.Sprintf("'%012x'", r.Uint64()>>16) }},
		{"c_mac8", "macaddr8", text, func(r *rand.Rand) string { return fmt.Sprintf("'%016x'", r.Uint64()) }},
		{"c_odd", "numeric(10,-3)", text, func(r *rand.Rand) string { return numberUpTo(r, 12) }},
		{"c_wide", "numeric(60,20)", text, func(r *rand.Rand) string { return "'" + digits(r, 40) + "." + digits(r, 20) + "'" }},
		{"c_unit", "numeric(4,4)", decimal(4, 4), func(r *rand.Rand) string { return "'-0." + digits(r, 4) + "'" }},
		{"c_bools", "bool[]", listOf(kind(pgcdc.KindBool)), arrayOf(oneOf("true", "false"))},
		{"c_longs", "int8[]", listOf(kind(pgcdc.KindInt8)), arrayOf(numbers(math.MinInt64, math.MaxInt64))},
		{"c_reals", "float4[]", listOf(kind(pgcdc.KindFloat4)), arrayOf(anyFloat4)},
		{"c_byteas", "bytea[]", listOf(kind(pgcdc.KindBytea)), arrayOf(anyBytes)},
		{"c_dates", "date[]", listOf(kind(pgcdc.KindDate)), arrayOf(anyDate)},
		{"c_times", "time[]", listOf(kind(pgcdc.KindTime)), arrayOf(anyTime)},
		{"c_spans", "interval[]", listOf(text), arrayOf(anyInterval)},
		{"c_jsons", "jsonb[]", listOf(kind(pgcdc.KindJSON)), arrayOf(anyJSON)},
		{"c_stores", "hstore[]", listOf(text), arrayOf(anyHstore)},
		{"c_labels", "texts", listOf(text), arrayOf(anyText)},
	}...)
	if binary {
		return columns
	}
	return append(columns, []column{
		{"c_pair", "pair", text, anyPair},
		{"c_nest", "nest", text, anyNest},
		{"c_checked", "checked", text, anyPair},
		{"c_pairs", "pair[]", listOf(text), arrayOf(anyPair)},
		{"c_nests", "nest[]", listOf(text), arrayOf(anyNest)},
		{"c_cube", "cube", text, func(r *rand.Rand) string { return fmt.Sprintf("'(%g, %g)'", r.NormFloat64(), r.NormFloat64()) }},
		{"c_tsvector", "tsvector", text, func(r *rand.Rand) string { return "to_tsvector('simple', " + anyText(r) + ")" }},
		{"c_tsquery", "tsquery", text, func(r *rand.Rand) string { return "plainto_tsquery('simple', " + anyText(r) + ")" }},
		{"c_jsonpath", "jsonpath", text, func(r *rand.Rand) string { return fmt.Sprintf("'$.a[*] ? (@.b > %d)'", r.IntN(1000)) }},
		{"c_point", "point", text, func(r *rand.Rand) string { return fmt.Sprintf("point(%g, %g)", r.NormFloat64(), r.NormFloat64()) }},
		{"c_box", "box", text, func(r *rand.Rand) string {
			return fmt.Sprintf("'(%g,%g),(%g,%g)'", r.Float64(), r.Float64(), r.Float64(), r.Float64())
		}},
		{"c_path", "path", text, func(r *rand.Rand) string {
			return fmt.Sprintf("'[(%d,%d),(%d,%g)]'", r.IntN(9), r.IntN(9), r.IntN(9), r.Float64())
		}},
		{"c_circle", "circle", text, func(r *rand.Rand) string { return fmt.Sprintf("'<(%d,%d),%g>'", r.IntN(9), r.IntN(9), r.Float64()) }},
		{"c_numrange", "numrange", text, func(r *rand.Rand) string {
			return rangeOf(r, numberUpTo(r, 4), numberUpTo(r, 9), "numrange", "numeric")
		}},
		{"c_daterange", "daterange", text, func(r *rand.Rand) string { return rangeOf(r, anyDate(r), anyDate(r), "daterange", "date") }},
		{"c_tsrange", "tsrange", text, func(r *rand.Rand) string {
			return rangeOf(r, anyMoment(r, ""), anyMoment(r, ""), "tsrange", "timestamp")
		}},
		{"c_multi", "int4multirange", text, func(r *rand.Rand) string {
			a := r.IntN(100)
			return fmt.Sprintf("'{[%d,%d),[%d,%d]}'", a, a+r.IntN(9), a+20, a+20+r.IntN(9))
		}},
		{"c_ranges", "int4range[]", listOf(text), arrayOf(oneOf("'empty'", "'[1,5)'", "'(,3)'", "'[7,)'"))},
	}...)
}

func sqlText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// anyText is one or several letters of any kind, and sometimes none.
func anyText(r *rand.Rand) string {
	letters := []string{"a", "Z", "0", " ", "'", `"`, `\`, "\n", "\r", "\t", ",", "{", "}", "(", ")", "NULL", "%", "ż", "ﬁ", "e\u0301", "\u200d", "字", "🐢", "\U0010ffff", "\u007f", "\u0001", "=>", "<", "&", "\ufeff"}
	if r.IntN(4) == 0 {
		return texts(r)
	}
	var b strings.Builder
	for range r.IntN(12) {
		b.WriteString(letters[r.IntN(len(letters))])
	}
	return sqlText(b.String())
}

// xmlText is anyText without what XML has no place for.
func xmlText(r *rand.Rand) string { return "translate(" + anyText(r) + `, E'\u0001\U0010ffff', '')` }

func anyBytes(r *rand.Rand) string {
	b := make([]byte, r.IntN(40))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return fmt.Sprintf(`'\x%x'`, b)
}

func anyUUID(r *rand.Rand) string { return uuidLiteral(r.Uint64(), r.Uint64()) }

func bits(r *rand.Rand, n int) string {
	return fmt.Sprintf("%0*b%0*b", n/2, r.Uint64()>>(64-n/2), n-n/2, r.Uint64()>>(64-(n-n/2)))
}

// numberUpTo is a number of up to n digits before the point.
func numberUpTo(r *rand.Rand, n int) string {
	return "'" + []string{"", "-"}[r.IntN(2)] + digits(r, 1+r.IntN(n)) + []string{"", "." + digits(r, 1+r.IntN(5))}[r.IntN(2)] + "'"
}

// anyFloat8 is any bit pattern but one of the NaNs, whose bits text does not carry.
func anyFloat8(r *rand.Rand) string {
	if r.IntN(3) == 0 {
		return floats("5e-324", "1.7976931348623157e308", "1e15", "1e16", "123456789012345680")(r)
	}
	v := math.Float64frombits(r.Uint64())
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "'NaN'"
	}
	return fmt.Sprintf("'%g'", v)
}

func anyFloat4(r *rand.Rand) string {
	if r.IntN(3) == 0 {
		return floats("1e-45", "3.4028235e38", "1e6", "1e5", "16777217")(r)
	}
	v := math.Float32frombits(r.Uint32())
	if v != v || math.IsInf(float64(v), 0) {
		return "'-Infinity'"
	}
	return fmt.Sprintf("'%g'", v)
}

const dayMicros = 24 * 60 * 60 * 1_000_000

// PostgreSQL's first day, its last one as a date, and Iceberg's last microsecond but infinity, which comes before PostgreSQL's last.
const (
	firstDay    = -2_440_588
	lastDay     = 2_145_042_541 - 1
	lastMoment  = int64(math.MaxInt64 - 1)
	firstMoment = int64(firstDay * dayMicros)
)

func anyDate(r *rand.Rand) string {
	switch r.IntN(8) {
	case 0:
		return oneOf("'infinity'", "'-infinity'", "'4714-11-24 BC'", "'0001-12-31 BC'", "'0001-01-01'", "'1969-12-31'", "'1970-01-01'", "'2024-02-29'", "'9999-12-31'", "'10000-01-01'", "'5874897-12-31'")(r)
	case 1:
		return fmt.Sprintf("date '1970-01-01' + %d", firstDay+r.Int64N(lastDay-firstDay))
	}
	return fmt.Sprintf("date '1970-01-01' + %d", r.IntN(1_500_000)-750_000)
}

// anyMoment is a timestamp of any of its microseconds, half of them near to now. zone is behind the time.
func anyMoment(r *rand.Rand, zone string) string {
	var micros int64
	switch r.IntN(8) {
	case 0:
		return oneOf("'infinity'", "'-infinity'")(r)
	case 1:
		micros = []int64{firstMoment, lastMoment, 0, -1, -719_162 * dayMicros, -719_162*dayMicros - 1, -719_528 * dayMicros}[r.IntN(7)]
	case 2, 3:
		micros = firstMoment + int64(r.Uint64N(uint64(lastMoment)+uint64(-firstMoment)))
	default:
		micros = r.Int64N(60*365*dayMicros) / []int64{1, 1000, 1_000_000}[r.IntN(3)] * []int64{1, 1000, 1_000_000}[r.IntN(3)] % (60 * 365 * dayMicros)
	}
	at := time.UnixMicro(micros).UTC()
	era := ""
	year := at.Year()
	if year < 1 {
		year, era = 1-year, " BC"
	}
	return fmt.Sprintf("'%04d-%s%s%s'", year, at.Format("01-02 15:04:05.000000"), zone, era)
}

func anyTime(r *rand.Rand) string {
	if r.IntN(8) == 0 {
		return oneOf("'00:00'", "'23:59:59.999999'", "'00:00:00.000001'", "'12:00'")(r)
	}
	return sqlText(time.UnixMicro(r.Int64N(dayMicros)).UTC().Format("15:04:05.999999"))
}

func anyTimeTZ(r *rand.Rand) string {
	if r.IntN(8) == 0 {
		return oneOf("'24:00:00+05:30'", "'00:00:00-15:59:59'", "'23:59:59.999999+15:59:59'")(r)
	}
	return strings.TrimSuffix(anyTime(r), "'") + fmt.Sprintf("%+03d:%02d'", r.IntN(31)-15, r.IntN(60))
}

func anyInterval(r *rand.Rand) string {
	part := func(most int64) int64 { return r.Int64N(2*most+1) - most }
	switch r.IntN(4) {
	case 0:
		return oneOf("'0'", "'-00:00:00.000001'", "'178000000 years'", "'-178000000 years'", "'1 mon -1 day 00:00:01'", "'2147483647 days'", "'-2147483648 days'")(r)
	case 1:
		return fmt.Sprintf("make_interval(months => %d, days => %d, secs => %d)", part(1<<31-1), part(1<<31-1), part(1<<31-1))
	}
	return fmt.Sprintf("'%d months %d days %d:%02d:%02d.%06d'", part(40), part(400), r.IntN(500), r.IntN(60), r.IntN(60), r.IntN(1_000_000))
}

func anyInet(r *rand.Rand) string {
	if r.IntN(2) == 0 {
		return fmt.Sprintf("'%d.%d.%d.%d/%d'", r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(33))
	}
	groups := make([]string, 8)
	for i := range groups {
		groups[i] = fmt.Sprintf("%x", r.UintN(1<<16)*r.UintN(2))
	}
	return fmt.Sprintf("'%s/%d'", strings.Join(groups, ":"), r.IntN(129))
}

func anyJSON(r *rand.Rand) string {
	key := strings.Trim(fmt.Sprintf("%q", []string{"a", "b c", "ż", "", `q"`, "\n"}[r.IntN(6)]), " ")
	return sqlText(fmt.Sprintf(`{%s: [%d, %s, null, "%s"],  "n":%s.%s0, "a": {}}`, key, r.IntN(1000), []string{"true", "false", "[]"}[r.IntN(3)], []string{"x", "🐢", `\u00e9`, `\"`}[r.IntN(4)],
		"1"+digits(r, r.IntN(30)), digits(r, 1+r.IntN(9))))
}

func anyHstore(r *rand.Rand) string {
	n := r.IntN(4)
	keys, values := make([]string, n), make([]string, n)
	for i := range n {
		if keys[i], values[i] = anyText(r), anyText(r); r.IntN(4) == 0 {
			values[i] = "NULL"
		}
	}
	return "hstore(array[" + strings.Join(keys, ", ") + "]::text[], array[" + strings.Join(values, ", ") + "]::text[])"
}

func anyPair(r *rand.Rand) string {
	return "row(" + orNull(r, numbers(100, math.MaxInt32)) + ", " + orNull(r, anyText) + ")::pair"
}

func anyNest(r *rand.Rand) string {
	grid := oneOf("null", "'{}'", "'{{1,2},{NULL,4}}'", "'[0:1]={5,6}'")(r)
	return "row(" + orNull(r, anyPair) + ", " + orNull(r, arrayOf(anyPair)) + "::pair[], " + orNull(r, numerics) + ", " + orNull(r, anyDate) + ", " + grid + ", " + orNull(r, oneOf("'sad'", `'very "happy"'`)) + ")::nest"
}

func orNull(r *rand.Rand, literal func(*rand.Rand) string) string {
	if r.IntN(5) == 0 {
		return "NULL"
	}
	return literal(r)
}

// arrayOf makes arrays with NULL elements; an element's type is that of the column.
func arrayOf(literal func(*rand.Rand) string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		elements := make([]string, r.IntN(5))
		for i := range elements {
			elements[i] = orNull(r, literal)
		}
		return "array[" + strings.Join(elements, ", ") + "]"
	}
}

// rangeOf is a range between two values, whichever is the greater.
func rangeOf(r *rand.Rand, a, b, function, subtype string) string {
	if r.IntN(6) == 0 {
		return "'empty'"
	}
	bound := []string{"[)", "[]", "()", "(]"}[r.IntN(4)]
	if subtype == "date" {
		bound = "[)" // the server makes any other one so, for which the last day has no next
	}
	return fmt.Sprintf("%s(%s, %s, '%s')", function, orNull(r, func(*rand.Rand) string { return fmt.Sprintf("least((%s)::%s, (%s)::%s)", a, subtype, b, subtype) }),
		orNull(r, func(*rand.Rand) string { return fmt.Sprintf("greatest((%s)::%s, (%s)::%s)", a, subtype, b, subtype) }), bound)
}
