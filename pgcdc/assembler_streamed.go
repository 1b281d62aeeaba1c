package pgcdc

import "fmt"

// streamedTransaction is one that the server streams while it runs. Nobody but the assembler knows of it before its commit.
//
//	S(xid, first) R I I R(sub) I(sub) E   …others…   S(xid) I E   A(xid, sub)   c(xid) or A(xid, xid)
//
// Inside a block every change carries the number of the subtransaction that made it.
// https://www.postgresql.org/docs/current/protocol-logical-replication.html
//
// Its shapes are its own: the server states each relation to each streamed transaction, and again after a part was rolled back. Once
// it has committed, the server takes for granted, in whole transactions too, what it stated to it since the last rollback
// (cleanup_rel_sync_cache in pgoutput.c).
type streamedTransaction struct {
	*Transaction
	relations map[uint32]*streamedRelation // by OID: the shapes in force for its next row
}

// streamedRelation is a shape as a streamed transaction knows it.
type streamedRelation struct {
	relation *Relation
	number   uint32 // in staging.relations
	stated   uint64 // when, by assembler.stated; 0 if before the last rollback
}

func (a *assembler) streamStart(data []byte) error {
	start, err := decodeStreamStart(data)
	if err != nil {
		return err
	}
	t := a.streamed[start.xid]
	switch {
	case a.open != nil:
		return malformedf("a block of transaction %d begins inside transaction %d", start.xid, a.open.XID)
	case a.block != nil:
		return malformedf("a block of transaction %d begins inside a block of transaction %d", start.xid, a.block.XID)
	case start.first != (t == nil):
		return malformedf("a block of transaction %d says that it is the first: %t, but one was there: %t", start.xid, start.first, t != nil)
	}
	if t == nil {
		t = &streamedTransaction{
			Transaction: &Transaction{XID: start.xid, staged: newStaging()},
			relations:   map[uint32]*streamedRelation{},
		}
		a.streamed[start.xid] = t
	}
	a.block = t
	return nil
}

func (a *assembler) streamStop(data []byte) error {
	if len(data) != 1 || a.block == nil {
		return malformedf("a Stream Stop message of %d bytes, inside a block: %t", len(data), a.block != nil)
	}
	a.block = nil
	return nil
}

// write notes which subtransaction of the block's transaction makes the next change.
func (a *assembler) write(xid uint32) error {
	t := a.block
	before := t.staged.memory
	if err := t.staged.enter(t.XID, xid, t.Rows); err != nil {
		return err
	}
	a.memory += t.staged.memory - before
	return nil
}

func (a *assembler) streamRelation(xid uint32, relation *Relation) error {
	t := a.block
	if err := a.write(xid); err != nil {
		return err
	}
	known := t.relations[relation.OID]
	if known == nil || known.relation != relation {
		known = &streamedRelation{relation: relation, number: uint32(len(t.staged.relations))}
		t.relations[relation.OID] = known
		t.staged.relations = append(t.staged.relations, relation)
	}
	known.stated = a.stated
	return a.stage(t.Transaction, known.number, nil, nil)
}

func (a *assembler) streamRow(xid, oid uint32, head, tail []byte) error {
	t := a.block
	known := t.relations[oid]
	if known == nil {
		return unknownRelation(oid)
	}
	if err := a.write(xid); err != nil {
		return err
	}
	t.Rows++
	return a.stage(t.Transaction, known.number, head, tail)
}

func (a *assembler) streamAbort(data []byte) error {
	abort, err := decodeStreamAbort(data)
	if err != nil {
		return err
	}
	if a.block != nil {
		return malformedf("transaction %d is rolled back inside a block of transaction %d", abort.xid, a.block.XID)
	}
	t := a.streamed[abort.xid]
	if t == nil {
		a.ignored++
		return nil
	}
	before := t.staged.memory
	if abort.subxid == abort.xid {
		delete(a.streamed, abort.xid)
		t.Release()
		a.memory -= before
		return nil
	}
	relations := len(t.staged.relations)
	if t.Rows, err = t.staged.abort(abort.subxid, t.Rows); err != nil {
		return err
	}
	a.memory += t.staged.memory - before
	if len(t.staged.relations) < relations {
		clear(t.relations)
		for i, relation := range t.staged.relations {
			t.relations[relation.OID] = &streamedRelation{relation: relation, number: uint32(i)}
		}
	}
	for _, known := range t.relations {
		known.stated = 0
	}
	return nil
}

func (a *assembler) streamCommit(data []byte) (*Transaction, error) {
	xid, commit, err := decodeStreamCommit(data)
	if err != nil {
		return nil, err
	}
	t := a.streamed[xid]
	switch {
	case a.open != nil || a.block != nil:
		return nil, malformedf("streamed transaction %d commits inside a transaction", xid)
	case t == nil:
		return nil, malformedf("transaction %d commits, of which nothing came", xid)
	case t.staged.runs.lost != nil:
		return nil, fmt.Errorf("%w: transaction %d commits, although subtransaction %d lost rows to the rollback of another", ErrStreaming, xid, t.staged.runs.lost.Minimum())
	}
	for oid, known := range t.relations {
		// A shape that was stated later, to others, is the newer one, whoever commits first.
		if session := a.relations[oid]; known.stated != 0 && (session == nil || known.stated > session.stated) {
			a.relations[oid] = &sessionRelation{relation: known.relation, stated: known.stated}
			a.last = nil
		}
	}
	if err := a.finish(t.Transaction, commit); err != nil {
		return nil, err
	}
	delete(a.streamed, xid)
	return t.Transaction, nil
}
