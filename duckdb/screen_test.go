package duckdb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"
	"pgregory.net/rapid"
)

func show(t *testing.T, db *DB, script string, screen Screen) string {
	t.Helper()
	var out strings.Builder
	if err := db.Show(context.Background(), script, &out, screen); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out.String()
}

// Boxes as a person would draw them: what does not fit is shortened, left out and counted.
func TestShow(t *testing.T) {
	db := openTest(t, fixed())
	for _, c := range []struct {
		script string
		screen Screen
		want   string
	}{
		{"select 1 as n, 'x' as text, null as nothing", Screen{80, 40}, `
┌─────────┬─────────┬─────────┐
│    n    │  text   │ nothing │
│ integer │ varchar │ integer │
├─────────┼─────────┼─────────┤
│       1 │ x       │    NULL │
└─────────┴─────────┴─────────┘
`}, {"select range as n from range(7)", Screen{80, 3}, `
┌────────┐
│   n    │
│ bigint │
├────────┤
│      0 │
│      1 │
│   ·    │
│      6 │
└────────┘
  7 rows (3 shown)
`}, {"select range as n from range(5000)", Screen{80, 1}, `
┌────────┐
│   n    │
│ bigint │
├────────┤
│      0 │
│   ·    │
└────────┘
  5000 rows (1 shown)
`}, {"select range as n from range(3)", Screen{80, 3}, `
┌────────┐
│   n    │
│ bigint │
├────────┤
│      0 │
│      1 │
│      2 │
└────────┘
`}, {"select 'a long value, too long' as text, 1::bigint as n", Screen{30, 40}, `
┌───────────────────┬────────┐
│       text        │   n    │
│      varchar      │ bigint │
├───────────────────┼────────┤
│ a long value, to… │      1 │
└───────────────────┴────────┘
`}, {"select 'abcdefghijklmnop' as a, 'abcdefghijklmnop' as b, 'abcdefghijklmnop' as c, 'abcdefghijklmnop' as d", Screen{40, 40}, `
┌─────────────────┬───┬────────────────┐
│        a        │ … │       d        │
│     varchar     │ … │    varchar     │
├─────────────────┼───┼────────────────┤
│ abcdefghijklmn… │ … │ abcdefghijklm… │
└─────────────────┴───┴────────────────┘
  4 columns (2 shown)
`}, {"select 'line\n' || chr(27) || '[31m' as t, '日本' as w", Screen{80, 40}, `
┌────────────────┬─────────┐
│       t        │    w    │
│    varchar     │ varchar │
├────────────────┼─────────┤
│ line\n\x1b[31m │ 日本    │
└────────────────┴─────────┘
`}, {"select 1 as n where false", Screen{80, 40}, `
┌─────────┐
│    n    │
│ integer │
├─────────┤
└─────────┘
  0 rows
`}} {
		want := strings.TrimPrefix(c.want, "\n")
		if got := show(t, db, c.script, c.screen); got != want {
			t.Errorf("%s on %+v: got\n%swant\n%s", c.script, c.screen, got, want)
		}
	}
}

// However many rows there are, the first and last of them are shown, and the note counts.
func TestShowRows(t *testing.T) {
	db := openTest(t, fixed())
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SampledFrom([]int{0, 1, 2, 39, 40, 41, 2047, 2048, 2049, 4095, 4100, 6001}).Draw(t, "rows")
		limit := rapid.SampledFrom([]int{0, 1, 2, 3, 40, 41, 3000, 10000}).Draw(t, "limit")
		var out strings.Builder
		if err := db.Show(context.Background(), fmt.Sprintf("FROM range(%d)", rows), &out, Screen{80, limit}); err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for line := range strings.Lines(out.String()) {
			if n := strings.Trim(line, "│ \n"); strings.Trim(n, "0123456789") == "" {
				got = append(got, n)
			}
		}
		for i := range rows {
			if limit == 0 || rows <= limit || i < (limit+1)/2 || i >= rows-limit/2 {
				want = append(want, fmt.Sprint(i))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		note := fmt.Sprintf("%d rows (%d shown)", rows, limit)
		if strings.Contains(out.String(), note) != (limit > 0 && rows > limit) {
			t.Fatalf("the note: %s", out.String())
		}
	})
}

// On any screen wide enough for one character of one column no line is wider than the screen; first and last columns stay, in order;
// and nothing is shortened or left out when all of it fits.
func TestFitColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		natural := rapid.SliceOfN(rapid.IntRange(1, 100), 1, 60).Draw(t, "natural")
		screen := rapid.IntRange(9, 250).Draw(t, "screen")
		columns, widths := fitColumns(natural, screen)
		if len(columns) != len(widths) || boxWidth(widths) > screen {
			t.Fatalf("%v: a box of %d", widths, boxWidth(widths))
		}
		shown := slices.DeleteFunc(slices.Clone(columns), func(c int) bool { return c == leftOut })
		if len(shown) == 0 || shown[0] != 0 || !slices.IsSorted(shown) || len(columns) > len(shown)+1 {
			t.Fatalf("columns %v", columns)
		}
		if boxWidth(natural) <= screen && !slices.Equal(widths, natural) {
			t.Fatalf("widths %v, although all of %v fits", widths, natural)
		}
		for i, c := range columns {
			if widths[i] < 1 || c != leftOut && widths[i] > natural[c] {
				t.Fatalf("column %d has %d of %v", c, widths[i], natural)
			}
		}
		if all, _ := fitColumns(natural, 0); len(all) != len(natural) {
			t.Fatal("columns are left out without a bound")
		}
	})
}

// Whatever the values, all lines of a box have one width, and it fits the screen.
func TestShowIsABox(t *testing.T) {
	db := openTest(t, fixed())
	rapid.Check(t, func(t *rapid.T) {
		script := "select "
		for i := range rapid.IntRange(1, 9).Draw(t, "columns") {
			if i > 0 {
				script += ", "
			}
			script += literal(strings.ReplaceAll(rapid.StringN(0, 60, -1).Draw(t, "value"), "\x00", ""))
		}
		screen := Screen{rapid.IntRange(9, 120).Draw(t, "width"), 40}
		var out strings.Builder
		if err := db.Show(context.Background(), script, &out, screen); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		for _, line := range lines[:6] {
			if w := runewidth.StringWidth(line); w > screen.Columns || w != runewidth.StringWidth(lines[0]) {
				t.Fatalf("a line of %d on a screen of %d\n%s", w, screen.Columns, out.String())
			}
		}
	})
}

// Markdown as GitHub reads it: numbers at the right, what would leave its cell escaped.
func TestMarkdown(t *testing.T) {
	db := openTest(t, fixed())
	var out strings.Builder
	script := "select 1 as n, E'a|b\nc' as \"t|u\", null::varchar as v union all select 1000, '日本', 'x' order by 1; select 1 as a where false"
	if err := db.Run(context.Background(), script, &out, FormatMarkdown); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		`|    n | t\|u      | v    |`,
		`|-----:|-----------|------|`,
		`|    1 | a\|b<br>c | NULL |`,
		`| 1000 | 日本      | x    |`,
		`| a |`,
		`|--:|`, ``,
	}, "\n")
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	if f, err := ParseFormat("markdown"); err != nil || f != FormatMarkdown {
		t.Errorf("%v, %v", f, err)
	}
}
