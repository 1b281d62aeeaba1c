package duckdb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/duckdb/duckdb-go/v2/mapping"
)

// session is what the user's connection is in the middle of.
type session struct {
	inTransaction bool
	views         map[viewName]string // what each view shows: a digest of its columns
	stale         bool                // a statement may have changed the views

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
}

// each runs a script's statements and hands every result to show, within the statement's scope.
func (db *DB) each(ctx context.Context, script string, show func(*result) error) error {
	db.run.Lock()
	defer db.run.Unlock()
	defer func() {
		if !db.session.inTransaction {
			db.endScope()
		}
	}()
	var extracted mapping.ExtractedStatements
	n := mapping.ExtractStatements(db.conn, script, &extracted)
	defer mapping.DestroyExtracted(&extracted)
	if n == 0 {
		if text := mapping.ExtractStatementsError(extracted); text != "" {
			return errors.New(text)
		}
		return nil
	}
	for i := range n {
		if err := db.beginStatement(ctx); err != nil {
			return err
		}
		run := func(res *mapping.Result) mapping.State { return mapping.Query(db.conn, script, res) }
		if n > 1 {
			run = func(res *mapping.Result) mapping.State { return db.runExtracted(extracted, i, res) }
		}
		if err := db.statement(ctx, run, show); err != nil {
			return err
		}
	}
	return nil
}

// runExtracted prepares and executes one statement of several. DuckDB binds it for each, which is why a statement that
// stands alone is sent as text.
func (db *DB) runExtracted(extracted mapping.ExtractedStatements, i mapping.IdxT, res *mapping.Result) mapping.State {
	var prepared mapping.PreparedStatement
	defer mapping.DestroyPrepare(&prepared)
	mapping.PrepareExtractedStatement(db.conn, extracted, i, &prepared)
	return mapping.ExecutePrepared(prepared, res)
}

// statement runs one statement to its end and shows its result. When ctx ends first, DuckDB is interrupted.
func (db *DB) statement(ctx context.Context, run func(*mapping.Result) mapping.State, show func(*result) error) error {
	r := &result{}
	defer r.close()
	stop := db.interruptOn(ctx)
	state := run(&r.res)
	stop()
	if state == mapping.StateError {
		text := explain(mapping.ResultError(&r.res))
		db.lookAround()
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", text, context.Cause(ctx))
		}
		return errors.New(text)
	}
	r.kind = mapping.ResultStatementType(r.res)
	switch r.kind {
	case mapping.StatementTypeSelect, mapping.StatementTypeInsert, mapping.StatementTypeUpdate, mapping.StatementTypeDelete,
		mapping.StatementTypeExplain, mapping.StatementTypeCopy, mapping.StatementTypePrepare, mapping.StatementTypeSet,
		mapping.StatementTypeVariableSet, mapping.StatementTypePragma, mapping.StatementTypeAttach, mapping.StatementTypeCreateFunc:
	default:
		db.session.stale = true
		db.lookAround()
	}
	return show(r)
}

// lookAround finds out whether a statement has begun or ended a transaction.
func (db *DB) lookAround() {
	s := &db.session
	was := s.inTransaction
	s.inTransaction = db.probeTransaction()
	if was != s.inTransaction {
		db.endScope() // BEGIN itself reads nothing: the state is pinned for the first statement inside
	}
}

// interruptOn interrupts the user's connection once ctx ends, again and again until stop is called: DuckDB forgets an
// interrupt that comes before the query has begun.
func (db *DB) interruptOn(ctx context.Context) (stop func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		again := time.NewTicker(2 * time.Millisecond)
		defer again.Stop()
		for {
			mapping.Interrupt(db.conn)
			select {
			case <-done:
				return
			case <-again.C:
			}
		}
	})
	return func() { close(done); ended.Wait() }
}

// probeTransaction asks DuckDB whether a transaction is open: two statements then have one transaction id. In a
// transaction that has failed no statement works at all.
func (db *DB) probeTransaction() bool {
	id := func() (uint64, bool) {
		var res mapping.Result
		defer mapping.DestroyResult(&res)
		if mapping.Query(db.conn, "SELECT txid_current()", &res) == mapping.StateError {
			return 0, false
		}
		chunk := mapping.FetchChunk(res)
		defer mapping.DestroyDataChunk(&chunk)
		return vectorSlice[uint64](mapping.DataChunkGetVector(chunk, 0), 1)[0], true
	}
	first, ok := id()
	if !ok {
		return true
	}
	second, ok := id()
	return !ok || first == second
}

// beginStatement gives the coming statement its state: a new one, unless a transaction keeps its own. It also brings the
// views up to date with the state's tables.
func (db *DB) beginStatement(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s := &db.session
	if s.inTransaction && s.scope != nil {
		return nil
	}
	db.endScope()
	sc := &scope{handles: make(map[string]*handle)}
	state, err := db.config.Source.Pin(ctx, db.config.Request)
	if err != nil {
		sc.err = fmt.Errorf("no read state: %w", err)
	} else {
		sc.state = newPinned(state)
	}
	s.mu.Lock()
	s.scope = sc
	s.mu.Unlock()
	if sc.state == nil {
		db.config.Log.Debug("no read state for a statement", "err", err)
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
	t, ok := s.scope.state.byKey[key]
	if !ok {
		return "", fmt.Errorf("table %s is not mirrored at %s", key, s.scope.state.state.LSN)
	}
	if t.err != "" {
		return "", errors.New(t.err)
	}
	h, ok := s.scope.handles[key]
	if !ok {
		h = newHandle(s.scope.state, t, db.bitmaps)
		db.handles.add(h)
		s.scope.handles[key] = h
	}
	return unionSQL(t.cols, h.files, h.filters(), h.id), nil
}

// exec runs one statement of ours on the user's connection.
func (db *DB) exec(ctx context.Context, sql string) error {
	var res mapping.Result
	defer mapping.DestroyResult(&res)
	defer db.interruptOn(ctx)()
	if mapping.Query(db.conn, sql, &res) == mapping.StateError {
		return errors.New(mapping.ResultError(&res))
	}
	return nil
}

// adminExec runs one statement of ours beside the user's connection.
func (db *DB) adminExec(sql string) error {
	var res mapping.Result
	defer mapping.DestroyResult(&res)
	if mapping.Query(db.admin, sql, &res) == mapping.StateError {
		return errors.New(mapping.ResultError(&res))
	}
	return nil
}
