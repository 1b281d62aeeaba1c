package duckdb

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/duckdb/duckdb-go/v2/mapping"
)

// Format is how result sets are written.
type Format string

const (
	// FormatTable draws a box, with a line for the types. It holds the whole result in memory to find the widths.
	FormatTable Format = "table"
	// FormatCSV is what DuckDB's COPY … TO (FORMAT csv, HEADER) writes: NULL is empty, an empty string is "".
	FormatCSV Format = "csv"
	// FormatJSON is what the DuckDB shell writes with -json: an array of objects, one object a line.
	FormatJSON Format = "json"
	// FormatMarkdown is what the DuckDB shell writes with -markdown, line breaks as <br>. It holds the whole result in memory.
	FormatMarkdown Format = "markdown"
)

// ParseFormat checks a format's name.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case FormatTable, FormatCSV, FormatJSON, FormatMarkdown:
		return f, nil
	}
	return "", fmt.Errorf("unknown format %q: table, csv, json or markdown", name)
}

// write prints one statement's result in a format.
func (db *DB) write(ctx context.Context, r *result, out io.Writer, format Format) error {
	cast := castText
	var start func(*bufio.Writer, *texter) rowWriter
	switch format {
	case FormatCSV:
		start = func(w *bufio.Writer, t *texter) rowWriter { return newCSV(w, t) }
	case FormatJSON:
		cast = castJSON
		start = func(w *bufio.Writer, t *texter) rowWriter { return newJSON(w, t) }
	case FormatTable:
		start = func(w *bufio.Writer, t *texter) rowWriter { return newTable(w, t) }
	case FormatMarkdown:
		start = func(w *bufio.Writer, t *texter) rowWriter { return newMarkdown(w, t) }
	default:
		return fmt.Errorf("unknown format %q", format)
	}
	return db.writeResult(ctx, r, out, cast, start)
}

// writeResult prints one statement's result by the writer that start makes. Statements without a result set print nothing;
// EXPLAIN prints its plan as it is.
func (db *DB) writeResult(ctx context.Context, r *result, out io.Writer, cast func(name, typ string) string, start func(*bufio.Writer, *texter) rowWriter) (err error) {
	if !r.hasRows() {
		return nil
	}
	w := bufio.NewWriter(out)
	defer func() {
		if flushed := w.Flush(); err == nil {
			err = flushed
		}
	}()
	if r.kind == mapping.StatementTypeExplain {
		return db.writeWith(ctx, r, castText, func(t *texter) rowWriter { return plan{w, len(t.names) - 1} })
	}
	return db.writeWith(ctx, r, cast, func(t *texter) rowWriter { return start(w, t) })
}

// rowWriter writes the rows of one result set.
type rowWriter interface {
	row(t *texter, row int)
	end()
}

func (db *DB) writeWith(ctx context.Context, r *result, expr func(name, typ string) string, start func(*texter) rowWriter) error {
	t, err := db.asText(ctx, r, expr)
	if err != nil {
		return err
	}
	defer t.close()
	w := start(t)
	for {
		more, err := t.next(ctx)
		if err != nil {
			return err
		}
		if !more {
			w.end()
			return nil
		}
		for row := range t.rows {
			w.row(t, row)
		}
	}
}

// plan writes one column of text verbatim.
type plan struct {
	w   *bufio.Writer
	col int
}

func (p plan) row(t *texter, row int) {
	v, _ := t.value(p.col, row)
	p.w.WriteString(strings.TrimSuffix(v, "\n") + "\n")
}

func (p plan) end() {}
