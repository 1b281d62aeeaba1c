package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The bounds of a soak.
const (
	slopeMost      = 1.0 // percent an hour, of the resident memory
	filesMost      = 64  // live, of a table
	metadataMost   = 1024.0
	latencyMost    = 1.1
	visibilityMost = 1.05
	// amplificationMost is twice what compaction costs a table in theory, 4.1 for 2,000 flushes (docs/decisions/0013-compaction.md), and one for the flush.
	amplificationMost = 9.0
	// bytesMost is for what the mirror writes to files, for each byte of the row changes, but for metadata: its size goes by commits (docs/decisions/0032-what-a-commit-costs.md).
	bytesMost = 6.0
)

// halves are the two parts of a run that are held against each other.
type halves struct{ begin, middle, end time.Duration }

// parts leaves out the first tenth, ten minutes at most, and cuts what is left where the run's half is.
func parts(length time.Duration) halves {
	return halves{min(length/10, 10*time.Minute), length / 2, length}
}

// apart is the time between the middles of the halves.
func (h halves) apart() time.Duration { return (h.end+h.middle)/2 - (h.middle+h.begin)/2 }

// of splits values by when they were.
func (h halves) of(at []time.Duration, values []float64) (first, second []float64) {
	for i, v := range values {
		switch {
		case at[i] < h.begin:
		case at[i] < h.middle:
			first = append(first, v)
		default:
			second = append(second, v)
		}
	}
	return first, second
}

// curveOf is what the samples say of one name; absent is 0.
func (s *soak) curveOf(name string) (at []time.Duration, values []float64) {
	for _, one := range s.taken {
		at, values = append(at, one.at), append(values, one.values[name])
	}
	return at, values
}

func (s *soak) delaysOf(what string) (at []time.Duration, millis []float64) {
	for _, d := range s.delays[what] {
		at, millis = append(at, d.at), append(millis, d.millis)
	}
	return at, millis
}

// growth is how much is added to something that only grows. A counter begins at 0 again when the mirror was killed; an LSN may go back a little then.
func growth(values []float64) float64 {
	if len(values) < 2 {
		return math.NaN()
	}
	sum := 0.0
	for i, v := range values[1:] {
		if before := values[i]; v >= before/2 {
			sum += v - before
		} else {
			sum += v
		}
	}
	return sum
}

// judge makes the lines: the second half, the first, and how the two compare.
func (s *soak) judge() {
	h := parts(s.length)
	long := s.length >= judgedFrom && s.kills == 0
	judged := func(g goal) goals {
		if !long {
			return nil
		}
		return goals{g}
	}
	halvesOf := func(name string) (first, second []float64) { return h.of(s.curveOf(name)) }

	first, second := halvesOf("resident")
	slope := (median(second)/median(first) - 1) * 100 / h.apart().Hours()
	s.report.add(line{"resident memory of `pgmirror run`", fmt.Sprintf("%.0f MiB", median(second)), fmt.Sprintf("%.0f MiB", median(first)), fmt.Sprintf("%+.2f %%/h", slope), judged(atMost(slope, slopeMost, "%g %%/h")),
		fmt.Sprintf("median; at most %.0f MiB; %s", quantile(append(first, second...), 1), s.memoryKinds(h))})
	most := func(name, format string, limit float64, note string) {
		first, second := halvesOf(name)
		s.report.add(line{name + ", at most", fmt.Sprintf(format, quantile(second, 1)), fmt.Sprintf(format, quantile(first, 1)), "",
			goals{atMost(quantile(append(first, second...), 1), limit, format)}, note})
	}
	most("files of a table", "%.0f", filesMost, "live data files, most of a table")
	most("metadata.json", "%.0f KiB", metadataMost, "largest of all tables, with a checkpoint every second")
	for _, what := range []string{"DuckDB", "read state"} {
		first, second := h.of(s.delaysOf(what))
		p99 := quantile(second, 0.99) / quantile(first, 0.99)
		s.report.add(line{"latency of a " + map[string]string{"DuckDB": "DuckDB answer", "read state": "read state"}[what], percentiles(second), percentiles(first), times(p99), judged(atMost(p99, latencyMost, "%g×").of("P99")),
			fmt.Sprintf("%d and %d; the ratio is of P99", len(second), len(first))})
	}
	s.compare(h, "visibility", "%.3f bits/row", judged(atMost(s.ratio(h, "visibility"), visibilityMost, "%g×")), "of all live rows")
	s.report.add(line{"read states pinned and given up", fmt.Sprint(s.pinned.Load()), "", "", judged(atLeast(float64(s.pinned.Load()), 0.99*float64(s.states), "%.0f")),
		fmt.Sprintf("by %d clients; in each a table's rows were counted", s.readers)})
	s.amplification(h, judged)
	first, second = halvesOf("longest turn")
	s.report.add(line{"longest turn of the applier", fmt.Sprintf("%.1f ms", quantile(second, 1)), fmt.Sprintf("%.1f ms", quantile(first, 1)), "", nil,
		"since the start, of all kinds: flushes and compactions begin and install in one, folds and commands take others"})
	for _, c := range []struct{ name, format, note string }{
		{"files", "%.0f", "live data files of all tables"}, {"deletion vectors", "%.0f", "in the current snapshots"}, {"snapshots of a table", "%.0f", "retained, most of a table"},
		{"manifests and lists", "%.0f", "Avro files on disk"}, {"FileIndexes", "%.0f", "files on disk"}, {"files on disk", "%.0f", ""}, {"directory", "%.0f MiB", "the data directory"},
		{"goroutines", "%.0f", ""}, {"descriptors", "%.0f", "open"}, {"freshness", "%.1f ms", "of the newest commit, at a sample"}, {"lag", "%.2f s", ""},
		{"slot", "%.1f MiB", "WAL that the source keeps"}, {"checkpoint", "%.2f s", "how long one takes"}, {"rows", "%.0f", "live"}, {"dead rows", "%.0f", "still in files and batches"}, {"settled states", "%.1f MiB", "files of the pins that are held"},
		{"clients' memory", "%.0f MiB", "resident, of the program that has all clients and DuckDBs"},
	} {
		s.compare(h, c.name, c.format, nil, c.note)
	}
}

// memoryKinds is the engine's own account, of the second half.
func (s *soak) memoryKinds(h halves) string {
	var kinds []string
	for _, name := range s.names(memoryKind) {
		_, second := h.of(s.curveOf(name))
		kinds = append(kinds, fmt.Sprintf("%s %.1f", strings.TrimPrefix(name, memoryKind), median(second)))
	}
	_, heap := h.of(s.curveOf("Go heap"))
	return "of it " + strings.Join(kinds, ", ") + fmt.Sprintf(" MiB; Go heap in use %.0f MiB", median(heap))
}

// names are those of the samples that begin with a prefix.
func (s *soak) names(prefix string) (names []string) {
	for _, one := range s.taken {
		for name := range one.values {
			if strings.HasPrefix(name, prefix) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// compare adds a line of two medians.
func (s *soak) compare(h halves, name, format string, gs goals, note string) {
	first, second := h.of(s.curveOf(name))
	ratio := ""
	if median(first) != 0 {
		ratio = times(s.ratio(h, name))
	}
	s.report.add(line{name, fmt.Sprintf(format, median(second)), fmt.Sprintf(format, median(first)), ratio, gs, note})
}

func (s *soak) ratio(h halves, name string) float64 {
	first, second := h.of(s.curveOf(name))
	return median(second) / median(first)
}

// amplification adds lines of what was written for what came in.
func (s *soak) amplification(h halves, judged func(goal) goals) {
	added := func(name string) (a, b float64) {
		first, second := h.of(s.curveOf(name))
		return growth(first), growth(second)
	}
	wal1, wal2 := added("WAL")
	written1, written2 := added("written")
	cpu1, cpu2 := added("CPU")
	rows1, rows2 := added("row changes")
	flushed1, flushed2 := added("file rows: flush")
	compacted1, compacted2 := added("file rows: compaction")
	checkpoints1, checkpoints2 := added("checkpoints")
	seconds1, seconds2 := (h.middle - h.begin).Seconds(), (h.end - h.middle).Seconds()
	add := func(what, format string, b, a float64, note string, bounds ...goal) {
		s.report.add(line{what, fmt.Sprintf(format, b), fmt.Sprintf(format, a), times(b / a), bounds, note})
	}
	add("row changes a second", "%.0f", rows2/seconds2, rows1/seconds1, fmt.Sprintf("of both mixes, %d asked for, and what is deleted to keep the tables' size", s.rate))
	add("checkpoints a second", "%.2f", checkpoints2/seconds2, checkpoints1/seconds1, "`checkpoint_interval` "+s.cuts.String())
	rowsTwice := (flushed2 + compacted2) / flushed2
	add("write amplification, rows", "%.2f", rowsTwice, (flushed1+compacted1)/flushed1, "rows written to files, by flushes and compaction, for each row that was flushed", judged(atMost(rowsTwice, amplificationMost, "%g"))...)
	changes1, changes2 := added("bytes of changes")
	all1, all2 := 0.0, 0.0
	var kinds []string
	for _, kind := range writtenKinds {
		of1, of2 := added(writtenKind + kind)
		all1, all2 = all1+of1/changes1, all2+of2/changes2
		kinds = append(kinds, fmt.Sprintf("%s %.2f", kind, of2/changes2))
	}
	metadata1, metadata2 := added(writtenKind + "metadata")
	add("write amplification, bytes of changes", "%.2f", all2, all1, "bytes written to data files (copies left out), deletion vectors and FileIndexes, for each byte of the row changes: "+strings.Join(kinds, ", "), judged(atMost(all2, bytesMost, "%g"))...)
	add("metadata, bytes of changes", "%.2f", metadata2/changes2, metadata1/changes1, fmt.Sprintf("for each byte of the row changes; %.1f MiB a minute: each commit of a table writes its metadata file with all retained snapshots", mebibytes(metadata2)/seconds2*60))
	add("write amplification, bytes", "%.2f", written2/wal2, written1/wal1, "bytes that the process wrote to disk, metadata and the catalog included, for each byte of the source's WAL")
	add("CPU of `pgmirror run`, percent of a core", "%.1f", cpu2/seconds2*100, cpu1/seconds1*100, "")
}

const soakIntroduction = `## Soak

Written by ` + "`make soak`" + `, in two hours. Both write mixes of the benchmarks above (HyBench, CH-benCHmark) run at a steady rate against a mirror with
` + "`%s`" + `; what they add is deleted at the tables' other end, so that what grows is the mirror's fault. %d clients pin %d read states, count
a table's rows in each and give them up; %s; DuckDB is asked four times a second. The
second half of the samples (one every %s) stands beside the first, without the first tenth. At the end ` + "`pgmirror verify`" + ` found both sides equal, iceberg-go read the
same rows from every table as PostgreSQL has, and the mirror stopped in order and left no read state.

`

// publish writes the document, or prints it, and says whether a bound is missed.
func (s *soak) publish(out string) error {
	s.judge()
	if err := s.writeSamples(s.samples); err != nil {
		return err
	}
	pins := fmt.Sprintf("%d pins are held from the beginning to the end, settle, and showed the same rows throughout", heldPins)
	if s.kills > 0 {
		pins = fmt.Sprintf("the mirror was killed %d times", s.killed.Load())
	}
	var b strings.Builder
	fmt.Fprintf(&b, soakIntroduction, strings.Join(s.settings(), " "), s.readers, s.pinned.Load(), pins, s.every)
	r := &s.report
	fmt.Fprintf(&b, "- Machine: %s\n- Commit: %s\n- Date: %s; %s of writing, seed %d, scale %g\n- Load average before %s, after %s\n", r.machine, r.commit,
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), s.length, s.seed, r.scale, r.loadBefore, r.loadAfter)
	if r.note != "" {
		fmt.Fprintf(&b, "- %s\n", r.note)
	}
	if s.length < judgedFrom {
		fmt.Fprintf(&b, "- Shorter than %s: the difference of the halves is noise, and is not judged\n", judgedFrom)
	}
	kept, _, all := r.tally()
	fmt.Fprintf(&b, "- Reached: %d of %d\n\n| what | second half | first half | ratio | to reach | reached | |\n|---|---|---|---|---|---|---|\n%s", kept, all, r.rows())
	b.WriteString("\n![What the samples show](soak.svg)\n")
	if out == "" {
		fmt.Print("\n" + b.String())
	} else {
		err := errors.Join(writePart(out, soakCommand, b.String()), os.WriteFile(filepath.Join(filepath.Dir(out), "soak.svg"), []byte(drawPanels(s.panels(), 2)), 0o644))
		if err != nil {
			return err
		}
	}
	if kept < all {
		return fmt.Errorf("%d of %d bounds are not kept", all-kept, all)
	}
	return nil
}

// panels are the plots.
func (s *soak) panels() []panel {
	sampled := func(names ...string) (curves []curve) {
		for _, name := range names {
			at, values := s.curveOf(name)
			curves = append(curves, curve{strings.TrimPrefix(name, memoryKind), minutesOf(at), values})
		}
		return curves
	}
	return []panel{
		{"resident memory, MiB", sampled("resident", "anonymous", "mapped", "Go heap")},
		{"memory by kind, MiB", sampled(s.names(memoryKind)...)},
		{"live files", sampled("files", "files of a table", "deletion vectors")},
		{"metadata.json, KiB; retained snapshots", sampled("metadata.json", "snapshots of a table")},
		{"a DuckDB answer, ms", s.quantileCurves("DuckDB")},
		{"a read state, ms", s.quantileCurves("read state")},
		{"visibility, bits a row", sampled("visibility")},
		{"freshness, ms", sampled("freshness")},
		{"files on disk", sampled("files on disk", "manifests and lists", "FileIndexes")},
		{"data directory, MiB", sampled("directory", "settled states")},
		{"goroutines, descriptors", sampled("goroutines", "descriptors")},
		{"one checkpoint, s", sampled("checkpoint")},
	}
}

func minutesOf(at []time.Duration) []float64 {
	out := make([]float64, len(at))
	for i, t := range at {
		out[i] = t.Minutes()
	}
	return out
}

// quantileCurves are P50 and P99 of sixtieths of the run.
func (s *soak) quantileCurves(what string) []curve {
	at, millis := s.delaysOf(what)
	var x, p50, p99 []float64
	width := s.length / 60
	for from := time.Duration(0); from < s.length; from += width {
		var inside []float64
		for i, t := range at {
			if from <= t && t < from+width {
				inside = append(inside, millis[i])
			}
		}
		if len(inside) > 0 {
			x, p50, p99 = append(x, (from+width/2).Minutes()), append(p50, quantile(inside, 0.5)), append(p99, quantile(inside, 0.99))
		}
	}
	return []curve{{"P50", x, p50}, {"P99", x, p99}}
}
