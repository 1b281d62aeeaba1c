package pgcdc

import (
	"errors"
	"fmt"
)

// errReleased is a use of a transaction after its Release.
var errReleased = errors.New("the transaction was released")

// Changes decodes the transaction's changes and calls yield for each, in the order in which they were made. A Change, with
// all it points to except its Relation, is lent for that call. Relation messages appear in their place as OpRelation;
// each row's Change.Relation is the shape in force where the row was written, and an unchanged shape keeps its pointer
// for as long as the connection lives.
//
// An error of yield ends it and is returned as it is; an ErrProtocol says that a message of the transaction cannot be
// read. Changes may be called again, but not by two goroutines at once, until Release.
func (t *Transaction) Changes(yield func(*Change) error) error {
	if t.staged == nil {
		return errReleased
	}
	return t.staged.each(func(relation uint32, body []byte) error {
		change, err := t.staged.decode(relation, body)
		if err != nil {
			return fmt.Errorf("decode transaction %d that ends at %s: %w", t.XID, t.EndLSN, err)
		}
		return yield(change)
	})
}

// Release gives back the transaction's memory and deletes its spill file. A second call does nothing.
func (t *Transaction) Release() {
	if t.staged != nil {
		t.staged.release()
		t.staged = nil
		if t.leave != nil {
			t.leave()
		}
	}
}
