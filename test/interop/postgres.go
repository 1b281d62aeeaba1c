package interop

import (
	"fmt"

	"pgmirror/pgcdc"
)

// PostgresText is an SQL expression for PostgreSQL that gives a value in the textual form of the package. value is an
// expression of type t, for a column its quoted name. Run it with TimeZone UTC and extra_float_digits above 0.
func PostgresText(value string, t *pgcdc.Type) string {
	return fmt.Sprintf("coalesce(%s, 'null')", notNullText(value, t))
}

// notNullText is NULL for NULL.
func notNullText(value string, t *pgcdc.Type) string {
	switch t.Kind {
	case pgcdc.KindFloat4, pgcdc.KindFloat8:
		send := map[pgcdc.Kind]string{pgcdc.KindFloat4: "float4send", pgcdc.KindFloat8: "float8send"}[t.Kind]
		return fmt.Sprintf("CASE WHEN %[1]s = 'NaN' THEN 'nan' ELSE '0x' || encode(%[2]s(%[1]s), 'hex') END", value, send)
	case pgcdc.KindDecimal:
		return fmt.Sprintf("(%s)::numeric(%d,%d)::text", value, t.Precision, t.Scale)
	case pgcdc.KindText, pgcdc.KindJSON:
		// format gives the text of the output function; a cast to text is another function for some types.
		return fmt.Sprintf("CASE WHEN (%[1]s) IS NOT NULL THEN '''' || replace(format('%%s', %[1]s), '''', '''''') || '''' END", value)
	case pgcdc.KindBytea:
		return fmt.Sprintf(`'\x' || encode(%s, 'hex')`, value)
	case pgcdc.KindDate:
		return fmt.Sprintf("CASE %[1]s WHEN 'infinity' THEN %[2]d WHEN '-infinity' THEN %[3]d ELSE (%[1]s)::date - date '1970-01-01' END::text",
			value, pgcdc.DateInfinity, pgcdc.DateMinusInfinity)
	case pgcdc.KindTime:
		return fmt.Sprintf("(extract(epoch FROM %s) * 1000000)::bigint::text", value)
	case pgcdc.KindTimestamp, pgcdc.KindTimestampTZ:
		return fmt.Sprintf("CASE %[1]s WHEN 'infinity' THEN %[2]d WHEN '-infinity' THEN %[3]d ELSE (extract(epoch FROM %[1]s) * 1000000)::bigint END::text",
			value, pgcdc.TimestampInfinity, pgcdc.TimestampNegInfinity)
	case pgcdc.KindList:
		return fmt.Sprintf("CASE WHEN (%[1]s) IS NOT NULL THEN '[' || (SELECT coalesce(string_agg(%[2]s, ',' ORDER BY n), '') FROM unnest(%[1]s) WITH ORDINALITY AS u(e, n)) || ']' END",
			value, PostgresText("e", t.Elem))
	default: // bool, int2, int4, int8, oid, uuid
		return fmt.Sprintf("(%s)::text", value)
	}
}
