package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pgmirror/pgcdc"
)

// The rates at which a tape is played, in thousands of rows a second: those of the Retina paper. Each takes as long.
var slopeRates = []float64{10, 20, 40, 80, 120, 160}

// pacedPart is what one rate took.
type pacedPart struct {
	rate float64 // reached, in thousands of rows a second
	cpu  float64 // percent of a core
}

// replaySlope plays the tape at one rate after the other and fits a line through the CPU they take.
func (b *bench) replaySlope(ctx context.Context, r replayed, tape *capture, p *player) error {
	var parts []pacedPart
	p.source.begin <- func(take func(*pgcdc.Transaction) error) (err error) {
		parts, err = tape.pace(slopeRates, take)
		return err
	}
	if err := p.sees(ctx, tape); err != nil {
		return err
	}
	if err := p.verify(ctx); err != nil {
		return err
	}
	if err := p.stop(); err != nil { // what the goroutine wrote is ours now
		return err
	}
	var rates, cpu []float64
	var texts []string
	for _, part := range parts {
		rates, cpu = append(rates, part.rate), append(cpu, part.cpu)
		texts = append(texts, fmt.Sprintf("%.0fk: %.1f %%", part.rate, part.cpu))
	}
	slope, base, fit := leastSquares(rates, cpu)
	b.say("%s: %s; slope %.3f, base %.1f, R² %.3f", r.name, strings.Join(texts, ", "), slope, base, fit)
	var goal goals
	if r.limit > 0 {
		goal = goals{atMost(cpu[0], r.limit, "%g %%").of(fmt.Sprintf("at %.0fk", slopeRates[0]))}
	}
	b.report.add(line{r.name + ", captured: CPU for each 1k rows/s", fmt.Sprintf("%.2f %% of a core", slope), "Retina: " + r.paper, "", goal,
		fmt.Sprintf("least squares over %s; at no load %.1f %%, R² %.3f; a checkpoint every %s", strings.Join(texts, ", "), base, fit, slopeCheckpoints)})
	return nil
}

// pauseAfter is how far ahead of its rate a tape must be to wait: less than a wait takes at least.
const pauseAfter = time.Millisecond

// pace plays the tape at rates, each for as long, and measures what this process uses meanwhile.
func (c *capture) pace(rates []float64, take func(*pgcdc.Transaction) error) (parts []pacedPart, err error) {
	total := 0.0
	for _, r := range rates {
		total += r
	}
	length := float64(c.rows) / 1000 / total // seconds for each
	began, cpu, rows := time.Now(), ownCPUSeconds(), 0
	err = c.decode(func(tx *pgcdc.Transaction) error {
		n := int(tx.Rows)
		if err := take(tx); err != nil {
			return err
		}
		rows += n
		rate := rates[min(len(parts), len(rates)-1)] * 1000
		if ahead := time.Duration(float64(rows)/rate*float64(time.Second)) - time.Since(began); ahead > pauseAfter {
			time.Sleep(ahead)
		}
		if len(parts) < len(rates)-1 && float64(rows) >= rate*length {
			parts = append(parts, measurePart(rows, began, cpu))
			began, cpu, rows = time.Now(), ownCPUSeconds(), 0
		}
		return nil
	})
	return append(parts, measurePart(rows, began, cpu)), err
}

func measurePart(rows int, began time.Time, cpu float64) pacedPart {
	took := time.Since(began).Seconds()
	return pacedPart{float64(rows) / 1000 / took, (ownCPUSeconds() - cpu) / took * 100}
}
