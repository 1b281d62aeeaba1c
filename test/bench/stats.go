package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// quantile is the value at q (0 to 1) of values, which need not be sorted; NaN without any.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 == len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// geometricMean is the mean of ratios.
func geometricMean(ratios []float64) float64 {
	sum := 0.0
	for _, r := range ratios {
		sum += math.Log(r)
	}
	return math.Exp(sum / float64(len(ratios)))
}

// ratios divides round by round: both sides of a round met the same machine.
func ratios(ours, beside []float64) []float64 {
	out := make([]float64, len(ours))
	for i := range ours {
		out[i] = ours[i] / beside[i]
	}
	return out
}

// leastSquares fits y = slope·x + base and says how well: 1 is a line through all points.
func leastSquares(x, y []float64) (slope, base, fit float64) {
	n := float64(len(x))
	var sx, sy, sxx, sxy, syy float64
	for i := range x {
		sx, sy = sx+x[i], sy+y[i]
		sxx, sxy, syy = sxx+x[i]*x[i], sxy+x[i]*y[i], syy+y[i]*y[i]
	}
	slope = (n*sxy - sx*sy) / (n*sxx - sx*sx)
	r := (n*sxy - sx*sy) / math.Sqrt((n*sxx-sx*sx)*(n*syy-sy*sy))
	return slope, (sy - slope*sx) / n, r * r
}

// spread is a median with the smallest and largest value, by a format for one value.
func spread(values []float64, show func(float64) string) string {
	return fmt.Sprintf("%s (%s–%s)", show(median(values)), show(slices.Min(values)), show(slices.Max(values)))
}

// rate shows rows a second.
func rate(v float64) string {
	if v >= 1e6 {
		return fmt.Sprintf("%.2fM rows/s", v/1e6)
	}
	return fmt.Sprintf("%.0fk rows/s", v/1e3)
}

func inSeconds(v float64) string { return fmt.Sprintf("%.2f s", v) }

// amount shows a number of rows.
func amount(n int) string {
	if n >= 1_000_000 {
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	}
	return fmt.Sprintf("%.0fk", float64(n)/1e3)
}

func times(v float64) string { return fmt.Sprintf("%.2f", v) }

func millis(v float64) string { return fmt.Sprintf("%.1f ms", v) }

func fineMillis(v float64) string { return fmt.Sprintf("%.2f ms", v) }

// percentiles shows P50 and P99 of delays in milliseconds.
func percentiles(delays []float64) string {
	return fmt.Sprintf("P50 %s, P99 %s", millis(quantile(delays, 0.5)), millis(quantile(delays, 0.99)))
}

func inMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
