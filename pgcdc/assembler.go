package pgcdc

import (
	"encoding/binary"
	"slices"
)

// defaultSpillBytes is how much of the open transactions stays in memory unless Config.SpillBytes says otherwise.
const defaultSpillBytes = 64 << 20

// assembler puts pgoutput messages together to transactions. One goroutine uses it, for one connection after the other.
// After an error only reset may follow.
//
// The server sends a transaction either whole, after its commit, or streams it: in blocks, while it runs, with blocks of others
// and whole transactions in between (assembler_streamed.go). Whatever way, it is handed out when its commit arrives.
type assembler struct {
	spillDir   string
	spillBytes int64

	relations map[uint32]*sessionRelation // by OID: what holds for transactions that are sent whole
	shapes    map[uint32]*Relation        // by OID: the shape that was stated last, so that an equal one keeps its pointer
	told      map[uint32]*Relation        // by OID: the last shape in what was handed out
	last      *sessionRelation            // of the last row message: the next one is mostly of the same relation
	stated    uint64                      // counts Relation messages
	open      *Transaction                // between Begin and Commit
	serial    uint64                      // counts whole transactions, so that sessionRelation knows whether it is of the open one
	streamed  map[uint32]*streamedTransaction
	block     *streamedTransaction // between Stream Start and Stream Stop
	memory    int64                // of open and streamed transactions, in bytes
	endLSN    LSN                  // of the last commit since reset
	resetErr  error                // what reset could not do; the next message reports it

	// ignored counts messages since reset of types that were not asked for and carry no rows, and Stream Aborts of
	// transactions of which nothing came, such as those that PostgreSQL 18 sends although streaming is off.
	ignored int64
}

// sessionRelation is a relation's newest shape, and its number among the relations of the open transaction.
type sessionRelation struct {
	relation *Relation
	stated   uint64 // when the shape was stated
	serial   uint64 // of the transaction that number belongs to
	number   uint32
}

// newAssembler makes an assembler that keeps up to spillBytes of open transactions in memory and the rest in files in
// spillDir. spillBytes ≤ 0 means the default.
func newAssembler(spillDir string, spillBytes int64) *assembler {
	if spillBytes <= 0 {
		spillBytes = defaultSpillBytes
	}
	a := &assembler{spillDir: spillDir, spillBytes: spillBytes}
	a.clear()
	return a
}

// reset forgets everything a connection said and deletes all spill files in the spill directory. It is called before each
// connection's first message: the server sends open transactions again from their first row, and relations anew.
// Transactions that were handed out stay readable.
func (a *assembler) reset() {
	a.clear()
	a.resetErr = removeSpills(a.spillDir)
}

func (a *assembler) clear() {
	if a.open != nil {
		a.open.Release()
	}
	for _, t := range a.streamed {
		t.Release()
	}
	*a = assembler{spillDir: a.spillDir, spillBytes: a.spillBytes, serial: a.serial,
		relations: map[uint32]*sessionRelation{}, shapes: map[uint32]*Relation{}, told: map[uint32]*Relation{},
		streamed: map[uint32]*streamedTransaction{}}
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
	case messageStreamStart:
		return nil, a.streamStart(data)
	case messageStreamStop:
		return nil, a.streamStop(data)
	case messageStreamCommit:
		return a.streamCommit(data)
	case messageStreamAbort:
		return nil, a.streamAbort(data)
	case messageOrigin, messageType, messageLogical:
		return nil, nil
	case messageStreamPrepare, messageBeginPrepare, messagePrepare, messageCommitPrepared, messageRollback:
		// To pass over one of these could lose a transaction.
		return nil, malformedf("message %q, although two_phase was not asked for", data[0])
	}
	a.ignored++
	return nil, nil
}

func (a *assembler) begin(data []byte) error {
	begin, err := decodeBegin(data)
	switch {
	case err != nil:
		return err
	case a.open != nil:
		return malformedf("transaction %d begins inside transaction %d", begin.xid, a.open.XID)
	case a.block != nil:
		return malformedf("transaction %d begins inside a block of transaction %d", begin.xid, a.block.XID)
	}
	a.serial++
	a.open = &Transaction{XID: begin.xid, CommitLSN: begin.commitLSN, CommitTime: begin.time, staged: newStaging()}
	return nil
}

func (a *assembler) commit(data []byte) (*Transaction, error) {
	commit, err := decodeCommit(data)
	t := a.open
	switch {
	case err != nil:
		return nil, err
	case t == nil:
		return nil, malformedf("a commit at %s outside a transaction", commit.commitLSN)
	case t.CommitLSN != commit.commitLSN || !t.CommitTime.Equal(commit.time):
		return nil, malformedf("transaction %d announced its commit at %s and commits at %s", t.XID, t.CommitLSN, commit.commitLSN)
	}
	if err := a.finish(t, commit); err != nil {
		return nil, err
	}
	a.open = nil
	return t, nil
}

// finish makes an open transaction one that can be handed out.
func (a *assembler) finish(t *Transaction, commit commitMessage) error {
	if commit.endLSN <= commit.commitLSN || commit.endLSN <= a.endLSN {
		return malformedf("transaction %d with commit at %s ends at %s, the one before it at %s", t.XID, commit.commitLSN, commit.endLSN, a.endLSN)
	}
	if t.staged.spill != nil {
		if err := t.staged.spill.complete(); err != nil {
			return err
		}
		t.Spilled = true
	}
	t.CommitLSN, t.EndLSN, t.CommitTime = commit.commitLSN, commit.endLSN, commit.time
	for _, relation := range t.staged.relations {
		a.told[relation.OID] = relation
	}
	a.endLSN = commit.endLSN
	a.memory -= t.staged.memory
	return nil
}

// relation remembers a relation's shape.
func (a *assembler) relation(data []byte) error {
	xid, head, tail, err := a.cut(data)
	if err != nil {
		return err
	}
	relation, err := decodeRelation(tail)
	if err != nil {
		return err
	}
	a.stated++
	relation = a.share(relation)
	if a.block != nil {
		return a.streamRelation(xid, relation)
	}
	known := a.relations[relation.OID]
	if known == nil || known.relation != relation {
		known = &sessionRelation{relation: relation}
		a.relations[relation.OID] = known
		a.last = known
	}
	known.stated = a.stated
	if a.open == nil {
		return nil
	}
	return a.stage(a.open, a.number(known), head[:0], nil)
}

// share gives a shape that is known already its pointer.
func (a *assembler) share(relation *Relation) *Relation {
	if known := a.relations[relation.OID]; known != nil && sameShape(known.relation, relation) {
		return known.relation
	}
	if known := a.shapes[relation.OID]; known != nil && sameShape(known, relation) {
		return known
	}
	a.shapes[relation.OID] = relation
	return relation
}

// cut takes a message that has the number of its subtransaction in it inside a block of a streamed transaction, and only there,
// apart: head is its type, tail what follows the number.
func (a *assembler) cut(data []byte) (xid uint32, head, tail []byte, err error) {
	if a.block == nil {
		return 0, data[:1], data[1:], nil
	}
	if len(data) < 1+4 {
		return 0, nil, nil, malformedf("message %q of %d bytes inside a block of transaction %d", data[0], len(data), a.block.XID)
	}
	return binary.BigEndian.Uint32(data[1:]), data[:1], data[1+4:], nil
}

func (a *assembler) row(data []byte) error {
	xid, head, tail, err := a.cut(data)
	switch {
	case err != nil:
		return err
	case len(tail) < 4:
		return malformedf("a row message of %d bytes", len(data))
	}
	oid := binary.BigEndian.Uint32(tail)
	if a.block != nil {
		return a.streamRow(xid, oid, head, tail)
	}
	if a.open == nil {
		return malformedf("a row of relation %d outside a transaction", oid)
	}
	if a.last == nil || a.last.relation.OID != oid {
		known := a.relations[oid]
		if known == nil {
			return unknownRelation(oid)
		}
		a.last = known
	}
	if a.last.serial != a.serial && a.told[oid] != a.last.relation {
		// The shape was stated where it was not handed out: outside a transaction, or in a streamed one before others with
		// another shape.
		if err := a.stage(a.open, a.number(a.last), nil, nil); err != nil {
			return err
		}
	}
	a.open.Rows++
	return a.stage(a.open, a.number(a.last), head, tail)
}

func unknownRelation(oid uint32) error {
	return malformedf("a row of relation %d, which no Relation message described", oid)
}

func (a *assembler) truncate(data []byte) error {
	xid, head, tail, err := a.cut(data)
	if err != nil {
		return err
	}
	relations, err := truncatedRelations(tail)
	if err != nil {
		return err
	}
	t := a.open
	if a.block != nil {
		if err := a.write(xid); err != nil {
			return err
		}
		t = a.block.Transaction
	}
	if t == nil {
		return malformedf("a truncate outside a transaction")
	}
	t.Rows += int64(relations)
	return a.stage(t, noRelation, head, tail)
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

// stage appends a change to a transaction and sees to it that memory stays within its bound: the transaction that takes most
// of it goes to a file.
func (a *assembler) stage(t *Transaction, relation uint32, head, tail []byte) error {
	before := t.staged.memory
	if err := t.staged.add(relation, head, tail); err != nil {
		return err
	}
	a.memory += t.staged.memory - before
	return a.spill()
}

func (a *assembler) spill() error {
	for a.memory > a.spillBytes {
		largest := a.open
		for _, t := range a.streamed {
			if largest == nil || t.staged.memory > largest.staged.memory {
				largest = t.Transaction
			}
		}
		freed := largest.staged.memory
		if err := largest.staged.spillTo(a.spillDir); err != nil {
			return err
		}
		a.memory -= freed
	}
	return nil
}

func sameShape(a, b *Relation) bool {
	return a.OID == b.OID && a.Schema == b.Schema && a.Name == b.Name && a.Identity == b.Identity && slices.Equal(a.Columns, b.Columns)
}
