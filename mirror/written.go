package mirror

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"pgmirror/iceberg"
)

// written counts the data files that one kind of work has written since the start. What compaction writes beside what flushes do is
// the write amplification.
type written struct{ files, rows, bytes atomic.Int64 }

func (w *written) add(data iceberg.DataFile) {
	w.files.Add(1)
	w.rows.Add(data.Rows)
	w.bytes.Add(data.Bytes)
}

var (
	descWritten      = prometheus.NewDesc("pgmirror_files_written_total", "Data files written by the first copy of tables, by flushes of memory and by compaction.", []string{"by"}, nil)
	descWrittenRows  = prometheus.NewDesc("pgmirror_file_rows_total", "Rows in those files.", []string{"by"}, nil)
	descWrittenBytes = prometheus.NewDesc("pgmirror_file_bytes_total", "Bytes of those files.", []string{"by"}, nil)
)

// collectWritten hands out the counts of each kind of work.
func (c *counters) collectWritten(counter func(d *prometheus.Desc, v int64, labels ...string)) {
	for by, w := range map[string]*written{"copy": &c.copied, "flush": &c.flushed, "compact": &c.compacted} {
		counter(descWritten, w.files.Load(), by)
		counter(descWrittenRows, w.rows.Load(), by)
		counter(descWrittenBytes, w.bytes.Load(), by)
	}
}
