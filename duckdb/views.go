package duckdb

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"pgmirror/readstate"
)

// shownTable is a table of a read state with the names it has in DuckDB.
type shownTable struct {
	table *readstate.Table
	view  viewName
	key   string // how pgmirror_sql names it
	cols  []column
	err   string // why it cannot be read; empty when it can
}

// viewName is a view's place in DuckDB.
type viewName struct{ schema, name string }

func (v viewName) String() string { return ident(v.schema) + "." + ident(v.name) }

// viewColumns are the columns that a view is defined with; a table that never could be read has a single one.
func (t *shownTable) viewColumns() []column {
	if len(t.cols) > 0 {
		return t.cols
	}
	return []column{{name: "unavailable", typ: columnType{sql: "BOOLEAN"}}}
}

// shape says when two states show the same view.
func (t *shownTable) shape() string {
	var b strings.Builder
	for _, c := range t.viewColumns() {
		fmt.Fprintf(&b, "%s %s, ", ident(c.name), c.typ.sql)
	}
	return b.String()
}

// newPinned takes over a state, with one reference for the caller, and names its tables.
func newPinned(state *readstate.State) *pinned {
	p := &pinned{state: state, byKey: make(map[string]*shownTable, len(state.Tables))}
	p.refs.Store(1)
	tables := slices.Clone(state.Tables)
	slices.SortStableFunc(tables, func(a, b *readstate.Table) int {
		return cmp.Or(cmp.Compare(a.Name.Schema, b.Name.Schema), cmp.Compare(a.Name.Name, b.Name.Name))
	})
	schemas, shown := newNames(), make(map[string]string)
	inSchema := make(map[string]names)
	for _, t := range tables {
		schema, ok := shown[t.Name.Schema]
		if !ok {
			schema = schemas.take(t.Name.Schema)
			shown[t.Name.Schema] = schema
			inSchema[schema] = newNames()
		}
		out := &shownTable{table: t, err: t.Err, key: key(t.Name.Schema, t.Name.Name)}
		out.view = viewName{schema, inSchema[schema].take(t.Name.Name)}
		cols, err := columnsOf(t.Schema)
		out.cols = cols
		if err != nil && out.err == "" {
			out.err = fmt.Sprintf("table %s cannot be read: %s", out.key, err)
		}
		p.byKey[out.key] = out
	}
	return p
}

// syncViews makes the views those of the state's tables, when something changed since the last time.
func (db *DB) syncViews(p *pinned) error {
	s := &db.session
	want := make(map[viewName]*shownTable, len(p.byKey))
	changed := s.stale
	for _, t := range p.byKey {
		want[t.view] = t
		changed = changed || s.views[t.view] != t.key+" "+t.shape()
	}
	if !changed && len(want) == len(s.views) {
		return nil
	}
	if s.inTransaction {
		return nil // the user's transaction keeps the catalogue it sees
	}
	s.mu.Lock()
	s.defining, s.shapes = true, p.byKey
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.defining, s.shapes = false, nil
		s.mu.Unlock()
	}()
	for _, v := range sortedViews(want) {
		t := want[v]
		mark := t.key + " " + t.shape()
		if !s.stale && s.views[v] == mark {
			continue
		}
		s.views[v] = mark
		if err := db.defineView(t); err != nil {
			// An object that the user put in its place. It is tried again after the next CREATE, DROP or ALTER.
			db.config.Log.Warn("a mirrored table cannot be shown", "relation", t.key, "err", err)
		}
	}
	for v := range s.views {
		if _, ok := want[v]; ok {
			continue
		}
		if err := db.adminExec("DROP VIEW IF EXISTS " + v.String()); err != nil {
			return fmt.Errorf("hide table %s: %w", v, err)
		}
		delete(s.views, v)
	}
	s.stale = false
	return nil
}

func (db *DB) defineView(t *shownTable) error {
	if err := db.adminExec("CREATE SCHEMA IF NOT EXISTS " + ident(t.view.schema)); err != nil {
		return err
	}
	return db.adminExec("CREATE OR REPLACE VIEW " + t.view.String() +
		" AS FROM query(pgmirror_sql(" + literal(t.key) + ", txid_current()))")
}

func sortedViews(m map[viewName]*shownTable) []viewName {
	out := make([]viewName, 0, len(m))
	for v := range m {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b viewName) int {
		return cmp.Or(cmp.Compare(a.schema, b.schema), cmp.Compare(a.name, b.name))
	})
	return out
}
