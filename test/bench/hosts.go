package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"pgmirror/duckdb"
	"pgmirror/mirror"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

// startInside runs a mirror in this process that follows the server, on a new data directory or on what it has left in one, and waits until it
// has copied.
func startInside(ctx context.Context, pg *harness.Postgres, slot, dir string, config mirror.Config) (*inside, error) {
	src, err := pgcdc.New(pgcdc.Config{Source: pg.URL(mirrorRole, "postgres"), Publications: []string{publication}, Slot: slot})
	if err != nil {
		return nil, err
	}
	run, err := runInside(ctx, src, src, slot, dir, config)
	if err != nil {
		return nil, err
	}
	for run.mirror.Ready() != nil {
		select {
		case <-run.ended:
			return nil, fmt.Errorf("the mirror %s ended: %w", slot, run.stop())
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), run.stop())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return run, nil
}

// serve answers on a socket for a mirror in this process, as pgmirror run does, until stop.
func (b *bench) serve(ctx context.Context, m *mirror.Mirror) (client *readstate.Client, stop func() error, err error) {
	dir, err := os.MkdirTemp(b.dir, "socket")
	if err != nil {
		return nil, nil, err
	}
	listener, err := readstate.Listen(dir)
	if err != nil {
		return nil, nil, err
	}
	serving, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	server := readstate.NewServer(m, slog.New(slog.DiscardHandler), readstate.ServerConfig{})
	go func() { ended <- server.Serve(serving, listener) }()
	end := func() error {
		cancel()
		return <-ended
	}
	if client, err = readstate.Dial(ctx, dir); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return client, func() error { return errors.Join(client.Close(), end()) }, nil
}

// compareHosts asks the shapes of a table in a DuckDB that reads the mirror's memory where it is, and in one that reads it through
// the socket: the same mirror, the same files.
func (b *bench) compareHosts(ctx context.Context, pg *harness.Postgres, run *inside, rows int) (err error) {
	end, err := walEnd(ctx, pg)
	if err != nil {
		return err
	}
	state, err := run.mirror.Pin(ctx, readstate.PinRequest{WaitLSN: end, Timeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	state.Release()
	client, stop, err := b.serve(ctx, run.mirror)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	near, err := duckdb.Open(ctx, duckdb.Config{Source: run.mirror})
	if err != nil {
		return err
	}
	defer near.Close()
	far, err := duckdb.Open(ctx, duckdb.Config{Source: client})
	if err != nil {
		return err
	}
	defer far.Close()
	var all []float64
	for _, shape := range shapes {
		sql := shapeOf(shape, "public.t2", rows)
		socket, memory, err := alike(ctx, repeats, question{far, sql}, question{near, sql})
		if err != nil {
			return err
		}
		all = append(all, median(socket)/median(memory))
	}
	b.report.add(line{"union read, 2 % deleted, through the socket", "", "the mirror in DuckDB's process", times(geometricMean(all)), nil,
		fmt.Sprintf("geometric mean of the same %d query shapes of one mirror, warm: all other lines are through the socket", len(shapes))})
	const sql = "SELECT count(v) FROM public.tiny"
	socket, memory, err := alike(ctx, 100, question{far, sql}, question{near, sql})
	if err != nil {
		return err
	}
	b.report.add(line{"a query of one row in memory, through the socket", millis(median(socket)), "the mirror in DuckDB's process: " + millis(median(memory)), times(median(socket) / median(memory)), nil, "binding included"})
	return nil
}
