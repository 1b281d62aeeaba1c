package duckdb

import (
	"bufio"
	"fmt"
	"strings"
)

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
