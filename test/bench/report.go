package main

import (
	"fmt"
	"strings"
	"time"
)

// report is the table and where it was measured.
type report struct {
	machine, commit, note string
	scale                 float64
	loadBefore, loadAfter string
	took                  time.Duration
	lines                 []line
}

// line is one row of the table. Beside is what Ours is compared with, measured in the same run; empty cells are left blank.
type line struct {
	what, ours, beside, ratio, target, note string
}

func (r *report) add(l line) { r.lines = append(r.lines, l) }

// introduction stands above the table.
const introduction = `# Benchmarks

Written by ` + "`make bench`" + `; a run takes about ten minutes. Each line stands beside something measured in the same run, on the
same machine, in alternation; the ratio is what to look at. Numbers are medians, the spread in parentheses is the smallest
and the largest of the rounds. PostgreSQL runs with fsync off (its durability is not what is measured), pgmirror with its
defaults, fsync included. "To reach" is what we aim for on two cores.

`

// markdown is the whole document.
func (r *report) markdown(now time.Time) string {
	var b strings.Builder
	b.WriteString(introduction)
	fmt.Fprintf(&b, "- Machine: %s\n- Commit: %s\n- Date: %s, %.0f s\n- Scale: %g\n- Load average before %s, after %s\n",
		r.machine, r.commit, now.UTC().Format("2006-01-02 15:04 UTC"), r.took.Seconds(), r.scale, r.loadBefore, r.loadAfter)
	if r.note != "" {
		fmt.Fprintf(&b, "- %s\n", r.note)
	}
	b.WriteString("\n| what | pgmirror | beside it | ratio | to reach | |\n|---|---|---|---|---|---|\n")
	for _, l := range r.lines {
		cells := []string{l.what, l.ours, l.beside, l.ratio, l.target, l.note}
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(c, "|", "\\|")
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	return b.String()
}
