package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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

// cell is a value as text; nil is NULL and unchanged is a TOASTed value that was not sent.
type cell *string

func val(s string) cell { return &s }

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
			m = m.u8('t').u32(uint32(len(*c)))
			m = append(m, *c...)
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
	wal       []*commit
	insert    LSN // end of WAL
	confirmed LSN
	slot      bool
	xid       uint32
	now       time.Time
	tables    []pgcdc.Table
	rows      func(oid uint32, at LSN) [][]cell // what a snapshot at an LSN sees

	rewritten map[uint32]int // copies of a table that still end with ErrRewritten
	broken    map[uint32]bool
}

func newFakeSource(tables []pgcdc.Table) *fakeSource {
	return &fakeSource{insert: 0x1000, xid: 700, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), tables: tables,
		rewritten: map[uint32]int{}, broken: map[uint32]bool{}}
}

// commit appends a transaction to the WAL.
func (s *fakeSource) commit(changes []message) *commit {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.xid++
	s.now = s.now.Add(time.Millisecond)
	c := &commit{commitLSN: s.insert + 8, end: s.insert + 64 + LSN(8*len(changes)), xid: s.xid, at: s.now, changes: changes}
	s.insert = c.end
	s.wal = append(s.wal, c)
	return c
}

// idle moves the end of WAL without a commit, as other databases' work does.
func (s *fakeSource) idle() LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.insert += 24
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return pgcdc.Identification{SystemID: "7", Timeline: 1, WALEnd: s.insert, Database: "d", Version: 150000}, nil
}

func (s *fakeSource) Slot(context.Context) (pgcdc.SlotInfo, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pgcdc.SlotInfo{Name: "m", Plugin: "pgoutput", Database: "d", ConfirmedFlush: s.confirmed, WALStatus: "reserved"}, s.slot, nil
}

func (s *fakeSource) CreateSlot(context.Context) (pgcdc.ExportedSnapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slot {
		return pgcdc.ExportedSnapshot{}, errors.New("the slot exists")
	}
	s.slot, s.confirmed = true, s.insert
	return pgcdc.ExportedSnapshot{Name: "x", ConsistentPoint: s.insert}, nil
}

func (s *fakeSource) CloseSnapshot() {}

func (s *fakeSource) DropSlot(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slot = false
	return nil
}

func (s *fakeSource) Look(context.Context) (*pgcdc.Catalog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pgcdc.Catalog{LSN: s.insert, CheckedLSN: s.insert, Tables: append([]pgcdc.Table(nil), s.tables...), SearchPath: []string{"public"}}, nil
}

func (s *fakeSource) Copy(_ context.Context, snap pgcdc.ExportedSnapshot, t *pgcdc.Table, row func(pgcdc.Tuple) error) error {
	s.mu.Lock()
	again := s.rewritten[t.OID] > 0
	if again {
		s.rewritten[t.OID]--
	}
	s.mu.Unlock()
	if again {
		return fmt.Errorf("copy %s: %w", t.Name, pgcdc.ErrRewritten)
	}
	for _, r := range s.rows(t.OID, snap.ConsistentPoint) {
		tuple := make(pgcdc.Tuple, len(r))
		for i, c := range r {
			tuple[i] = pgcdc.Value{Format: pgcdc.FormatNull}
			if c != nil {
				tuple[i] = pgcdc.Value{Format: pgcdc.FormatText, Data: []byte(*c)}
			}
		}
		if err := row(tuple); err != nil {
			return err
		}
	}
	return nil
}

func (s *fakeSource) Snapshot(context.Context) (pgcdc.ExportedSnapshot, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pgcdc.ExportedSnapshot{Name: "y", ConsistentPoint: s.insert}, func() {}, nil
}

func (s *fakeSource) Stream(ctx context.Context, _ LSN, _ bool, _ chan<- pgcdc.Event) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s *fakeSource) Acknowledge(lsn LSN) {
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
