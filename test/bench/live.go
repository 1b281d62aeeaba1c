package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pglogrepl"

	"pgmirror/duckdb"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

// live measures a mirror of 10 million rows: the drain of a backlog, the steady rate, a restart, and
// freshness under writes.
func (b *bench) live(ctx context.Context) (err error) {
	pg, m, rows, err := b.mirrorHybench(ctx, liveMirror.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(pg)) }()
	b.say("copied %d rows, %.1f s after the start", rows, time.Since(m.began).Seconds())
	if _, err := m.stop(); err != nil {
		return err
	}
	if err := b.drain(ctx, pg, liveMirror, backlogRows, "HyBench write mix", rows); err != nil {
		return err
	}
	if err := b.steady(ctx, pg); err != nil {
		return err
	}
	if _, err := b.restart(ctx, pg, liveMirror, rows); err != nil {
		return err
	}
	if err := b.ablation(ctx, pg); err != nil {
		return err
	}
	return b.freshness(ctx, pg, rows)
}

// liveMirror is the mirror of the section live.
var liveMirror = watched{name: "live", largest: "public.transfer"}

// watched is a mirror that sections start again and again.
type watched struct {
	name    string // of its data directory and slot
	largest string // of its tables
	args    []string
}

// backlogRows is the number of row changes that each round drains.
const backlogRows = 1_200_000

// drain writes a backlog of a mix while the mirror is down, and lets pg_recvlogical and pgmirror read it, each from its own slot at the
// same place. The tables have base rows.
func (b *bench) drain(ctx context.Context, pg *harness.Postgres, w watched, backlog int, mix string, base int) error {
	version, err := majorVersion(pg)
	if err != nil {
		return err
	}
	var ours, beside, stream, cpuVisible, cpuDurable []float64
	for round := range b.rounds {
		rows, err := writeBacklog(ctx, pg, b.scaled(backlog))
		if err != nil {
			return err
		}
		end, err := walEnd(ctx, pg)
		if err != nil {
			return err
		}
		slot := fmt.Sprintf("beside_%d", round)
		if err := pg.Exec(fmt.Sprintf("SELECT pg_copy_logical_replication_slot('%s', '%s')", w.name, slot)); err != nil {
			return err
		}
		var run drained
		bare := func() error {
			took, err := b.recvlogical(ctx, pg, slot, version, end)
			beside = append(beside, float64(rows)/took.Seconds())
			return errors.Join(err, dropSlot(ctx, pg, slot))
		}
		mirrored := func() (err error) {
			run, err = b.drainOnce(ctx, pg, w, end)
			return err
		}
		order := []func() error{bare, mirrored}
		if round%2 == 1 {
			order = []func() error{mirrored, bare}
		}
		for _, side := range order {
			if err := side(); err != nil {
				return err
			}
		}
		million := float64(rows) / 1e6
		ours = append(ours, float64(rows)/run.whole.Seconds())
		stream = append(stream, float64(rows)/run.streaming.Seconds())
		cpuVisible = append(cpuVisible, run.cpuVisible/million)
		cpuDurable = append(cpuDurable, run.cpuDurable/million)
		b.say("round %d: %d rows, pg_recvlogical %s, pgmirror %s (from the stream's start %s)", round+1, rows,
			rate(beside[round]), rate(ours[round]), rate(stream[round]))
	}
	b.report.add(line{"drain of a backlog, process start to visible", spread(ours, rate), "`pg_recvlogical`, same options, to /dev/null: " + spread(beside, rate),
		spread(ratios(ours, beside), times), goals{atLeast(median(ratios(ours, beside)), 0.9, "%g")}, fmt.Sprintf("%d rounds of %s row changes, %s, onto %s rows", b.rounds, amount(b.scaled(backlog)), mix, amount(base))})
	b.report.add(line{"drain, stream start to visible", spread(stream, rate), "as above", spread(ratios(stream, beside), times), nil, "without starting and recovery"})
	seconds := func(v float64) string { return fmt.Sprintf("%.1f s", v) }
	b.report.add(line{"CPU per 1M row changes, until visible", spread(cpuVisible, seconds), "with the last checkpoint: " + spread(cpuDurable, seconds), "", nil, "all threads; a whole life of the process"})
	return nil
}

func (b *bench) scaleOf(rows int) float64 { return float64(b.scaled(rows)) }

// recvlogical reads a slot up to end and throws it away.
func (b *bench) recvlogical(ctx context.Context, pg *harness.Postgres, slot string, version int, end pglogrepl.LSN) (time.Duration, error) {
	args := []string{"-d", pg.URL(mirrorRole, "postgres"), "--slot", slot, "--start", "--endpos", end.String(), "-f", "/dev/null", "-F", "0"}
	for _, o := range pluginOptions(version) {
		args = append(args, "-o", o[0]+"="+o[1])
	}
	began := time.Now()
	out, err := exec.CommandContext(ctx, filepath.Join(b.pgbin, "pg_recvlogical"), args...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pg_recvlogical: %w\n%s", err, out)
	}
	return time.Since(began), nil
}

// drained is one drain by pgmirror.
type drained struct {
	whole, streaming       time.Duration // from the process's, the stream's start until visible
	cpuVisible, cpuDurable float64       // seconds
}

// drainOnce starts the mirror, waits until it shows everything, and stops it.
func (b *bench) drainOnce(ctx context.Context, pg *harness.Postgres, w watched, end pglogrepl.LSN) (d drained, err error) {
	m, err := b.startMirror(pg, w.name, w.args...)
	if err != nil {
		return d, err
	}
	if err := m.ready(ctx); err != nil {
		return d, err
	}
	streaming := time.Now()
	if err := m.visible(ctx, end); err != nil {
		return d, err
	}
	d.whole, d.streaming = time.Since(m.began), time.Since(streaming)
	if d.cpuVisible, err = cpuSeconds(m.cmd.Process.Pid); err != nil {
		return d, err
	}
	d.cpuDurable, err = m.stop()
	return d, err
}

// restart measures a clean start up to the first answer, in seconds.
func (b *bench) restart(ctx context.Context, pg *harness.Postgres, w watched, rows int) (seconds []float64, err error) {
	for range b.rounds {
		m, err := b.startMirror(pg, w.name, w.args...)
		if err != nil {
			return nil, err
		}
		if err := m.answers(ctx, w.largest); err != nil {
			return nil, err
		}
		seconds = append(seconds, time.Since(m.began).Seconds())
		if _, err := m.stop(); err != nil {
			return nil, err
		}
	}
	b.report.add(line{fmt.Sprintf("restart of %s rows, clean, to the first DuckDB answer", amount(rows)),
		spread(seconds, inSeconds), "", "", goals{atMost(median(seconds), 5, "%g s")}, "process start to `count(*)` of the largest table, embedded engine included"})
	return seconds, nil
}

// answers waits for the first answer of a fresh DuckDB, about a table.
func (p *mirrorProcess) answers(ctx context.Context, table string) error {
	for {
		client, err := p.dial(ctx)
		if err != nil {
			return err
		}
		state, err := client.Pin(ctx, readstate.PinRequest{})
		if err == nil {
			state.Release()
			err = func() error {
				db, err := duckdb.Open(ctx, duckdb.Config{Source: client})
				if err != nil {
					return err
				}
				defer db.Close()
				_, err = db.Query(ctx, "SELECT count(*) FROM "+table)
				return err
			}()
			return errors.Join(err, client.Close())
		}
		client.Close()
		if err := p.pause(ctx, err); err != nil {
			return err
		}
	}
}
