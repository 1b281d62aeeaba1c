package duckdb

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

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
)

// ParseFormat checks a format's name.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case FormatTable, FormatCSV, FormatJSON:
		return f, nil
	}
	return "", fmt.Errorf("unknown format %q: table, csv or json", name)
}

// write prints one statement's result. Statements without a result set print nothing; EXPLAIN prints its plan as it is.
func (db *DB) write(ctx context.Context, r *result, out io.Writer, format Format) (err error) {
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
	switch format {
	case FormatCSV:
		return db.writeWith(ctx, r, castText, func(t *texter) rowWriter { return newCSV(w, t) })
	case FormatJSON:
		return db.writeWith(ctx, r, castJSON, func(t *texter) rowWriter { return newJSON(w, t) })
	case FormatTable:
		return db.writeWith(ctx, r, castText, func(t *texter) rowWriter { return newTable(w, t) })
	default:
		return fmt.Errorf("unknown format %q", format)
	}
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

// jsonWriter follows the DuckDB shell's -json.
type jsonWriter struct {
	w     *bufio.Writer
	names []string
	raw   []bool
	any   bool
}

func newJSON(w *bufio.Writer, t *texter) *jsonWriter {
	j := &jsonWriter{w: w}
	for i, name := range t.names {
		j.names = append(j.names, jsonString(name))
		j.raw = append(j.raw, jsonRaw(t.types[i]))
	}
	w.WriteByte('[')
	return j
}

// jsonKind says how the shell writes a type: as DuckDB's JSON text of the value, as its plain text, or as a string.
func jsonKind(typ string) (toJSON, raw bool) {
	switch typ {
	case "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "JSON":
		return false, true
	case "FLOAT", "DOUBLE":
		return true, true
	}
	nested := strings.HasSuffix(typ, "]") || strings.HasPrefix(typ, "STRUCT(") || strings.HasPrefix(typ, "MAP(") || strings.HasPrefix(typ, "UNION(")
	return nested, nested
}

func jsonRaw(typ string) bool { _, raw := jsonKind(typ); return raw }

func castJSON(name, typ string) string {
	if toJSON, _ := jsonKind(typ); toJSON {
		return "CASE WHEN " + name + " IS NOT NULL THEN to_json(" + name + ")::VARCHAR END"
	}
	return castText(name, typ)
}

func (j *jsonWriter) row(t *texter, row int) {
	if j.any {
		j.w.WriteString(",\n")
	}
	j.any = true
	for col, name := range j.names {
		if col == 0 {
			j.w.WriteByte('{')
		} else {
			j.w.WriteByte(',')
		}
		j.w.WriteString(name)
		j.w.WriteByte(':')
		switch v, ok := t.value(col, row); {
		case !ok:
			j.w.WriteString("null")
		case j.raw[col]:
			j.w.WriteString(v)
		default:
			j.w.WriteString(jsonString(v))
		}
	}
	j.w.WriteByte('}')
}

func (j *jsonWriter) end() { j.w.WriteString("]\n") }

// jsonString quotes as DuckDB's shell does: only what JSON requires is escaped.
func jsonString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		default:
			if c < 0x20 {
				fmt.Fprintf(&b, `\u%04x`, c)
			} else {
				b.WriteByte(c)
			}
		}
	}
	b.WriteByte('"')
	return b.String()
}

// tableWriter draws a box around all rows.
type tableWriter struct {
	w      *bufio.Writer
	lines  [][]string // names, types, then rows
	right  []bool     // numbers stand at the right
	widths []int
}

func newTable(w *bufio.Writer, t *texter) *tableWriter {
	b := &tableWriter{w: w, widths: make([]int, len(t.names))}
	types := make([]string, len(t.types))
	for i, typ := range t.types {
		types[i] = strings.ToLower(typ)
		_, number := jsonKind(typ)
		number = number && typ != "BOOLEAN" && typ != "JSON" && !strings.ContainsAny(typ, "[(")
		b.right = append(b.right, number || strings.HasPrefix(typ, "DECIMAL") || strings.HasSuffix(typ, "HUGEINT") || typ == "UBIGINT")
	}
	b.add(t.names)
	b.add(types)
	return b
}

func (b *tableWriter) add(line []string) {
	for i, v := range line {
		b.widths[i] = max(b.widths[i], utf8.RuneCountInString(v))
	}
	b.lines = append(b.lines, line)
}

// visible keeps a value on one line.
var visible = strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`)

func (b *tableWriter) row(t *texter, row int) {
	line := make([]string, len(t.names))
	for col := range line {
		if v, ok := t.value(col, row); ok {
			line[col] = strings.Clone(visible.Replace(v))
		} else {
			line[col] = "NULL"
		}
	}
	b.add(line)
}

func (b *tableWriter) end() {
	b.rule("┌", "┬", "┐")
	for i, line := range b.lines {
		if i == 2 {
			b.rule("├", "┼", "┤")
		}
		for col, v := range line {
			pad := b.widths[col] - utf8.RuneCountInString(v)
			left := 0
			switch {
			case i < 2:
				left = pad / 2
			case b.right[col]:
				left = pad
			}
			b.w.WriteString("│ " + strings.Repeat(" ", left) + v + strings.Repeat(" ", pad-left) + " ")
		}
		b.w.WriteString("│\n")
	}
	b.rule("└", "┴", "┘")
	if len(b.lines) == 2 {
		b.w.WriteString("  0 rows\n")
	}
}

func (b *tableWriter) rule(left, middle, right string) {
	for i, width := range b.widths {
		if i == 0 {
			b.w.WriteString(left)
		} else {
			b.w.WriteString(middle)
		}
		b.w.WriteString(strings.Repeat("─", width+2))
	}
	b.w.WriteString(right + "\n")
}
