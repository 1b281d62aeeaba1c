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
// times as numbers, everything else as it stands.

// separator is between the columns of a row in one text. No generated value holds it.
const separator = "\x1f"

// content is the rows of several tables by name, each row's columns joined by separator. The rows are sorted.
type content map[string][]string

// read is a table's columns as test/interop asks for them.
func (t *driven) read() []interop.Column {
	columns := make([]interop.Column, len(t.columns))
	for i, c := range t.columns {
		columns[i] = interop.Column{Name: harness.Ident(c.name), Type: c.typ}
	}
	return columns
}

// unionText selects (table's name, row) of all tables in one statement, so that all of them are read in one snapshot.
func unionText(tables []*driven, text func(string, *pgcdc.Type) string, where string) string {
	parts := make([]string, len(tables))
	for i, t := range tables {
		parts[i] = fmt.Sprintf("SELECT '%s', %s FROM %s%s", strings.ReplaceAll(t.name, "'", "''"), interop.RowText(t.read(), text), t.name, where)
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

// askSource runs a statement on PostgreSQL under the settings that interop.PostgresText asks for, and returns its two columns.
func askSource(pg *harness.Postgres, statement string) ([][]string, error) {
	conn, err := pgconn.Connect(context.Background(), pg.SocketURL("postgres", "postgres"))
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.Background())
	set := "SET DateStyle = 'ISO, MDY'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC'; SET bytea_output = 'hex'; SET extra_float_digits = 3; SET lock_timeout = '200ms'; "
	results, err := conn.Exec(context.Background(), set+statement).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, row := range results[len(results)-1].Rows {
		rows = append(rows, []string{string(row[0]), string(row[1])})
	}
	return rows, nil
}

// sourceContent reads the tables from PostgreSQL; where, if not empty, keeps some rows.
func sourceContent(pg *harness.Postgres, tables []*driven, where string) (content, error) {
	rows, err := askSource(pg, unionText(tables, interop.PostgresText, where))
	if err != nil {
		return nil, err
	}
	return contentOf(rows), nil
}

// sourceDigests reads the digest of each table from PostgreSQL.
func sourceDigests(pg *harness.Postgres, tables []*driven) (map[string]string, error) {
	parts := make([]string, len(tables))
	for i, t := range tables {
		parts[i] = fmt.Sprintf("SELECT '%s', %s", strings.ReplaceAll(t.name, "'", "''"), interop.PostgresDigest(t.name, t.read()))
	}
	rows, err := askSource(pg, strings.Join(parts, " UNION ALL "))
	digests := map[string]string{}
	for _, row := range rows {
		digests[row[0]] = row[1]
	}
	return digests, err
}

// mirrorContent reads the tables through `pgmirror sql`, once everything that the source has committed is visible.
func mirrorContent(m *Mirror, tables []*driven) (content, error) {
	rows, err := m.TrySQL(unionText(tables, interop.DuckDBText, ""), "--wait-lsn", "source")
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
