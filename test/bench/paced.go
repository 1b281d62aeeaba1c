package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"
)

// paced are connections that write the mix at a rate together.
type paced struct {
	rows  atomic.Int64
	group *errgroup.Group
	stop  context.CancelFunc
}

// startPaced begins to write; rate is in row changes a second. Commits wait for the WAL (synchronous_commit on). session, if not
// nil, is SQL that writer c's session begins with.
func startPaced(ctx context.Context, url string, rate int, session func(c int) string) *paced {
	ctx, stop := context.WithCancel(ctx)
	p := &paced{stop: stop}
	p.group, ctx = errgroup.WithContext(ctx)
	for c := range writers {
		p.group.Go(func() error { return p.write(ctx, url, c, float64(rate)/writers, session) })
	}
	return p
}

func (p *paced) write(ctx context.Context, url string, c int, rate float64, session func(c int) string) error {
	whole := context.WithoutCancel(ctx)
	conn, err := pgx.Connect(whole, url)
	if err != nil {
		return err
	}
	defer conn.Close(whole)
	if session != nil {
		if _, err := conn.Exec(whole, session(c)); err != nil {
			return err
		}
	}
	due := time.Now()
	for {
		var rows int
		if err := conn.QueryRow(whole, "SELECT write($1, $2)", c, writers).Scan(&rows); err != nil && !deadlocked(err) {
			return fmt.Errorf("write: %w", err)
		}
		p.rows.Add(int64(rows))
		due = due.Add(time.Duration(float64(rows) / rate * float64(time.Second)))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(due)):
		}
	}
}

// deadlocked says whether the source chose a transaction as a deadlock's victim: in hours of writing that may happen, and it has
// written nothing.
func deadlocked(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "40P01"
}

func (p *paced) end() error {
	p.stop()
	return p.group.Wait()
}
