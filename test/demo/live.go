package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"pgmirror/duckdb"
	"pgmirror/readstate"
)

// comparisons is how often both sides are asked while the writers write.
const comparisons = 3

// whileWriting lets the writers write for a while; meanwhile it compares answers and measures freshness, which it returns as a
// sentence.
func (d *demo) whileWriting(ctx context.Context, live time.Duration) (string, error) {
	d.say("writing for %s on %d connections: orders over four tables, price and key changes, deletes, rollbacks", live, writerCount)
	writing, stop := context.WithTimeout(ctx, live)
	defer stop()
	group, writing := errgroup.WithContext(writing)
	var commits atomic.Int64
	for i := range writerCount {
		group.Go(func() error { return d.write(writing, uint64(i), &commits) })
	}
	var delays []time.Duration
	group.Go(func() (err error) {
		delays, err = d.measure(writing)
		return err
	})
	group.Go(func() error {
		for i := range comparisons {
			select {
			case <-writing.Done():
				return nil
			case <-time.After(live / (comparisons + 1)):
			}
			if err := d.compareAnswers(ctx, i == 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if len(delays) < 20 {
		return "", fmt.Errorf("freshness was measured on %d commits only", len(delays))
	}
	slices.Sort(delays)
	at := func(q float64) time.Duration { return delays[int(q*float64(len(delays)-1))] }
	d.say("%d commits written, %.0f a second", commits.Load(), float64(commits.Load())/live.Seconds())
	sentence := fmt.Sprintf("Freshness, from the return of a commit to its row in a DuckDB answer, over %d commits: P50 %s, P99 %s.",
		len(delays), at(0.50).Round(100*time.Microsecond), at(0.99).Round(100*time.Microsecond))
	d.say("%s", sentence)
	return sentence, nil
}

// measure commits single rows, and asks DuckDB again and again from the moment the commit has returned until it sees the row.
func (d *demo) measure(ctx context.Context) (delays []time.Duration, err error) {
	conn, err := pgx.Connect(ctx, d.pg.URL("postgres", "shop"))
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	duck, err := d.openDuck(ctx, readstate.PinRequest{})
	if err != nil {
		return nil, err
	}
	defer duck.Close()
	for id := int64(1); ; id++ {
		if ctx.Err() != nil {
			return delays, nil
		}
		if _, err := conn.Exec(context.WithoutCancel(ctx), `INSERT INTO pings VALUES ($1)`, id); err != nil {
			return nil, err
		}
		committed := time.Now()
		for {
			rows, err := duck.Query(context.WithoutCancel(ctx), "SELECT max(id) FROM public.pings")
			if err != nil {
				return nil, err
			}
			row, _ := rows.Next()
			if seen, _ := strconv.ParseInt(row[0].Value, 10, 64); seen >= id {
				break
			}
			if time.Since(committed) > 30*time.Second {
				return nil, errors.New("a commit is not visible after 30 s")
			}
		}
		delays = append(delays, time.Since(committed))
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// duck is a DuckDB over the running mirror.
type duck struct {
	*duckdb.DB
	client *readstate.Client
}

func (d *demo) openDuck(ctx context.Context, request readstate.PinRequest) (*duck, error) {
	client, err := readstate.Dial(ctx, d.data)
	if err != nil {
		return nil, err
	}
	db, err := duckdb.Open(ctx, duckdb.Config{Source: client, Request: request})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &duck{db, client}, nil
}

func (d *duck) Close() error { return errors.Join(d.DB.Close(), d.client.Close()) }

// texts runs a query and returns its rows; NULL is "<null>".
func (d *duck) texts(ctx context.Context, sql string) ([][]string, error) {
	rows, err := d.Query(ctx, sql)
	if err != nil {
		return nil, fmt.Errorf("DuckDB: %w", err)
	}
	var out [][]string
	for _, row := range rows.All() {
		texts := make([]string, len(row))
		for i, value := range row {
			texts[i] = value.Value
			if value.Null {
				texts[i] = "<null>"
			}
		}
		out = append(out, texts)
	}
	return out, nil
}
