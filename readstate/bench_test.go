package readstate

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"pgmirror/deletion"
)

// BenchmarkPin is a pin and release of 20 tables of 17 columns whose vectors are known already.
func BenchmarkPin(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 1))
	var tables []*fakeTable
	for i := range 20 {
		tables = append(tables, newFakeTable(rnd, strconv.Itoa(10+i), testTypes, 10, 10))
	}
	_, dir := startServer(b, newFakeProvider(tables...), ServerConfig{})
	client := dial(b, dir)
	mustPin(b, client, PinRequest{}).Release()
	for b.Loop() {
		state, err := client.Pin(context.Background(), PinRequest{})
		if err != nil {
			b.Fatal(err)
		}
		state.Release()
	}
}

// BenchmarkRead is a read of all columns of a sealed batch of 8,192 rows: from the server, and again from the cache.
func BenchmarkRead(b *testing.B) {
	table := newFakeTable(rand.New(rand.NewPCG(1, 1)), "a", testTypes, 8192)
	all := make([]int, len(testTypes))
	for i := range all {
		all[i] = i
	}
	server, dir := startServer(b, newFakeProvider(table), ServerConfig{})
	for name, cacheBytes := range map[string]int64{"moved": 1, "cached": 1 << 30} {
		b.Run(name, func(b *testing.B) {
			state := mustPin(b, dialWithCache(b, dir, cacheBytes), PinRequest{})
			defer state.Release()
			read := func() {
				if _, err := state.Tables[0].Batches[0].Columns.Read(all, 0, 8192); err != nil {
					b.Fatal(err)
				}
			}
			before := server.Stats().ColumnBytes
			read()
			b.SetBytes(server.Stats().ColumnBytes - before)
			for b.Loop() {
				read()
			}
		})
	}
}

// BenchmarkState encodes and decodes the description of a read state of 20 tables of 50 files and four batches each, all with
// vectors.
func BenchmarkState(b *testing.B) {
	const tables, files, batches = 20, 50, 4
	vector := deletion.NewVector(1000).Freeze()
	state := &State{LSN: 1 << 40, Pinned: time.Unix(1, 0)}
	ids := make([]uint64, tables)
	for i := range tables {
		table := &Table{Name: TableName{"public", fmt.Sprintf("t%02d", i)}}
		for f := range files {
			table.Files = append(table.Files, File{Path: fmt.Sprintf("/var/lib/pgmirror/warehouse/public/t%02d-0badcafe/data/%032x.parquet", i, f), Rows: 1000, Bytes: 1 << 20, Deleted: vector})
		}
		for k := range batches {
			table.Batches = append(table.Batches, Batch{ID: uint64(i*batches + k), Rows: 1000, Deleted: vector})
		}
		state.Tables = append(state.Tables, table)
		ids[i] = uint64(i + 1)
	}
	encode := func() []byte {
		wire, err := stateToWire(state, []string{"public"}, ids)
		if err != nil {
			b.Fatal(err)
		}
		body, err := json.Marshal(wire)
		if err != nil {
			b.Fatal(err)
		}
		return body
	}
	body := encode()
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			encode()
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if _, err := parseState(body); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkColumn encodes and decodes a column of 8,192 integers.
func BenchmarkColumn(b *testing.B) {
	dt := testTypes[2]
	column := randomArray(rand.New(rand.NewPCG(1, 1)), dt, 8192, false)
	encoded, err := encodeColumn(dt, column)
	if err != nil {
		b.Fatal(err)
	}
	body := joined(encoded)
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if _, err := encodeColumn(dt, column); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if _, err := decodeColumn(dt, column.Len(), body); err != nil {
				b.Fatal(err)
			}
		}
	})
}
