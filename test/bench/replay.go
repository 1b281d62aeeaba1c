package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"

	"github.com/jackc/pgx/v5"

	"pgmirror/mirror"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

// replayed is a mix whose stream is captured and played to the engine.
type replayed struct {
	workload
	base  float64 // of the scale
	rows  int     // row changes captured
	goal  float64 // rows a second, in thousands
	limit float64 // percent of a core at 10k rows/s; 0: none
	paper string  // the slope that the Retina paper reports
	// hiddenBits a row is what the hidden column may take.
	hiddenBits float64
}

var replayedMixes = []replayed{
	{hybench, 0.2, 2_000_000, 400, 10, "1.73 %", hiddenBitsHyBench},
	{chbench, 1, 1_200_000, 200, 0, "3.29 %", hiddenBitsCH},
}

// Checkpoints come often, so that a run of a second or two has some, and each part of one at several rates.
const (
	replayCheckpoints = time.Second
	slopeCheckpoints  = 5 * time.Second
)

// replays runs the engine in this process on captured streams: no server and no network take part.
func (b *bench) replays(ctx context.Context) error {
	for _, r := range replayedMixes {
		if err := b.replayMix(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

// replayMix lets as many mirrors as there are rounds, and one more, copy the tables; records one stream that begins there;
// and plays it to each, to the last at rates.
func (b *bench) replayMix(ctx context.Context, r replayed) (err error) {
	pg, err := b.startServer("replay-" + r.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(pg)) }()
	base, err := r.publish(pg, b.scale*r.base)
	if err != nil {
		return err
	}
	var players []*player
	defer func() {
		for _, p := range players {
			err = errors.Join(err, p.stop())
		}
	}()
	for i := range b.rounds + 1 {
		checkpoints := replayCheckpoints
		if i == b.rounds {
			checkpoints = slopeCheckpoints
		}
		p, err := b.startPlayer(ctx, pg, fmt.Sprintf("replay_%d", i), mirror.Config{CheckpointInterval: checkpoints})
		if err != nil {
			return err
		}
		players = append(players, p)
	}
	b.say("%s: %d rows, copied by %d mirrors", r.name, base, len(players))
	tape, err := b.record(ctx, pg, players[0].slot, func() (int, error) { return writeBacklog(ctx, pg, b.scaled(r.rows)) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tape.close()) }()
	b.say("%s: %d row changes in %d transactions captured", r.name, tape.rows, tape.commits)
	if err := b.replayRounds(ctx, r, tape, players[:b.rounds], base); err != nil {
		return err
	}
	if err := b.replaySlope(ctx, r, tape, players[b.rounds]); err != nil {
		return err
	}
	if r.name != hybench.name {
		return nil
	}
	return b.commitRate(ctx, pg)
}

// replayRounds plays the tape as fast as each player takes it.
func (b *bench) replayRounds(ctx context.Context, r replayed, tape *capture, players []*player, base int) error {
	var visible, durable, decoded, cpu, amp []float64
	var written mirror.WrittenStatus
	checkpoints := 0
	for i, p := range players {
		alone, err := decodeTape(tape)
		if err != nil {
			return err
		}
		profile := ""
		if i == len(players)-1 {
			profile = b.profile
		}
		finish, err := startProfile(profile, r.name)
		if err != nil {
			return err
		}
		took, err := p.playAll(ctx, tape)
		if err := errors.Join(err, finish()); err != nil {
			return err
		}
		rows := float64(tape.rows)
		decoded = append(decoded, rows/alone.Seconds())
		visible = append(visible, rows/took.visible.Seconds())
		durable = append(durable, rows/took.durable.Seconds())
		cpu = append(cpu, took.cpu/rows*1e6)
		checkpoints = max(checkpoints, took.checkpoints)
		b.say("%s, round %d: visible %s, durable %s, decoded %s, %.0f ns CPU a row, %d checkpoints", r.name, i+1,
			rate(visible[i]), rate(durable[i]), rate(decoded[i]), cpu[i]*1000, took.checkpoints)
		st, err := p.status(ctx)
		if err != nil {
			return err
		}
		written = st.Written
		amp = append(amp, amplification(written))
		if err := p.verify(ctx); err != nil {
			return err
		}
		if i == len(players)-1 {
			if err := b.hiddenColumn(ctx, p.mirror, r.name+", captured", r.hiddenBits, tape.created); err != nil {
				return err
			}
		}
		if err := p.stop(); err != nil {
			return err
		}
	}
	note := fmt.Sprintf("binary pgoutput, %s row changes in %s transactions onto %s rows, a checkpoint every %s (%d), compared with the source at the end",
		amount(tape.rows), amount(tape.commits), amount(base), replayCheckpoints, checkpoints)
	b.report.add(line{r.name + ", captured: replay, to visible", spread(visible, rate), "the same bytes, staged and decoded only, one core: " + spread(decoded, rate),
		spread(ratios(visible, decoded), times), nil, note})
	b.report.add(line{r.name + ", captured: until all of it is durable", spread(durable, rate), "Retina: 201k rows/s", "",
		goals{atLeast(median(durable)/1e3, r.goal, "%gk rows/s")}, "Parquet, FileIndex, vectors, Iceberg commits, fsync"})
	b.report.add(line{r.name + ", captured: CPU per 1M row changes of it", spread(cpu, func(v float64) string { return fmt.Sprintf("%.2f s", v) }), "", "", nil,
		"all of the engine, GC and encoding included"})
	megabytes := func(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
	b.report.add(line{r.name + ", captured: bytes written for each byte of the row changes", spread(amp, times), "", "", goals{atMost(median(amp), 6, "%g")},
		fmt.Sprintf("of %s: flushes %s, compaction %s, vectors %s, metadata %s, FileIndexes %s", megabytes(written.Changes), megabytes(written.Flush),
			megabytes(written.Compaction), megabytes(written.Vectors), megabytes(written.Metadata), megabytes(written.Index))})
	return nil
}

// record copies a slot, lets write write, and captures what the copy sends. write returns the row changes.
func (b *bench) record(ctx context.Context, pg *harness.Postgres, slot string, write func() (int, error)) (*capture, error) {
	if err := pg.Exec(fmt.Sprintf("SELECT pg_copy_logical_replication_slot('%s', 'captured')", slot)); err != nil {
		return nil, err
	}
	rows, err := write()
	if err != nil {
		return nil, err
	}
	end, err := walEnd(ctx, pg)
	if err != nil {
		return nil, err
	}
	tape, err := recordTape(ctx, pg, "captured", filepath.Join(b.dir, slot+".tape"), end)
	if err != nil {
		return nil, err
	}
	if tape.rows != rows {
		return nil, errors.Join(fmt.Errorf("%d row changes were written, %d captured", rows, tape.rows), tape.close())
	}
	return tape, dropSlot(ctx, pg, "captured")
}

// decodeTape measures the decoder alone.
func decodeTape(tape *capture) (time.Duration, error) {
	began := time.Now()
	err := tape.decode(func(tx *pgcdc.Transaction) error {
		defer tx.Release()
		return tx.Changes(func(*pgcdc.Change) error { return nil })
	})
	return time.Since(began), err
}

// played is what one replay took.
type played struct {
	visible, durable time.Duration
	cpu              float64 // seconds
	checkpoints      int
}

// playAll plays a tape at once and then asks for a checkpoint.
func (p *player) playAll(ctx context.Context, tape *capture) (t played, err error) {
	before, cpu, began := p.source.checkpoints.Load(), ownCPUSeconds(), time.Now()
	p.source.begin <- tape.decode
	if err := p.sees(ctx, tape); err != nil {
		return t, err
	}
	t.visible = time.Since(began)
	if _, err := p.mirror.Call(ctx, "checkpoint", nil, nil); err != nil {
		return t, err
	}
	t.durable = time.Since(began)
	t.cpu = ownCPUSeconds() - cpu
	t.checkpoints = int(p.source.checkpoints.Load() - before)
	return t, nil
}

// status asks the mirror.
func (p *player) status(ctx context.Context) (st mirror.Status, err error) {
	text, err := p.mirror.Status(ctx)
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	return st, err
}

// amplification is how many bytes were written for each byte of the row changes, those of the first copy left out.
func amplification(w mirror.WrittenStatus) float64 {
	return float64(w.Flush+w.Compaction+w.Vectors+w.Metadata+w.Index) / float64(w.Changes)
}

// sees waits until the end of a tape is visible.
func (p *player) sees(ctx context.Context, tape *capture) error {
	state, err := p.mirror.Pin(ctx, readstate.PinRequest{WaitLSN: tape.end, Timeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	state.Release()
	return nil
}

// verify lets the mirror compare itself with the source.
func (p *player) verify(ctx context.Context) error {
	report, err := p.mirror.Verify(ctx, mirror.VerifyRequest{}, func(string) {})
	if err != nil || report.Equal {
		return err
	}
	text, err := json.MarshalIndent(report, "", "  ")
	return errors.Join(fmt.Errorf("the mirror differs from the source:\n%s", text), err)
}

// commits is how many transactions of one row commitRate plays.
const commits = 300_000

// commitRate plays transactions of one row each: every one of them is a step of the high watermark.
func (b *bench) commitRate(ctx context.Context, pg *harness.Postgres) (err error) {
	p, err := b.startPlayer(ctx, pg, "commits", mirror.Config{CheckpointInterval: replayCheckpoints})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	n := b.scaled(commits)
	tape, err := b.record(ctx, pg, p.slot, func() (int, error) { return n, writeCommits(ctx, pg, n) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tape.close()) }()
	if tape.commits < n {
		return fmt.Errorf("%d transactions, %d in the stream", n, tape.commits)
	}
	took, err := p.playAll(ctx, tape)
	if err != nil {
		return err
	}
	perSecond := float64(n) / took.visible.Seconds()
	b.report.add(line{"transactions of one row: commits published by a step of HWM each", fmt.Sprintf("%.2fM/s", perSecond/1e6), "Retina's transaction service: 2.67M begin and commit/s, without rows", "", nil,
		fmt.Sprintf("%s captured inserts into one table: decoding, the row, its index entry and its visibility included", amount(n))})
	return p.verify(ctx)
}

// writeCommits inserts rows into pings, each in a transaction of its own.
func writeCommits(ctx context.Context, pg *harness.Postgres, n int) error {
	conn, err := pgx.Connect(ctx, pg.URL("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{"SET synchronous_commit = off",
		fmt.Sprintf("DO $$ BEGIN FOR i IN 1..%d LOOP INSERT INTO pings VALUES (-i, now()); COMMIT; END LOOP; END $$", n)} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("write commits: %w", err)
		}
	}
	return nil
}

// startProfile begins a CPU profile beside path, named after a mix; no path makes none.
func startProfile(path, mix string) (finish func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path + "-" + mix)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
