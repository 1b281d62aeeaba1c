package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgmirror/mirror"
	"pgmirror/readstate"
	"pgmirror/test/interop"
)

// sample is what was seen at one moment, by names that are those of the lines and curves. Sizes are in MiB, but for metadata.json (KiB) and what is only divided by each
// other (bytes); the longest turn is in milliseconds.
type sample struct {
	at     time.Duration // since the writing began
	values map[string]float64
}

// memoryKind is the prefix of the names of the engine's memory by kind.
const memoryKind = "memory: "

// sampleAll takes samples until the end. One that cannot be had is left out while the mirror is killed now and then.
func (s *soak) sampleAll(ctx context.Context) error {
	return s.connected(ctx, func(client *readstate.Client) error {
		for pause(ctx, s.every) {
			asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), hangLimit)
			one := sample{time.Since(s.started), map[string]float64{}}
			err := s.sample(asking, client, one.values)
			cancel()
			if err != nil {
				return err
			}
			s.taken = append(s.taken, one)
			if len(s.taken)%30 == 1 {
				v := one.values
				s.say("%.0f row changes; resident %.0f MiB, heap %.0f; files %.0f, most of a table %.0f; metadata %.0f KiB; directory %.0f MiB; lag %.2f s; %d states, %.0f open; %.0f fds",
					v["row changes"], v["resident"], v["Go heap"], v["files"], v["files of a table"], v["metadata.json"], v["directory"], v["lag"], s.pinned.Load(), v["read states"], v["descriptors"])
			}
		}
		return nil
	})
}

func (s *soak) sample(ctx context.Context, client *readstate.Client, v map[string]float64) error {
	st, err := statusOf(ctx, client)
	if err != nil {
		return err
	}
	s.sampleStatus(st, v)
	if err := s.sampleMetrics(ctx, v); err != nil {
		return err
	}
	if err := s.sampleProcess(v); err != nil {
		return err
	}
	return s.sampleDirectory(v)
}

// sampleStatus takes what is known by table.
func (s *soak) sampleStatus(st *mirror.Status, v map[string]float64) {
	for _, t := range st.Tables {
		v["files of a table"] = max(v["files of a table"], float64(t.Files))
		v["files"] += float64(t.Files)
		v["deletion vectors"] += float64(t.Vectors)
		v["rows"] += float64(t.Rows)
		v["dead rows"] += float64(t.DeletedRows)
	}
	v["visibility"] = float64(st.Memory.Visibility) * 8 / v["rows"]
	v["freshness"] = st.FreshnessSeconds * 1000
	v["lag"] = st.LagSeconds
	v["files that wait"] = float64(st.WaitingFiles)
	v["slot"] = mebibytes(float64(st.SlotRetainedBytes))
	v["checkpoint"] = st.CheckpointSeconds
}

// sampleMetrics takes what the HTTP port exports.
func (s *soak) sampleMetrics(ctx context.Context, v map[string]float64) error {
	metrics, err := s.scrape(ctx)
	if err != nil {
		return err
	}
	for name, value := range metrics {
		if kind, ok := strings.CutPrefix(name, `pgmirror_memory_bytes{kind="`); ok {
			v[memoryKind+strings.TrimSuffix(kind, `"}`)] = mebibytes(value)
		}
		if strings.HasPrefix(name, "pgmirror_rows_total{") {
			v["row changes"] += value
		}
	}
	for name, metric := range map[string]string{"goroutines": "go_goroutines", "descriptors": "process_open_fds", "read states": "pgmirror_read_states",
		"commits": "pgmirror_commits_total", "checkpoints": "pgmirror_checkpoints_total", "WAL": `pgmirror_watermark_lsn_bytes{watermark="received"}`,
		"longest turn": "pgmirror_applier_turn_longest_seconds", "bytes of changes": "pgmirror_changes_bytes_total"} {
		value, ok := metrics[metric]
		if !ok {
			return fmt.Errorf("there is no metric %s", metric)
		}
		v[name] = value
	}
	v["longest turn"] *= 1000
	if err := takeWritten(metrics, v); err != nil {
		return err
	}
	v["Go heap"] = mebibytes(metrics["go_memstats_heap_inuse_bytes"])
	for _, by := range []string{"copy", "flush", "compaction"} {
		v["file rows: "+by] = metrics[`pgmirror_file_rows_total{by="`+by+`"}`]
	}
	return nil
}

// writtenKinds are the kinds of files of which the bytes that are written go by the row changes, as the metric names them.
var writtenKinds = []string{"flush", "compaction", "vectors", "index"}

// writtenKind is the prefix of the names of what was written by kind.
const writtenKind = "written: "

// takeWritten takes what was written to files, but for the data files of copies.
func takeWritten(metrics, v map[string]float64) error {
	for _, kind := range append([]string{"metadata"}, writtenKinds...) {
		value, ok := metrics[`pgmirror_written_bytes_total{kind="`+kind+`"}`]
		if !ok {
			return fmt.Errorf("there is no metric of the bytes written as %s", kind)
		}
		v[writtenKind+kind] = value
	}
	return nil
}

// scrape reads the metrics, by name and labels as they are written.
func (s *soak) scrape(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", s.port), nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	metrics := map[string]float64{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if strings.HasPrefix(lines.Text(), "#") || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
		metrics[lines.Text()[:at]] = value
	}
	return metrics, lines.Err()
}

// sampleProcess takes what the kernel says of the process.
func (s *soak) sampleProcess(v map[string]float64) error {
	pid := s.mirror.Load().cmd.Process.Pid
	v["anonymous"], v["mapped"] = residentMegabytes(pid)
	v["resident"] = v["anonymous"] + v["mapped"]
	own, ownMapped := residentMegabytes(os.Getpid())
	v["clients' memory"] = own + ownMapped
	var err error
	if v["CPU"], err = cpuSeconds(pid); err != nil {
		return err
	}
	written := field(fmt.Sprintf("/proc/%d/io", pid), "write_bytes")
	v["written"], err = strconv.ParseFloat(written, 64)
	return err
}

// sampleDirectory counts files and bytes, and looks into the current metadata of each table.
func (s *soak) sampleDirectory(v map[string]float64) error {
	data := s.mirror.Load().data
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err != nil {
			return ignoreGone(err)
		}
		v["files on disk"]++
		v["directory"] += mebibytes(float64(info.Size()))
		switch below, _ := filepath.Rel(data, path); {
		case strings.HasPrefix(below, "warehouse/") && filepath.Ext(below) == ".avro":
			v["manifests and lists"]++
		case strings.HasPrefix(below, "reads/"):
			v["settled states"] += mebibytes(float64(info.Size()))
		case strings.HasPrefix(below, "index/"):
			v["FileIndexes"]++
		}
		return nil
	})
	if err != nil {
		return err
	}
	tables, err := interop.Tables(data)
	if err != nil {
		return err
	}
	for _, t := range tables {
		info, err := os.Stat(t.Metadata)
		if errors.Is(err, fs.ErrNotExist) { // there is a newer one by now
			continue
		}
		snapshots, err2 := t.Snapshots()
		if err := errors.Join(err, ignoreGone(err2)); err != nil {
			return err
		}
		v["metadata.json"] = max(v["metadata.json"], float64(info.Size())/1024)
		v["snapshots of a table"] = max(v["snapshots of a table"], float64(len(snapshots)))
	}
	return nil
}

// ignoreGone is for files that are deleted while they are looked at.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func mebibytes(bytes float64) float64 { return bytes / (1 << 20) }

// writeSamples writes all samples as CSV.
func (s *soak) writeSamples(path string) (err error) {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	names := map[string]bool{}
	for _, one := range s.taken {
		for name := range one.values {
			names[name] = true
		}
	}
	columns := slices.Sorted(maps.Keys(names))
	out := csv.NewWriter(file)
	out.Write(append([]string{"seconds"}, columns...)) // its error stays until Flush
	for _, one := range s.taken {
		row := []string{strconv.FormatFloat(one.at.Seconds(), 'f', 1, 64)}
		for _, name := range columns {
			row = append(row, strconv.FormatFloat(one.values[name], 'g', 8, 64))
		}
		out.Write(row)
	}
	out.Flush()
	return out.Error()
}
