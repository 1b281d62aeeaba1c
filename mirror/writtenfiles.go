package mirror

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"pgmirror/iceberg"
)

// writtenFiles counts the data files that one kind of work has written since the start.
type writtenFiles struct{ files, rows atomic.Int64 }

func (w *writtenFiles) add(data iceberg.DataFile) {
	w.files.Add(1)
	w.rows.Add(data.Rows)
}

var (
	descFilesWritten = prometheus.NewDesc("pgmirror_files_written_total", "Data files written by the copy of tables, by flushes of memory and by compaction.", []string{"by"}, nil)
	descFileRows     = prometheus.NewDesc("pgmirror_file_rows_total", "Rows in those files.", []string{"by"}, nil)
)

// collectFiles hands out the counts of each kind of work.
func (c *counters) collectFiles(counter func(d *prometheus.Desc, v int64, labels ...string)) {
	for by, w := range map[string]*writtenFiles{"copy": &c.copied, "flush": &c.flushed, "compaction": &c.compacted} {
		counter(descFilesWritten, w.files.Load(), by)
		counter(descFileRows, w.rows.Load(), by)
	}
}
