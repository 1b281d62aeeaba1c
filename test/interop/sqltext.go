package interop

import (
	"strconv"
	"strings"

	"pgmirror/pgcdc"
)

// PostgresText is an SQL expression for PostgreSQL that gives a value in the textual form of the package. value is an
// expression of type t, for a column its quoted name. Run it with TimeZone UTC and extra_float_digits above 0.
func PostgresText(value string, t *pgcdc.Type) string { return postgresForms.text(value, t) }

// DuckDBText is the same for DuckDB.
func DuckDBText(value string, t *pgcdc.Type) string { return duckForms.text(value, t) }

// anyOther is the key of the expression for every kind that a forms does not name.
const anyOther = pgcdc.KindInvalid

// forms are one program's expressions by the kind of value. They are for values that are not NULL, and give NULL for NULL. Written in braces are the value, the decimal's precision and scale, the values
// that stand for the type's infinities, and the text of a list's element e.
type forms map[pgcdc.Kind]string

func (f forms) text(value string, t *pgcdc.Type) string {
	form, ok := f[t.Kind]
	if !ok {
		form = f[anyOther]
	}
	infinity, minusInfinity := int64(pgcdc.TimestampInfinity), int64(pgcdc.TimestampNegInfinity)
	if t.Kind == pgcdc.KindDate {
		infinity, minusInfinity = int64(pgcdc.DateInfinity), int64(pgcdc.DateMinusInfinity)
	}
	element := ""
	if t.Elem != nil {
		element = f.text("e", t.Elem)
	}
	return "coalesce(" + strings.NewReplacer("{value}", value, "{precision}", strconv.Itoa(int(t.Precision)), "{scale}", strconv.Itoa(int(t.Scale)),
		"{infinity}", strconv.FormatInt(infinity, 10), "{-infinity}", strconv.FormatInt(minusInfinity, 10), "{element}", element).Replace(form) + ", 'null')"
}

const (
	postgresMoment = "CASE {value} WHEN 'infinity' THEN {infinity} WHEN '-infinity' THEN {-infinity} ELSE (extract(epoch FROM {value}) * 1000000)::bigint END::text"
	// format gives the text of the output function; a cast to text is another function for some types.
	postgresString = "CASE WHEN ({value}) IS NOT NULL THEN '''' || replace(format('%s', {value}), '''', '''''') || '''' END"

	duckFloat  = "CASE WHEN isnan({value}) THEN 'nan' ELSE '0x' || lower(hex(CAST(CAST({value} AS BIT) AS BLOB))) END"
	duckString = "'''' || replace(CAST({value} AS VARCHAR), '''', '''''') || ''''"
	duckMoment = "CASE WHEN isinf({value}) THEN CASE WHEN {value} > '2000-01-01' THEN '{infinity}' ELSE '{-infinity}' END ELSE CAST(epoch_us({value}) AS VARCHAR) END"
)

var postgresForms = forms{
	anyOther:              "({value})::text", // bool, the integers, uuid
	pgcdc.KindFloat4:      "CASE WHEN {value} = 'NaN' THEN 'nan' ELSE '0x' || encode(float4send({value}), 'hex') END",
	pgcdc.KindFloat8:      "CASE WHEN {value} = 'NaN' THEN 'nan' ELSE '0x' || encode(float8send({value}), 'hex') END",
	pgcdc.KindDecimal:     "({value})::numeric({precision},{scale})::text",
	pgcdc.KindText:        postgresString,
	pgcdc.KindJSON:        postgresString,
	pgcdc.KindBytea:       `'\x' || encode({value}, 'hex')`,
	pgcdc.KindDate:        "CASE {value} WHEN 'infinity' THEN {infinity} WHEN '-infinity' THEN {-infinity} ELSE ({value})::date - date '1970-01-01' END::text",
	pgcdc.KindTime:        "(extract(epoch FROM {value}) * 1000000)::bigint::text",
	pgcdc.KindTimestamp:   postgresMoment,
	pgcdc.KindTimestampTZ: postgresMoment,
	pgcdc.KindList:        "CASE WHEN ({value}) IS NOT NULL THEN '[' || (SELECT coalesce(string_agg({element}, ',' ORDER BY n), '') FROM unnest({value}) WITH ORDINALITY AS u(e, n)) || ']' END",
}

var duckForms = forms{
	anyOther:              "CAST({value} AS VARCHAR)", // bool, the integers, decimals, uuid
	pgcdc.KindFloat4:      duckFloat,
	pgcdc.KindFloat8:      duckFloat,
	pgcdc.KindText:        duckString,
	pgcdc.KindJSON:        duckString,
	pgcdc.KindBytea:       `'\x' || lower(hex({value}))`,
	pgcdc.KindDate:        "CASE WHEN isinf({value}) THEN CASE WHEN {value} > DATE '2000-01-01' THEN '{infinity}' ELSE '{-infinity}' END ELSE CAST({value} - DATE '1970-01-01' AS VARCHAR) END",
	pgcdc.KindTime:        "CAST(epoch_us({value}) AS VARCHAR)",
	pgcdc.KindTimestamp:   duckMoment,
	pgcdc.KindTimestampTZ: duckMoment,
	pgcdc.KindList:        "CASE WHEN ({value}) IS NOT NULL THEN '[' || coalesce(array_to_string(list_transform({value}, lambda e: {element}), ','), '') || ']' END",
}
