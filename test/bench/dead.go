package main

import (
	"context"
	"errors"
	"fmt"

	"pgmirror/duckdb"
)

// costRepeats is how often each side of a small ratio is asked.
const costRepeats = 15

const (
	liveRows = 1_000_000 // of each table with many dead rows
	costRows = 3_000_000 // of the table with few
	costDead = 2         // percent of it
)

// deadParts are percents of the live rows, and what the Retina paper's total latency grows by (figure 3).
var deadParts = []struct {
	percent int
	paper   float64
}{{20, 1.033}, {40, 1.073}, {60, 1.114}, {80, 1.145}, {100, 1.194}}

// deadRows measures what rows cost that files have and a vector hides.
func (b *bench) deadRows(ctx context.Context) (err error) {
	pg, err := b.startServer("dead")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(pg)) }()
	var deletes []string
	fill := func(name string, rows, dead, of int) error {
		// hashint4 scatters the rows over the file, as single deletes would.
		deletes = append(deletes, fmt.Sprintf("DELETE FROM %s WHERE abs(hashint4(id::int)) %% %d < %d", name, of, dead))
		return pg.Exec(fmt.Sprintf(factTable, name), fmt.Sprintf(factRows, name, 1, rows))
	}
	if err := fill("few", b.scaled(costRows), costDead, 100); err != nil {
		return err
	}
	for _, part := range deadParts {
		if err := fill(deadTable(part.percent), b.scaled(liveRows)*(100+part.percent)/100, part.percent, 100+part.percent); err != nil {
			return err
		}
	}
	if err := publishAll(pg); err != nil {
		return err
	}
	m, err := b.startMirror(pg, "dead", "--checkpoint-interval", "1h", "--compact", "off")
	if err != nil {
		return err
	}
	if err := m.ready(ctx); err != nil {
		return err
	}
	if err := pg.Exec(deletes...); err != nil {
		return err
	}
	if err := b.caughtUp(ctx, pg, m); err != nil {
		return err
	}
	plain, err := b.startMirror(pg, "alive")
	if err != nil {
		return err
	}
	if err := plain.ready(ctx); err != nil {
		return err
	}
	if err := b.verify(ctx, m); err != nil {
		return err
	}
	if err := b.compareDead(ctx, m, plain); err != nil {
		return err
	}
	_, err = plain.stop()
	_, err2 := m.stop()
	return errors.Join(err, err2)
}

// named is a query with its name in the document.
type named struct{ name, sql string }

func namedShape(shape, table string, rows int) named {
	return named{"`" + shapeOf(shape, table, rows) + "`", shapeOf(shape, "public."+table, rows)}
}

func deadTable(percent int) string { return fmt.Sprintf("dead%d", percent) }

// compareDead asks the shapes of the table with few dead rows, and of those with many.
func (b *bench) compareDead(ctx context.Context, m, plain *mirrorProcess) error {
	client, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	masked, err := hold(ctx, client)
	if err != nil {
		return err
	}
	var few []named
	for _, shape := range shapes {
		few = append(few, namedShape(shape, "few", b.scaled(costRows)))
	}
	if err := b.visibilityCost(ctx, fmt.Sprintf("%d query shapes, %d %% deleted", len(few), costDead), masked, few); err != nil {
		return err
	}

	other, err := plain.dial(ctx)
	if err != nil {
		return err
	}
	defer other.Close()
	alive, err := hold(ctx, other)
	if err != nil {
		return err
	}
	var sides [3]*duckdb.DB
	for i, source := range []still{masked, masked.unmasked(), alive} {
		if sides[i], err = duckdb.Open(ctx, duckdb.Config{Source: source}); err != nil {
			return err
		}
		defer sides[i].Close()
	}
	for _, part := range deadParts {
		var beside, open comparison
		for _, shape := range shapes {
			q := namedShape(shape, deadTable(part.percent), b.scaled(liveRows))
			took, answers, err := alternate(ctx, repeats, question{sides[0], q.sql}, question{sides[1], q.sql}, question{sides[2], q.sql})
			if err != nil {
				return err
			}
			if answers[0] != answers[2] {
				return fmt.Errorf("%s: %s with dead rows, %s without", q.sql, answers[0], answers[2])
			}
			beside.add(q.name, took[0], took[2])
			open.add(q.name, took[0], took[1])
		}
		b.say("%d %% dead: %s of the live rows alone, %s of all", part.percent, beside.totals(), open.totals())
		b.report.add(line{fmt.Sprintf("scan with %d %% dead rows, masked by the vector", part.percent), millis(sumOf(beside.ours, median)),
			"files of the live rows alone: " + millis(sumOf(beside.beside, median)), beside.totals(), goals{atMost(beside.total(), part.paper, "%g")},
			fmt.Sprintf("total latency of %d query shapes over %s live rows and that part of them more that are dead, scattered; Retina: %.3f, TPC-H SF 100; the same files without the vector, dead rows shown: %s; worst %s",
				len(shapes), amount(b.scaled(liveRows)), part.paper, open.totals(), beside.worst())})
	}
	return nil
}

// visibilityCost asks questions with the deletion vectors of a read state and without, by one thread and by two.
func (b *bench) visibilityCost(ctx context.Context, what string, masked still, questions []named) error {
	for _, threads := range []int{1, 2} {
		c, err := compareQuestions(ctx, questions, duckdb.Config{Source: masked, Threads: threads}, duckdb.Config{Source: masked.unmasked(), Threads: threads})
		if err != nil {
			return err
		}
		b.say("visibility, %s, %d threads: %s", what, threads, c.means())
		b.report.add(line{fmt.Sprintf("cost of visibility: %s, %s", what, threadsText(threads)), millis(sumOf(c.ours, median)), "the same files without the vectors: " + millis(sumOf(c.beside, median)), c.means(),
			goals{atMost(c.mean(), 1.0233, "%g")}, fmt.Sprintf("geometric mean; no writes meanwhile; without vectors the dead rows are counted too; Retina: 1.0233, HyBench SF 100; worst %s", c.worst())})
	}
	return nil
}

func threadsText(n int) string {
	if n == 1 {
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", n)
}

// compareQuestions asks the same of two DuckDBs in turn.
func compareQuestions(ctx context.Context, questions []named, a, b duckdb.Config) (*comparison, error) {
	ours, err := duckdb.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	beside, err := duckdb.Open(ctx, b)
	if err != nil {
		return nil, err
	}
	defer beside.Close()
	var c comparison
	for _, q := range questions {
		took, _, err := alternate(ctx, costRepeats, question{ours, q.sql}, question{beside, q.sql})
		if err != nil {
			return nil, err
		}
		c.add(q.name, took[0], took[1])
	}
	return &c, nil
}
