package pgcdc

import (
	"bytes"
	"encoding/binary"
	"time"
	"unicode/utf8"
)

// The types of pgoutput messages, their first byte.
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
const (
	messageBegin    = 'B'
	messageCommit   = 'C'
	messageOrigin   = 'O'
	messageRelation = 'R'
	messageType     = 'Y'
	messageInsert   = 'I'
	messageUpdate   = 'U'
	messageDelete   = 'D'
	messageTruncate = 'T'
	messageLogical  = 'M'
)

// These come because streaming is asked for.
const (
	messageStreamStart  = 'S'
	messageStreamStop   = 'E'
	messageStreamCommit = 'c'
	messageStreamAbort  = 'A'
)

// These decide over rows, and come only when two_phase was asked for.
const (
	messageStreamPrepare  = 'p'
	messageBeginPrepare   = 'b'
	messagePrepare        = 'P'
	messageCommitPrepared = 'K'
	messageRollback       = 'r'
)

// relationColumnMin is the shortest column of a Relation message: flags, an empty name's terminator, type and typmod.
const relationColumnMin = 1 + 1 + 4 + 4

// beginMessage is a Begin: the transaction's commit LSN, commit time and xid.
type beginMessage struct {
	commitLSN LSN
	time      time.Time
	xid       uint32
}

// commitMessage is a Commit, or what a Stream Commit says beside the xid.
type commitMessage struct {
	commitLSN, endLSN LSN
	time              time.Time
}

func decodeBegin(body []byte) (beginMessage, error) {
	if len(body) != 1+8+8+4 {
		return beginMessage{}, malformedf("a Begin message of %d bytes", len(body))
	}
	return beginMessage{
		commitLSN: LSN(binary.BigEndian.Uint64(body[1:])),
		time:      serverTime(body[9:]),
		xid:       binary.BigEndian.Uint32(body[17:]),
	}, nil
}

func decodeCommit(body []byte) (commitMessage, error) {
	if len(body) != 1+1+8+8+8 {
		return commitMessage{}, malformedf("a Commit message of %d bytes", len(body))
	}
	return commitMessage{
		commitLSN: LSN(binary.BigEndian.Uint64(body[2:])),
		endLSN:    LSN(binary.BigEndian.Uint64(body[10:])),
		time:      serverTime(body[18:]),
	}, nil
}

// streamStartMessage is a Stream Start: whose block begins, and whether it is the first.
type streamStartMessage struct {
	xid   uint32
	first bool
}

// streamAbortMessage is a Stream Abort: subxid is xid when all of the transaction is rolled back.
type streamAbortMessage struct{ xid, subxid uint32 }

func decodeStreamStart(body []byte) (streamStartMessage, error) {
	if len(body) != 1+4+1 || body[5] > 1 {
		return streamStartMessage{}, malformedf("a Stream Start message of %d bytes", len(body))
	}
	return streamStartMessage{xid: binary.BigEndian.Uint32(body[1:]), first: body[5] == 1}, nil
}

// decodeStreamAbort also takes the form of "streaming parallel", which adds the LSN and the time.
func decodeStreamAbort(body []byte) (streamAbortMessage, error) {
	if len(body) != 1+4+4 && len(body) != 1+4+4+8+8 {
		return streamAbortMessage{}, malformedf("a Stream Abort message of %d bytes", len(body))
	}
	return streamAbortMessage{xid: binary.BigEndian.Uint32(body[1:]), subxid: binary.BigEndian.Uint32(body[5:])}, nil
}

func decodeStreamCommit(body []byte) (xid uint32, commit commitMessage, err error) {
	const header = 1 + 4
	if len(body) != header+1+8+8+8 {
		return 0, commitMessage{}, malformedf("a Stream Commit message of %d bytes", len(body))
	}
	commit, err = decodeCommit(body[header-1:]) // but for the xid it is a Commit
	return binary.BigEndian.Uint32(body[1:]), commit, err
}

// postgresEpoch is 2000-01-01T00:00:00Z, from which the server counts, in Unix seconds.
const postgresEpoch = 946_684_800

// serverTime reads the server's microseconds since 2000. It cannot overflow.
func serverTime(data []byte) time.Time {
	micros := int64(binary.BigEndian.Uint64(data))
	return time.Unix(micros/1e6+postgresEpoch, micros%1e6*1e3).UTC()
}

// decodeRelation reads what follows the type of a Relation message into a new Relation that keeps nothing of it.
func decodeRelation(body []byte) (*Relation, error) {
	w := wire{rest: body}
	relation := &Relation{OID: w.uint32(), Schema: w.text(), Name: w.text(), Identity: Identity(w.uint8())}
	columns := int(w.uint16())
	switch {
	case w.bad || columns*relationColumnMin > len(w.rest):
		return nil, malformedf("a Relation message ends early or holds text that is not UTF-8")
	case relation.Identity != IdentityDefault && relation.Identity != IdentityFull &&
		relation.Identity != IdentityIndex && relation.Identity != IdentityNothing:
		return nil, malformedf("relation %d has replica identity %q", relation.OID, byte(relation.Identity))
	case relation.Schema == "":
		relation.Schema = "pg_catalog" // the protocol sends its name as an empty string
	}
	relation.Columns = make([]RelationColumn, columns)
	for i := range relation.Columns {
		flags := w.uint8()
		relation.Columns[i] = RelationColumn{Key: flags&1 != 0, Name: w.text(), TypeOID: w.uint32(), TypeMod: int32(w.uint32())}
	}
	if w.bad || len(w.rest) != 0 {
		return nil, malformedf("the columns of relation %d do not fill its message", relation.OID)
	}
	return relation, nil
}

// truncatedRelations says how many relations a Truncate message names, once the length of what follows its type was found to fit
// them.
func truncatedRelations(body []byte) (int, error) {
	const head = 4 + 1
	if len(body) >= head {
		if n := binary.BigEndian.Uint32(body); uint64(len(body)) == head+4*uint64(n) {
			return int(n), nil
		}
	}
	return 0, malformedf("a Truncate message of %d bytes", len(body))
}

// changeDecoder turns row messages into Changes, one after the other in the same memory.
type changeDecoder struct {
	change    Change
	old, new  Tuple
	truncated []uint32
}

func (d *changeDecoder) relation(relation *Relation) *Change {
	d.change = Change{Op: OpRelation, Relation: relation}
	return &d.change
}

func (d *changeDecoder) truncate(body []byte) (*Change, error) {
	n, err := truncatedRelations(body[1:])
	if err != nil {
		return nil, err
	}
	d.truncated = d.truncated[:0]
	for oids := body[len(body)-4*n:]; len(oids) > 0; oids = oids[4:] {
		d.truncated = append(d.truncated, binary.BigEndian.Uint32(oids))
	}
	d.change = Change{Op: OpTruncate, Truncated: d.truncated}
	return &d.change, nil
}

// row reads an Insert, Update or Delete of a relation. The Change's tuples point into body.
func (d *changeDecoder) row(body []byte, relation *Relation) (*Change, error) {
	if len(body) < 1+4+1 {
		return nil, malformedf("a row message of %d bytes", len(body))
	}
	columns := len(relation.Columns)
	kind, marker, rest := body[0], body[5], body[6:]
	c := &d.change
	*c = Change{Relation: relation}
	var err error
	if kind != messageInsert && (marker == 'K' || marker == 'O') {
		if d.old, rest, err = decodeTuple(d.old, rest, columns); err != nil {
			return nil, err
		}
		c.OldKind, c.Old = marker, d.old
		if kind == messageUpdate {
			if len(rest) == 0 {
				return nil, malformedf("an Update message without a new row")
			}
			marker, rest = rest[0], rest[1:]
		}
	} else if kind == messageDelete {
		return nil, malformedf("a Delete message with tuple %q", marker)
	}
	if kind != messageDelete {
		if marker != 'N' {
			return nil, malformedf("tuple %q where a new row is due", marker)
		}
		if d.new, rest, err = decodeTuple(d.new, rest, columns); err != nil {
			return nil, err
		}
		c.New = d.new
	}
	if len(rest) != 0 {
		return nil, malformedf("%d bytes after a row", len(rest))
	}
	switch kind {
	case messageInsert:
		c.Op = OpInsert
	case messageUpdate:
		c.Op = OpUpdate
	case messageDelete:
		c.Op = OpDelete
	default:
		return nil, malformedf("row message %q", kind)
	}
	return c, nil
}

// decodeTuple reads a TupleData of the given number of columns into the memory of into, and returns what follows it.
// The values point into data.
func decodeTuple(into Tuple, data []byte, columns int) (Tuple, []byte, error) {
	if len(data) < 2 || int(binary.BigEndian.Uint16(data)) != columns {
		return into, nil, malformedf("a row that does not have the %d columns of its relation", columns)
	}
	data = data[2:]
	if cap(into) < columns {
		into = make(Tuple, columns)
	}
	into = into[:columns]
	for i := range into {
		if len(data) == 0 {
			return into, nil, malformedf("a row ends before column %d", i+1)
		}
		switch format := Format(data[0]); format {
		case FormatText, FormatBinary:
			if len(data) < 5 {
				return into, nil, malformedf("a row ends inside column %d", i+1)
			}
			size := binary.BigEndian.Uint32(data[1:])
			if uint64(size) > uint64(len(data)-5) {
				return into, nil, malformedf("a row ends inside column %d", i+1)
			}
			end := 5 + int(size)
			into[i] = Value{Format: format, Data: data[5:end:end]}
			data = data[end:]
		case FormatNull, FormatUnchanged:
			into[i] = Value{Format: format}
			data = data[1:]
		default:
			return into, nil, malformedf("column %d has format %q", i+1, byte(format))
		}
	}
	return into, data, nil
}

// wire reads fields off a message. Reading past its end, or text that is not UTF-8, sets bad and yields zeros.
type wire struct {
	rest []byte
	bad  bool
}

func (w *wire) take(n int) []byte {
	if len(w.rest) < n {
		w.bad, w.rest = true, nil
		return make([]byte, 8)[:n]
	}
	field := w.rest[:n]
	w.rest = w.rest[n:]
	return field
}

func (w *wire) uint8() uint8   { return w.take(1)[0] }
func (w *wire) uint16() uint16 { return binary.BigEndian.Uint16(w.take(2)) }
func (w *wire) uint32() uint32 { return binary.BigEndian.Uint32(w.take(4)) }

// text reads a string that ends with a zero byte.
func (w *wire) text() string {
	end := bytes.IndexByte(w.rest, 0)
	if end < 0 || !utf8.Valid(w.rest[:end]) {
		w.bad, w.rest = true, nil
		return ""
	}
	field := string(w.rest[:end])
	w.rest = w.rest[end+1:]
	return field
}
