package readstate

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
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
