package duckdb

import (
	"context"
	"errors"
	"time"

	"pgmirror/readstate"
)

// Pin makes all following statements read one state, until Unpin: that of LSN at, or for 0 that of time t, or when that is zero too the one that the
// next statement would read. The state is held, so it stays readable however long it is kept. It replaces an earlier Pin, which stays if
// the new state cannot be had. A transaction has a state of its own, so Pin is an error inside one.
func (db *DB) Pin(ctx context.Context, at readstate.LSN, t time.Time) (readstate.LSN, error) {
	db.run.Lock()
	defer db.run.Unlock()
	if db.session.inTransaction {
		return 0, errors.New("pin: the open transaction keeps a read state of its own; COMMIT or ROLLBACK it first")
	}
	request := db.config.Request
	if at != 0 || !t.IsZero() {
		request = readstate.PinRequest{At: at, AtTime: t, Timeout: request.Timeout, VectorsLater: true}
	}
	state, err := db.config.Source.Pin(ctx, request)
	if err != nil {
		return 0, err
	}
	db.unpin()
	db.session.held = newPinned(state)
	return state.LSN, nil
}

// Unpin lets following statements read the newest state again. Without a Pin before it does nothing. Inside a transaction it
// takes effect afterwards.
func (db *DB) Unpin() {
	db.run.Lock()
	defer db.run.Unlock()
	db.unpin()
}

func (db *DB) unpin() {
	if db.session.held != nil {
		db.session.held.release()
		db.session.held = nil
	}
}

// LSN is where the next statement would read. kept says that it is bound to that LSN, by Pin or by a transaction that has read.
func (db *DB) LSN(ctx context.Context) (lsn readstate.LSN, kept bool, err error) {
	db.run.Lock()
	defer db.run.Unlock()
	s := &db.session
	switch {
	case s.inTransaction && s.scope != nil && s.scope.state != nil:
		return s.scope.state.state.LSN, true, nil
	case s.held != nil:
		return s.held.state.LSN, true, nil
	}
	state, err := db.config.Source.Pin(ctx, db.config.Request)
	if err != nil {
		return 0, false, err
	}
	defer state.Release()
	return state.LSN, false, nil
}
