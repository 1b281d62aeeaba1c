package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// A document of plots is well-formed XML whatever the curves are, with one line for each curve and every point inside its panel.
func TestDrawPanels(t *testing.T) {
	long := curve{name: "long"}
	for i := range 1000 {
		long.x, long.y = append(long.x, float64(i)), append(long.y, float64(i%7))
	}
	doc := drawPanels([]panel{{"a < b & c", []curve{long, {"empty", nil, nil}}}, {"nothing", nil}, {"zero", []curve{{"zero", []float64{0, 1}, []float64{0, 0}}}}}, 2)
	lines, decoder := 0, xml.NewDecoder(strings.NewReader(doc))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "polyline" {
			continue
		}
		lines++
		for _, a := range start.Attr {
			if a.Name.Local != "points" {
				continue
			}
			points := strings.Fields(a.Value)
			if len(points) > curvePoints {
				t.Errorf("%d points were drawn", len(points))
			}
			for _, p := range points {
				if strings.Contains(p, "-") || strings.Contains(p, "NaN") || strings.Contains(p, "Inf") {
					t.Errorf("a point at %s", p)
				}
			}
		}
	}
	if lines != 3 {
		t.Errorf("%d lines were drawn of 3 curves", lines)
	}
}

// An axis ends at a round number that is not below its values, and not far above.
func TestRoundUp(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 1: 1, 1.1: 2, 37: 40, 41: 50, 51: 80, 81: 100, 0.03: 0.04, 950: 1000} {
		if got := roundUp(v); got < want*0.999 || got > want*1.001 {
			t.Errorf("roundUp(%v) = %v, want %v", v, got, want)
		}
	}
}
