package duckdb

import (
	"cmp"
	"errors"
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
	err   string // why DuckDB cannot show its columns; empty when it can
}

// ownCatalog is said with the schemas of the source's tables, one of which may be named as another catalog of DuckDB: temp, system, or as this one.
const ownCatalog = "pgmirror."

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

// shape is the same when a view need not be defined anew.
func (t *shownTable) shape() string {
	var b strings.Builder
	b.WriteString(t.key + ": ")
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
	var schemas []string
	inSchema := make(map[string][]string)
	for _, t := range tables {
		if len(inSchema[t.Name.Schema]) == 0 {
			schemas = append(schemas, t.Name.Schema)
		}
		inSchema[t.Name.Schema] = append(inSchema[t.Name.Schema], t.Name.Name)
	}
	next := 0
	for i, shown := range apart(schemas) {
		for _, name := range apart(inSchema[schemas[i]]) {
			t := tables[next]
			next++
			out := &shownTable{table: t, view: viewName{shown, name}, key: key(t.Name.Schema, t.Name.Name)}
			cols, err := columnsOf(t.Schema)
			out.cols = cols
			if err != nil {
				out.err = fmt.Sprintf("table %s cannot be read: %s", out.key, err)
			}
			p.byKey[out.key] = out
		}
	}
	return p
}

// shown is a view as it was last defined.
type shown struct {
	shape string // key and columns of the table
	sql   string // as DuckDB's catalogue writes it; empty when it could not be defined
}

// syncViews makes the views those of the state's tables, when something changed since the last time. It works on the
// connection beside the user's, so it sees and changes what is committed.
func (db *DB) syncViews(p *pinned) error {
	s := &db.session
	if s.inTransaction {
		return nil // the user's transaction keeps the catalogue it sees
	}
	if s.stale {
		defined, err := db.definitions()
		if err != nil {
			return err
		}
		for v, was := range s.views {
			if was.sql == "" || defined[v] != was.sql {
				delete(s.views, v)
			}
		}
		s.stale = false
	}
	define, drop := s.difference(p)
	if len(define) == 0 && len(drop) == 0 {
		return nil
	}
	s.mu.Lock()
	s.defining, s.shapes = true, p.byKey
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.defining, s.shapes = false, nil
		s.mu.Unlock()
	}()
	for _, v := range drop {
		if err := db.adminExec("DROP VIEW IF EXISTS " + ownCatalog + v.String()); err != nil {
			return fmt.Errorf("hide table %s: %w", v, err)
		}
		delete(s.views, v)
	}
	if err := db.defineTogether(define); err != nil {
		for _, t := range define {
			if err := db.defineView(t); err != nil {
				// An object that the user put in its place. It is tried again after the next CREATE, DROP or ALTER.
				db.config.Log.Warn("a mirrored table cannot be shown", "relation", t.key, "err", err)
			}
		}
	}
	defined, err := db.definitions()
	for _, t := range define {
		s.views[t.view] = shown{shape: t.shape(), sql: defined[t.view]}
	}
	return err
}

// difference lists what to define and what to drop, in order of names.
func (s *session) difference(p *pinned) (define []*shownTable, drop []viewName) {
	want := make(map[viewName]bool, len(p.byKey))
	for _, t := range p.byKey {
		want[t.view] = true
		if s.views[t.view].shape != t.shape() {
			define = append(define, t)
		}
	}
	for v := range s.views {
		if !want[v] {
			drop = append(drop, v)
		}
	}
	slices.SortFunc(define, func(a, b *shownTable) int { return compareViews(a.view, b.view) })
	slices.SortFunc(drop, compareViews)
	return define, drop
}

func compareViews(a, b viewName) int {
	return cmp.Or(cmp.Compare(a.schema, b.schema), cmp.Compare(a.name, b.name))
}

// defineTogether makes the views of tables in one transaction, which takes less than half of the time of one for each; it makes none when one of them cannot be made.
func (db *DB) defineTogether(tables []*shownTable) (err error) {
	if err := db.adminExec("BEGIN"); err != nil {
		return err
	}
	for _, t := range tables {
		if err := db.defineView(t); err != nil {
			return errors.Join(err, db.adminExec("ROLLBACK"))
		}
	}
	return db.adminExec("COMMIT")
}

// defineView makes one table's view.
func (db *DB) defineView(t *shownTable) error {
	if err := db.adminExec("CREATE SCHEMA IF NOT EXISTS " + ownCatalog + ident(t.view.schema)); err != nil {
		return err
	}
	return db.adminExec("CREATE OR REPLACE VIEW " + ownCatalog + t.view.String() +
		" AS FROM query(pgmirror_sql(" + literal(t.key) + ", txid_current()))")
}

// definitions returns the text of every view that is committed.
func (db *DB) definitions() (map[viewName]string, error) {
	rows, err := readStrings(db.admin, "SELECT schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal AND database_name = current_catalog()")
	out := make(map[viewName]string, len(rows))
	for _, row := range rows {
		out[viewName{row[0], row[1]}] = row[2]
	}
	return out, err
}
