//go:build !race

package mirror

// defaultSeeds is the number of seeds that TestModel runs.
const defaultSeeds = 150
