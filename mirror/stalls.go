package mirror

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// stalls measures for how long the applier does something other than applying: a turn.
type stalls struct {
	turns   prometheus.Histogram
	longest atomic.Int64 // nanoseconds, since the start
}

func newStalls() *stalls {
	return &stalls{turns: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "pgmirror_applier_turn_seconds",
		Help:    "How long the applier stood still each time that it did something else between two changes: beginning and installing a flush or compaction, a fold, a command.",
		Buckets: []float64{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10},
	})}
}

// timed is do with its time noted.
func (s *stalls) timed(clock Clock, do func() error) func() error {
	return func() error {
		began := clock.Now()
		defer func() {
			took := clock.Now().Sub(began)
			s.turns.Observe(took.Seconds())
			s.longest.Store(max(s.longest.Load(), int64(took))) // the applier alone writes it
		}()
		return do()
	}
}
