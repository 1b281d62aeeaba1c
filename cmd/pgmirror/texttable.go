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

// fit makes the table at most width characters wide, if it can: first the widest columns that are aligned to the left are
// shortened, then the last columns are left out, all but two. 0 is without bound. It returns the table.
func (t *textTable) fit(width int) *textTable {
	const least = 12 // of a shortened column
	for width > 0 {
		widths := t.widths()
		total, widest := 2*(len(widths)-1), -1
		for c, w := range widths {
			total += w
			if !t.right[c] && w > least && (widest < 0 || w > widths[widest]) {
				widest = c
			}
		}
		switch {
		case total <= width:
			return t
		case widest >= 0:
			t.shorten(widest, max(least, widths[widest]-(total-width)))
		case len(widths) > 2:
			last := len(widths) - 1
			t.header, t.right = t.header[:last], t.right[:last]
			for r := range t.rows {
				t.rows[r] = t.rows[r][:last]
			}
		default:
			return t
		}
	}
	return t
}

func (t *textTable) shorten(column, width int) {
	for _, row := range t.rows {
		row[column] = cut(row[column], width)
	}
	t.header[column] = cut(t.header[column], width)
}

func (t *textTable) widths() []int {
	widths := make([]int, len(t.header))
	for _, line := range append([][]string{t.header}, t.rows...) {
		for c := range line {
			widths[c] = max(widths[c], utf8.RuneCountInString(line[c]))
		}
	}
	return widths
}

// writeTo writes the table. Widths count runes: a wide or combining character shifts its line, nothing more.
func (t *textTable) writeTo(w io.Writer) error {
	lines := append([][]string{t.header}, t.rows...)
	for _, line := range lines {
		for c := range line {
			line[c] = oneLine(line[c])
		}
	}
	widths := t.widths()
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
