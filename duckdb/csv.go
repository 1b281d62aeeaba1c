package duckdb

import (
	"bufio"
	"strings"
)

// csvWriter follows DuckDB's CSV writer.
type csvWriter struct{ w *bufio.Writer }

func newCSV(w *bufio.Writer, t *texter) csvWriter {
	c := csvWriter{w}
	for i, name := range t.names {
		if i > 0 {
			w.WriteByte(',')
		}
		c.value(name, false)
	}
	w.WriteByte('\n')
	return c
}

func (c csvWriter) row(t *texter, row int) {
	for col := range t.names {
		if col > 0 {
			c.w.WriteByte(',')
		}
		v, ok := t.value(col, row)
		c.value(v, !ok)
	}
	c.w.WriteByte('\n')
}

func (c csvWriter) end() {}

// value quotes what would read back as something else: an empty string, the delimiter, quotes, line ends, and #, which
// may begin a comment.
func (c csvWriter) value(v string, null bool) {
	switch {
	case null:
	case v == "" || strings.ContainsAny(v, "\n\r\",#"):
		c.w.WriteByte('"')
		c.w.WriteString(strings.ReplaceAll(v, `"`, `""`))
		c.w.WriteByte('"')
	default:
		c.w.WriteString(v)
	}
}
