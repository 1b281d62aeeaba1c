package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"pgmirror/test/harness"
)

// The rates of row changes, and how long each is written.
var freshnessRates = []int{1_000, 5_000, 10_000}

const (
	warmUp       = 3 * time.Second
	freshnessFor = 12 * time.Second
	floorFor     = 4 * time.Second
)

// freshness measures at each rate how long a commit takes to an answer, and what the mirror costs meanwhile.
func (b *bench) freshness(ctx context.Context, pg *harness.Postgres, rows int) (err error) {
	m, err := b.startMirror(pg, liveMirror.name)
	if err != nil {
		return err
	}
	if err := m.ready(ctx); err != nil {
		return err
	}
	for _, rate := range freshnessRates {
		if err := b.freshnessAt(ctx, pg, m, rate, rows); err != nil {
			return fmt.Errorf("at %d rows/s: %w", rate, err)
		}
	}
	if err := b.hiddenColumnLive(ctx, m); err != nil {
		return err
	}
	if err := b.verify(ctx, m); err != nil {
		return err
	}
	_, err = m.stop()
	return err
}

func (b *bench) freshnessAt(ctx context.Context, pg *harness.Postgres, m *mirrorProcess, rate, rows int) (err error) {
	load := startPaced(ctx, pg.URL("postgres", "postgres"), rate, nil)
	defer func() { err = errors.Join(err, load.end()) }()
	time.Sleep(warmUp)

	pid := m.cmd.Process.Pid
	before, err := cpuSeconds(pid)
	if err != nil {
		return err
	}
	written, began := load.rows.Load(), time.Now()
	group, inside := errgroup.WithContext(ctx)
	var engine []float64
	var seen probed
	group.Go(func() (err error) {
		engine, err = sampleEngine(inside, m, freshnessFor)
		return err
	})
	group.Go(func() error {
		return runAgain(inside, &seen, probeCommand, pg.URL("postgres", "postgres"), m.data, freshnessFor.String())
	})
	if err := group.Wait(); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	reached := float64(load.rows.Load()-written) / took
	after, err := cpuSeconds(pid)
	if err != nil {
		return err
	}
	floor, err := receiveDelays(ctx, pg, floorFor)
	if err != nil {
		return err
	}
	b.say("%d rows/s: engine %s; answer %s; wait %s; paper %s; floor %s; a question takes %s", rate, percentiles(engine), percentiles(seen.Commit),
		percentiles(seen.Wait), percentiles(seen.Paper), percentiles(floor), percentiles(seen.Query))

	what := fmt.Sprintf("freshness at %dk row changes/s: ", rate/1000)
	floorText := "bare receiver of the same stream: " + percentiles(floor)
	against := func(delays []float64) string { return times(quantile(delays, 0.5) / quantile(floor, 0.5)) }
	target := func(delays []float64) goals {
		if rate != 10_000 {
			return nil
		}
		return goals{atMost(quantile(delays, 0.5), 15, "%g ms").of("P50"), atMost(quantile(delays, 0.99), 100, "%g ms").of("P99")}
	}
	b.report.add(line{what + "commit → visible", percentiles(engine), floorText, against(engine), nil, fmt.Sprintf("the engine's own clock, %d commits; %.0f rows/s were written", len(engine), reached)})
	b.report.add(line{what + "commit returned → DuckDB answer", percentiles(seen.Commit), floorText, against(seen.Commit), target(seen.Commit),
		fmt.Sprintf("another process asks `max(id)` until it sees its row, %d commits; one question takes %s", len(seen.Commit), millis(median(seen.Query)))})
	b.report.add(line{what + "commit returned → DuckDB answer at its LSN", percentiles(seen.Wait), floorText, against(seen.Wait), target(seen.Wait),
		fmt.Sprintf("one question that waits for the commit's LSN, %d commits", len(seen.Wait))})
	b.report.add(line{what + "the Retina paper's definition", percentiles(seen.Paper), "Retina, 16 cores: P50 about 10 ms, P99 < 250 ms", "", nil,
		fmt.Sprintf("question sent less the newest `fresh_ts` it finds in savingaccount, %d questions", len(seen.Paper))})
	if rate != 10_000 {
		return nil
	}
	return b.costs(ctx, m, (after-before)/took*100, reached, rows)
}

// costs reports CPU and memory under the load.
func (b *bench) costs(ctx context.Context, m *mirrorProcess, percent, reached float64, rows int) error {
	st, err := m.status(ctx)
	if err != nil {
		return err
	}
	anonymous, mapped := residentMegabytes(m.cmd.Process.Pid)
	b.report.add(line{"CPU of the mirror at 10k row changes/s", fmt.Sprintf("%.0f %% of a core", percent), fmt.Sprintf("%.0f rows/s written", reached), "", goals{atMost(percent, 10, "%g %%")},
		"checkpoints and the reading process's questions included"})
	mb := func(bytes int64) string { return fmt.Sprintf("%.0f MB", float64(bytes)/(1<<20)) }
	b.report.add(line{fmt.Sprintf("resident memory there, %s rows", amount(rows)), fmt.Sprintf("%.0f MB and %.0f MB of mapped files", anonymous, mapped),
		fmt.Sprintf("batches %s, MemIndex %s, FileIndex %s (mapped), visibility %s", mb(st.Memory.Batches), mb(st.Memory.MemIndex), mb(st.Memory.FileIndex), mb(st.Memory.Visibility)),
		"", goals{atMost(anonymous+mapped, 1024, "%g MB")}, "the rest of the resident memory is the Go heap's slack, Parquet writers and the program"})
	return nil
}

// sampleEvery is how often the engine is asked for its newest commit.
const sampleEvery = 50 * time.Millisecond

// sampleEngine collects the time from commit to visible, in milliseconds, of the commits that happen to be the newest.
func sampleEngine(ctx context.Context, m *mirrorProcess, length time.Duration) (delays []float64, err error) {
	client, err := m.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	last := ""
	for end := time.Now().Add(length); time.Now().Before(end); {
		st, err := statusOf(ctx, client)
		if err != nil {
			return nil, err
		}
		if st.LastCommitTime != last {
			last = st.LastCommitTime
			delays = append(delays, st.FreshnessSeconds*1000)
		}
		time.Sleep(sampleEvery)
	}
	return delays, nil
}
