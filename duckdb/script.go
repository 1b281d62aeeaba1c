package duckdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/duckdb/duckdb-go/v2/mapping"
)

// each runs a script's statements and hands every result to show, within the statement's scope.
func (db *DB) each(ctx context.Context, script string, show func(*result) error) error {
	db.run.Lock()
	defer db.run.Unlock()
	defer func() {
		if !db.session.inTransaction {
			db.endScope()
		}
	}()
	if strings.IndexByte(script, 0) >= 0 { // DuckDB's C interface would take it for the end
		return errors.New("the SQL text has a NUL byte in it")
	}
	if err := db.refuseOwnFiles(script); err != nil {
		return err
	}
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
		run := func(res *mapping.Result) error { return runText(db.conn, script, res) }
		if n > 1 {
			run = func(res *mapping.Result) error { return db.runExtracted(extracted, i, res) }
		}
		scope := db.session.scope
		// In a transaction the failure of a wrong guess could end the transaction.
		scope.counts = n == 1 && !db.session.inTransaction && countQuestion.MatchString(script)
		err := db.statement(ctx, run, show)
		if err != nil && scope.counts && scope.refused() {
			scope.counts = false
			err = db.statement(ctx, run, show)
		}
		if err != nil {
			return scope.explain(err)
		}
	}
	return nil
}

// runExtracted prepares and executes one statement of several. DuckDB binds it for each, which is why a statement that
// stands alone is sent as text.
func (db *DB) runExtracted(extracted mapping.ExtractedStatements, i mapping.IdxT, res *mapping.Result) error {
	var prepared mapping.PreparedStatement
	defer mapping.DestroyPrepare(&prepared)
	if mapping.PrepareExtractedStatement(db.conn, extracted, i, &prepared) == mapping.StateError {
		return errors.New(mapping.PrepareError(prepared))
	}
	if mapping.ExecutePrepared(prepared, res) == mapping.StateError {
		return errors.New(mapping.ResultError(res))
	}
	return nil
}

func runText(conn mapping.Connection, sql string, res *mapping.Result) error {
	if mapping.Query(conn, sql, res) == mapping.StateError {
		return errors.New(mapping.ResultError(res))
	}
	return nil
}

// statement runs one statement to its end and shows its result. When ctx ends first, DuckDB is interrupted.
func (db *DB) statement(ctx context.Context, run func(*mapping.Result) error, show func(*result) error) error {
	r := &result{}
	defer r.close()
	stop := db.interruptOn(ctx)
	err := run(&r.res)
	stop()
	if err != nil {
		db.lookAround()
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		return explain(err)
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

// exec runs one statement of ours on the user's connection.
func (db *DB) exec(ctx context.Context, sql string) error {
	var res mapping.Result
	defer mapping.DestroyResult(&res)
	defer db.interruptOn(ctx)()
	return runText(db.conn, sql, &res)
}

// adminExec runs one statement of ours beside the user's connection.
func (db *DB) adminExec(sql string) error {
	var res mapping.Result
	defer mapping.DestroyResult(&res)
	return runText(db.admin, sql, &res)
}

// readStrings runs a query of ours whose columns are all text without NULL.
func readStrings(conn mapping.Connection, sql string) ([][]string, error) {
	var res mapping.Result
	defer mapping.DestroyResult(&res)
	if err := runText(conn, sql, &res); err != nil {
		return nil, err
	}
	var out [][]string
	for {
		chunk := mapping.FetchChunk(res)
		if chunk.Ptr == nil {
			return out, nil
		}
		for row := range int(mapping.DataChunkGetSize(chunk)) {
			var line []string
			for i := range mapping.DataChunkGetColumnCount(chunk) {
				line = append(line, stringAt(mapping.DataChunkGetVector(chunk, i), row))
			}
			out = append(out, line)
		}
		mapping.DestroyDataChunk(&chunk)
	}
}
