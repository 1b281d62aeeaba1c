package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// textTable is columns of text for people: a header, a rule, a line a row. Columns named in right are aligned to the right.
type textTable struct {
	header []string
	right  []bool
	rows   [][]string
}

// column appends a column.
func (t *textTable) column(name string, right bool) {
	t.header = append(t.header, name)
	t.right = append(t.right, right)
}

// row appends a row; it has a cell for each column. Control characters in cells are replaced.
func (t *textTable) row(cells ...string) { t.rows = append(t.rows, cells) }

// writeTo writes the table. Widths count runes: a wide or combining character shifts its line, nothing more.
func (t *textTable) writeTo(w io.Writer) error {
	widths := make([]int, len(t.header))
	lines := append([][]string{t.header}, t.rows...)
	for _, line := range lines {
		for c := range line {
			line[c] = oneLine(line[c])
			widths[c] = max(widths[c], utf8.RuneCountInString(line[c]))
		}
	}
	var b strings.Builder
	for i, line := range lines {
		t.writeLine(&b, line, widths)
		if i == 0 {
			rule := make([]string, len(widths))
			for c, width := range widths {
				rule[c] = strings.Repeat("─", width)
			}
			t.writeLine(&b, rule, widths)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *textTable) writeLine(b *strings.Builder, cells []string, widths []int) {
	var line strings.Builder
	for c, cell := range cells {
		if c > 0 {
			line.WriteString("  ")
		}
		pad := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cell))
		if t.right[c] {
			line.WriteString(pad + cell)
		} else {
			line.WriteString(cell + pad)
		}
	}
	b.WriteString(strings.TrimRight(line.String(), " "))
	b.WriteString("\n")
}
