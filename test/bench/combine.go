package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"pgmirror/duckdb"
	"pgmirror/mirror"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

const (
	combineScale = 0.2  // of HyBench
	smallFile    = 8192 // rows at scale 1 and above
)

// combine measures how fast compaction makes one file of a table's many small ones, beside DuckDB that writes them into one Parquet.
func (b *bench) combine(ctx context.Context) (err error) {
	pg, err := b.startServer("combine")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(pg)) }()
	if _, err := hybench.publish(pg, b.scale*combineScale); err != nil {
		return err
	}
	var ours, beside []float64
	var c combined
	for round := range b.rounds {
		if c, err = b.combineOnce(ctx, pg, round); err != nil {
			return err
		}
		ours, beside = append(ours, float64(c.rows)/c.ours), append(beside, float64(c.rows)/c.beside)
		b.say("round %d: compaction %s, DuckDB %s a core; %d rows in %d files to %d", round+1, rate(ours[round]), rate(beside[round]), c.rows, c.before, c.after)
	}
	b.report.add(line{"compaction: rows combined a second, per core", spread(ours, rate), "DuckDB, `COPY` of the same files to one Parquet for each table (zstd): " + spread(beside, rate), spread(ratios(ours, beside), times),
		goals{atLeast(median(ours)/1e3, 300, "%gk rows/s")}, fmt.Sprintf("of CPU time, two checkpoints included; %s rows of HyBench in %d files of at most %d rows to %d files, each with its FileIndex, row lineage and hidden column; Retina: 250k rows/s",
			amount(c.rows), c.before, b.smallRows(), c.after)})
	return nil
}

// smallRows makes as many files at every scale up to 1.
func (b *bench) smallRows() int { return min(smallFile, b.scaled(smallFile)) }

// combined is one round: the rows of the tables that had several files, their files, and the CPU seconds of both sides.
type combined struct {
	rows, before, after int
	ours, beside        float64
}

// smallFiles runs a mirror that has copied the tables into small files, and by itself leaves them.
func (b *bench) smallFiles(ctx context.Context, pg *harness.Postgres, slot string) (*inside, error) {
	dir, err := b.dataDir(slot)
	if err != nil {
		return nil, err
	}
	config := mirror.Config{CheckpointInterval: time.Hour, Compact: mirror.Compaction{Off: true}, FileRows: int64(b.smallRows())}
	copying, err := startInside(ctx, pg, slot, dir, config)
	if err != nil {
		return nil, err
	}
	if err := copying.stop(); err != nil {
		return nil, err
	}
	config.FileRows = 0 // files may become large in its second life
	return startInside(ctx, pg, slot, dir, config)
}

// combineOnce lets compaction and DuckDB, in this order or the other, combine a mirror's small files.
func (b *bench) combineOnce(ctx context.Context, pg *harness.Postgres, round int) (c combined, err error) {
	slot := fmt.Sprintf("combine_%d", round)
	run, err := b.smallFiles(ctx, pg, slot)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, run.stop(), dropSlot(ctx, pg, slot)) }()
	state, err := run.mirror.Pin(ctx, readstate.PinRequest{}) // keeps the small files
	if err != nil {
		return c, err
	}
	defer state.Release()
	state.Settle() // but nothing else
	small := slices.DeleteFunc(slices.Clone(state.Tables), func(t *readstate.Table) bool { return len(t.Files) < 2 })
	var tables []string
	for _, t := range small {
		tables = append(tables, t.Name.Schema+"."+t.Name.Name)
		for _, f := range t.Files {
			c.before++
			c.rows += int(f.Rows)
		}
	}
	compact := func() error {
		cpu := ownCPUSeconds()
		done, err := run.mirror.Compact(ctx, mirror.CompactRequest{Tables: tables}, func(string) {})
		if err != nil {
			return err
		}
		c.ours = ownCPUSeconds() - cpu
		for _, t := range done.Tables {
			c.after += t.After
		}
		return nil
	}
	duck, err := duckdb.Open(ctx, duckdb.Config{Source: run.mirror})
	if err != nil {
		return c, err
	}
	defer duck.Close()
	copied := func() error {
		out := filepath.Join(b.dir, "combined.parquet")
		cpu := ownCPUSeconds()
		for _, t := range small {
			if _, err := duck.Query(ctx, fmt.Sprintf("COPY %s TO '%s' (FORMAT parquet, COMPRESSION zstd)", parquetList(t), out)); err != nil {
				return err
			}
		}
		c.beside = ownCPUSeconds() - cpu
		return nil
	}
	sides := []func() error{compact, copied}
	if round%2 == 1 {
		slices.Reverse(sides)
	}
	for _, side := range sides {
		if err := side(); err != nil {
			return c, err
		}
	}
	if c.after != len(tables) {
		return c, fmt.Errorf("%d files of %d tables after compaction", c.after, len(tables))
	}
	return c, nil
}
