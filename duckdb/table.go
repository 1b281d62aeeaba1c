package duckdb

import (
	"bufio"
	"strings"
	"unicode/utf8"
)

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
		b.right = append(b.right, rightAligned(typ))
	}
	b.add(t.names)
	b.add(types)
	return b
}

// rightAligned says whether values of a type stand at the right of their column.
func rightAligned(typ string) bool {
	_, number := jsonKind(typ)
	number = number && typ != "BOOLEAN" && typ != "JSON" && !strings.ContainsAny(typ, "[(")
	return number || strings.HasPrefix(typ, "DECIMAL") || strings.HasSuffix(typ, "HUGEINT") || typ == "UBIGINT"
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
