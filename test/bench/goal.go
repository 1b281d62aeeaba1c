package main

import (
	"fmt"
	"strings"
)

// farOff is how many times a figure may miss its goal before the table shouts.
const farOff = 3

// goal is a bound that a figure should keep.
type goal struct {
	text string  // for people, like "P50 ≤ 15 ms"
	off  float64 // how many times the figure is beyond the bound; at most 1 when it keeps it
}

// atLeast is a bound from below on got. Format shows the limit, without the sign.
func atLeast(got, limit float64, format string) goal {
	return goal{"≥ " + fmt.Sprintf(format, limit), limit / got}
}

// atMost is a bound from above on got.
func atMost(got, limit float64, format string) goal {
	return goal{"≤ " + fmt.Sprintf(format, limit), got / limit}
}

// equal is a figure that got should be.
func equal(got, want float64, format string) goal {
	return goal{"= " + fmt.Sprintf(format, want), max(got/want, want/got)}
}

// of says what the bound is for, where a line has several figures.
func (g goal) of(name string) goal {
	g.text = name + " " + g.text
	return g
}

// kept says whether the figure is within the bound. A figure that is not a number is not.
func (g goal) kept() bool { return g.off <= 1 }

// goals are the bounds of one line.
type goals []goal

func (gs goals) String() string {
	texts := make([]string, len(gs))
	for i, g := range gs {
		texts[i] = g.text
	}
	return strings.Join(texts, ", ")
}

// verdict says whether all are kept, and else by how much the worst is missed.
func (gs goals) verdict() string {
	if len(gs) == 0 {
		return ""
	}
	worst := gs[0]
	for _, g := range gs[1:] {
		if !(g.off <= worst.off) {
			worst = g
		}
	}
	switch {
	case worst.kept():
		return "yes"
	case worst.off <= farOff:
		return fmt.Sprintf("no, %.1f×", worst.off)
	}
	return fmt.Sprintf("**no, %.1f×**", worst.off)
}
