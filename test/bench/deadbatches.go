package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	deadBatchRuns = 7 // of each side, after one to warm up
	deadBatchTime = 200 * time.Millisecond
)

// deadBatchShape is one of those by which dead buffers are measured: rows that only grow, or replace each other over 16 keys, in batches of 1,024.
type deadBatchShape struct {
	replace       bool
	rows, payload int // payload in bytes
}

// deadBatchShapes are those of mirror.BenchmarkDeadBatches.
func deadBatchShapes() (shapes []deadBatchShape) {
	for _, replace := range []bool{false, true} {
		for _, rows := range []int{4096, 32768} {
			for _, payload := range []int{16, 256} {
				shapes = append(shapes, deadBatchShape{replace, rows, payload})
			}
		}
	}
	return shapes
}

// benchmark is the name of the shape's.
func (s deadBatchShape) benchmark(bury bool) string {
	kind := "append"
	if s.replace {
		kind = "upsert"
	}
	return fmt.Sprintf("DeadBatches/%s/rows=%d/payload=%d/bury=%t", kind, s.rows, s.payload, bury)
}

func (s deadBatchShape) String() string {
	keys := "a key each"
	if s.replace {
		keys = "over 16 keys"
	}
	return fmt.Sprintf("%d rows of %d bytes, %s", s.rows, s.payload, keys)
}

// less is how many times less memory stays when dead batches are buried: of rows that replace each other, one batch.
func (s deadBatchShape) less() float64 {
	if s.replace {
		return float64(s.rows / 1024)
	}
	return 1
}

// deadBatches measures what it costs the arrival of rows that dead batches are buried (docs/decisions/0030), and how much memory it
// wins. Each run is a process of its own: none collects another's garbage.
func (b *bench) deadBatches(ctx context.Context) error {
	program, err := b.testProgram(ctx, "mirror", "mirror.test")
	if err != nil {
		return err
	}
	for _, s := range deadBatchShapes() {
		if err := b.deadBatchesOf(ctx, program, s); err != nil {
			return err
		}
	}
	return nil
}

// deadBatchesOf runs a shape without burying and with it, to and fro.
func (b *bench) deadBatchesOf(ctx context.Context, program string, s deadBatchShape) error {
	var took [2][]float64 // milliseconds: without, with
	var stay [2]float64   // bytes
	for round := range 1 + deadBatchRuns {
		order := []int{0, 1}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			name := s.benchmark(i == 1)
			found, err := runBenchmark(ctx, program, name, deadBatchTime)
			if err != nil {
				return err
			}
			one, bytes := found.value(name, "ns/op"), found.value(name, "retained-B")
			if err := errors.Join(one.err, bytes.err); err != nil {
				return err
			}
			if stay[i] = bytes.v; round > 0 {
				took[i] = append(took[i], one.v/1e6)
			}
		}
	}
	r := ratios(took[1], took[0])
	b.say("%s: %s, %s without burying", s, spread(took[1], fineMillis), spread(took[0], fineMillis))
	b.report.add(line{"arrival, dead batches buried: " + s.String(), spread(took[1], fineMillis), "none buried: " + spread(took[0], fineMillis), spread(r, times),
		goals{atMost(median(r), 1.05, "%g").of("time"), equal(stay[0]/stay[1], s.less(), "1/%g").of("bytes")},
		fmt.Sprintf("%d runs each; %.0f bytes stay, of %.0f; batches of 1,024 rows, commits of 64", deadBatchRuns, stay[1], stay[0])})
	return nil
}
