package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"pgmirror/readstate"
)

// simReading is one reader of a life. It reads from the mirror, or as a client of the server of read states.
type simReading struct {
	*sim
	m      *Mirror
	from   readstate.Provider
	server *simServer // nil when it reads from the mirror
	r      *rand.Rand
}

// run reads again and again as long as the mirror lives.
func (r *simReading) run(ctx context.Context) {
	for ctx.Err() == nil && !r.died() && !r.t.Failed() {
		r.sleep(ctx, time.Minute)
		switch r.r.IntN(9) {
		case 0:
			r.ofTime(ctx)
		case 1, 2:
			r.feed(ctx)
		case 3:
			r.beyond(ctx)
		case 4:
			r.frozen(ctx)
		default:
			r.state(ctx)
		}
	}
}

func (r *simReading) sleep(ctx context.Context, most time.Duration) {
	select {
	case <-time.After(time.Duration(r.r.Int64N(int64(most)))):
	case <-ctx.Done():
	}
}

// inWindow is an LSN that could be read a moment ago; 0 for the newest.
func (r *simReading) inWindow() LSN {
	low, high := r.m.marks.low(), r.m.marks.high()
	if high <= low {
		return 0
	}
	return low + LSN(r.r.Uint64N(uint64(high-low)+1))
}

// withModel does what looks at the model. It gives that back also when the test fails.
func (s *sim) withModel(do func()) {
	s.model.Lock()
	defer s.model.Unlock()
	do()
}

// tableViews is how the mirror's tables stand at one moment.
type tableViews []*tableView

// at is what a reader at an LSN has of a table; nil when there is none yet.
func (s tableViews) at(name string, lsn LSN) *tableView {
	for _, v := range s {
		if v.table.name.Name == name {
			return v.at(lsn)
		}
	}
	return nil
}

// refuses says whether a table cannot be read at an LSN; with newest nobody asked for that LSN.
func refuses(v *tableView, at LSN, newest bool) bool {
	return v.damage != "" || v.state == stateCopying || at < v.table.appears || v.failure != nil && (newest || at > v.failure.Good)
}

// state reads all tables, and may keep its state for up to an hour.
func (r *simReading) state(ctx context.Context) {
	req := readstate.PinRequest{Timeout: time.Minute, VectorsLater: r.r.IntN(2) == 0}
	atLeast := LSN(0)
	switch r.r.IntN(4) {
	case 0:
		req.WaitSource, atLeast = true, r.source.end()
	case 1:
		req.At = r.inWindow()
	}
	before := tableViews(r.m.shared.views())
	st, err := r.from.Pin(ctx, req)
	if err != nil {
		return // not open yet, or at its end, or without a source
	}
	defer st.Release()
	if st.LSN < atLeast {
		r.t.Errorf("a read that waits for the source is at %s, which was at %s", st.LSN, atLeast)
	}
	r.judge(before, st, r.m.shared.views(), req.At == 0)
	if r.server != nil && r.r.IntN(2) == 0 { // so that nothing of it is here when it settles
		r.sleep(ctx, time.Hour)
	}
	for range 1 + r.r.IntN(3) {
		r.rows(st)
		if r.r.IntN(3) > 0 || r.died() {
			break
		}
		r.sleep(ctx, time.Hour)
	}
}

// judge checks which tables of a state cannot be read, by how they stood before and after its pin.
func (r *simReading) judge(before tableViews, st *readstate.State, after tableViews, newest bool) {
	r.model.Lock()
	defer r.model.Unlock()
	if len(st.Tables) != len(r.tables) {
		r.fatal("%d tables at %s, want %d", len(st.Tables), st.LSN, len(r.tables))
	}
	for _, mt := range r.tables {
		name := mt.def.Name
		rt, ok := st.Table(readstate.TableName{Schema: "public", Name: name})
		b, a := before.at(name, st.LSN), after.at(name, st.LSN)
		if !ok || a == nil {
			r.fatal("table %s is missing at %s", name, st.LSN)
		}
		r.justify(after.at(name, maxLSN))
		why := rt.Err
		if strings.Contains(why, "is incomplete") { // rows asks for the rest
			why = ""
		}
		switch {
		case why == "" && b != nil && b.table == a.table && refuses(b, st.LSN, newest) && refuses(a, st.LSN, newest):
			r.fatal("table %s can be read at %s, though it failed: %+v", name, st.LSN, a.failure)
		case why != "" && b != nil && !refuses(b, st.LSN, newest) && !refuses(a, st.LSN, newest):
			r.fatal("table %s at %s: %s", name, st.LSN, why)
		}
	}
}

// justify: a table fails when another engine has done more than to move its rows, or when one of its files could not be read. The caller holds the model.
func (s *sim) justify(v *tableView) {
	f := v.failure
	if f == nil {
		return
	}
	unread, spoiled := strings.Contains(f.Reason, errIO.Error()), s.spoiled[v.table.uuid] && strings.Contains(f.Reason, "another writer")
	if !unread && !spoiled {
		s.fatal("table %s has failed: %+v", v.table, f)
	}
	s.count(func(c *simCounts) {
		if unread && !s.plans.damage {
			s.t.Errorf("table %s has failed because of the machine: %+v", v.table, f)
		}
		if s.failed[v.table.uuid] {
			return
		}
		s.failed[v.table.uuid] = true
		if spoiled {
			c.Spoiled++
		} else {
			c.Damaged++
		}
	})
}

// rows compares the tables of a state that can be read with the model.
func (r *simReading) rows(st *readstate.State) {
	settled := r.server != nil && r.server.Stats().Settled > 0
	for _, rt := range st.Tables {
		whole, err := rt.Complete(context.Background())
		r.check(err)
		if whole.Err != "" {
			continue
		}
		got := r.rowsOf(whole)
		r.withModel(func() {
			mt := r.tables[slices.IndexFunc(r.tables, func(t *modelTable) bool { return t.def.Name == rt.Name.Name })]
			if want := r.expected(mt, whole.Schema, st.LSN); !slices.Equal(got, want) {
				r.fatal("table %s at %s:\n got %v\nwant %v", rt.Name, st.LSN, got, want)
			}
		})
	}
	r.count(func(c *simCounts) {
		if c.Reads++; settled {
			c.Afterwards++
		}
	})
}

// ofTime reads the state after the last commit, in the order of the WAL, up to a time. What the source had by then is waited for.
func (r *simReading) ofTime(ctx context.Context) {
	req := readstate.PinRequest{Timeout: time.Minute, WaitLSN: r.source.end()}
	commits := r.source.after(0)
	if len(commits) == 0 {
		return
	}
	req.AtTime = commits[len(commits)-1-r.r.IntN(min(len(commits), 30))].at.Add(time.Duration(r.r.IntN(4)) * time.Millisecond)
	if latest := time.Now().Add(-clocksApart); req.AtTime.After(latest) { // no later commit has a time so early
		req.AtTime = latest
	}
	asked := req.AtTime.Truncate(time.Millisecond)
	last := len(commits) - 1
	for last >= 0 && commits[last].at.Truncate(time.Microsecond).After(asked) {
		last--
	}
	if last < 0 {
		return
	}
	st, err := r.from.Pin(ctx, req)
	if err != nil {
		if low := r.m.marks.low(); errors.Is(err, ErrOutsideWindow) && commits[last].end > low {
			r.t.Errorf("at %s, after the commit that ends at %s: %v; LWM is %s", req.AtTime, commits[last].end, err, low)
		}
		return
	}
	defer st.Release()
	if st.LSN < commits[last].end || last+1 < len(commits) && st.LSN >= commits[last+1].end {
		r.t.Errorf("a read of %s is at %s; the last commit until then ended at %s", req.AtTime, st.LSN, commits[last].end)
	}
	r.count(func(c *simCounts) { c.AtTime++ })
	r.rows(st)
}

// feed reads the changes of a table.
func (r *simReading) feed(ctx context.Context) {
	mt := r.tables[r.r.IntN(len(r.tables))]
	name := readstate.TableName{Schema: "public", Name: mt.def.Name}
	from, to := r.inWindow(), r.inWindow()
	if from = min(from, to); from == 0 {
		return
	}
	before := tableViews(r.m.shared.views()).at(mt.def.Name, to)
	st, err := r.from.Pin(ctx, readstate.PinRequest{At: to, Timeout: time.Minute, Changes: &readstate.Changes{Table: name, From: from}})
	after := tableViews(r.m.shared.views()).at(mt.def.Name, to)
	refused := func(v *tableView) bool { return refuses(v, to, false) || from < v.table.appears }
	if err != nil {
		known := errors.Is(err, ErrOutsideWindow) || strings.Contains(err.Error(), "close some of them") || strings.Contains(err.Error(), "another Iceberg writer moved rows")
		if !known && before != nil && !refused(before) && !refused(after) && ctx.Err() == nil && !r.died() {
			r.t.Errorf("changes of table %s from %s to %s: %v", name, from, to, err)
		}
		return
	}
	defer st.Release()
	if before != nil && before.table == after.table && refused(before) && refused(after) {
		r.t.Errorf("changes of table %s from %s to %s are no error: %+v", name, from, to, after.failure)
		return
	}
	if r.r.IntN(4) == 0 {
		r.sleep(ctx, time.Hour)
	}
	rows, err := r.tryRowsOf(st.Tables[0])
	if err != nil {
		if text := err.Error(); !strings.Contains(text, errIO.Error()) && !strings.Contains(text, errPowerCut.Error()) {
			r.t.Errorf("changes of table %s from %s to %s: %v", name, from, to, err)
		}
		return // reads of the clients' fail too
	}
	r.withModel(func() {
		n := r.compareFeed(mt, st.Tables[0], rows, from, to)
		r.count(func(c *simCounts) { c.Feeds++; c.Changes += n })
	})
}

// beyond reads a retained checkpoint, which it holds for as long as it reads.
func (r *simReading) beyond(ctx context.Context) {
	cuts := r.ware.cuts()
	if len(cuts) == 0 {
		return
	}
	at := cuts[r.r.IntN(len(cuts))]
	args, err := json.Marshal(HoldRequest{LSN: at.String()})
	r.check(err)
	hold, letGo := context.WithCancel(ctx)
	held, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = r.from.Call(hold, "hold", args, func(string) { signal(held) })
	}()
	defer func() {
		letGo()
		<-ended
	}()
	select {
	case <-held:
	case <-ended:
		return // a call failed, or the mirror is at its end
	}
	low := r.m.marks.low()
	shown, ok := r.ware.shownAt(at) // tables that are dropped from now on can be read in it still
	for range 2 {
		r.withModel(func() {
			if !ok || r.leaving {
				return
			}
			doc, err := decodeDocument(shown.doc)
			r.check(err)
			if doc.Phase != phaseStreaming {
				return
			}
			doc.Tables = slices.DeleteFunc(doc.Tables, func(t tableRecord) bool { return shown.tables[t.UUID] == nil })
			r.compareCommitted(doc, shown.tables)
			r.count(func(c *simCounts) {
				if at < low {
					c.Beyond++
				}
			})
		})
		r.sleep(ctx, 10*time.Minute)
	}
}

// frozen reads what a failed table held at its last good LSN.
func (r *simReading) frozen(ctx context.Context) {
	before := tableViews(r.m.shared.views())
	failed := slices.DeleteFunc(slices.Clone(before), func(v *tableView) bool { return v.failure == nil || v.failure.Good == 0 })
	if len(failed) == 0 {
		return
	}
	v := failed[r.r.IntN(len(failed))]
	name, at := v.table.name.Name, v.failure.Good
	st, err := r.from.Pin(ctx, readstate.PinRequest{At: at, Timeout: time.Minute})
	now := tableViews(r.m.shared.views()).at(name, at)
	must := now != nil && now.table == v.table && now.failure == v.failure && v.holdsGood() && !refuses(v, at, false) && before.at(name, at) == v
	if err != nil {
		if must && errors.Is(err, ErrOutsideWindow) {
			r.t.Errorf("table %s cannot be read at its last good LSN: %v", name, err)
		}
		return
	}
	defer st.Release()
	rt, _ := st.Table(v.table.name)
	if must && rt.Err != "" {
		r.t.Errorf("table %s cannot be read at its last good LSN, %s: %s", name, at, rt.Err)
	}
	if rt.Err == "" {
		r.count(func(c *simCounts) { c.Frozen++ })
	}
	r.rows(st)
}

// cuts lists those of the commits whose snapshots are retained.
func (w *fakeWarehouse) cuts() (list []LSN) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.snapshots {
		list = append(list, s.cut)
	}
	return list
}

// unhealthy lists the tables that do not stream.
func unhealthy(m *Mirror) (names []string) {
	for _, v := range m.shared.views() {
		if v.state != stateStreaming {
			names = append(names, v.table.String())
		}
	}
	return names
}

// copyFailed has a table that failed copied again.
func (s *sim) copyFailed(ctx context.Context, m *Mirror) {
	for _, name := range unhealthy(m) {
		s.mu.Lock()
		asked := s.wanted[name]
		s.wanted[name] = true
		s.mu.Unlock()
		if asked {
			continue
		}
		rep, err := m.Resync(ctx, ResyncRequest{Tables: []string{name}}, func(string) {})
		s.mu.Lock()
		delete(s.wanted, name)
		if err == nil && rep.Tables[0].Error == "" {
			s.counts.Resyncs++
		}
		s.mu.Unlock()
		return
	}
}

// mend has all tables copied again that failed. The error says that it is to be tried again.
func (s *sim) mend(ctx context.Context, m *Mirror) error {
	if opening := m.shared.opening(); opening != "" {
		return errors.New(opening)
	}
	names := unhealthy(m)
	if len(names) == 0 {
		return nil
	}
	rep, err := m.Resync(ctx, ResyncRequest{Tables: names}, func(string) {})
	if err != nil {
		return err
	}
	for _, t := range rep.Tables {
		if t.Error != "" {
			return errors.New(t.Error)
		}
	}
	return nil
}

// simServer serves a life's read states to one client.
type simServer struct {
	*readstate.Server
	client *readstate.Client
	stop   func()
}

// simProvider counts the states that settle.
type simProvider struct {
	*Mirror
	sim *sim
}

func (p simProvider) Pin(ctx context.Context, req readstate.PinRequest) (*readstate.State, error) {
	st, err := p.Mirror.Pin(ctx, req)
	if err != nil {
		return nil, err
	}
	settle := st.Settle
	st.Settle = func() {
		p.sim.count(func(c *simCounts) { c.Settled++ })
		settle()
	}
	return st, nil
}

// serve starts a server of the mirror's read states.
func (s *sim) serve(m *Mirror) *simServer {
	s.t.Helper()
	server := readstate.NewServer(simProvider{m, s}, slog.New(slog.DiscardHandler), readstate.ServerConfig{Dir: s.states, Limit: time.Duration(1+s.rng.IntN(10)) * time.Minute})
	listener := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	ours, theirs := net.Pipe()
	listener.conns <- theirs
	client, err := readstate.NewClient(ctx, ours, readstate.ClientConfig{CacheBytes: 1})
	s.check(err)
	return &simServer{server, client, func() {
		s.check(client.Close())
		stop()
		s.check(<-ended)
	}}
}

// nothingHeld checks that a life's read states have left nothing.
func (s *sim) nothingHeld(m *Mirror) {
	s.t.Helper()
	if n, named, pinned, feeds := m.readers.openStates(), len(m.settled.named)+len(m.settled.kept), m.pinned.Load(), m.feeds.Load(); n != 0 || named != 0 || pinned != 0 || feeds != 0 {
		s.t.Errorf("of read states that were released are left: %d that are open, %d files, %d bytes, and %d of change feeds", n, named, pinned, feeds)
	}
	left, err := os.ReadDir(s.states)
	s.check(err)
	for _, f := range left {
		s.t.Errorf("%s is left of a read state", f.Name())
	}
}

// pipeListener hands out connections of this process.
type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }
