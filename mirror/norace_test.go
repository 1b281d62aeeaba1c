//go:build !race

package mirror

// defaultSeeds is the number of seeds that TestModel runs.
const defaultSeeds = 100

// concurrentTransfers is the number of transactions of TestConcurrent.
const concurrentTransfers = 1500
