package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"pgmirror/test/harness"
)

// steadyRows is the number of row changes that each side of a round follows.
const steadyRows = 500_000

// steady lets the source write as fast as it can while pg_recvlogical, or pgmirror, follows it on the same two cores: what
// counts is the time from the first write until the last is there.
func (b *bench) steady(ctx context.Context, pg *harness.Postgres) error {
	version, err := majorVersion(pg)
	if err != nil {
		return err
	}
	var ours, beside, lag []float64
	for round := range b.rounds {
		bare := func() error {
			r, err := b.followBare(ctx, pg, version)
			beside = append(beside, r.rate)
			return err
		}
		mirrored := func() error {
			r, err := b.followMirrored(ctx, pg)
			ours, lag = append(ours, r.rate), append(lag, inMillis(r.lag))
			return err
		}
		sides := []func() error{bare, mirrored}
		if round%2 == 1 {
			sides = []func() error{mirrored, bare}
		}
		for _, side := range sides {
			if err := side(); err != nil {
				return err
			}
		}
		b.say("steady, round %d: pg_recvlogical %s, pgmirror %s, %.0f ms behind at the end", round+1, rate(beside[round]), rate(ours[round]), lag[round])
	}
	b.report.add(line{"steady rate: writers at full speed, followed", spread(ours, rate), "`pg_recvlogical`, same options, to /dev/null: " + spread(beside, rate),
		spread(ratios(ours, beside), times), goals{atLeast(median(ratios(ours, beside)), 0.9, "%g")},
		fmt.Sprintf("%d connections write %s row changes of the HyBench mix on the same cores; first write to last visible; %.0f ms after the last write", writers, amount(b.scaled(steadyRows)), median(lag))})
	return nil
}

// followed is one side of a round.
type followed struct {
	rate float64       // rows a second
	lag  time.Duration // from the last write until it was there
}

// follow writes and waits until arrived says that everything is there.
func (b *bench) follow(ctx context.Context, pg *harness.Postgres, arrived func() error) (f followed, err error) {
	began := time.Now()
	rows, err := writeBacklog(ctx, pg, b.scaled(steadyRows))
	if err != nil {
		return f, err
	}
	wrote := time.Now()
	err = arrived()
	return followed{float64(rows) / time.Since(began).Seconds(), time.Since(wrote)}, err
}

// followMirrored starts the mirror and lets it catch up first.
func (b *bench) followMirrored(ctx context.Context, pg *harness.Postgres) (f followed, err error) {
	m, err := b.startMirror(pg, liveMirror.name)
	if err != nil {
		return f, err
	}
	if err := m.ready(ctx); err != nil {
		return f, err
	}
	if err := b.caughtUp(ctx, pg, m); err != nil {
		return f, err
	}
	f, err = b.follow(ctx, pg, func() error { return b.caughtUp(ctx, pg, m) })
	if err != nil {
		return f, err
	}
	_, err = m.stop()
	return f, err
}

// followBare counts a change as there when the walsender says that it has sent it.
func (b *bench) followBare(ctx context.Context, pg *harness.Postgres, version int) (f followed, err error) {
	const slot = "beside"
	if err := pg.Exec("SELECT pg_create_logical_replication_slot('" + slot + "', 'pgoutput')"); err != nil {
		return f, err
	}
	args := []string{"-d", pg.URL(mirrorRole, "postgres"), "--slot", slot, "--start", "-f", "/dev/null", "-F", "0"}
	for _, o := range pluginOptions(version) {
		args = append(args, "-o", o[0]+"="+o[1])
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.pgbin, "pg_recvlogical"), args...)
	if err := cmd.Start(); err != nil {
		return f, err
	}
	defer func() {
		err = errors.Join(err, cmd.Process.Signal(os.Interrupt), cmd.Wait(), dropSlot(ctx, pg, slot))
	}()
	conn, err := pgx.Connect(ctx, pg.URL("postgres", "postgres"))
	if err != nil {
		return f, err
	}
	defer conn.Close(ctx)
	if err := sent(ctx, conn, slot, "0/0"); err != nil { // it has begun
		return f, err
	}
	return b.follow(ctx, pg, func() error {
		end, err := walEnd(ctx, pg)
		if err != nil {
			return err
		}
		return sent(ctx, conn, slot, end.String())
	})
}

// sent waits until a slot's walsender has sent everything up to an LSN.
func sent(ctx context.Context, conn *pgx.Conn, slot, lsn string) error {
	for {
		var done bool
		err := conn.QueryRow(ctx, `SELECT coalesce((SELECT r.state = 'streaming' AND r.sent_lsn >= $2::pg_lsn FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid
			WHERE s.slot_name = $1), false)`, slot, lsn).Scan(&done)
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}
