package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
	"pgmirror/test/interop"
)

// PostgreSQL and DuckDB print many types differently: true and t, 1e+22 and 1e22, dates BC. So that the values themselves are
// compared and not two programs' taste, both sides are asked for the textual form that test/interop describes: floats as bits,
// times as numbers, everything else as it stands. interop.PostgresText is the one side's SQL, duckText the other's.

// separator is between the columns of a row in one text. No generated value holds it.
const separator = "\x1f"

// duckText is an SQL expression for DuckDB that gives a value of type t in the textual form.
func duckText(value string, t *pgcdc.Type) string {
	return fmt.Sprintf("coalesce(%s, 'null')", duckNotNull(value, t))
}

func duckNotNull(value string, t *pgcdc.Type) string {
	switch t.Kind {
	case pgcdc.KindFloat4, pgcdc.KindFloat8:
		return fmt.Sprintf("CASE WHEN isnan(%[1]s) THEN 'nan' ELSE '0x' || lower(hex(CAST(CAST(%[1]s AS BIT) AS BLOB))) END", value)
	case pgcdc.KindText, pgcdc.KindJSON:
		return fmt.Sprintf("'''' || replace(CAST(%s AS VARCHAR), '''', '''''') || ''''", value)
	case pgcdc.KindBytea:
		return fmt.Sprintf(`'\x' || lower(hex(%s))`, value)
	case pgcdc.KindDate:
		return fmt.Sprintf("CASE WHEN isinf(%[1]s) THEN CASE WHEN %[1]s > DATE '2000-01-01' THEN '%[2]d' ELSE '%[3]d' END ELSE CAST(%[1]s - DATE '1970-01-01' AS VARCHAR) END",
			value, pgcdc.DateInfinity, pgcdc.DateMinusInfinity)
	case pgcdc.KindTime:
		return fmt.Sprintf("CAST(epoch_us(%s) AS VARCHAR)", value)
	case pgcdc.KindTimestamp, pgcdc.KindTimestampTZ:
		return fmt.Sprintf("CASE WHEN isinf(%[1]s) THEN CASE WHEN %[1]s > '2000-01-01' THEN '%[2]d' ELSE '%[3]d' END ELSE CAST(epoch_us(%[1]s) AS VARCHAR) END",
			value, pgcdc.TimestampInfinity, pgcdc.TimestampNegInfinity)
	case pgcdc.KindList:
		return fmt.Sprintf("CASE WHEN (%[1]s) IS NOT NULL THEN '[' || coalesce(array_to_string(list_transform(%[1]s, lambda e: %[2]s), ','), '') || ']' END",
			value, duckText("e", t.Elem))
	default: // bool, the integers, decimals, uuid
		return fmt.Sprintf("CAST(%s AS VARCHAR)", value)
	}
}

// content is the rows of several tables by name, each row's columns joined by separator. The rows are sorted.
type content map[string][]string

// columnsText is the columns of a table as one expression of either side.
func columnsText(columns []column, text func(string, *pgcdc.Type) string) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = text(harness.Ident(c.name), c.typ)
	}
	return "concat_ws(chr(31), " + strings.Join(parts, ", ") + ")"
}

// unionText selects (table's name, row) of all tables in one statement, so that all of them are read in one snapshot.
func unionText(tables []*driven, text func(string, *pgcdc.Type) string, where string) string {
	parts := make([]string, len(tables))
	for i, t := range tables {
		parts[i] = fmt.Sprintf("SELECT '%s', %s FROM %s%s", strings.ReplaceAll(t.name, "'", "''"), columnsText(t.columns, text), t.name, where)
	}
	return strings.Join(parts, " UNION ALL ")
}

func contentOf(rows [][]string) content {
	c := content{}
	for _, row := range rows {
		c[row[0]] = append(c[row[0]], row[1])
	}
	for _, rows := range c {
		slices.Sort(rows)
	}
	return c
}

// sourceContent reads the tables from PostgreSQL; where, if not empty, keeps some rows.
func sourceContent(pg *harness.Postgres, tables []*driven, where string) (content, error) {
	conn, err := pgconn.Connect(context.Background(), pg.SocketURL("postgres", "postgres"))
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.Background())
	set := "SET DateStyle = 'ISO, MDY'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC'; SET bytea_output = 'hex'; SET extra_float_digits = 3; "
	results, err := conn.Exec(context.Background(), set+unionText(tables, interop.PostgresText, where)).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, row := range results[len(results)-1].Rows {
		rows = append(rows, []string{string(row[0]), string(row[1])})
	}
	return contentOf(rows), nil
}

// mirrorContent reads the tables through `pgmirror sql`, once everything that the source has committed is visible.
func mirrorContent(m *Mirror, tables []*driven) (content, error) {
	rows, err := m.TrySQL(unionText(tables, duckText, ""), "--wait-lsn", "source")
	if err != nil {
		return nil, err
	}
	return contentOf(rows), nil
}

// diffContent says which rows of which tables differ, or nil.
func diffContent(tables []*driven, want, got content) error {
	var errs []error
	for _, t := range tables {
		if d := interop.Diff(asRows(want[t.name]), asRows(got[t.name])); d != "" {
			errs = append(errs, fmt.Errorf("%s: %s", t.name, shorten(d)))
		}
	}
	return errors.Join(errs...)
}

func asRows(texts []string) []interop.Row {
	rows := make([]interop.Row, len(texts))
	for i, text := range texts {
		rows[i] = strings.Split(text, separator)
	}
	return rows
}

// shorten keeps the two ends of each long value of a printed difference.
func shorten(text string) string {
	const most = 200
	words := strings.Split(text, " | ")
	for i, w := range words {
		if len(w) > most {
			words[i] = fmt.Sprintf("%s…(%d bytes)…%s", w[:most/2], len(w), w[len(w)-most/2:])
		}
	}
	return strings.Join(words, " | ")
}

// sameColumns compares the columns of SELECT * with PostgreSQL's, in their order.
func sameColumns(m *Mirror, tables []*driven) error {
	var statements strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&statements, "SELECT * FROM %s LIMIT 0; ", t.name)
	}
	out, errs, code := m.Command("sql", "--format", "csv", "-c", statements.String())
	if code != 0 {
		return fmt.Errorf("columns: exit code %d: %s", code, errs)
	}
	headers, err := parseCSV(out)
	if err != nil {
		return err
	}
	if len(headers) != len(tables) {
		return fmt.Errorf("%d statements gave %d lines", len(tables), len(headers))
	}
	for i, t := range tables {
		if want := columnNames(t); !slices.Equal(headers[i], want) {
			return fmt.Errorf("SELECT * FROM %s has the columns %q, want %q", t.name, headers[i], want)
		}
	}
	return nil
}

func columnNames(t *driven) []string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return names
}
