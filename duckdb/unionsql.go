package duckdb

import (
	"fmt"
	"strings"

	"pgmirror/readstate"
)

// unionSQL is the text of one table's read: Parquet files without their deleted rows, and the rows in memory.
//
// Inside, columns are named after their field ids, so that no column of the source can hide file_index, file_row_number
// or our own constant. The constant, k, is there for count(*), which makes a UNION ALL read its first column.
// pgmirror_memory is always there, even over no rows: its bind data keeps the handle.
func unionSQL(cols []column, files []readstate.File, live bool, handle int64) string {
	var b strings.Builder
	b.WriteString("SELECT ")
	for i, c := range cols {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c.inner() + " AS " + ident(c.name))
	}
	inner := innerList(cols)
	b.WriteString(" FROM (")
	if len(files) > 0 {
		fmt.Fprintf(&b, "SELECT true AS k, %s FROM read_parquet([", inner)
		for i, f := range files {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(literal(f.Path))
		}
		b.WriteString("], schema=MAP{")
		for i, c := range cols {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%d: {name: '%s', type: '%s', default_value: NULL}", c.field, c.inner(), c.typ.sql)
		}
		b.WriteString("}, hive_partitioning=false)")
		if live {
			fmt.Fprintf(&b, " WHERE pgmirror_live(%d, file_index, file_row_number)", handle)
		}
		b.WriteString(" UNION ALL ")
	}
	fmt.Fprintf(&b, "SELECT k, %s FROM pgmirror_memory(%d))", inner, handle)
	return b.String()
}

// emptySQL is a read of no rows with the table's columns.
func emptySQL(cols []column) string {
	parts := make([]string, len(cols))
	for i, c := range cols {
		parts[i] = "NULL::" + c.typ.sql + " AS " + ident(c.name)
	}
	return "SELECT " + strings.Join(parts, ", ") + " WHERE false"
}

func innerList(cols []column) string {
	parts := make([]string, len(cols))
	for i, c := range cols {
		parts[i] = c.inner()
	}
	return strings.Join(parts, ", ")
}
