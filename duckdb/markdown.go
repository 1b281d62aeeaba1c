package duckdb

import (
	"bufio"
	"strings"

	"github.com/mattn/go-runewidth"
)

// markdownWriter follows the DuckDB shell's -markdown: a table of GitHub's Markdown, its columns padded to one width, which
// takes the whole result in memory.
type markdownWriter struct {
	w      *bufio.Writer
	lines  [][]string // names, then rows
	right  []bool
	widths []int
}

func newMarkdown(w *bufio.Writer, t *texter) *markdownWriter {
	m := &markdownWriter{w: w, widths: make([]int, len(t.names))}
	names := make([]string, len(t.names))
	for i, name := range t.names {
		m.right = append(m.right, rightAligned(t.types[i]))
		names[i] = markdownCell.Replace(name)
	}
	m.add(names)
	return m
}

// markdownCell keeps a value inside its cell.
var markdownCell = strings.NewReplacer("|", `\|`, "\r\n", "<br>", "\n", "<br>", "\r", "<br>")

func (m *markdownWriter) add(line []string) {
	for i, v := range line {
		m.widths[i] = max(m.widths[i], runewidth.StringWidth(v))
	}
	m.lines = append(m.lines, line)
}

func (m *markdownWriter) row(t *texter, row int) {
	line := make([]string, len(m.right))
	for col := range line {
		line[col] = "NULL"
		if v, ok := t.value(col, row); ok {
			line[col] = strings.Clone(markdownCell.Replace(v))
		}
	}
	m.add(line)
}

func (m *markdownWriter) end() {
	for i, line := range m.lines {
		for col, v := range line {
			pad := strings.Repeat(" ", m.widths[col]-runewidth.StringWidth(v))
			if m.right[col] {
				v = pad + v
			} else {
				v += pad
			}
			m.w.WriteString("| " + v + " ")
		}
		m.w.WriteString("|\n")
		if i == 0 {
			m.rule()
		}
	}
}

// rule parts the header from the rows and says which columns stand at the right.
func (m *markdownWriter) rule() {
	for col, width := range m.widths {
		m.w.WriteString("|" + strings.Repeat("-", width+1))
		if m.right[col] {
			m.w.WriteString(":")
		} else {
			m.w.WriteString("-")
		}
	}
	m.w.WriteString("|\n")
}
