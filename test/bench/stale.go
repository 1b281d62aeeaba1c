package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pgmirror/readstate"
)

const (
	staleRate  = 10_000 // row changes a second
	staleFor   = 10 * time.Minute
	staleEvery = 5 * time.Second
)

// staleStorage measures what dead rows and vectors take in files under a steady load, and visibility in memory, compaction at its default.
func (b *bench) staleStorage(ctx context.Context) (err error) {
	pg, m, rows, err := b.mirrorHybench(ctx, "stale")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(pg)) }()
	client, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()

	began, load := time.Now(), startPaced(ctx, pg.URL("postgres", "postgres"), staleRate, nil)
	samples, bits, err := sampleStorage(ctx, client, max(4*staleEvery, time.Duration(min(1, b.scale)*float64(staleFor))))
	took := time.Since(began)
	if err := errors.Join(err, load.end()); err != nil {
		return err
	}
	var second []float64
	for _, s := range samples[len(samples)/2:] {
		second = append(second, s.stale()*100)
	}
	last := samples[len(samples)-1]
	percent := func(v float64) string { return fmt.Sprintf("%.2f %%", v) }
	b.say("stale: %s; at the end dead %.2f MB, vectors %.2f MB, live %.1f MB", spread(second, percent), last.dead/1e6, last.vectors/1e6, last.live/1e6)
	b.report.add(line{fmt.Sprintf("bytes of dead rows and vectors at %dk row changes/s", staleRate/1000), spread(second, percent), fmt.Sprintf("of those of live rows: %.1f MB", last.live/1e6), "", goals{atMost(median(second), 2.4, "%g %%")},
		fmt.Sprintf("HyBench of %s rows, %.0f rows/s written for %s, compaction and checkpoints at their defaults, a sample every %s, of the second half; at the end dead rows %.2f MB (%.1f %% of the live rows' number), vectors %.2f MB; "+
			"a file's bytes are divided evenly over its rows, and files that only older snapshots name are not counted; Retina: < 2.4 %%, HyBench SF 1333",
			amount(rows), float64(load.rows.Load())/took.Seconds(), took.Round(time.Second), staleEvery, last.dead/1e6, last.deadRows/last.rows*100, last.vectors/1e6)})
	if err := b.steadyVisibility(ctx, client, bits[len(bits)/2:], took); err != nil {
		return err
	}
	if err := b.verify(ctx, m); err != nil {
		return err
	}
	_, err = m.stop()
	return err
}

// steadyVisibility reports what visibility took in memory under the load, bits a row, and takes now that it has ended, and what the vectors take.
func (b *bench) steadyVisibility(ctx context.Context, client *readstate.Client, bits []float64, took time.Duration) error {
	state, err := client.Pin(ctx, readstate.PinRequest{})
	if err != nil {
		return err
	}
	err = b.vectorSize(fmt.Sprintf("after %s at %dk row changes/s", took.Round(time.Second), staleRate/1000), state, 0.95)
	state.Release()
	if err != nil {
		return err
	}
	pause(ctx, foldedAfter)
	folded, err := visibilityOf(ctx, client)
	if err != nil {
		return err
	}
	b.report.add(line{fmt.Sprintf("visibility in memory at %dk row changes/s", staleRate/1000), spread(bits, bitsPerRow), "folded, a minute after the last: " + bitsPerRow(folded), times(median(bits) / folded), goals{atMost(median(bits), 0.3, "%g bits/row")},
		"for each live row, sampled like the bytes of dead rows; folded every minute, until then each deletion has its LSN and takes 8 bytes; vectors kept for queries and checkpoints included; Retina: 1.16 bits/row"})
	return nil
}

// sampleStorage takes samples for a time, of files and of the bits a row that visibility takes in memory; there is one at least.
func sampleStorage(ctx context.Context, client *readstate.Client, length time.Duration) (samples []storage, bits []float64, err error) {
	for end := time.Now().Add(length); time.Now().Before(end) && pause(ctx, staleEvery); {
		s, err := storageOf(ctx, client)
		if err != nil {
			return nil, nil, err
		}
		v, err := visibilityOf(ctx, client)
		if err != nil {
			return nil, nil, err
		}
		samples, bits = append(samples, s), append(bits, v)
	}
	return samples, bits, ctx.Err()
}

// storage is what the files of a read state take, in bytes: a file's are divided evenly over its rows.
type storage struct {
	live, dead, vectors float64
	rows, deadRows      float64 // live ones, and dead ones
}

// stale is what is not live, as a part of what is.
func (s storage) stale() float64 { return (s.dead + s.vectors) / s.live }

func storageOf(ctx context.Context, client *readstate.Client) (s storage, err error) {
	state, err := client.Pin(ctx, readstate.PinRequest{})
	if err != nil {
		return s, err
	}
	defer state.Release()
	for _, t := range state.Tables {
		for _, f := range t.Files {
			if err := s.add(f); err != nil {
				return s, fmt.Errorf("%s: %w", f.Path, err)
			}
		}
	}
	return s, nil
}

func (s *storage) add(f readstate.File) error {
	deleted := 0.0
	if f.Deleted != nil {
		blob, err := f.Deleted.MarshalBlob()
		if err != nil {
			return err
		}
		s.vectors += float64(len(blob))
		deleted = float64(f.Deleted.Cardinality())
	}
	rows, bytes := float64(f.Rows), float64(f.Bytes)
	s.deadRows += deleted
	s.rows += rows - deleted
	s.dead += bytes * deleted / rows
	s.live += bytes * (rows - deleted) / rows
	return nil
}
