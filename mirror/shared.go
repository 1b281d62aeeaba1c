package mirror

import (
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
)

// shared is what every goroutine may know of the mirror's state; the applier and the supervisor write it.
type shared struct {
	mu sync.RWMutex
	s  sharedState
}

type sharedState struct {
	state      string // as in Status.State
	reason     string
	opened     bool // reads are open
	database   string
	durable    LSN
	searchPath []string
	tables     []*tableView
}

// tableView is an immutable picture of a table's standing.
type tableView struct {
	table   *table
	state   tableState
	failure *failure
	damage  string
	schema  *arrow.Schema
	copied  *atomic.Int64 // rows of a copy under way
}

func (s *shared) set(change func(*sharedState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.s)
}

func (s *shared) get() sharedState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.s
}

func (s *shared) views() []*tableView { return s.get().tables }

// opening says why reads are not open; empty when they are.
func (s *shared) opening() string {
	st := s.get()
	if st.opened {
		return ""
	}
	if st.reason != "" {
		return st.state + ": " + st.reason
	}
	return st.state
}

// updateShared shows the tables' standing to other goroutines. The applier's turn.
func (m *Mirror) updateShared() {
	views := make([]*tableView, 0, len(m.tables))
	for _, t := range m.tables {
		v := &tableView{table: t, state: t.state, failure: t.failure, damage: t.damage}
		if t.shape != nil {
			v.schema = t.shape.arrow
		} else {
			v.schema = arrow.NewSchema(nil, nil)
		}
		views = append(views, v)
	}
	m.shared.set(func(s *sharedState) { s.tables = views })
}
