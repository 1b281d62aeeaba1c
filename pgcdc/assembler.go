package pgcdc

import (
	"encoding/binary"
	"slices"
)

// defaultSpillBytes is how much of an open transaction stays in memory unless Config.SpillBytes says otherwise.
const defaultSpillBytes = 64 << 20

// assembler puts pgoutput messages together to transactions. One goroutine uses it, for one connection after the other.
// After an error only reset may follow.
type assembler struct {
	spillDir   string
	spillBytes int64

	relations map[uint32]*sessionRelation // by OID: what Relation messages said since reset
	last      *sessionRelation            // of the last row message: the next one is mostly of the same relation
	open      *Transaction                // nil between transactions
	serial    uint64                      // counts transactions, so that sessionRelation knows whether it is of the open one
	endLSN    LSN                         // of the last commit since reset
	resetErr  error                       // what reset could not do; the next message reports it

	// ignored counts messages since reset of types that were not asked for and carry no rows, such as the Stream Abort
	// that PostgreSQL 18 sends although streaming is off.
	ignored int64
}

// sessionRelation is a relation's newest shape, and its number among the relations of the open transaction.
type sessionRelation struct {
	relation *Relation
	serial   uint64 // of the transaction that number belongs to
	number   uint32
}

// newAssembler makes an assembler that keeps up to spillBytes of a transaction in memory and the rest in a file in
// spillDir. spillBytes ≤ 0 means the default.
func newAssembler(spillDir string, spillBytes int64) *assembler {
	if spillBytes <= 0 {
		spillBytes = defaultSpillBytes
	}
	return &assembler{spillDir: spillDir, spillBytes: spillBytes, relations: map[uint32]*sessionRelation{}}
}

// reset forgets everything a connection said and deletes all spill files in the spill directory. It is called before each
// connection's first message: the server sends an open transaction again from its first row, and relations anew.
// Transactions that were handed out stay readable.
func (a *assembler) reset() {
	if a.open != nil {
		a.open.Release()
	}
	*a = assembler{spillDir: a.spillDir, spillBytes: a.spillBytes, serial: a.serial, relations: map[uint32]*sessionRelation{}}
	a.resetErr = removeSpills(a.spillDir)
}

// message takes the payload of one XLogData, valid only during the call, and returns the transaction that it completes,
// if it does; the caller owns it. A transaction without rows is returned too, because its end LSN matters. Origin, Type
// and logical messages are dropped.
func (a *assembler) message(data []byte) (*Transaction, error) {
	if a.resetErr != nil {
		return nil, a.resetErr
	}
	if len(data) == 0 {
		return nil, malformedf("an empty message")
	}
	switch data[0] {
	case messageInsert, messageUpdate, messageDelete:
		return nil, a.row(data)
	case messageTruncate:
		return nil, a.truncate(data)
	case messageBegin:
		return nil, a.begin(data)
	case messageCommit:
		return a.commit(data)
	case messageRelation:
		return nil, a.relation(data)
	case messageOrigin, messageType, messageLogical:
		return nil, nil
	case messageStreamStart, messageStreamStop, messageStreamCommit, messageStreamPrepare,
		messageBeginPrepare, messagePrepare, messageCommitPrepared, messageRollback:
		// To pass over one of these could lose a transaction.
		return nil, malformedf("message %q, although neither streaming nor two_phase was asked for", data[0])
	}
	a.ignored++
	return nil, nil
}

func (a *assembler) begin(data []byte) error {
	begin, err := decodeBegin(data)
	if err != nil {
		return err
	}
	if a.open != nil {
		return malformedf("transaction %d begins inside transaction %d", begin.xid, a.open.XID)
	}
	a.serial++
	a.open = &Transaction{XID: begin.xid, CommitLSN: begin.commitLSN, CommitTime: begin.time, staged: newStaging()}
	return nil
}

func (a *assembler) commit(data []byte) (*Transaction, error) {
	commit, err := decodeCommit(data)
	if err != nil {
		return nil, err
	}
	t := a.open
	switch {
	case t == nil:
		return nil, malformedf("a commit at %s outside a transaction", commit.commitLSN)
	case t.CommitLSN != commit.commitLSN || !t.CommitTime.Equal(commit.time):
		return nil, malformedf("transaction %d announced its commit at %s and commits at %s", t.XID, t.CommitLSN, commit.commitLSN)
	case commit.endLSN <= commit.commitLSN || commit.endLSN <= a.endLSN:
		return nil, malformedf("transaction %d with commit at %s ends at %s, the one before it at %s", t.XID, commit.commitLSN, commit.endLSN, a.endLSN)
	}
	if t.staged.spill != nil {
		if err := t.staged.spill.complete(); err != nil {
			return nil, err
		}
		t.Spilled = true
	}
	t.EndLSN, a.endLSN = commit.endLSN, commit.endLSN
	a.open = nil
	return t, nil
}

// relation remembers a relation's shape. A shape equal to the known one keeps its pointer.
func (a *assembler) relation(data []byte) error {
	relation, err := decodeRelation(data)
	if err != nil {
		return err
	}
	known := a.relations[relation.OID]
	if known == nil || !sameShape(known.relation, relation) {
		known = &sessionRelation{relation: relation}
		a.relations[relation.OID] = known
		a.last = known
	}
	if a.open == nil {
		return nil
	}
	return a.stage(a.number(known), nil)
}

func (a *assembler) row(data []byte) error {
	if len(data) < 1+4 {
		return malformedf("a row message of %d bytes", len(data))
	}
	oid := binary.BigEndian.Uint32(data[1:])
	if a.open == nil {
		return malformedf("a row of relation %d outside a transaction", oid)
	}
	if a.last == nil || a.last.relation.OID != oid {
		known := a.relations[oid]
		if known == nil {
			return malformedf("a row of relation %d, which no Relation message described", oid)
		}
		a.last = known
	}
	a.open.Rows++
	return a.stage(a.number(a.last), data)
}

func (a *assembler) truncate(data []byte) error {
	relations, err := truncatedRelations(data)
	if err != nil {
		return err
	}
	if a.open == nil {
		return malformedf("a truncate outside a transaction")
	}
	a.open.Rows += int64(relations)
	return a.stage(noRelation, data)
}

// number is the relation's place in the open transaction's list of relations, where it puts it when it is not there yet.
func (a *assembler) number(known *sessionRelation) uint32 {
	if known.serial != a.serial {
		staged := a.open.staged
		known.serial, known.number = a.serial, uint32(len(staged.relations))
		staged.relations = append(staged.relations, known.relation)
	}
	return known.number
}

func (a *assembler) stage(relation uint32, body []byte) error {
	return a.open.staged.add(relation, body, a.spillDir, a.spillBytes)
}

func sameShape(a, b *Relation) bool {
	return a.OID == b.OID && a.Schema == b.Schema && a.Name == b.Name && a.Identity == b.Identity && slices.Equal(a.Columns, b.Columns)
}
