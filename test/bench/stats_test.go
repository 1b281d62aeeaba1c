package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

// Quantiles interpolate between neighbours, whatever the order of the values. Expected: numpy.quantile.
func TestQuantile(t *testing.T) {
	values := []float64{9, 1, 4, 16}
	for _, c := range []struct{ q, want float64 }{{0, 1}, {0.25, 3.25}, {0.5, 6.5}, {0.99, 15.79}, {1, 16}} {
		if got := quantile(values, c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile %v is %v, want %v", c.q, got, c.want)
		}
	}
	if values[0] != 9 {
		t.Error("the values were sorted in place")
	}
	if !math.IsNaN(quantile(nil, 0.5)) {
		t.Error("a quantile of nothing is a number")
	}
}

// Ratios are taken round by round, and their mean is geometric: twice as fast and twice as slow cancel out.
func TestRatios(t *testing.T) {
	got := ratios([]float64{2, 3}, []float64{1, 6})
	if got[0] != 2 || got[1] != 0.5 || math.Abs(geometricMean(got)-1) > 1e-9 {
		t.Errorf("ratios %v with the mean %v, want 2 and 0.5 with 1", got, geometricMean(got))
	}
}

// Numbers of rows are shown in thousands, from a million on in millions.
func TestAmount(t *testing.T) {
	for n, want := range map[int]string{0: "0k", 60_010: "60k", 999_999: "1000k", 1_000_000: "1.0M", 10_002_000: "10.0M"} {
		if got := amount(n); got != want {
			t.Errorf("%d is shown as %s, want %s", n, got, want)
		}
	}
}

// A line is fitted by least squares. Expected: the centred sums, in fractions.
func TestLeastSquares(t *testing.T) {
	slope, base, fit := leastSquares([]float64{10, 20, 40, 80}, []float64{4, 5, 11, 17})
	for _, c := range []struct {
		name      string
		got, want float64
	}{{"slope", slope, 0.19217391304347825}, {"base", base, 2.0434782608695654}, {"fit", fit, 0.9763318340829585}} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s %v, want %v", c.name, c.got, c.want)
		}
	}
}

// A table has one line for each measurement, and a cell's bar does not end it.
func TestMarkdown(t *testing.T) {
	r := report{machine: "a box", commit: "abc", loadBefore: "0 0 0", loadAfter: "1 1 1", took: time.Minute}
	r.add(line{"copy", "1", "2", "0.50", goals{atLeast(0.5, 0.7, "%g")}, "a|b"})
	text := r.markdown(introduction, time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC))
	for _, want := range []string{"- Commit: abc\n", "2026-01-02 03:04 UTC", "- Reached: 0 of 1; more than 3× off: 0\n", `| copy | 1 | 2 | 0.50 | ≥ 0.7 | no, 1.4× | a\|b |` + "\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

// A commit message gives the end of the transaction and its time; others and short ones give nothing. The bytes are those of
// PostgreSQL's manual: flags, commit LSN, end LSN, microseconds since 2000.
func TestCommitOf(t *testing.T) {
	message := []byte("C\x00" + "\x00\x00\x00\x01\x00\x00\x00\x10" + "\x00\x00\x00\x01\x00\x00\x00\x40" + "\x00\x00\x00\x00\x00\x0f\x42\x40")
	end, at, ok := commitOf(message)
	if !ok || end.String() != "1/40" || !at.Equal(time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC)) {
		t.Errorf("got %s at %s, %v", end, at, ok)
	}
	for _, other := range [][]byte{nil, message[:25], append([]byte("I"), message[1:]...)} {
		if _, _, ok := commitOf(other); ok {
			t.Errorf("%q is taken for a commit", other)
		}
	}
}

// Sections of a part are found by name, in the order given; an unknown one is an error, and so is one of another part.
func TestChoose(t *testing.T) {
	got, err := choose("bench", "union,live")
	if err != nil || len(got.sections) != 2 || got.sections[0].name != "union" || got.sections[1].name != "live" || got.introduction != introduction {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := choose("paper", ""); err != nil || got.name != "paper" || len(got.sections) != len(documentParts[1].sections) {
		t.Errorf("none named: %d sections of %s, %v", len(got.sections), got.name, err)
	}
	for _, wrong := range [][2]string{{"bench", "live,nothing"}, {"paper", "live"}, {"nothing", ""}} {
		if _, err := choose(wrong[0], wrong[1]); err == nil {
			t.Errorf("sections %q of %q were accepted", wrong[1], wrong[0])
		}
	}
}

// The ratio of a comparison is over medians, its range over single rounds; the worst question is named.
func TestComparison(t *testing.T) {
	var c comparison
	c.add("a", []float64{2, 2, 20}, []float64{1, 2, 1})
	c.add("b", []float64{9, 8, 6}, []float64{1, 1, 2})
	for _, check := range []struct{ what, got, want string }{
		{"means", c.means(), "4.000 (2.828–7.746)"}, // √(2·8); √(1·8) and √(20·3)
		{"totals", c.totals(), "5.000 (3.333–8.667)"},
		{"worst", c.worst(), "8.00: b (8.0 ms against 1.0 ms)"},
		{"fastest", times(c.fastest()), "3.46"},
	} {
		if check.got != check.want {
			t.Errorf("%s: %s, want %s", check.what, check.got, check.want)
		}
	}
}

// A line's verdict is that of its worst goal, in bold when that is missed more than three times; nothing measured reaches no goal.
func TestVerdict(t *testing.T) {
	most, least := func(got float64) goal { return atMost(got, 10, "%g ms") }, func(got float64) goal { return atLeast(got, 10, "%g/s") }
	part := func(got float64) goal { return equal(got, 32, "1/%g") }
	for _, c := range []struct {
		goals      goals
		text, want string
	}{
		{nil, "", ""},
		{goals{most(10)}, "≤ 10 ms", "yes"},
		{goals{least(10)}, "≥ 10/s", "yes"},
		{goals{most(11)}, "≤ 10 ms", "no, 1.1×"},
		{goals{least(5)}, "≥ 10/s", "no, 2.0×"},
		{goals{least(2)}, "≥ 10/s", "**no, 5.0×**"},
		{goals{part(32)}, "= 1/32", "yes"},
		{goals{part(16)}, "= 1/32", "no, 2.0×"},
		{goals{part(128)}, "= 1/32", "**no, 4.0×**"},
		{goals{most(5).of("P50"), most(40).of("P99"), most(1)}, "P50 ≤ 10 ms, P99 ≤ 10 ms, ≤ 10 ms", "**no, 4.0×**"},
		{goals{most(1), most(math.NaN())}, "≤ 10 ms, ≤ 10 ms", "**no, NaN×**"},
	} {
		if got := c.goals.verdict(); got != c.want || c.goals.String() != c.text {
			t.Errorf("%q: %q, want %q: %q", c.goals, got, c.text, c.want)
		}
	}
	var r report
	r.add(line{goals: goals{most(1), most(11), most(40), most(math.NaN())}})
	if kept, far, all := r.tally(); kept != 1 || far != 2 || all != 4 {
		t.Errorf("%d kept, %d far, %d in all; want 1, 2, 4", kept, far, all)
	}
}

// The figures of Go benchmarks are found by name and unit; what was not run is an error.
func TestParseBench(t *testing.T) {
	m, err := parseBench("goos: linux\npkg: pgmirror/mirror\nBenchmarkAdd/fixed-2   \t 5363425\t       300.0 ns/op\t         3.334 Mrows/s\t     160 B/op\nBenchmarkApply \t 5\t 7e3 ns/op\nPASS\nok  \tpgmirror/mirror\t9.820s\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, unit string
		want       float64
	}{{"Add/fixed", "ns/op", 300}, {"Add/fixed", "Mrows/s", 3.334}, {"Apply", "ns/op", 7000}} {
		if got := m.value(c.name, c.unit); got.v != c.want || got.err != nil {
			t.Errorf("%s in %s: %v, want %v", c.name, c.unit, got, c.want)
		}
	}
	if m.value("Add", "ns/op").err == nil || m.value("Apply", "Mrows/s").err == nil {
		t.Error("what was not measured has a value")
	}
	if _, err := parseBench("BenchmarkAdd 5 fast ns/op"); err == nil {
		t.Error("a figure that is no number was read")
	}
}

// A benchmark's name is taken for itself alone, element by element, whatever begins or ends like it.
func TestExactly(t *testing.T) {
	got := exactly("DeadBatches/append/rows=4096/bury=true")
	if want := "^BenchmarkDeadBatches$/^append$/^rows=4096$/^bury=true$"; got != want {
		t.Errorf("the pattern is %s, want %s", got, want)
	}
}
