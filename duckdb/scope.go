package duckdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/duckdb/duckdb-go/v2/mapping"

	"pgmirror/readstate"
)

// session is what the user's connection is in the middle of.
type session struct {
	inTransaction bool
	views         map[viewName]shown
	stale         bool    // a statement may have changed the views
	held          *pinned // what Pin holds for all statements; nil without

	mu       sync.Mutex // guards what binding reads on DuckDB's threads
	scope    *scope     // nil between Run calls outside a transaction
	defining bool       // views are being defined: pgmirror_sql answers with no rows
	shapes   map[string]*shownTable
	lastTxid uint64 // of the last bind; shows that the id does name the statement
}

// scope is one statement, or one transaction: it reads one state.
type scope struct {
	state   *pinned // nil when err is set
	err     error
	handles map[string]*handle // by table; each with one reference of the scope's
	counts  bool               // the statement looks as if it only counted
}

// refused says that the statement wanted more than a count.
func (sc *scope) refused() bool {
	for _, h := range sc.handles {
		if h.refused.Load() {
			return true
		}
	}
	return false
}

// explain puts before a statement's error why it had no state, or in its place: as long as none was ever pinned there are no
// views, and DuckDB knows no table of that name.
func (sc *scope) explain(err error) error {
	if sc.state != nil {
		if ended := sc.state.state.Ended(); ended != nil {
			return ended // what failed is files that are not there any more
		}
		if lost := sc.state.state.Lost(); lost != nil && !strings.Contains(err.Error(), lost.Error()) {
			return fmt.Errorf("%w, and with it the read state at %s\n%w", lost, sc.state.state.LSN, err)
		}
	}
	if sc.err == nil || strings.Contains(err.Error(), sc.err.Error()) {
		return err
	}
	if strings.Contains(err.Error(), "Catalog Error: Table with name ") {
		return sc.err
	}
	return fmt.Errorf("%w\n%w", sc.err, err)
}

// beginStatement gives the coming statement its state: a new one, unless a transaction keeps its own or Pin holds one. It also brings the
// views up to date with the state's tables.
func (db *DB) beginStatement(ctx context.Context) error { return db.begin(ctx, db.config.Request) }

func (db *DB) begin(ctx context.Context, request readstate.PinRequest) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s := &db.session
	if s.inTransaction && s.scope != nil {
		return nil
	}
	db.endScope()
	sc := &scope{handles: make(map[string]*handle)}
	if s.held != nil {
		sc.state = s.held.retain()
	} else if state, err := db.config.Source.Pin(ctx, request); err != nil {
		sc.err = err
	} else {
		sc.state = newPinned(state)
	}
	s.mu.Lock()
	s.scope = sc
	s.mu.Unlock()
	if sc.state == nil {
		db.config.Log.Debug("no read state for a statement", "err", sc.err)
		return nil
	}
	return db.syncViews(sc.state)
}

// endScope gives up the scope's hold on its state and handles. Plans that are still there keep theirs.
func (db *DB) endScope() {
	s := &db.session
	s.mu.Lock()
	sc := s.scope
	s.scope = nil
	s.mu.Unlock()
	if sc == nil {
		return
	}
	for _, h := range sc.handles {
		db.handles.release(h)
	}
	if sc.state != nil {
		sc.state.release()
	}
}

// sqlCall is pgmirror_sql(table, transaction) → the text of the table's read in the current scope.
func (db *DB) sqlCall(in mapping.DataChunk, out mapping.Vector) error {
	for row := range int(mapping.DataChunkGetSize(in)) {
		key := stringAt(mapping.DataChunkGetVector(in, 0), row)
		txid := vectorSlice[uint64](mapping.DataChunkGetVector(in, 1), row+1)[row]
		text, err := db.tableSQL(key, txid)
		if err != nil {
			return err
		}
		mapping.VectorAssignStringElementLen(out, mapping.IdxT(row), []byte(text))
	}
	return nil
}

// liveBind finds the handle that a call of pgmirror_live names, and takes a reference for the plan.
func (db *DB) liveBind(info mapping.BindInfo) (*handle, error) {
	expr := mapping.ScalarFunctionBindGetArgument(info, 0)
	defer mapping.DestroyExpression(&expr)
	if !mapping.ExpressionIsFoldable(expr) {
		return nil, errors.New("pgmirror_live: the read handle is not a constant")
	}
	var ctx mapping.ClientContext
	mapping.ScalarFunctionGetClientContext(info, &ctx)
	defer mapping.DestroyClientContext(&ctx)
	var value mapping.Value
	failed := mapping.ExpressionFold(ctx, expr, &value)
	defer mapping.DestroyErrorData(&failed)
	defer mapping.DestroyValue(&value)
	if mapping.ErrorDataHasError(failed) {
		return nil, errors.New(mapping.ErrorDataMessage(failed))
	}
	id := mapping.GetInt64(value)
	h, ok := db.handles.retain(id)
	if ok && h.live == nil {
		db.handles.release(h)
		ok = false
	}
	if !ok {
		return nil, fmt.Errorf("pgmirror_live: there is no read handle %d", id)
	}
	return h, nil
}

func (db *DB) tableSQL(key string, txid uint64) (string, error) {
	s := &db.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.defining {
		return emptySQL(s.shapes[key].viewColumns()), nil
	}
	s.lastTxid = txid
	if s.scope == nil {
		return "", errors.New("pgmirror_sql: no statement is running")
	}
	if s.scope.err != nil {
		return "", s.scope.err
	}
	if err := s.scope.state.state.Ended(); err != nil {
		return "", err
	}
	t, ok := s.scope.state.byKey[key]
	if !ok {
		return "", fmt.Errorf("table %s is not mirrored at %s", key, s.scope.state.state.LSN)
	}
	h, ok := s.scope.handles[key]
	if !ok {
		content, err := t.table.Complete(context.Background()) // DuckDB's callback has no context
		switch {
		case err != nil:
			return "", err
		case content.Err != "":
			return "", errors.New(content.Err)
		case t.err != "":
			return "", errors.New(t.err)
		}
		h = newHandle(s.scope.state, t, content, db.bitmaps)
		db.handles.add(h)
		s.scope.handles[key] = h
	}
	if s.scope.counts {
		return h.countSQL(), nil
	}
	return h.unionSQL(db.nothing), nil
}
