package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// curve is a line through points; x is in minutes and rises.
type curve struct {
	name string
	x, y []float64
}

// panel is one plot, from 0 upwards.
type panel struct {
	title  string
	curves []curve
}

// The size of a panel and of the plot in it, in pixels, and the colours of curves in turn.
const (
	panelWidth, panelHeight = 460, 220
	plotLeft, plotTop       = 60, 40
	plotWidth, plotHeight   = panelWidth - plotLeft - 16, panelHeight - plotTop - 32
	// curvePoints is how many points of a curve are drawn: more than that are averaged.
	curvePoints = 240
)

var curveColors = []string{"#1f5fa8", "#c2410c", "#2f7d32", "#7a3fa0", "#8a6d00", "#a8325e", "#00757a"}

// drawPanels makes an SVG document of plots, so many in a row.
func drawPanels(panels []panel, columns int) string {
	var b strings.Builder
	rows := (len(panels) + columns - 1) / columns
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", columns*panelWidth, rows*panelHeight)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", i%columns*panelWidth, i/columns*panelHeight)
		p.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (p panel) draw(b *strings.Builder) {
	right, top := 0.0, 0.0
	for _, c := range p.curves {
		right, top = max(right, slices.Max(append(c.x, 0))), max(top, slices.Max(append(c.y, 0)))
	}
	right, top = max(right, 1e-9), roundUp(top)
	fmt.Fprintf(b, `<text x="%d" y="16" font-weight="bold">%s</text>`+"\n", plotLeft, html.EscapeString(p.title))
	for i := range 5 {
		part := float64(i) / 4
		x, y := plotLeft+part*plotWidth, plotTop+(1-part)*plotHeight
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`, plotLeft, y, plotLeft+plotWidth, y)
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`, plotLeft-6, y+4, tick(top*part))
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x, plotTop+plotHeight+16, tick(right*part))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">minutes</text>`+"\n", plotLeft+plotWidth, plotTop+plotHeight+28)
	legend := plotLeft
	for i, c := range p.curves {
		color := curveColors[i%len(curveColors)]
		fmt.Fprintf(b, `<text x="%d" y="32" fill="%s">%s</text>`, legend, color, html.EscapeString(c.name))
		legend += 7*len(c.name) + 12
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.3" points="`, color)
		x, y := thin(c.x, curvePoints), thin(c.y, curvePoints)
		for j := range x {
			fmt.Fprintf(b, "%.1f,%.1f ", plotLeft+x[j]/right*plotWidth, plotTop+(1-y[j]/top)*plotHeight)
		}
		b.WriteString(`"/>` + "\n")
	}
}

// thin averages neighbours until at most n values are left.
func thin(values []float64, n int) []float64 {
	if len(values) <= n {
		return values
	}
	out := make([]float64, n)
	for i := range out {
		part := values[i*len(values)/n : (i+1)*len(values)/n]
		for _, v := range part {
			out[i] += v / float64(len(part))
		}
	}
	return out
}

// roundUp is the next of 1, 2, 4, 5, 8, 10 times a power of ten; 1 for what is not above 0.
func roundUp(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 4, 5, 8} {
		if v <= m*power {
			return m * power
		}
	}
	return 10 * power
}

// tick is a number short enough for an axis.
func tick(v float64) string {
	switch {
	case v >= 10_000:
		return fmt.Sprintf("%.4gk", v/1000)
	default:
		return fmt.Sprintf("%.4g", v)
	}
}
