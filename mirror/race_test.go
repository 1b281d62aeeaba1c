//go:build race

package mirror

// defaultSeeds is the number of seeds that TestModel runs; the race detector makes each several times slower.
const defaultSeeds = 25

// concurrentTransfers is the number of transactions of TestConcurrent.
const concurrentTransfers = 400
