package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"pgmirror/duckdb"
)

// question is a query for one DuckDB.
type question struct {
	duck *duckdb.DB
	sql  string
}

// ask returns the milliseconds; the answer is for comparing.
func (q question) ask(ctx context.Context) (took float64, answer string, err error) {
	began := time.Now()
	rows, err := q.duck.Query(ctx, q.sql)
	took = inMillis(time.Since(began))
	if err != nil {
		return 0, "", fmt.Errorf("%s: %w", q.sql, err)
	}
	return took, fmt.Sprint(rows.All()), nil
}

// alternate asks questions to and fro (A B C, C B A, …), n times each after once to warm up, and returns the milliseconds of each, and its last
// answer.
func alternate(ctx context.Context, n int, questions ...question) (took [][]float64, answers []string, err error) {
	took, answers = make([][]float64, len(questions)), make([]string, len(questions))
	for round := range n + 1 {
		for i := range questions {
			if round%2 == 1 {
				i = len(questions) - 1 - i
			}
			one, answer, err := questions[i].ask(ctx)
			if err != nil {
				return nil, nil, err
			}
			answers[i] = answer
			if round > 0 {
				took[i] = append(took[i], one)
			}
		}
	}
	return took, answers, nil
}

// alike alternates two questions whose answers must be equal.
func alike(ctx context.Context, n int, a, b question) (ours, beside []float64, err error) {
	took, answers, err := alternate(ctx, n, a, b)
	if err != nil {
		return nil, nil, err
	}
	if answers[0] != answers[1] {
		return nil, nil, fmt.Errorf("%s: %s beside %s: %s", a.sql, answers[0], b.sql, answers[1])
	}
	return took[0], took[1], nil
}

// comparison is what several questions took on two sides, each side as often.
type comparison struct {
	names        []string
	ours, beside [][]float64 // by question, then by round
}

func (c *comparison) add(name string, ours, beside []float64) {
	c.names, c.ours, c.beside = append(c.names, name), append(c.ours, ours), append(c.beside, beside)
}

// each is one ratio for each question, of what figure makes of a side's rounds.
func (c *comparison) each(figure func([]float64) float64) (out []float64) {
	for i := range c.names {
		out = append(out, figure(c.ours[i])/figure(c.beside[i]))
	}
	return out
}

// mean is the geometric mean over the questions, of medians.
func (c *comparison) mean() float64 { return geometricMean(c.each(median)) }

// fastest is the geometric mean over the questions, of the fastest of each side.
func (c *comparison) fastest() float64 { return geometricMean(c.each(slices.Min[[]float64])) }

// means is mean with those of the single rounds that are the smallest and the largest.
func (c *comparison) means() string {
	var rounds []float64
	for round := range c.ours[0] {
		rounds = append(rounds, geometricMean(c.each(func(took []float64) float64 { return took[round] })))
	}
	return fmt.Sprintf("%.3f (%.3f–%.3f)", c.mean(), slices.Min(rounds), slices.Max(rounds))
}

// total is the ratio of all questions' medians together.
func (c *comparison) total() float64 { return sumOf(c.ours, median) / sumOf(c.beside, median) }

// totals is total with those of the single rounds that are the smallest and the largest.
func (c *comparison) totals() string {
	var rounds []float64
	for round := range c.ours[0] {
		at := func(took []float64) float64 { return took[round] }
		rounds = append(rounds, sumOf(c.ours, at)/sumOf(c.beside, at))
	}
	return fmt.Sprintf("%.3f (%.3f–%.3f)", c.total(), slices.Min(rounds), slices.Max(rounds))
}

func sumOf(took [][]float64, figure func([]float64) float64) (sum float64) {
	for _, t := range took {
		sum += figure(t)
	}
	return sum
}

// worst names the question with the largest ratio of medians.
func (c *comparison) worst() string {
	all := c.each(median)
	i := slices.Index(all, slices.Max(all))
	return fmt.Sprintf("%.2f: %s (%.1f ms against %.1f ms)", all[i], c.names[i], median(c.ours[i]), median(c.beside[i]))
}
