package pgcdc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// modelServer is a walsender in small: sessions with savepoints, whose transactions it streams in blocks that are cut anywhere or sends
// whole, and what must come out. It writes rows that name themselves.
type modelServer struct {
	xid    uint32
	serial int
	lsn    LSN
	open   []*modelTransaction
	out    [][]byte
	stated bool     // the session knows the relation
	want   []string // committed transactions with rows
}

// modelTransaction is open. Its rows are in order; those already streamed come first.
type modelTransaction struct {
	xid      uint32
	stack    []uint32          // the subtransactions that are running, the outermost first
	inside   map[uint32]uint32 // a subtransaction's parent
	rows     []modelRow
	sent     int // rows streamed, of those that are left
	streamed bool
	began    []uint32 // subtransactions of which a row was streamed, by the first
	stated   bool     // the relation was stated to it since the last rollback
}

type modelRow struct {
	xid  uint32
	text string
}

func (s *modelServer) next() uint32 { s.xid++; return s.xid }

func (s *modelServer) begin() {
	xid := s.next()
	s.open = append(s.open, &modelTransaction{xid: xid, inside: map[uint32]uint32{}})
}

func (t *modelTransaction) current() uint32 {
	if len(t.stack) == 0 {
		return t.xid
	}
	return t.stack[len(t.stack)-1]
}

func (s *modelServer) savepoint(t *modelTransaction) {
	xid := s.next()
	t.inside[xid] = t.current()
	t.stack = append(t.stack, xid)
}

// rollback ends the running subtransaction at depth and all inside it; depth 0 is the first.
func (s *modelServer) rollback(t *modelTransaction, depth int) {
	top := t.stack[depth]
	within := func(xid uint32) bool {
		for ; xid != 0; xid = t.inside[xid] {
			if xid == top {
				return true
			}
		}
		return false
	}
	for _, xid := range t.began {
		if within(xid) && xid != top {
			s.out = append(s.out, streamAbortBytes(t.xid, xid))
		}
	}
	if slices.Contains(t.began, top) {
		s.out = append(s.out, streamAbortBytes(t.xid, top))
		t.stated = false
	}
	t.began = slices.DeleteFunc(t.began, within)
	for i := len(t.rows) - 1; i >= 0; i-- {
		if within(t.rows[i].xid) {
			if i < t.sent {
				t.sent--
				t.stated = false
			}
			t.rows = slices.Delete(t.rows, i, i+1)
		}
	}
	t.stack = t.stack[:depth]
}

func (s *modelServer) insert(t *modelTransaction) {
	s.serial++
	t.rows = append(t.rows, modelRow{t.current(), fmt.Sprintf("row %d %s", s.serial, strings.Repeat("x", s.serial%90))})
}

// stream sends some of what was not sent.
func (s *modelServer) stream(t *modelTransaction, rows int) {
	s.out = append(s.out, streamStartBytes(t.xid, !t.streamed))
	t.streamed = true
	for _, row := range t.rows[t.sent : t.sent+rows] {
		if !t.stated {
			t.stated = true
			s.out = append(s.out, by(row.xid, relationBytes(7, "t", "a")))
		}
		if row.xid != t.xid && !slices.Contains(t.began, row.xid) {
			t.began = append(t.began, row.xid)
		}
		s.out = append(s.out, by(row.xid, insertBytes(7, row.text)))
	}
	t.sent += rows
	s.out = append(s.out, streamStopBytes)
}

func (s *modelServer) end(t *modelTransaction, commit bool) {
	s.open = slices.DeleteFunc(s.open, func(other *modelTransaction) bool { return other == t })
	s.lsn += 100
	switch {
	case !commit && t.streamed:
		for _, xid := range t.began {
			s.out = append(s.out, streamAbortBytes(t.xid, xid))
		}
		s.out = append(s.out, streamAbortBytes(t.xid, t.xid))
	case commit && t.streamed:
		s.stream(t, len(t.rows)-t.sent)
		s.out = append(s.out, streamCommitBytes(t.xid, s.lsn, s.lsn+50, 0))
		s.stated = s.stated || t.stated
	case commit:
		s.out = append(s.out, beginBytes(s.lsn, 0, t.xid))
		for _, row := range t.rows {
			if !s.stated {
				s.stated = true
				s.out = append(s.out, relationBytes(7, "t", "a"))
			}
			s.out = append(s.out, insertBytes(7, row.text))
		}
		s.out = append(s.out, commitBytes(s.lsn, s.lsn+50, 0))
	}
	if commit {
		lines := []string{fmt.Sprintf("%d, %d rows", t.xid, len(t.rows))}
		for _, row := range t.rows {
			lines = append(lines, "insert t 1: "+row.text)
		}
		s.want = append(s.want, strings.Join(lines, "\n"))
	}
}

// TestAssemblerModel holds that any interleaving of transactions with savepoints, however it is cut into blocks and wherever it
// spills, comes out as its sessions committed it.
func TestAssemblerModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		s := &modelServer{xid: 100, lsn: 1000}
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			if len(s.open) == 0 || len(s.open) < 4 && rapid.IntRange(0, 9).Draw(rt, "begin") == 0 {
				s.begin()
			}
			tx := s.open[rapid.IntRange(0, len(s.open)-1).Draw(rt, "session")]
			switch rapid.IntRange(0, 9).Draw(rt, "action") {
			case 0, 1:
				s.savepoint(tx)
			case 2:
				if len(tx.stack) > 0 {
					s.rollback(tx, rapid.IntRange(0, len(tx.stack)-1).Draw(rt, "depth"))
				}
			case 3:
				if len(tx.stack) > 0 {
					tx.stack = tx.stack[:rapid.IntRange(0, len(tx.stack)-1).Draw(rt, "depth")]
				}
			case 4, 5:
				if left := len(tx.rows) - tx.sent; left > 0 {
					s.stream(tx, rapid.IntRange(1, left).Draw(rt, "rows"))
				}
			case 6:
				s.end(tx, rapid.IntRange(0, 3).Draw(rt, "commit") > 0)
			default:
				s.insert(tx)
			}
		}
		for len(s.open) > 0 {
			s.end(s.open[0], true)
		}
		a := newAssembler(dir, rapid.SampledFrom([]int64{1 << 20, 2000, 300, 1}).Draw(rt, "spill"))
		var got []string
		for _, tx := range assembleAll(t, a, s.out) {
			lines := []string{fmt.Sprintf("%d, %d rows", tx.XID, tx.Rows)}
			for _, line := range strings.Split(steps(t, tx), "\n") {
				if line != "" && line != "relation t 1" {
					lines = append(lines, line)
				}
			}
			got = append(got, strings.Join(lines, "\n"))
			tx.Release()
		}
		if !slices.Equal(got, s.want) {
			rt.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(s.want, "\n"))
		}
		if len(a.streamed) != 0 || a.memory != 0 {
			rt.Fatalf("%d transactions and %d bytes are left", len(a.streamed), a.memory)
		}
	})
}
