package crash

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Crash takes the power away: the directory becomes what a disk may hold after that, as the seed chooses, and every later
// call of this FS fails. Files held open by the dead process are other files from now on.
//
// A pending change of directory entries is kept or undone, whole; one that follows an undone change of the same entry is
// undone too. Bytes of a file that were not synced are kept, cut off from some point on, or zeroed in some range.
func (f *FS) Crash(seed uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.off {
		return errors.New("crash: it has crashed before")
	}
	f.off = true
	random := rand.New(rand.NewPCG(seed, 1))
	survivors := f.survivors(random)

	paths := slices.Sorted(maps.Keys(f.current))
	changed := func(path string) bool {
		was, is := f.current[path], survivors[path]
		return was != is || was != nil && was.synced < was.size
	}
	// Children sort after their directories: take names away from the end, and give them back from the start.
	for _, path := range slices.Backward(paths) {
		if f.current[path] != nil && changed(path) {
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("crash: %w", err)
			}
		}
	}
	for _, path := range paths {
		if survivors[path] != nil && changed(path) {
			if err := survivors[path].restore(path, random); err != nil {
				return fmt.Errorf("crash: %w", err)
			}
		}
	}
	return nil
}

// survivors chooses what each touched path names after the crash.
func (f *FS) survivors(random *rand.Rand) map[string]*node {
	entries := maps.Clone(f.durable)
	undone := map[string]bool{}
	for _, c := range f.pending {
		keep := random.IntN(2) == 0
		for path := range c.entries {
			keep = keep && !undone[path]
		}
		for path, n := range c.entries {
			if keep {
				entries[path] = n
			} else {
				undone[path] = true
			}
		}
	}
	for path := range entries {
		for dir := filepath.Dir(path); len(dir) > 1; dir = filepath.Dir(dir) {
			if parent, known := entries[dir]; known && parent == nil {
				entries[path] = nil
			}
		}
	}
	return entries
}

// restore puts a node back on the disk with the bytes that survived.
func (n *node) restore(path string, random *rand.Rand) error {
	if n.dir {
		return os.Mkdir(path, 0o755)
	}
	data, err := os.ReadFile(n.link)
	if err != nil {
		return err
	}
	return os.WriteFile(path, n.surviving(data, random), 0o644)
}

func (n *node) surviving(data []byte, random *rand.Rand) []byte {
	synced := min(int(n.synced), len(data))
	unsynced := data[synced:]
	if len(unsynced) == 0 {
		return data
	}
	switch from := random.IntN(len(unsynced)); random.IntN(3) {
	case 0:
		return data[:synced+from]
	case 1:
		to := from + 1 + random.IntN(len(unsynced)-from)
		clear(unsynced[from:to])
	}
	return data
}
