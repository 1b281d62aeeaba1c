package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgmirror/deletion"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

// After many writes, prune leaves every table of a mix that is added to at the end not larger than it was loaded, and not much smaller.
func TestPruneKeepsTheSize(t *testing.T) {
	for _, c := range []struct {
		workload
		tables []string
	}{{hybench, []string{"transfer", "checking", "loanapps", "loantrans"}}, {chbench, []string{"orders", "order_line"}}} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			pg := harness.StartPostgres(t)
			if _, err := c.publish(pg, 0.005); err != nil {
				t.Fatal(err)
			}
			count := func(table string) (n int) {
				if _, err := fmt.Sscan(pg.QueryRow("SELECT count(*) FROM "+table), &n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			loaded := map[string]int{}
			for _, table := range c.tables {
				loaded[table] = count(table)
			}
			if _, err := writeBacklog(ctx, pg, 10_000); err != nil {
				t.Fatal(err)
			}
			written := map[string]int{}
			for _, table := range c.tables {
				written[table] = count(table)
			}
			if err := pg.Exec("SELECT prune()"); err != nil {
				t.Fatal(err)
			}
			for _, table := range c.tables {
				most := loaded[table]
				if table == "order_line" { // an order has 10 lines on average only
					most += most / 50
				}
				if n := count(table); written[table] <= most || n > most || n < most*8/10 {
					t.Errorf("%s has %d rows, had %d when it was loaded and %d when it was written to", table, n, loaded[table], written[table])
				}
			}
		})
	}
}

// What has no key is emptied when it is twice as large as it was loaded, and no order is left for delivery that is gone.
func TestPruneEmptiesHistory(t *testing.T) {
	pg := harness.StartPostgres(t)
	if _, err := chbench.publish(pg, 0.005); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ sql, left string }{
		{"SELECT 1", "4000"},
		{"INSERT INTO history SELECT * FROM history", "8000"},
		{"INSERT INTO history SELECT * FROM history LIMIT 1", "0"},
	} {
		if err := pg.Exec(c.sql, "UPDATE district SET d_next_o_id = d_next_o_id + 20", "SELECT prune()"); err != nil {
			t.Fatal(err)
		}
		if n := pg.QueryRow("SELECT count(*) FROM history"); n != c.left {
			t.Errorf("after %s history has %s rows, want %s", c.sql, n, c.left)
		}
		if n := pg.QueryRow("SELECT count(*) FROM new_order WHERE NOT EXISTS (SELECT FROM orders WHERE o_w_id = no_w_id AND o_d_id = no_d_id AND o_id = no_o_id)"); n != "0" {
			t.Errorf("%s orders are gone and wait for delivery", n)
		}
	}
	if n := pg.QueryRow("SELECT count(*) FROM orders"); n != "1600" { // of 100 of each district
		t.Errorf("%s orders are left", n)
	}
}

// A short soak of the real program comes through, with pins that stay and with kills, and writes its part of the document and the plots.
func TestSoak(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "pgmirror")
	if out, err := exec.Command("go", "build", "-o", bin, "pgmirror/cmd/pgmirror").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, kills := range map[string]time.Duration{"pins": 0, "kills": 4 * time.Second} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "benchmarks.md")
			s := newSoak()
			s.bin, s.length, s.rate, s.scale, s.readers, s.states, s.every, s.kills = bin, 15*time.Second, 200, 0.005, 8, 100, time.Second, kills
			if err := s.run(t.Context(), out, "test"); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{"<!-- part: soak -->", "| resident memory", "| files of a table, at most", "| longest turn of the applier | ", "| write amplification, bytes of changes | ", "| metadata, bytes of changes | "} {
				if !strings.Contains(string(text), part) {
					t.Errorf("the document has no %q:\n%s", part, text)
				}
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(out), "soak.svg")); err != nil {
				t.Error(err)
			}
		})
	}
}

// The rows of a state are those of its files and batches that are not deleted.
func TestRowsOf(t *testing.T) {
	v := deletion.NewVector(10)
	v.Set(3)
	v.Set(7)
	table := &readstate.Table{Files: []readstate.File{{Rows: 10, Deleted: v.Freeze()}, {Rows: 5}}, Batches: []readstate.Batch{{Rows: 4}, {Rows: 10, Deleted: v}}}
	if n := rowsOf(table); n != 8+5+4+8 {
		t.Errorf("%d rows", n)
	}
}

// The first tenth counts for neither half, ten minutes at most; the halves meet in the middle of the run.
func TestParts(t *testing.T) {
	h := parts(2 * time.Hour)
	if h != (halves{10 * time.Minute, time.Hour, 2 * time.Hour}) || h.apart() != 55*time.Minute {
		t.Errorf("%v, %v apart", h, h.apart())
	}
	minutes := func(m ...int) (at []time.Duration) {
		for _, m := range m {
			at = append(at, time.Duration(m)*time.Minute)
		}
		return at
	}
	first, second := h.of(minutes(1, 10, 59, 60, 119), []float64{1, 2, 3, 4, 5})
	if fmt.Sprint(first, second) != "[2 3] [4 5]" {
		t.Errorf("%v and %v", first, second)
	}
}

// Growth is the sum of what is added, also by a counter that begins anew, and unknown of less than two values.
func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{5, 7, 7, 10}, 5}, {[]float64{100, 110, 3, 8}, 10 + 3 + 5}, {[]float64{1000, 990, 1010}, 10}} {
		if got := growth(c.values); got != c.want {
			t.Errorf("%v grows by %v, want %v", c.values, got, c.want)
		}
	}
	if got := growth([]float64{1}); !math.IsNaN(got) {
		t.Errorf("one value grows by %v", got)
	}
}

// Each kind of file is taken but the data files of copies; without one of the metrics the sample is an error, not 0.
func TestTakeWritten(t *testing.T) {
	kinds := []string{"flush", "compaction", "copy", "vectors", "metadata", "index"}
	metrics := map[string]float64{}
	for i, kind := range kinds {
		metrics[`pgmirror_written_bytes_total{kind="`+kind+`"}`] = float64(int(1) << i)
	}
	v := map[string]float64{}
	sum := 0.0
	if err := takeWritten(metrics, v); err != nil {
		t.Fatal(err)
	}
	for name, value := range v {
		if !strings.HasPrefix(name, writtenKind) {
			t.Errorf("%s was taken", name)
		}
		sum += value
	}
	if sum != 63-4 {
		t.Errorf("%v bytes", sum)
	}
	for _, kind := range []string{"metadata", "index"} {
		fewer := maps.Clone(metrics)
		delete(fewer, `pgmirror_written_bytes_total{kind="`+kind+`"}`)
		if err := takeWritten(fewer, v); err == nil {
			t.Errorf("no error without the metric of %s", kind)
		}
	}
}

// The second half's bytes of all kinds of files are held against its row changes, but for metadata, and a soak that does not write is no success. What came
// before counts in the first half.
func TestBytesAreJudged(t *testing.T) {
	for _, c := range []struct {
		early, late float64 // bytes to files for each byte of changes, of the two halves
		kept        bool
	}{{2, 5.9, true}, {2, 6.1, false}, {9, 5, true}, {0, math.NaN(), false}} {
		s := newSoak()
		s.length = 2 * time.Hour
		files, changes := 0.0, 0.0
		for at := time.Duration(0); at < s.length; at += time.Minute {
			s.taken = append(s.taken, sample{at, map[string]float64{writtenKind + "flush": files / 2, writtenKind + "compaction": files / 4, writtenKind + "vectors": files / 8, writtenKind + "index": files / 8,
				writtenKind + "metadata": 10 * files, "bytes of changes": changes}})
			ratio := c.early
			if at >= s.length/2 {
				ratio = c.late
			}
			if !math.IsNaN(ratio) {
				files, changes = files+1000*ratio, changes+1000
			}
		}
		s.amplification(parts(s.length), func(g goal) goals { return goals{g} })
		found := false
		for _, l := range s.report.lines {
			if l.what == "write amplification, bytes of changes" {
				found = true
				if kept := l.goals[0].kept(); kept != c.kept || l.goals.String() != "≤ 6" {
					t.Errorf("%v and %v: %s of %s is kept: %v", c.early, c.late, l.ours, l.goals, kept)
				}
			}
		}
		if !found {
			t.Error("nothing is said")
		}
	}
}
