package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"pgmirror/deletion"
)

// componentRows is the size of what components measures, at every scale: it takes seconds.
const componentRows = 10_000_000

// components measures each structure alone, in the order of the Retina paper's table.
func (b *bench) components(ctx context.Context) error {
	for _, part := range []func(context.Context) error{b.writeBuffer, b.deadBatches, b.visibilityDeletes, b.visibilityReads, b.visibilitySize, b.indexUpdates, b.fileIndexSize} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func perMillion(v float64) string { return fmt.Sprintf("%.1fM/s", v/1e6) }

// writeBuffer appends rows to a memtable, and applies transactions to one: the parts are mirror's own, and so are the benchmarks.
func (b *bench) writeBuffer(ctx context.Context) error {
	found, err := goBench(ctx, "mirror", "^(BenchmarkAdd|BenchmarkApply)$")
	if err != nil {
		return err
	}
	fixed, text, apply := found.value("Add/fixed", "Mrows/s"), found.value("Add/text", "Mrows/s"), found.value("Apply", "Mrows/s")
	if err := errors.Join(fixed.err, text.err, apply.err); err != nil {
		return err
	}
	b.report.add(line{"memtable: rows appended, one core", fmt.Sprintf("%.1fM/s of six fixed columns, %.1fM/s with a text", fixed.v, text.v), "Retina: 3.37M/s a buffer", times(fixed.v / 3.37),
		nil, "decoding, the row's index entry and the change of batch included"})
	b.report.add(line{"apply: updates in transactions of three, one core", fmt.Sprintf("%.1fM rows/s", apply.v), "", "", nil, "from the message to HWM, of 8,192 rows in memory"})
	return nil
}

// visibilityDeletes deletes every row once, at an LSN of its own, with one writer, and with two on a Visibility each.
func (b *bench) visibilityDeletes(context.Context) error {
	const rows = 16_800_000
	deleteAll := func(order []int) error {
		v := deletion.NewVisibility(1)
		for i, row := range order {
			if err := v.Delete(uint32(row), deletion.LSN(2+100*i)); err != nil {
				return err
			}
		}
		return nil
	}
	random := rand.New(rand.NewPCG(11, 12))
	whole, half := random.Perm(rows), random.Perm(rows/2)
	var one, two []float64
	for range b.rounds {
		began := time.Now()
		if err := deleteAll(whole); err != nil {
			return err
		}
		one = append(one, rows/time.Since(began).Seconds())
		began = time.Now()
		var both errgroup.Group
		for range 2 {
			both.Go(func() error { return deleteAll(half) })
		}
		if err := both.Wait(); err != nil {
			return err
		}
		two = append(two, rows/time.Since(began).Seconds())
	}
	b.report.add(line{"visibility: deletions at random, one writer", spread(one, perMillion), "Retina, 16 cores: 72.7M/s", times(median(one) / 72.7e6), nil,
		fmt.Sprintf("each of %.1fM rows once, in the order of their LSNs; two writers with half of the rows each: %s", rows/1e6, spread(two, perMillion))})
	return nil
}

// visibilityReads makes the vector of a tile anew, with so many deletions above its base, and that of a file.
func (b *bench) visibilityReads(ctx context.Context) error {
	found, err := goBench(ctx, "deletion", "^(BenchmarkAt|BenchmarkAtFile)$")
	if err != nil {
		return err
	}
	var texts []string
	for _, entries := range []int{0, 32, 256} {
		took := found.value(fmt.Sprintf("At/anew/%d", entries), "ns/op")
		if took.err != nil {
			return took.err
		}
		texts = append(texts, fmt.Sprintf("%.2f with %d", 4096/took.v, entries))
	}
	anew, more := found.value("AtFile/anew", "ns/op"), found.value("AtFile/one_more", "ns/op")
	if err := errors.Join(anew.err, more.err); err != nil {
		return err
	}
	b.report.add(line{"visibility: a file of 10M rows, 1 % deleted, read at an LSN", fmt.Sprintf("%.2f ms after one more deletion", more.v/1e6), fmt.Sprintf("all anew: %.2f ms", anew.v/1e6), times(more.v / anew.v), nil,
		"as a frozen vector for any number of queries; a tile of 4,096 rows, in billion rows/s: " + strings.Join(texts, ", ") + " deletions above its base"})
	return nil
}

// visibilitySize deletes rows at random, each at an LSN of its own, and looks at the size before and after folding.
func (b *bench) visibilitySize(context.Context) error {
	rows := componentRows
	for _, c := range []struct {
		part  float64
		limit float64 // bits a row
	}{{0.01, 0.3}, {1, 1.16}} {
		v := deletion.NewVisibility(1)
		order := rand.New(rand.NewPCG(1, 2)).Perm(rows)[:int(float64(rows)*c.part)]
		for i, row := range order {
			if err := v.Delete(uint32(row), deletion.LSN(2+100*i)); err != nil {
				return err
			}
		}
		fresh := float64(v.Bytes()) * 8 / float64(rows)
		last := deletion.LSN(2 + 100*len(order))
		v.Fold(last)
		folded := float64(v.Bytes()) * 8 / float64(rows)
		vector, err := v.At(last, uint32(rows))
		if err != nil {
			return err
		}
		blob, err := vector.MarshalBlob()
		if err != nil {
			return err
		}
		b.report.add(line{fmt.Sprintf("visibility, %.0f %% of %.0fM rows deleted at random", c.part*100, float64(rows)/1e6), fmt.Sprintf("%.2f bits/row folded", folded),
			fmt.Sprintf("with every LSN still kept: %.2f bits/row", fresh), times(folded / fresh), goals{atMost(folded, c.limit, "%g bits/row")},
			fmt.Sprintf("Retina: 1.16; its vector in Puffin: %.2f bits/row (Retina: 0.95)", float64(len(blob))*8/float64(rows))})
	}
	return nil
}
