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

// line is one row of the table. Beside is what ours is compared with, measured in the same run; empty cells are left blank.
type line struct {
	what, ours, beside, ratio string
	goals                     goals
	note                      string
}

func (r *report) add(l line) { r.lines = append(r.lines, l) }

// introduction stands above the table of the part bench.
const introduction = `# Benchmarks

Written by ` + "`make bench`" + `; a run takes about a quarter of an hour. Each line stands beside something measured in the same run, on
the same machine, in alternation; the ratio is what to look at. Numbers are medians, the spread in parentheses is the smallest
and the largest of the rounds. PostgreSQL runs with fsync off (its durability is not what is measured), pgmirror with its
defaults, fsync included. "To reach" is what we aim for on two cores; "reached" says how many times a figure is beyond it,
in bold above 3. What the Retina paper reports is quoted, not measured, from machines of 16 cores.

Benchmarks of single structures stand beside the code. To see what a change does to them, compare a revision with the work
tree; both sides run in turn, and benchstat says which differences are more than chance:

    make bench-compare REV=HEAD~1 BENCH='Apply|Write' PACKAGES='mirror iceberg' COUNT=10

`

// markdown is a whole part.
func (r *report) markdown(introduction string, now time.Time) string {
	var b strings.Builder
	b.WriteString(introduction)
	fmt.Fprintf(&b, "- Machine: %s\n- Commit: %s\n- Date: %s, %.0f s\n- Scale: %g\n- Load average before %s, after %s\n",
		r.machine, r.commit, now.UTC().Format("2006-01-02 15:04 UTC"), r.took.Seconds(), r.scale, r.loadBefore, r.loadAfter)
	if r.note != "" {
		fmt.Fprintf(&b, "- %s\n", r.note)
	}
	kept, far, all := r.tally()
	fmt.Fprintf(&b, "- Reached: %d of %d; more than %d× off: %d\n", kept, all, farOff, far)
	b.WriteString("\n| what | pgmirror | beside it | ratio | to reach | reached | |\n|---|---|---|---|---|---|---|\n")
	b.WriteString(r.rows())
	return b.String()
}

// rows are the lines below the table's head.
func (r *report) rows() string {
	var b strings.Builder
	for _, l := range r.lines {
		cells := []string{l.what, l.ours, l.beside, l.ratio, l.goals.String(), l.goals.verdict(), l.note}
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(c, "|", "\\|")
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	return b.String()
}

// tally counts the goals that are kept, those that are missed by far, and all.
func (r *report) tally() (kept, far, all int) {
	for _, l := range r.lines {
		for _, g := range l.goals {
			all++
			if g.kept() {
				kept++
			} else if !(g.off <= farOff) {
				far++
			}
		}
	}
	return kept, far, all
}
