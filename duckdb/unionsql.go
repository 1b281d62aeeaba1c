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
//
// What nothing is read from is left out, because each part costs planning, and because DuckDB sees through a read of files
// alone better than through a UNION ALL: it knows the number of rows, and looks up what a top-N query needs at the end.
// So a plan holds its handle, through pgmirror_live or pgmirror_memory, only when it needs more of the state than its files.
func (h *handle) unionSQL(nothing string) string {
	var b strings.Builder
	b.WriteString(h.selectList() + " FROM (")
	between := ""
	if len(h.files) > h.filtered {
		b.WriteString("SELECT true AS k, * FROM ")
		h.readFiles(&b, h.files[h.filtered:], nothing)
		between = " UNION ALL "
	}
	if h.filtered > 0 {
		b.WriteString(between + "SELECT true AS k, * FROM ")
		h.readFiles(&b, h.files[:h.filtered], nothing)
		fmt.Fprintf(&b, " WHERE pgmirror_live(%d, file_index::UINTEGER, file_row_number)", h.id)
		between = " UNION ALL "
	}
	if len(h.batches) > 0 || between == "" {
		fmt.Fprintf(&b, "%sFROM pgmirror_memory(%d)", between, h.id)
	}
	b.WriteString(")")
	return b.String()
}

// selectList gives the columns their names.
func (h *handle) selectList() string {
	parts := make([]string, len(h.table.cols))
	for i, c := range h.table.cols {
		parts[i] = c.inner() + " AS " + ident(c.name)
	}
	return "SELECT " + strings.Join(parts, ", ")
}

// readFiles writes a read_parquet of the files. One alone gets an empty one for company: with an explicit schema DuckDB opens no
// file before it plans, and then gives one file one thread, several files all of them.
func (h *handle) readFiles(b *strings.Builder, files []readstate.File, nothing string) {
	b.WriteString("read_parquet([")
	for i, f := range files {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(literal(f.Path))
	}
	if len(files) == 1 {
		b.WriteString(", " + literal(nothing))
	}
	fmt.Fprintf(b, "], schema=pgmirror_columns(%d), hive_partitioning=false)", h.id)
}

// emptySQL is a read of no rows with the table's columns.
func emptySQL(cols []column) string {
	parts := make([]string, len(cols))
	for i, c := range cols {
		parts[i] = "NULL::" + c.typ.sql + " AS " + ident(c.name)
	}
	return "SELECT " + strings.Join(parts, ", ") + " WHERE false"
}
