package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"pgmirror/test/harness"
)

// The tables of the copy are alike, so that both connections have work until the end.
const (
	copyTables      = 4
	copyRows        = 3_000_000 // of all
	copyConnections = 2
)

// copies measures the first copy beside COPY … (FORMAT binary) of the same tables by as many connections.
func (b *bench) copies(ctx context.Context) (err error) {
	pg, err := b.startServer("copy")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(pg)) }()
	rows := b.scaled(copyRows) / copyTables
	for i := range copyTables {
		if err := pg.Exec(fmt.Sprintf(`CREATE TABLE t%d AS SELECT i::bigint AS id, i %% 302000 AS sourceid, i * 7 %% 302000 AS targetid, (i %% 1000 / 10.0)::real AS amount,
			(ARRAY['transfer', 'red_packet', 'donate', 'invest'])[1 + i %% 4]::char(10) AS type, '2024-01-01'::timestamp + i * interval '1 second' AS ts FROM generate_series(1, %d) i`, i, rows),
			fmt.Sprintf("ALTER TABLE t%d ADD PRIMARY KEY (id)", i)); err != nil {
			return err
		}
	}
	if err := pg.Exec("CREATE PUBLICATION "+publication+" FOR ALL TABLES", "VACUUM ANALYZE", "CHECKPOINT"); err != nil {
		return err
	}
	total := float64(rows * copyTables)
	var ours, beside []float64
	for round := range b.rounds {
		took, err := copyAway(ctx, pg)
		if err != nil {
			return err
		}
		beside = append(beside, total/took.Seconds())
		m, err := b.startMirror(pg, fmt.Sprintf("copy%d", round), "--copy-workers", strconv.Itoa(copyConnections))
		if err != nil {
			return err
		}
		if err := m.ready(ctx); err != nil {
			return err
		}
		ours = append(ours, total/time.Since(m.began).Seconds())
		b.say("round %d: COPY %s, pgmirror %s", round+1, rate(beside[round]), rate(ours[round]))
		if round == b.rounds-1 {
			if err := b.verify(ctx, m); err != nil {
				return err
			}
		}
		if _, err := m.stop(); err != nil {
			return err
		}
	}
	b.report.add(line{"first copy, process start to streaming", spread(ours, rate), "`COPY … (FORMAT binary)`, thrown away: " + spread(beside, rate),
		spread(ratios(ours, beside), times), goals{atLeast(median(ratios(ours, beside)), 0.7, "%g")}, fmt.Sprintf("%d connections each, %d tables of %.2fM rows of six columns, to Parquet and FileIndex, fsynced", copyConnections, copyTables, float64(rows)/1e6)})
	return nil
}

// copyAway reads every table as pgmirror does, and throws it away.
func copyAway(ctx context.Context, pg *harness.Postgres) (time.Duration, error) {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(copyConnections)
	for i := range copyTables {
		group.Go(func() error {
			conn, err := pgconn.Connect(ctx, pg.URL(mirrorRole, "postgres"))
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			_, err = conn.CopyTo(ctx, io.Discard, fmt.Sprintf("COPY t%d TO STDOUT (FORMAT binary)", i))
			return err
		})
	}
	err := group.Wait()
	return time.Since(began), err
}
