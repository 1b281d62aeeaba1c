package duckdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/duckdb/duckdb-go/v2/mapping"
	"github.com/jackc/pglogrepl"

	"pgmirror/readstate"
)

// pgmirror_changes(table [, from [, to]]) is the change feed of a table: what was inserted and deleted above from and at or below to. It is a macro over
// query(), as the tables are views over it: its text is made when a statement is bound, from a state of its own, which has the changes as memory rows.

// defineChanges makes the macro. An end that is left out or NULL is the window's floor, and the LSN that the statement reads.
func (db *DB) defineChanges() error {
	body := func(from, to string) string {
		return fmt.Sprintf(" AS TABLE (FROM query(pgmirror_changes_sql(tbl::VARCHAR, coalesce(%s::VARCHAR, ''), coalesce(%s::VARCHAR, ''), txid_current())))", from, to)
	}
	return db.adminExec("CREATE OR REPLACE MACRO pgmirror_changes(tbl)" + body("''", "''") + ", (tbl, lo)" + body("lo", "''") + ", (tbl, lo, hi)" + body("lo", "hi"))
}

// changesCall is pgmirror_changes_sql(table, from, to, transaction) → the text of the feed's read.
func (db *DB) changesCall(in mapping.DataChunk, out mapping.Vector) error {
	for row := range int(mapping.DataChunkGetSize(in)) {
		argument := func(i int) string { return stringAt(mapping.DataChunkGetVector(in, mapping.IdxT(i)), row) }
		text, err := db.changesSQL(argument(0), argument(1), argument(2))
		if err != nil {
			return fmt.Errorf("pgmirror_changes: %w", err)
		}
		mapping.VectorAssignStringElementLen(out, mapping.IdxT(row), []byte(text))
	}
	return nil
}

func (db *DB) changesSQL(table, from, to string) (string, error) {
	s := &db.session
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.scope == nil:
		return "", errors.New("no statement is running")
	case s.scope.err != nil:
		return "", s.scope.err
	}
	name, err := db.changed(s.scope.state, table)
	if err != nil {
		return "", err
	}
	request := readstate.PinRequest{Timeout: db.config.Request.Timeout, Changes: &readstate.Changes{Table: name}}
	if request.Changes.From, err = lsnArgument(from, 0); err != nil {
		return "", err
	}
	now := s.scope.state.state.LSN
	if request.At, err = lsnArgument(to, now); err != nil {
		return "", err
	}
	if request.At > now {
		return "", fmt.Errorf("the range ends at %s, but this statement reads %s", request.At, now)
	}
	key := fmt.Sprintf("changes of %s from %s to %s", name, request.Changes.From, request.At)
	h, ok := s.scope.handles[key]
	if !ok {
		state, err := db.config.Source.Pin(context.Background(), request) // DuckDB's callback has no context
		if err != nil {
			return "", err
		}
		feed := newPinned(state)
		defer feed.release() // the handle has a reference of its own
		for _, t := range feed.byKey {
			switch {
			case t.table.Err != "":
				return "", errors.New(t.table.Err)
			case t.err != "":
				return "", errors.New(t.err)
			}
			h = newHandle(feed, t, t.table, db.bitmaps)
		}
		if h == nil {
			return "", fmt.Errorf("the feed of table %s is empty of tables", name)
		}
		db.handles.add(h)
		s.scope.handles[key] = h
	}
	return h.unionSQL(db.nothing), nil
}

// changed finds the table that an argument names: with its schema, or in the first schema of the source's search path that has it. As in SQL, case does not
// matter where no name has just that one.
func (db *DB) changed(p *pinned, text string) (readstate.TableName, error) {
	candidates := []string{text}
	if !strings.Contains(text, ".") || strings.HasPrefix(text, `"`) && !strings.Contains(text, `".`) {
		for _, schema := range append(slices.Clone(db.config.Source.SearchPath()), "public") {
			candidates = append(candidates, key(schema, "x")[:len(key(schema, "x"))-1]+text)
		}
	}
	for _, same := range []func(a, b string) bool{func(a, b string) bool { return a == b }, func(a, b string) bool { return lower(a) == lower(b) }} {
		for _, c := range candidates {
			for _, t := range p.byKey {
				if same(t.key, c) || same(t.view.String(), c) {
					return t.table.Name, nil
				}
			}
		}
	}
	for _, t := range p.byKey { // as status names it
		if t.table.Name.String() == text {
			return t.table.Name, nil
		}
	}
	return readstate.TableName{}, fmt.Errorf("table %s is not mirrored; name it as schema.table", text)
}

// lsnArgument reads an LSN as PostgreSQL writes it, or as the number that _lsn has; empty is the default.
func lsnArgument(text string, byDefault readstate.LSN) (readstate.LSN, error) {
	if text == "" {
		return byDefault, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return readstate.LSN(n), nil
	}
	if lsn, err := pglogrepl.ParseLSN(text); err == nil && lsn > 0 {
		return lsn, nil
	}
	return 0, fmt.Errorf("%q is not an LSN such as 16/B374D848", text)
}
