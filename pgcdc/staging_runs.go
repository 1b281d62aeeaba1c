package pgcdc

import (
	"encoding/binary"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"
)

// runs cuts a streamed transaction's frames by the subtransaction that wrote them, so that one that is rolled back can be
// taken out again. A run is what one of them wrote before another wrote; it begins with a mark, and the marks are a chain
// from the last to the first, in the frames themselves: a transaction of ten million savepoints takes two bitmaps of memory.
//
//	mark(top) row row   mark(a) row   mark(b) row row   mark(a) row   mark(top) row
//	    ▲────────────────┘  ▲───────────┘ ▲─────────────────┘ ▲─────────┘  ▲── last
//
// Subtransactions nest: from the first row of one until it is rolled back, only it and those inside it write. So a rollback
// removes everything from the subtransaction's first mark on, as PostgreSQL's own subscriber does
// (stream_abort_internal in worker.c). The server names each that is rolled back, those inside first and the oldest first. A rollback
// may therefore take rows of others with it that are not named yet; lost keeps them until they are, and a transaction that
// commits with one of them would have lost rows, which is an error.
type runs struct {
	xid     uint32          // who writes now; 0 when nobody has since the start or the last rollback
	last    int64           // position of the last mark, or noMark
	present *roaring.Bitmap // the subtransactions that have a run; nil when there is none
	lost    *roaring.Bitmap // those that lost rows to the rollback of another and are not rolled back yet; nil when none
}

// noMark is the position of no mark.
const noMark = -1

// A mark's body: xid, 1 at its first run, position of the mark before, rows and relations before.
const markSize = 4 + 1 + 8 + 8 + 4

type mark struct {
	xid       uint32
	first     bool
	before    int64
	rows      int64
	relations int
}

// enter begins a run of xid, unless it is the one that writes. top is the transaction's own xid; rows is how many it has so far.
func (s *staging) enter(top, xid uint32, rows int64) error {
	r := &s.runs
	if xid == r.xid {
		return nil
	}
	if r.lost != nil && r.lost.Contains(xid) {
		return fmt.Errorf("%w: subtransaction %d of transaction %d goes on, although it lost rows to the rollback of another", ErrStreaming, xid, top)
	}
	first := false
	if xid != top {
		if r.present == nil {
			r.present = roaring.New()
		}
		first = r.present.CheckedAdd(xid)
	}
	body := binary.BigEndian.AppendUint32(make([]byte, 0, markSize), xid)
	body = append(body, 0)
	if first {
		body[4] = 1
	}
	body = binary.BigEndian.AppendUint64(body, uint64(r.last))
	body = binary.BigEndian.AppendUint64(body, uint64(rows))
	body = binary.BigEndian.AppendUint32(body, uint32(len(s.relations)))
	at := s.end()
	if err := s.add(runMark, body, nil); err != nil {
		return err
	}
	r.xid, r.last = xid, at
	return nil
}

// abort removes what a subtransaction wrote, and says how many rows are left of rows.
func (s *staging) abort(xid uint32, rows int64) (int64, error) {
	r := &s.runs
	if r.lost != nil && r.lost.CheckedRemove(xid) && r.lost.IsEmpty() {
		r.lost = nil
	}
	if r.present == nil || !r.present.Contains(xid) {
		return rows, nil // it wrote nothing that is published, or went with another
	}
	for {
		m, err := s.mark(r.last)
		if err != nil {
			return 0, err
		}
		if err := s.truncate(r.last); err != nil {
			return 0, err
		}
		clear(s.relations[m.relations:])
		rows, s.relations = m.rows, s.relations[:m.relations]
		r.xid, r.last = 0, m.before
		if m.first {
			r.present.Remove(m.xid)
		}
		if m.xid != xid {
			if r.lost == nil {
				r.lost = roaring.New()
			}
			r.lost.Add(m.xid)
		} else if m.first {
			return rows, nil
		}
	}
}

func (s *staging) mark(at int64) (mark, error) {
	var body [markSize]byte
	if err := s.read(body[:], at+frameHeader); err != nil {
		return mark{}, err
	}
	return mark{
		xid:       binary.BigEndian.Uint32(body[:]),
		first:     body[4] == 1,
		before:    int64(binary.BigEndian.Uint64(body[5:])),
		rows:      int64(binary.BigEndian.Uint64(body[13:])),
		relations: int(binary.BigEndian.Uint32(body[21:])),
	}, nil
}
