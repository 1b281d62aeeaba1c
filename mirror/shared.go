package mirror

import (
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/readstate"
)

// shared is what every goroutine may know of the mirror's state; the applier and the supervisor write it.
type shared struct {
	mu sync.RWMutex
	s  sharedState
}

type sharedState struct {
	state      string // as in Status.State
	reason     string
	opened     bool   // reads are open
	slotTold   string // what is wrong with the WAL that the slot keeps; empty when nothing is
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
	joins   bool          // it waits to be copied, or is
	before  *tableView    // what readers below the table's first LSN see in its place; nil when they see nothing
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
	if m.sharing {
		m.unshared = true
		return
	}
	before := map[readstate.TableName]*tableView{}
	for _, t := range m.past { // in the order in which they were replaced
		v := t.view()
		v.before = before[t.name]
		before[t.name] = v
	}
	views := make([]*tableView, 0, len(m.tables))
	for _, t := range m.tables {
		v := t.view()
		v.before = before[t.name]
		views = append(views, v)
	}
	m.shared.set(func(s *sharedState) { s.tables = views })
}

// sharedOnce shows what do changes of many tables' standing once, at its end: to make all tables' views for each of them takes time that grows with
// the square of their number. The applier's turn.
func (m *Mirror) sharedOnce(do func() error) error {
	m.sharing, m.unshared = true, false
	err := do()
	if m.sharing = false; m.unshared {
		m.updateShared()
	}
	return err
}

func (t *table) view() *tableView {
	v := &tableView{table: t, state: t.state, failure: t.failure, damage: t.damage, schema: arrow.NewSchema(nil, nil), copied: t.copied, joins: t.joining != nil}
	if t.shape != nil {
		v.schema = t.shape.arrow
	}
	return v
}

// at is the view that a reader at an LSN has: that of the table, or of what was in its place.
func (v *tableView) at(lsn LSN) *tableView {
	for lsn < v.table.appears && v.before != nil {
		v = v.before
	}
	return v
}
