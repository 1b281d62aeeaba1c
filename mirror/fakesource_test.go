package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pgmirror/pgcdc"
)

// pgEpoch is where PostgreSQL's timestamps begin.
var pgEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// message builds pgoutput messages, https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html.
type message []byte

func (m message) u8(v byte) message    { return append(m, v) }
func (m message) u16(v int) message    { return binary.BigEndian.AppendUint16(m, uint16(v)) }
func (m message) u32(v uint32) message { return binary.BigEndian.AppendUint32(m, v) }
func (m message) u64(v uint64) message { return binary.BigEndian.AppendUint64(m, v) }
func (m message) text(s string) message {
	return append(append(m, s...), 0)
}

// datum is a value: as PostgreSQL sends it in text, and as showValue prints what the mirror must hold for it.
type datum struct {
	wire, shown string
	bad         bool // cannot be represented: the mirror holds NULL, or the table fails
}

// cell is a column of a row; nil is NULL and unchanged is a TOASTed value that was not sent.
type cell *datum

func val(s string) cell { return &datum{wire: s, shown: s} }

var unchanged = val("(unchanged)")

func (m message) tuple(cells []cell) message {
	m = m.u16(len(cells))
	for _, c := range cells {
		switch c {
		case nil:
			m = m.u8('n')
		case unchanged:
			m = m.u8('u')
		default:
			m = m.u8('t').u32(uint32(len(c.wire)))
			m = append(m, c.wire...)
		}
	}
	return m
}

func relationMessage(t *pgcdc.Table) message {
	m := message{'R'}.u32(t.OID).text(t.Schema).text(t.Name).u8(byte(t.Identity)).u16(len(t.Columns))
	key := map[int]bool{}
	for _, k := range t.IdentityKey {
		key[k] = true
	}
	for i, c := range t.Columns {
		flag := byte(0)
		if key[i] {
			flag = 1
		}
		m = m.u8(flag).text(c.Name).u32(c.Type.OID).u32(uint32(c.Type.Mod))
	}
	return m
}

// commit is one transaction of the fake source's WAL.
type commit struct {
	commitLSN, end LSN
	xid            uint32
	at             time.Time
	changes        []message
	tables         []pgcdc.Table // as they were
}

func (c *commit) messages() []message {
	micros := uint64(c.at.Sub(pgEpoch).Microseconds())
	begin := message{'B'}.u64(uint64(c.commitLSN)).u64(micros).u32(c.xid)
	end := message{'C'}.u8(0).u64(uint64(c.commitLSN)).u64(uint64(c.end)).u64(micros)
	return append(append([]message{begin}, c.changes...), end)
}

// fakeSource is a PostgreSQL server in memory: a WAL of commits and a slot. The model knows its tables' contents.
type fakeSource struct {
	mu        sync.Mutex
	changed   *sync.Cond // a commit, a keepalive or the end of a connection
	wal       []*commit
	insert    LSN // end of WAL
	confirmed LSN
	slot      bool
	xid       uint32
	now       time.Time
	clock     func() time.Time // if set, of the commits; else each is a millisecond later than the one before
	tables    []pgcdc.Table
	rows      func(oid uint32, at LSN) [][]cell // what a snapshot at an LSN sees

	rewritten map[uint32]int // copies of a table that still end with ErrRewritten
	kept      map[uint32]pgcdc.Kept
	asked     []uint64      // horizons that RowsKept was given
	slots     int           // made so far
	catalog   []pgcdc.Table // what a look shows; nil: tables
	// committed, if set, is the newest LSN that the warehouse holds; only that may be acknowledged.
	committed func() LSN
	early     LSN    // an acknowledgement above it
	held      uint32 // the table whose copies do not end
	// copied, if set, runs before a range of a table is copied; its error ends the copy.
	copied func(oid uint32) error
	// copiedRow, if set, runs before each row of a copy; its error ends the copy.
	copiedRow func(oid uint32, row int) error
	// looking, if set, runs before each look at the catalogue.
	looking func()
	// looked, if set, runs once, when a look has seen the catalogue and not returned yet.
	looked func()
	// snapshotting, if set, runs before a snapshot other than the slot's is taken.
	snapshotting func()
	// snapshotted, if set, runs when it is taken and the mirror does not have it yet.
	snapshotted func()
	// admit, if set, is called before each event is sent, and may wait.
	admit    func(context.Context) error
	retained int64 // WAL that the slot keeps, in bytes
	// fault, if set, is asked before each call that a connection could lose.
	fault func(call string) error
}

func newFakeSource(tables []pgcdc.Table) *fakeSource {
	s := &fakeSource{insert: 0x1000, xid: 700, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), tables: tables,
		rewritten: map[uint32]int{}}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// losing is the error that fault wants for a call.
func (s *fakeSource) losing(call string) error {
	if s.fault == nil {
		return nil
	}
	return s.fault(call)
}

// commit appends a transaction to the WAL.
func (s *fakeSource) commit(changes []message) *commit {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.xid++
	s.now = s.now.Add(time.Millisecond)
	if s.clock != nil {
		s.now = s.clock()
	}
	c := &commit{commitLSN: s.insert + 8, end: s.insert + 64 + LSN(8*len(changes)), xid: s.xid, at: s.now, changes: changes, tables: slices.Clone(s.tables)}
	s.insert = c.end
	s.wal = append(s.wal, c)
	s.changed.Broadcast()
	return c
}

// end is the end of WAL.
func (s *fakeSource) end() LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.insert
}

// idle moves the end of WAL without a commit, as other databases' work does.
func (s *fakeSource) idle() LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.insert += 24
	s.changed.Broadcast()
	return s.insert
}

// after lists the commits that end above an LSN.
func (s *fakeSource) after(lsn LSN) (list []*commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.wal {
		if c.end > lsn {
			list = append(list, c)
		}
	}
	return list
}

func (s *fakeSource) Identify(context.Context) (pgcdc.Identification, error) {
	if err := s.losing("identify"); err != nil {
		return pgcdc.Identification{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return pgcdc.Identification{SystemID: "7", Timeline: 1, WALEnd: s.insert, Database: "d", Version: 150000}, nil
}

func (s *fakeSource) Slot(context.Context) (pgcdc.SlotInfo, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pgcdc.SlotInfo{Name: "m", Plugin: "pgoutput", Database: "d", ConfirmedFlush: s.confirmed, WALStatus: "reserved", RetainedBytes: s.retained}, s.slot, nil
}

// keep lets the slot keep so much WAL, in bytes.
func (s *fakeSource) keep(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retained = bytes
}

func (s *fakeSource) CreateSlot(context.Context) (pgcdc.ExportedSnapshot, error) {
	if err := s.losing("create slot"); err != nil {
		return pgcdc.ExportedSnapshot{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slot {
		return pgcdc.ExportedSnapshot{}, errors.New("the slot exists")
	}
	s.slots++
	s.slot, s.confirmed = true, s.insert
	return pgcdc.ExportedSnapshot{Name: "x", ConsistentPoint: s.insert}, nil
}

func (s *fakeSource) Waiting() string { return "" }

func (s *fakeSource) CloseSnapshot() {}

func (s *fakeSource) DropSlot(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slot = false
	return nil
}

func (s *fakeSource) Look(context.Context) (*pgcdc.Catalog, error) {
	if f := s.looking; f != nil {
		f()
	}
	s.mu.Lock()
	shown := s.catalog
	if shown == nil {
		shown = s.tables
	}
	c := &pgcdc.Catalog{CheckedLSN: s.insert, Snapshot: uint64(s.insert), Tables: append([]pgcdc.Table(nil), shown...), SearchPath: []string{"public"}}
	looked := s.looked
	s.looked = nil
	s.mu.Unlock()
	if looked != nil {
		looked()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.LSN = s.insert
	return c, nil
}

// rangeRows is how many rows a block of a table holds that Extents measures.
const rangeRows = 3

// RowsKept knows what the test says of the table, and remembers the question.
func (s *fakeSource) RowsKept(_ context.Context, t *pgcdc.Table, since uint64) (pgcdc.Kept, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, since)
	return s.kept[t.OID], nil
}

// LeafKept knows the same of leaves.
func (s *fakeSource) LeafKept(_ context.Context, leaf *pgcdc.Leaf, _ bool, since uint64) (pgcdc.Kept, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, since)
	return s.kept[leaf.OID], nil
}

// Extents says that each block is worth a range of its own.
func (s *fakeSource) Extents(_ context.Context, tables []*pgcdc.Table) ([]pgcdc.Extent, error) {
	extents := make([]pgcdc.Extent, len(tables))
	for i, t := range tables {
		rows := len(s.rows(t.OID, s.end()))
		blocks := (rows + rangeRows - 1) / rangeRows
		extents[i] = pgcdc.Extent{Blocks: uint32(blocks), Bytes: int64(blocks) * rangeBytesMin, Rows: int64(rows)}
	}
	return extents, nil
}

func (s *fakeSource) Copy(ctx context.Context, snap pgcdc.ExportedSnapshot, t *pgcdc.Table, row func(pgcdc.Tuple) error) error {
	return s.CopyRange(ctx, snap, t, pgcdc.Range{}, row)
}

func (s *fakeSource) CopyRange(ctx context.Context, snap pgcdc.ExportedSnapshot, t *pgcdc.Table, blocks pgcdc.Range, row func(pgcdc.Tuple) error) error {
	s.mu.Lock()
	again := s.rewritten[t.OID] > 0
	if again {
		s.rewritten[t.OID]--
	}
	s.mu.Unlock()
	if again {
		return fmt.Errorf("copy %s: %w", t.Name, pgcdc.ErrRewritten)
	}
	s.mu.Lock()
	held := t.OID == s.held
	s.mu.Unlock()
	if held {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if s.copied != nil {
		if err := s.copied(t.OID); err != nil {
			return err
		}
	}
	for i, r := range s.rows(t.OID, snap.ConsistentPoint) {
		if block := uint32(i / rangeRows); block < blocks.From || blocks.To != 0 && block >= blocks.To {
			continue
		}
		if s.copiedRow != nil {
			if err := s.copiedRow(t.OID, i); err != nil {
				return err
			}
		}
		tuple := make(pgcdc.Tuple, len(r))
		for column, c := range r {
			tuple[column] = pgcdc.Value{Format: pgcdc.FormatNull}
			if c != nil {
				tuple[column] = pgcdc.Value{Format: pgcdc.FormatText, Data: []byte(c.wire)}
			}
		}
		if err := row(tuple); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// CopySample sends every row, as the source does for keys it cannot choose by; who asks chooses again.
func (s *fakeSource) CopySample(ctx context.Context, snap pgcdc.ExportedSnapshot, t *pgcdc.Table, _ []int, _ uint64, row func(pgcdc.Tuple) error) error {
	return s.Copy(ctx, snap, t, row)
}

func (s *fakeSource) Snapshot(context.Context, time.Duration, func(string)) (pgcdc.ExportedSnapshot, func(), error) {
	if s.snapshotting != nil {
		s.snapshotting()
	}
	s.mu.Lock()
	at := s.insert
	s.mu.Unlock()
	if s.snapshotted != nil {
		s.snapshotted()
	}
	return pgcdc.ExportedSnapshot{Name: "y", ConsistentPoint: at}, func() {}, nil
}

// Stream sends every commit that ends above from and then those that come, each followed by a keepalive when nothing is
// left to send.
func (s *fakeSource) Stream(ctx context.Context, from LSN, _ bool, out chan<- pgcdc.Event) error {
	if err := s.losing("stream"); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})()
	send := func(ev pgcdc.Event) error {
		select {
		case out <- ev:
			return nil
		case <-ctx.Done():
			if ev.Transaction != nil {
				ev.Transaction.Release()
			}
			return ctx.Err()
		}
	}
	replay := pgcdc.NewReplay("", 0)
	told := false
	next, quiet := 0, LSN(0)
	for {
		if s.admit != nil {
			if err := s.admit(ctx); err != nil {
				return err
			}
		}
		s.mu.Lock()
		for next < len(s.wal) && s.wal[next].end <= from {
			next++
		}
		for next == len(s.wal) && s.insert <= quiet && ctx.Err() == nil {
			s.changed.Wait()
		}
		var c *commit
		if next < len(s.wal) {
			c = s.wal[next]
			next++
		}
		end := s.insert
		s.mu.Unlock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c == nil {
			quiet = end
			if err := send(pgcdc.Event{WALEnd: end}); err != nil {
				return err
			}
			continue
		}
		if err := s.losing("commit"); err != nil {
			return err
		}
		msgs := c.messages()
		if !told {
			told = true
			msgs = slices.Insert(msgs, 1, relationMessages(c.tables)...)
		}
		for _, msg := range msgs {
			tx, err := replay.Message(msg)
			if err != nil {
				return err
			}
			if tx == nil {
				continue
			}
			if err := send(pgcdc.Event{Transaction: tx}); err != nil {
				return err
			}
		}
	}
}

func relationMessages(tables []pgcdc.Table) (msgs []message) {
	for i := range tables {
		msgs = append(msgs, relationMessage(&tables[i]))
	}
	return msgs
}

func (s *fakeSource) Acknowledge(lsn LSN) {
	if s.committed != nil && lsn > s.committed() {
		s.early = lsn
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed = max(s.confirmed, lsn)
}

func (s *fakeSource) Received() LSN { return 0 }

func (s *fakeSource) WaitPoint(context.Context) (LSN, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.insert, nil
}
