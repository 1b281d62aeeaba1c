package mirror

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// VerifyRequest says what to compare with the source.
type VerifyRequest struct {
	Tables []string `json:"tables,omitempty"` // schema.table, or the table alone when that is unambiguous; none means all
	// Sample is the part of the rows that is compared, in percent: those whose key falls into it. 0 means all of them.
	Sample float64 `json:"sample,omitempty"`
	// PatienceMS is how long transactions on the source may hold the snapshot back, in milliseconds; 0 means a minute.
	PatienceMS int64 `json:"patience_ms,omitempty"`
}

// defaultPatience is longer than most transactions, and short enough that a forgotten one is named while somebody looks.
const defaultPatience = time.Minute

func (r *VerifyRequest) validate() error {
	if !(r.Sample >= 0 && r.Sample <= 100) { // NaN too
		return fmt.Errorf("a sample of %v percent is not between 0 and 100", r.Sample)
	}
	if r.PatienceMS < 0 || r.PatienceMS > (24*time.Hour).Milliseconds() {
		return fmt.Errorf("a patience of %d ms is not between 0 and a day", r.PatienceMS)
	}
	return nil
}

func (r *VerifyRequest) patience() time.Duration {
	if r.PatienceMS == 0 {
		return defaultPatience
	}
	return time.Duration(r.PatienceMS) * time.Millisecond
}

// VerifyReport is the outcome of a comparison with the source.
type VerifyReport struct {
	LSN    string        `json:"lsn"`              // at which the last table was compared
	Equal  bool          `json:"equal"`            // every table is
	Sample float64       `json:"sample,omitempty"` // percent; absent when all rows were compared
	Tables []VerifyTable `json:"tables"`
}

// Outcomes of a table. All but equal and skipped are findings.
const (
	VerifyEqual     = "equal"
	VerifyDifferent = "different"
	VerifyDamaged   = "damaged" // a file of the mirror cannot be read
	VerifyFailed    = "failed"  // the table had failed before
	VerifySkipped   = "skipped" // it could not be compared now; Reason says why
)

// VerifyTable is one table's part. The rows are those compared: of a sample, the sample's.
type VerifyTable struct {
	Name       string `json:"name"`
	Outcome    string `json:"outcome"`
	Gone       bool   `json:"gone,omitempty"`   // skipped because the source does not publish it any more: that is no fault
	Reason     string `json:"reason,omitempty"` // empty when it is equal
	LSN        string `json:"lsn"`
	SourceRows int64  `json:"source_rows"`
	MirrorRows int64  `json:"mirror_rows"`
	// Nulled counts values of the rows compared that the mirror holds as NULL (on_unrepresentable); they count as equal.
	Nulled int64 `json:"unrepresentable,omitempty"`
	// Differences are up to ten keys that differ; More says that there are others.
	Differences []VerifyDifference `json:"differences,omitempty"`
	More        bool               `json:"more,omitempty"`
}

// VerifyDifference is a key for which the two sides do not hold the same rows.
type VerifyDifference struct {
	Key        string   `json:"key"` // column=value, …
	SourceRows int      `json:"source_rows"`
	MirrorRows int      `json:"mirror_rows"`
	Columns    []string `json:"columns,omitempty"` // whose values differ, where each side has one row
}

// VerifyProgress is a line of progress, as JSON. It either says how far a step is or has something to tell.
type VerifyProgress struct {
	Step   string `json:"step,omitempty"` // what is being done, for people
	Done   int64  `json:"done,omitempty"`
	Total  int64  `json:"total,omitempty"` // 0 when nobody knows
	Unit   string `json:"unit,omitempty"`  // of Done and Total: rows, bytes
	Notice string `json:"notice,omitempty"`
}

// progressPause is the time between two lines about the same step.
const progressPause = 100 * time.Millisecond

// teller sends progress. Its methods may be called by several goroutines.
type teller struct {
	mu   sync.Mutex
	send func(line string)
	step string
	last time.Time
}

// step says how far a step is, unless it did so just before.
func (t *teller) at(step string, done, total int64, unit string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); step != t.step || now.Sub(t.last) >= progressPause {
		t.step, t.last = step, now
		t.tell(VerifyProgress{Step: step, Done: done, Total: total, Unit: unit})
	}
}

func (t *teller) notice(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tell(VerifyProgress{Notice: text})
}

func (t *teller) tell(p VerifyProgress) {
	line, err := json.Marshal(p)
	if err != nil {
		return // strings and numbers always can be
	}
	t.send(string(line))
}
