package duckdb

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"
)

// Screen bounds what Show draws of a result set. Zero means no bound.
type Screen struct {
	Columns int // of the terminal, in characters
	Rows    int // of the result; from a longer one the first and the last are shown
}

// Show is Run with boxes that fit a screen: long values are shortened to end in "…", columns that find no place are left out
// in the middle, as are rows, and a line below the box counts what is not shown.
func (db *DB) Show(ctx context.Context, script string, out io.Writer, screen Screen) error {
	return db.each(ctx, script, func(r *result) error {
		return db.writeResult(ctx, r, out, castText, func(w *bufio.Writer, t *texter) rowWriter { return newScreenTable(w, t, screen) })
	})
}

// screenTable draws a box that fits its screen. It holds the rows that it will show, not the others.
type screenTable struct {
	w      *bufio.Writer
	screen Screen
	right  []bool
	head   [][]string // names and types
	first  [][]string
	last   [][]string // the newest rows after first; what is too much at its front is cut off from time to time
	count  int
}

func newScreenTable(w *bufio.Writer, t *texter, screen Screen) *screenTable {
	b := &screenTable{w: w, screen: screen}
	names, types := make([]string, len(t.names)), make([]string, len(t.names))
	for i := range t.names {
		names[i], types[i] = b.cell(t.names[i]), b.cell(strings.ToLower(t.types[i]))
		b.right = append(b.right, rightAligned(t.types[i]))
	}
	b.head = [][]string{names, types}
	return b
}

// cell is a value on one line and without anything that moves a cursor, no wider than the screen.
func (b *screenTable) cell(v string) string {
	v = printable(visible.Replace(v))
	if b.screen.Columns > 0 {
		v = runewidth.Truncate(v, b.screen.Columns, "…")
	}
	return strings.Clone(v)
}

// printable writes control characters as \x1b.
func printable(v string) string {
	control := func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }
	if strings.IndexFunc(v, control) < 0 {
		return v
	}
	var out strings.Builder
	for _, r := range v {
		if control(r) {
			fmt.Fprintf(&out, `\x%02x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

func (b *screenTable) row(t *texter, row int) {
	b.count++
	limit := b.screen.Rows
	fill := limit == 0 || len(b.first) < (limit+1)/2
	if !fill && row < t.rows-limit/2 {
		return // the rest of its chunk alone is what is shown at the end, or more
	}
	line := make([]string, len(b.right))
	for col := range line {
		line[col] = "NULL"
		if v, ok := t.value(col, row); ok {
			line[col] = b.cell(v)
		}
	}
	if fill {
		b.first = append(b.first, line)
		return
	}
	if b.last = append(b.last, line); len(b.last) >= 2*limit {
		b.last = append(b.last[:0], b.last[len(b.last)-limit/2:]...)
	}
}

func (b *screenTable) end() {
	rows := b.first
	gap := -1 // the row before which rows are left out
	if b.screen.Rows > 0 && b.count > b.screen.Rows {
		gap = len(rows)
		b.last = b.last[len(b.last)-b.screen.Rows/2:]
	}
	rows = append(rows[:len(rows):len(rows)], b.last...)
	columns, widths := b.fit(rows)

	b.rule(columns, widths, "┌", "┬", "┐")
	for _, line := range b.head {
		b.line(columns, widths, line, func(int) side { return middle })
	}
	b.rule(columns, widths, "├", "┼", "┤")
	for i, line := range rows {
		if i == gap {
			b.gap(columns, widths)
		}
		b.line(columns, widths, line, func(col int) side {
			if b.right[col] {
				return right
			}
			return left
		})
	}
	if gap == len(rows) {
		b.gap(columns, widths)
	}
	b.rule(columns, widths, "└", "┴", "┘")
	b.note(len(rows), columns)
}

// leftOut stands in a list of columns where some are left out.
const leftOut = -1

// narrow is the width that columns keep when they are made narrower, and below which columns are left out instead.
const narrow = 12

// fit chooses the columns to draw and their widths.
func (b *screenTable) fit(rows [][]string) (columns, widths []int) {
	natural := make([]int, len(b.right))
	for _, lines := range [][][]string{b.head, rows} {
		for _, line := range lines {
			for col, v := range line {
				natural[col] = max(natural[col], runewidth.StringWidth(v))
			}
		}
	}
	return fitColumns(natural, b.screen.Columns)
}

// fitColumns lists the columns that fit a screen of so many characters, leftOut where some do not, and the width of each. The
// widest are made narrower first; then columns are left out in the middle. One column is always there.
func fitColumns(natural []int, screen int) (columns, widths []int) {
	columns, widths = make([]int, len(natural)), make([]int, len(natural))
	for i := range natural {
		columns[i], widths[i] = i, natural[i]
	}
	if screen == 0 || boxWidth(widths) <= screen {
		return columns, widths
	}
	for i := range widths {
		widths[i] = min(natural[i], narrow)
	}
	if boxWidth(widths) > screen && len(natural) > 1 {
		keep := len(natural) - 1
		for {
			columns, widths = columns[:0], widths[:0]
			for i := range (keep + 1) / 2 {
				columns, widths = append(columns, i), append(widths, min(natural[i], narrow))
			}
			columns, widths = append(columns, leftOut), append(widths, 1)
			for i := len(natural) - keep/2; i < len(natural); i++ {
				columns, widths = append(columns, i), append(widths, min(natural[i], narrow))
			}
			if boxWidth(widths) <= screen || keep == 1 {
				break
			}
			keep--
		}
	}
	// What is left over goes to the columns that want more, a character each in turn.
	for free := screen - boxWidth(widths); free > 0; {
		given := false
		for i, col := range columns {
			if free > 0 && col != leftOut && widths[i] < natural[col] {
				widths[i], free, given = widths[i]+1, free-1, true
			}
		}
		if !given {
			break
		}
	}
	if over := boxWidth(widths) - screen; over > 0 {
		widths[0] = max(1, widths[0]-over)
	}
	return columns, widths
}

// boxWidth is what a box around columns of these widths takes.
func boxWidth(widths []int) int {
	total := 1
	for _, w := range widths {
		total += w + 3
	}
	return total
}

// side is where a value stands in its column.
type side int

const (
	left side = iota
	middle
	right
)

func (b *screenTable) line(columns, widths []int, line []string, stands func(col int) side) {
	for i, col := range columns {
		v, at := "…", left
		if col != leftOut {
			v, at = runewidth.Truncate(line[col], widths[i], "…"), stands(col)
		}
		b.value(v, widths[i], at)
	}
	b.w.WriteString("│\n")
}

func (b *screenTable) value(v string, width int, at side) {
	pad := max(0, width-runewidth.StringWidth(v))
	before := 0
	switch at {
	case middle:
		before = pad / 2
	case right:
		before = pad
	}
	b.w.WriteString("│ " + strings.Repeat(" ", before) + v + strings.Repeat(" ", pad-before) + " ")
}

// gap is the row that stands for rows left out.
func (b *screenTable) gap(columns, widths []int) {
	for i := range columns {
		b.value("·", widths[i], middle)
	}
	b.w.WriteString("│\n")
}

func (b *screenTable) rule(columns, widths []int, begin, between, end string) {
	for i := range columns {
		if i > 0 {
			begin = between
		}
		b.w.WriteString(begin + strings.Repeat("─", widths[i]+2))
	}
	b.w.WriteString(end + "\n")
}

// note counts rows and columns when not all of them are there.
func (b *screenTable) note(rows int, columns []int) {
	shown := 0
	for _, col := range columns {
		if col != leftOut {
			shown++
		}
	}
	var notes []string
	if rows < b.count {
		notes = append(notes, fmt.Sprintf("%d rows (%d shown)", b.count, rows))
	} else if b.count == 0 {
		notes = append(notes, "0 rows")
	}
	if shown < len(b.right) {
		notes = append(notes, fmt.Sprintf("%d columns (%d shown)", len(b.right), shown))
	}
	if len(notes) > 0 {
		b.w.WriteString("  " + strings.Join(notes, ", ") + "\n")
	}
}
