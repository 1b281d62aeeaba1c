package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"pgmirror/globalindex"
)

const (
	indexTables   = 8 // of componentRows rows each, at scale 1
	indexUpdates  = 4_000_000
	memtableRows  = 8_192 // a batch's
	lookups       = 2_000_000
	filterBitsKey = 10 // of a FileIndex, docs/formats/file-index.md
)

// sequentialIndex is a FileIndex of the keys 0, 1, … over some files.
func sequentialIndex(rows, files int) ([]byte, *globalindex.FileIndex, error) {
	h := globalindex.Header{KeyKind: globalindex.KeyInt, HashID: globalindex.SplitMix64, Columns: []int32{1}}
	hashes := make([][]uint64, files)
	for f := range files {
		h.Files = append(h.Files, globalindex.FileRef{Path: fmt.Sprintf("f%d.parquet", f), Rows: uint64(rows / files)})
		for i := range rows / files {
			hashes[f] = append(hashes[f], globalindex.HashInt(int64(f*(rows/files)+i)))
		}
	}
	data, err := globalindex.BuildFileIndex(h, hashes)
	if err != nil {
		return nil, nil, err
	}
	x, err := globalindex.OpenFileIndex(data)
	return data, x, err
}

// indexUpdates moves keys from where a FileIndex finds them to a memtable's index, as the first update of a row does.
func (b *bench) indexUpdates(context.Context) error {
	tables := max(1, b.scaled(indexTables))
	var indexes []*globalindex.FileIndex
	bytes := int64(0)
	for range tables {
		data, x, err := sequentialIndex(componentRows, 1)
		if err != nil {
			return err
		}
		indexes = append(indexes, x)
		bytes += int64(len(data))
	}
	random := rand.New(rand.NewPCG(13, 14))
	skewed := rand.NewZipf(random, 1.01, 1, componentRows-1)
	run := func(key func() int64) (float64, error) {
		memory := make([]*globalindex.MemIndex, tables)
		var found []globalindex.FileLocation
		began := time.Now()
		for i := range indexUpdates {
			t := i % tables
			m := memory[t]
			if m == nil || m.Len() >= memtableRows {
				m = globalindex.NewMemIndex(0)
				memory[t] = m
			}
			hash, moved := globalindex.HashInt(key()), false
			for row := range m.Rows(hash) {
				m.Remove(hash, row)
				moved = true
				break
			}
			if !moved {
				if found = indexes[t].Candidates(hash, found[:0]); len(found) != 1 {
					return 0, fmt.Errorf("%d candidates for a key of table %d", len(found), t)
				}
			}
			m.Put(hash, uint32(i))
		}
		return indexUpdates / time.Since(began).Seconds(), nil
	}
	var uniform, power []float64
	for range b.rounds {
		u, err := run(func() int64 { return random.Int64N(componentRows) })
		if err != nil {
			return err
		}
		p, err := run(func() int64 { return int64(skewed.Uint64()) })
		if err != nil {
			return err
		}
		uniform, power = append(uniform, u), append(power, p)
	}
	perKey := float64(bytes) / float64(tables) / componentRows
	b.report.add(line{fmt.Sprintf("index: updates of %d × %.0fM keys, one core", tables, componentRows/1e6), spread(uniform, perMillion), "Retina, 64 threads, 8 × 10M keys: 0.25M/s", times(median(uniform) / 0.253e6),
		nil,
		fmt.Sprintf("a miss or a hit in the memtable's index, found in a FileIndex (%.1f B/key with its filter), put into the memtable's; keys by a Zipf law of 1.01: %s", perKey, spread(power, perMillion))})
	return nil
}

// fileIndexSize builds an index over four files and looks keys up, beside a Go map of the same keys.
func (b *bench) fileIndexSize(context.Context) error {
	const files, rows = 4, componentRows
	began := time.Now()
	data, x, err := sequentialIndex(rows, files)
	if err != nil {
		return err
	}
	built := time.Since(began)
	keys := make([]int64, lookups)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range keys {
		keys[i] = int64(random.IntN(rows))
	}
	table := make(map[int64]globalindex.FileLocation, rows)
	for i := range rows {
		table[int64(i)] = globalindex.FileLocation{File: uint32(i / (rows / files)), Row: uint32(i % (rows / files))}
	}
	var ours, beside, misses []float64
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
		began = time.Now()
		for _, k := range keys {
			if found = x.Candidates(globalindex.HashInt(k+rows), found[:0]); len(found) != 0 {
				return fmt.Errorf("key %d was found", k+rows)
			}
		}
		misses = append(misses, lookups/time.Since(began).Seconds())
	}
	perRow := float64(len(data)) / float64(rows)
	filter := float64((filterBitsKey*rows+511)/512*64) / float64(rows)
	b.report.add(line{fmt.Sprintf("FileIndex of %.0fM rows in %d files", float64(rows)/1e6, files), fmt.Sprintf("%.2f B/row, and its filter %.2f", perRow-filter, filter), "the raw bigint keys: 8 B/row", times((perRow - filter) / 8),
		goals{atMost(perRow-filter, 10, "%g B/row").of("entries"), atMost(filter*8, 10.01, "%.0f bits/row").of("filter")}, fmt.Sprintf("built with %s", rate(float64(rows)/built.Seconds()))})
	b.report.add(line{"FileIndex lookups, warm, one core", spread(ours, perMillion), "a Go map of the same keys: " + spread(beside, perMillion), spread(ratios(ours, beside), times),
		goals{atLeast(median(ours)/1e6, 1, "%gM/s")}, "random keys that exist; of ones that do not, " + spread(misses, perMillion)})
	return nil
}
