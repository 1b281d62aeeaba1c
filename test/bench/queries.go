package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"pgmirror/duckdb"
	"pgmirror/test/harness"
)

// The processors of the two sides.
const (
	loadProcessor  = "0" // the server, the mirror and the process that writes
	queryProcessor = "1" // this program, in which DuckDB runs
)

const (
	queryLoad = 10_000 // row changes a second
	deltaPart = 0.01   // of the rows, which the delta changes
)

// queries measures what HyBench's questions take after a delta, with its vectors and without, and under load.
func (b *bench) queries(ctx context.Context) (err error) {
	if runtime.NumCPU() < 2 {
		return errors.New("two processors are needed")
	}
	if err := runOn(ctx, loadProcessor); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, runOn(context.WithoutCancel(ctx), fmt.Sprintf("0-%d", runtime.NumCPU()-1)))
	}()
	pg, m, rows, err := b.mirrorHybench(ctx, "queries", "--read-state-limit", "5s") // what is kept to be asked again holds its LSN no longer
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(pg)) }()
	if err := runOn(ctx, queryProcessor); err != nil {
		return err
	}
	if err := b.askQuestions(ctx, pg, m, rows); err != nil {
		return err
	}
	if err := b.verify(ctx, m); err != nil {
		return err
	}
	_, err = m.stop()
	return err
}

// askQuestions keeps the read state of right after the first copy, to ask beside later ones.
func (b *bench) askQuestions(ctx context.Context, pg *harness.Postgres, m *mirrorProcess, rows int) error {
	client, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	static, err := hold(ctx, client)
	if err != nil {
		return err
	}
	questions := hybenchQuestionsAt(b.scale)
	what := fmt.Sprintf("HyBench's %d analytical questions", len(questions))

	changed, err := writeBacklog(ctx, pg, int(float64(rows)*deltaPart))
	if err != nil {
		return err
	}
	if err := b.caughtUp(ctx, pg, m); err != nil {
		return err
	}
	caughtUp := time.Now()
	unfolded, err := visibilityOf(ctx, client)
	if err != nil {
		return err
	}
	now, before := duckdb.Config{Source: client, Threads: 1}, duckdb.Config{Source: static, Threads: 1}
	c, err := compareQuestions(ctx, questions, now, before)
	if err != nil {
		return err
	}
	b.say("after the delta: %s", c.means())
	b.report.add(line{"reads right after a delta of 1 %, without load: " + what, millis(sumOf(c.ours, median)), "static, before the delta: " + millis(sumOf(c.beside, median)), c.means(), goals{atMost(c.mean(), 1.03, "%g")},
		fmt.Sprintf("geometric mean; %s row changes of the mix onto %s rows, in memory; 1 thread, on a processor of its own; worst %s", amount(changed), amount(rows), c.worst())})

	pause(ctx, time.Until(caughtUp.Add(foldedAfter)))
	folded, err := visibilityOf(ctx, client)
	if err != nil {
		return err
	}
	b.report.add(line{"visibility in memory after a delta of 1 %", bitsPerRow(folded) + " folded", "with every LSN still kept: " + bitsPerRow(unfolded), times(folded / unfolded), goals{atMost(folded, 0.3, "%g bits/row")},
		"of the same mirror, a minute after the delta and right after it; vectors kept for queries included; Retina: 1.16 bits/row"})

	if _, err := client.Call(ctx, "checkpoint", nil, nil); err != nil {
		return err
	}
	masked, err := hold(ctx, client)
	if err != nil {
		return err
	}
	if err := b.vectorSize("after a delta of 1 %", masked.state, 0.1); err != nil {
		return err
	}
	if err := runOn(ctx, loadProcessor+","+queryProcessor); err != nil { // for two threads
		return err
	}
	if err := b.visibilityCost(ctx, what+", after 1 % changed", masked, questions); err != nil {
		return err
	}
	masked.state.Release()
	if err := runOn(ctx, queryProcessor); err != nil {
		return err
	}
	return b.underLoad(ctx, pg, what, questions, now, before)
}

// underLoad asks all questions of what is visible now while writing goes on, and of the static state while nothing is written, to and fro.
func (b *bench) underLoad(ctx context.Context, pg *harness.Postgres, what string, questions []named, now, before duckdb.Config) error {
	live, err := duckdb.Open(ctx, now)
	if err != nil {
		return err
	}
	defer live.Close()
	static, err := duckdb.Open(ctx, before)
	if err != nil {
		return err
	}
	defer static.Close()
	ours, beside := make([][]float64, len(questions)), make([][]float64, len(questions))
	var reached []float64
	loaded := func() error {
		stop, err := startLoad(ctx, pg.URL("postgres", "postgres"), queryLoad)
		if err != nil {
			return err
		}
		pause(ctx, warmUp)
		err = askAll(ctx, live, questions, ours)
		rate, err2 := stop()
		reached = append(reached, rate)
		return errors.Join(err, err2)
	}
	quiet := func() error { return askAll(ctx, static, questions, beside) }
	for round := range b.rounds {
		sides := []func() error{quiet, loaded}
		if round%2 == 1 {
			sides = []func() error{loaded, quiet}
		}
		for _, side := range sides {
			if err := side(); err != nil {
				return err
			}
		}
	}
	var c comparison
	for i, q := range questions {
		c.add(q.name, ours[i], beside[i])
	}
	b.say("under load: %s", c.means())
	b.report.add(line{fmt.Sprintf("reads under %dk row changes/s: %s", queryLoad/1000, what), millis(sumOf(ours, median)), "static, before any change, without load: " + millis(sumOf(beside, median)), c.means(), goals{atMost(c.mean(), 1.04, "%g")},
		fmt.Sprintf("geometric mean, %d rounds; %s rows/s written; DuckDB with 1 thread on one processor, server, mirror and writers on the other, which share caches and memory; Retina: 1.04, the writing not on the same machine; worst %s",
			b.rounds, spread(reached, func(v float64) string { return fmt.Sprintf("%.0f", v) }), c.worst())})
	return nil
}

// askAll adds to took what each question takes: the median of a few.
func askAll(ctx context.Context, duck *duckdb.DB, questions []named, took [][]float64) error {
	for i, q := range questions {
		again, _, err := alternate(ctx, repeats, question{duck, q.sql})
		if err != nil {
			return err
		}
		took[i] = append(took[i], median(again[0]))
	}
	return nil
}
