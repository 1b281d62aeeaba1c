package interop

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"pgmirror/pgcdc"
)

// A digest stands for a multiset of rows: the MD5 of the sorted rows, each row's columns in the textual form of the package joined
// by the byte 31, the rows joined by the byte 30. It is empty for no rows. PostgreSQL, DuckDB and DigestOf make the same.

// Column is a column to read: its name, in SQL, and its type.
type Column struct {
	Name string
	Type *pgcdc.Type
}

// Digester is a Reader that reads many snapshots of a table at once.
type Digester interface {
	Reader
	// Digests gives the digest of these columns, in this order, for each snapshot.
	Digests(table Table, snapshots []int64, columns []Column) ([]string, error)
}

// RowText is an SQL expression for a row, with PostgresText or DuckDBText.
func RowText(columns []Column, text func(string, *pgcdc.Type) string) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = text(c.Name, c.Type)
	}
	return "concat_ws(chr(31), " + strings.Join(parts, ", ") + ")"
}

// PostgresDigest is an SQL expression for PostgreSQL that gives the digest of a table.
func PostgresDigest(table string, columns []Column) string {
	return fmt.Sprintf(`(SELECT coalesce(md5(string_agg(text, chr(30) ORDER BY text COLLATE "C")), '') FROM (SELECT %s AS text FROM %s) AS rows)`,
		RowText(columns, PostgresText), table)
}

// DigestOf is the digest of rows.
func DigestOf(rows []Row) string {
	if len(rows) == 0 {
		return ""
	}
	texts := make([]string, len(rows))
	for i, row := range rows {
		texts[i] = strings.Join(row, "\x1f")
	}
	slices.Sort(texts)
	sum := md5.Sum([]byte(strings.Join(texts, "\x1e")))
	return hex.EncodeToString(sum[:])
}

func (r icebergGo) Digests(table Table, snapshots []int64, columns []Column) ([]string, error) {
	digests := make([]string, len(snapshots))
	for i, snapshot := range snapshots {
		result, err := r.Read(Query{Table: table, Snapshot: snapshot})
		if err != nil {
			return nil, fmt.Errorf("snapshot %d: %w", snapshot, err)
		}
		if len(result.Columns) < len(columns) {
			return nil, fmt.Errorf("snapshot %d has the columns %q only", snapshot, result.Columns)
		}
		for j, row := range result.Rows {
			result.Rows[j] = row[:len(columns)] // what is left out comes last
		}
		digests[i] = DigestOf(result.Rows)
	}
	return digests, nil
}

// inPython is a reader of reader.py.
type inPython struct{ foreign }

func (p inPython) Digests(table Table, snapshots []int64, columns []Column) ([]string, error) {
	if len(snapshots) == 0 {
		return nil, nil
	}
	r := p.request(table)
	r.Digests, r.Row = snapshots, RowText(columns, DuckDBText)
	a, err := p.process.call(r)
	if err != nil {
		return nil, err
	}
	if len(a.Digests) != len(snapshots) {
		return nil, fmt.Errorf("%s gave %d digests for %d snapshots", p.name, len(a.Digests), len(snapshots))
	}
	return a.Digests, nil
}
