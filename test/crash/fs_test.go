package crash

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pgmirror/mirror"
)

// disk is a directory and a file system over it.
type disk struct {
	*FS
	t    rapid.TB
	root string
}

func newDisk(t *testing.T, effects *Effects) disk {
	return disk{NewFS(t.TempDir(), effects), t, t.TempDir()}
}

func (d disk) path(name string) string { return filepath.Join(d.root, name) }

func (d disk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// put writes a file, the first synced bytes of which are synced.
func (d disk) put(name, content string, synced int) {
	d.t.Helper()
	w, err := d.Create(d.path(name))
	d.must(err)
	_, err = w.Write([]byte(content[:synced]))
	d.must(err)
	if synced > 0 {
		d.must(w.Sync())
	}
	_, err = w.Write([]byte(content[synced:]))
	d.must(err)
	d.must(w.Close())
}

// tree reads what is on the disk: the content of each file, "/" for a directory.
func (d disk) tree() map[string]string {
	d.t.Helper()
	found := map[string]string{}
	d.must(filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == d.root {
			return err
		}
		name, err := filepath.Rel(d.root, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			found[name] = "/"
			return nil
		}
		data, err := os.ReadFile(path)
		found[name] = string(data)
		return err
	}))
	return found
}

// outcomes crashes a fresh disk after the same steps with many seeds and returns the trees that are left, each once.
func outcomes(t *testing.T, steps func(disk)) []map[string]string {
	t.Helper()
	var all []map[string]string
	for seed := range uint64(60) {
		d := newDisk(t, nil)
		steps(d)
		d.must(d.Crash(seed))
		if tree := d.tree(); !slices.ContainsFunc(all, func(o map[string]string) bool { return maps.Equal(o, tree) }) {
			all = append(all, tree)
		}
	}
	return all
}

func expect(t *testing.T, got []map[string]string, want ...map[string]string) {
	t.Helper()
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g map[string]string) bool { return maps.Equal(g, w) }) {
			t.Errorf("never left: %q", w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d outcomes, want %d: %q", len(got), len(want), got)
	}
}

type files = map[string]string

// Each kind of pending directory change is found done after some crashes, undone after others, and nothing between.
func TestPendingEntries(t *testing.T) {
	for name, c := range map[string]struct {
		before, steps func(disk)
		want          []files
	}{
		"nothing pending": {func(d disk) { d.put("a", "A", 1) }, func(disk) {}, []files{{"a": "A"}}},
		"create":          {nil, func(d disk) { d.put("a", "A", 1) }, []files{{}, {"a": "A"}}},
		"two creates": {nil, func(d disk) { d.put("a", "A", 1); d.put("b", "B", 1) },
			[]files{{}, {"a": "A"}, {"b": "B"}, {"a": "A", "b": "B"}}},
		"remove": {func(d disk) { d.put("a", "A", 1) }, func(d disk) { d.must(d.Remove(d.path("a"))) },
			[]files{{}, {"a": "A"}}},
		"rename over": {func(d disk) { d.put("old", "O", 1); d.put("new", "N", 1) },
			func(d disk) { d.must(d.Rename(d.path("new"), d.path("old"))) },
			[]files{{"old": "O", "new": "N"}, {"old": "N"}}},
		"create and rename": {nil, func(d disk) { d.put("t", "T", 1); d.must(d.Rename(d.path("t"), d.path("a"))) },
			[]files{{}, {"t": "T"}, {"a": "T"}}},
		"remove and create again": {func(d disk) { d.put("a", "1", 1) },
			func(d disk) { d.must(d.Remove(d.path("a"))); d.put("a", "2", 1) },
			[]files{{"a": "1"}, {}, {"a": "2"}}},
		"rename away and create again": {nil,
			func(d disk) { d.put("a", "1", 1); d.must(d.Rename(d.path("a"), d.path("b"))); d.put("a", "2", 1) },
			[]files{{}, {"a": "1"}, {"b": "1"}, {"b": "1", "a": "2"}}},
		"file in a new directory": {nil,
			func(d disk) {
				d.must(d.MkdirAll(d.path("d/e")))
				d.put("d/e/a", "A", 1)
				d.must(d.SyncDir(d.path("d/e")))
				d.must(d.SyncDir(d.path("d")))
			},
			[]files{{}, {"d": "/", "d/e": "/", "d/e/a": "A"}}},
		"unsynced byte in a new directory": {nil,
			func(d disk) { d.must(d.MkdirAll(d.path("d"))); d.put("d/a", "A", 0); d.must(d.SyncDir(d.path("d"))) },
			[]files{{}, {"d": "/", "d/a": "A"}, {"d": "/", "d/a": ""}, {"d": "/", "d/a": "\x00"}}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, outcomes(t, func(d disk) {
				if c.before != nil {
					c.before(d)
					d.must(d.SyncDir(d.root))
				}
				c.steps(d)
			}), c.want...)
		})
	}
}

// Moves that are no single durable step are refused and change nothing.
func TestRenameRefused(t *testing.T) {
	d := newDisk(t, nil)
	d.must(d.MkdirAll(d.path("d")))
	d.put("a", "A", 1)
	before := d.tree()
	for from, to := range map[string]string{"a": "d/a", "d": "e"} {
		if d.Rename(d.path(from), d.path(to)) == nil {
			t.Errorf("rename %s to %s was done", from, to)
		}
	}
	if after := d.tree(); !maps.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
}

// What was on the disk before this life is durable, also when this life removes it, and what is written past FS stays.
func TestEarlierAndForeignFiles(t *testing.T) {
	expect(t, outcomes(t, func(d disk) {
		d.must(os.WriteFile(d.path("earlier"), []byte("E"), 0o600))
		d.must(os.WriteFile(d.path("foreign"), []byte("1"), 0o600))
		d.must(d.Remove(d.path("earlier")))
		d.must(os.WriteFile(d.path("foreign"), []byte("2"), 0o600))
	}), files{"foreign": "2"}, files{"earlier": "E", "foreign": "2"})
}

// Synced bytes survive; of the others some are kept, cut off or zeroed.
func TestUnsyncedBytes(t *testing.T) {
	kept, cut, zeroed := 0, 0, 0
	for _, tree := range outcomes(t, func(d disk) {
		d.put("a", "syncedlost", 6)
		d.must(d.SyncDir(d.root))
	}) {
		switch got := tree["a"]; {
		case !strings.HasPrefix(got, "synced"):
			t.Errorf("synced bytes lost: %q", got)
		case got == "syncedlost":
			kept++
		case strings.HasPrefix("syncedlost", got):
			cut++
		case len(got) == 10 && strings.Contains(got, "\x00"):
			zeroed++
		default:
			t.Errorf("bytes from nowhere: %q", got)
		}
	}
	if kept == 0 || cut == 0 || zeroed == 0 {
		t.Errorf("kept %d, cut %d, zeroed %d; want some of each", kept, cut, zeroed)
	}
}

// After any steps, syncing every file and directory makes a crash change nothing; without it, every file that a crash
// leaves was there under that name at some moment, with at least the bytes then synced.
func TestRandomSteps(t *testing.T) {
	scratch, root := t.TempDir(), t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		for _, dir := range []string{scratch, root} {
			entries, err := os.ReadDir(dir)
			if err != nil {
				rt.Fatal(err)
			}
			for _, e := range entries {
				if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
					rt.Fatal(err)
				}
			}
		}
		d := disk{NewFS(scratch, nil), rt, root}
		d.must(d.MkdirAll(d.path("d")))
		names := rapid.SampledFrom([]string{"a", "b", "d/a", "d/b"})
		history := map[string][]string{} // every content a name ever had; "" stands for absence
		note := func(name string) {
			content, err := os.ReadFile(d.path(name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				rt.Fatal(err)
			}
			history[name] = append(history[name], string(content))
		}
		serial := byte('A')
		for range rapid.IntRange(0, 12).Draw(rt, "steps") {
			name := names.Draw(rt, "name")
			_, err := os.Stat(d.path(name))
			switch exists := err == nil; rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				if !exists {
					d.put(name, strings.Repeat(string(serial), 4), 4)
					serial++
				}
			case 1:
				d.must(d.Remove(d.path(name)))
			case 2:
				to := names.Draw(rt, "to")
				if exists && filepath.Dir(to) == filepath.Dir(name) && to != name {
					d.must(d.Rename(d.path(name), d.path(to)))
					note(to)
				}
			case 3:
				d.must(d.SyncDir(filepath.Dir(d.path(name))))
			}
			note(name)
		}
		synced := rapid.Bool().Draw(rt, "sync")
		if synced {
			d.must(d.SyncDir(d.root))
			d.must(d.SyncDir(d.path("d")))
		}
		before := d.tree()
		d.must(d.Crash(rapid.Uint64().Draw(rt, "seed")))
		after := d.tree()
		if synced && !maps.Equal(before, after) {
			rt.Fatalf("all was synced: %q became %q", before, after)
		}
		for name, content := range after {
			if content != "/" && !slices.Contains(history[name], content) {
				rt.Fatalf("%s holds %q, but only ever held %q", name, content, history[name])
			}
		}
	})
}

// mirror.Files' WriteFile leaves the old content or the new one, whole, wherever the process dies in it, and the new one once it returned.
func TestWriteFileIsAtomic(t *testing.T) {
	oldData, newData := strings.Repeat("old", 100), strings.Repeat("new", 200)
	sawOld, sawNew := false, false
	for n := 1; ; n++ {
		returned := false
		for seed := range uint64(20) {
			d := newDisk(t, FailAt(n))
			d.must(os.WriteFile(d.path("f"), []byte(oldData), 0o600))
			err := mirror.FilesOver(d.FS).WriteFile(d.path("f"), []byte(newData))
			if err != nil && !errors.Is(err, ErrCrashed) {
				t.Fatal(err)
			}
			returned = err == nil
			d.must(d.Crash(seed))
			switch got := d.tree()["f"]; {
			case got == newData:
				sawNew = true
			case got == oldData && !returned:
				sawOld = true
			default:
				t.Fatalf("died at effect %d, seed %d (returned: %v): %d bytes of neither", n, seed, returned, len(got))
			}
		}
		if returned {
			break
		}
	}
	if !sawOld || !sawNew {
		t.Errorf("saw the old content: %v, the new one: %v", sawOld, sawNew)
	}
}

// A process is dead after its effect failed: writes reach half of the data at that effect, and nothing later reaches the disk.
func TestNothingAfterDeath(t *testing.T) {
	effects := FailAt(2)
	d := newDisk(t, effects)
	w, err := d.Create(d.path("a"))
	d.must(err)
	if n, err := w.Write([]byte("1234")); n != 2 || !errors.Is(err, ErrCrashed) {
		t.Errorf("write: %d, %v", n, err)
	}
	if name, ok := effects.Crashed(); name != "write" || !ok || effects.Count() != 2 {
		t.Errorf("crashed in %q (%v), effect %d", name, ok, effects.Count())
	}
	_, writeErr := w.Write([]byte("5678"))
	_, createErr := d.Create(d.path("b"))
	for what, err := range map[string]error{
		"write": writeErr, "sync": w.Sync(), "create": createErr, "remove": d.Remove(d.path("a")),
		"rename": d.Rename(d.path("a"), d.path("b")), "mkdir": d.MkdirAll(d.path("d")), "sync directory": d.SyncDir(d.root),
		"engine": effects.Hook("sqlite commit"),
	} {
		if !errors.Is(err, ErrCrashed) {
			t.Errorf("%s of a dead process: %v", what, err)
		}
	}
	if tree := d.tree(); !maps.Equal(tree, files{"a": "12"}) {
		t.Errorf("the disk holds %q", tree)
	}
	d.must(w.Close())
}

// A file that the dead process still holds open is not the one on the disk any more.
func TestOpenFileOfDeadProcess(t *testing.T) {
	d := newDisk(t, nil)
	w, err := d.Create(d.path("a"))
	d.must(err)
	_, err = w.Write([]byte("1"))
	d.must(err)
	d.must(d.SyncDir(d.root))
	d.must(d.Crash(0))
	if _, err := w.Write([]byte("2")); !errors.Is(err, ErrCrashed) {
		t.Errorf("write after the crash: %v", err)
	}
	if _, err := d.Open(d.path("a")); !errors.Is(err, ErrCrashed) {
		t.Errorf("open after the crash: %v", err)
	}
	d.must(w.Close())
	if got := d.tree()["a"]; strings.Contains(got, "2") {
		t.Errorf("the dead process wrote: %q", got)
	}
}

// The same seed gives the same crash.
func TestCrashRepeats(t *testing.T) {
	run := func(seed uint64) map[string]string {
		d := newDisk(t, nil)
		for _, name := range []string{"a", "b", "c", "d"} {
			d.put(name, "0123456789", 3)
		}
		d.must(d.Crash(seed))
		return d.tree()
	}
	for seed := range uint64(10) {
		if a, b := run(seed), run(seed); !maps.Equal(a, b) {
			t.Errorf("seed %d: %q and %q", seed, a, b)
		}
	}
}

// FailAtRandom stays among the first n effects and reaches each of them.
func TestFailAtRandom(t *testing.T) {
	seen := map[int]bool{}
	for seed := range uint64(100) {
		e := FailAtRandom(seed, 5)
		for e.Hook("x") == nil && e.Count() < 6 {
		}
		seen[e.Count()] = true
	}
	if len(seen) != 5 || seen[6] {
		t.Errorf("failed at %v, want each of 1 to 5", seen)
	}
}
