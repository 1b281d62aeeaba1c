package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"pgmirror/duckdb"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

const (
	ablationRate = 10_000 // row changes a second
	ablationFor  = 20 * time.Second
	// ablationCheckpoints are short, so that a run sees several: until one, no file has what is in memory.
	ablationCheckpoints = "5s"
	ablationPause       = 50 * time.Millisecond
)

// ablateCommand makes this program the process that asks with parts of the memory left out: bench ablate DATA DURATION.
const ablateCommand = "ablate"

// ablated is what it prints: freshness by the Retina paper's definition, in milliseconds.
type ablated struct {
	All    []float64 // of whole read states
	Sealed []float64 // of read states without the open batch
	Files  []float64 // of read states without memory
}

// partial hands out read states with only some of the memory batches.
type partial struct {
	*readstate.Client
	keep func(readstate.Batch) bool
}

func (p *partial) Pin(ctx context.Context, req readstate.PinRequest) (*readstate.State, error) {
	req.VectorsLater = false // a copy of a table is changed, so it has to be complete
	state, err := p.Client.Pin(ctx, req)
	if err != nil {
		return nil, err
	}
	return altered(state, func(t *readstate.Table) {
		t.Batches = slices.DeleteFunc(slices.Clone(t.Batches), func(b readstate.Batch) bool { return !p.keep(b) })
	}), nil
}

// ablate asks each of three DuckDBs in turn.
func ablate(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("ablate: data directory and duration are due")
	}
	length, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	client, err := readstate.Dial(ctx, args[0])
	if err != nil {
		return err
	}
	defer client.Close()
	var out ablated
	sides := []struct {
		keep   func(readstate.Batch) bool
		delays *[]float64
		duck   *duckdb.DB
	}{
		{keep: func(readstate.Batch) bool { return true }, delays: &out.All},
		{keep: func(b readstate.Batch) bool { return b.Sealed }, delays: &out.Sealed},
		{keep: func(readstate.Batch) bool { return false }, delays: &out.Files},
	}
	for i := range sides {
		if sides[i].duck, err = duckdb.Open(ctx, duckdb.Config{Source: &partial{client, sides[i].keep}}); err != nil {
			return err
		}
		defer sides[i].duck.Close()
	}
	for end := time.Now().Add(length); time.Now().Before(end); {
		for _, side := range sides {
			delay, err := staleness(ctx, side.duck)
			if err != nil {
				return err
			}
			*side.delays = append(*side.delays, delay)
		}
		time.Sleep(ablationPause)
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// ablation measures what reading the memory is good for, by leaving it out.
func (b *bench) ablation(ctx context.Context, pg *harness.Postgres) (err error) {
	m, err := b.startMirror(pg, liveMirror.name, "--checkpoint-interval", ablationCheckpoints)
	if err != nil {
		return err
	}
	if err := m.ready(ctx); err != nil {
		return err
	}
	load := startPaced(ctx, pg.URL("postgres", "postgres"), ablationRate, nil)
	time.Sleep(warmUp)
	var seen ablated
	err = runAgain(ctx, &seen, ablateCommand, m.data, ablationFor.String())
	if err := errors.Join(err, load.end()); err != nil {
		return err
	}
	whole := "whole read states: " + percentiles(seen.All)
	for _, part := range []struct {
		what   string
		delays []float64
		note   string
	}{
		{"without the open batch", seen.Sealed, "a batch is sealed at 8,192 rows"},
		{"without memory", seen.Files, "a checkpoint every " + ablationCheckpoints},
	} {
		b.say("ablation %s: %s; %s", part.what, percentiles(part.delays), whole)
		b.report.add(line{fmt.Sprintf("freshness at %dk row changes/s, the paper's definition, %s", ablationRate/1000, part.what), percentiles(part.delays), whole,
			times(quantile(part.delays, 0.5) / quantile(seen.All, 0.5)), nil, fmt.Sprintf("ablation: the client drops it from its read states; %s; %d questions", part.note, len(part.delays))})
	}
	_, err = m.stop()
	return err
}
