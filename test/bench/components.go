package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"pgmirror/deletion"
	"pgmirror/globalindex"
)

// componentRows is the size of what components measures, at every scale: it takes seconds.
const componentRows = 10_000_000

// components measures what a row costs in each structure.
func (b *bench) components(ctx context.Context) error {
	if err := b.visibilitySize(); err != nil {
		return err
	}
	return b.fileIndexSize()
}

// visibilitySize deletes rows at random, each at an LSN of its own, and looks at the size before and after folding.
func (b *bench) visibilitySize() error {
	rows := componentRows
	for _, c := range []struct {
		part  float64
		limit float64 // bits a row
	}{{0.01, 0.3}, {1, 1.16}} {
		v := deletion.NewVisibility(1)
		order := rand.New(rand.NewPCG(1, 2)).Perm(rows)[:int(float64(rows)*c.part)]
		began := time.Now()
		for i, row := range order {
			if err := v.Delete(uint32(row), deletion.LSN(2+100*i)); err != nil {
				return err
			}
		}
		perSecond := float64(len(order)) / time.Since(began).Seconds()
		bits := func() float64 { return float64(v.Bytes()) * 8 / float64(rows) }
		fresh := bits()
		v.Fold(deletion.LSN(2 + 100*len(order)))
		b.report.add(line{fmt.Sprintf("visibility, %.0f %% of %.0fM rows deleted at random", c.part*100, float64(rows)/1e6), fmt.Sprintf("%.2f bits/row folded", bits()),
			fmt.Sprintf("with every LSN still kept: %.2f bits/row", fresh), times(bits() / fresh), goals{atMost(bits(), c.limit, "%g bits/row")}, fmt.Sprintf("%.1fM deletions/s", perSecond/1e6)})
	}
	return nil
}

// fileIndexSize builds an index over four files and looks every kind of key up, beside a Go map of the same keys.
func (b *bench) fileIndexSize() error {
	const files = 4
	const rows = componentRows / files * files
	h := globalindex.Header{KeyKind: globalindex.KeyInt, HashID: globalindex.SplitMix64, Columns: []int32{1}}
	hashes := make([][]uint64, files)
	for f := range files {
		h.Files = append(h.Files, globalindex.FileRef{Path: fmt.Sprintf("f%d.parquet", f), Rows: uint64(rows / files)})
		for i := range rows / files {
			hashes[f] = append(hashes[f], globalindex.HashInt(int64(f*(rows/files)+i)))
		}
	}
	began := time.Now()
	data, err := globalindex.BuildFileIndex(h, hashes)
	if err != nil {
		return err
	}
	built := time.Since(began)
	x, err := globalindex.OpenFileIndex(data)
	if err != nil {
		return err
	}
	const lookups = 2_000_000
	keys := make([]int64, lookups)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range keys {
		keys[i] = int64(random.IntN(rows))
	}
	table := make(map[int64]globalindex.FileLocation, rows)
	for i := range rows {
		table[int64(i)] = globalindex.FileLocation{File: uint32(i / (rows / files)), Row: uint32(i % (rows / files))}
	}
	var ours, beside []float64
	var found []globalindex.FileLocation
	for range b.rounds {
		began = time.Now()
		for _, k := range keys {
			if found = x.Candidates(globalindex.HashInt(k), found[:0]); len(found) != 1 {
				return fmt.Errorf("key %d: %d candidates", k, len(found))
			}
		}
		ours = append(ours, lookups/time.Since(began).Seconds())
		began = time.Now()
		for _, k := range keys {
			if _, ok := table[k]; !ok {
				return fmt.Errorf("key %d is not in the map", k)
			}
		}
		beside = append(beside, lookups/time.Since(began).Seconds())
	}
	millions := func(v float64) string { return fmt.Sprintf("%.1fM/s", v/1e6) }
	perRow := float64(len(data)) / float64(rows)
	b.report.add(line{fmt.Sprintf("FileIndex of %.0fM rows", float64(rows)/1e6), fmt.Sprintf("%.1f B/row", perRow), "the raw bigint keys: 8 B/row", times(perRow / 8), goals{atMost(perRow, 10, "%g B/row")},
		fmt.Sprintf("4 files; built with %s", rate(float64(rows)/built.Seconds()))})
	b.report.add(line{"FileIndex lookups, warm, one core", spread(ours, millions), "a Go map of the same keys: " + spread(beside, millions), spread(ratios(ours, beside), times), goals{atLeast(median(ours)/1e6, 1, "%gM/s")}, "random keys that exist"})
	return nil
}
