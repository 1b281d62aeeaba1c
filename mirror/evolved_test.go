package mirror

import (
	"context"
	"slices"
	"testing"

	"pgmirror/pgcdc"
)

// seen is a table as a look shows it, with what decides whether a change of its columns can be taken over.
func seen(columns ...pgcdc.Column) pgcdc.Table {
	t := tableDef(1, "t", pgcdc.IdentityDefault, []int{0}, []int{0})
	t.Frame, t.Relfilenode = "frame", 7
	t.Columns = columns
	for _, c := range columns {
		t.LastAttNum = max(t.LastAttNum, c.AttNum)
		t.Fingerprint += c.Name + c.Fingerprint
	}
	return t
}

func columnOf(attNum int16, name string, oid uint32) pgcdc.Column {
	typ := typeOf(oid)
	return pgcdc.Column{AttNum: attNum, Name: name, Type: typ, Fingerprint: string(rune('a'+attNum)) + typ.Name}
}

// TestEvolved: what a look shows is taken over in place only if it can mean nothing else, and no row shows another value.
func TestEvolved(t *testing.T) {
	id, v, n := columnOf(1, "id", oidInt4), columnOf(2, "v", oidText), columnOf(3, "n", oidInt8)
	fresh := columnOf(4, "fresh", oidInt4)
	renamed := v
	renamed.Name = "w"
	other := columnOf(3, "n", oidNumeric)
	with := func(c pgcdc.Column, missing string) pgcdc.Column { c.Missing = &missing; return c }
	for name, c := range map[string]struct {
		before, now pgcdc.Table
		change      func(now *pgcdc.Table)
		ok          bool
	}{
		"nothing":                         {seen(id, v, n), seen(id, v, n), nil, false},
		"added":                           {seen(id, v, n), seen(id, v, n, fresh), nil, true},
		"added with a value":              {seen(id, v, n), seen(id, v, n, with(fresh, "7")), nil, true},
		"added with a value that is none": {seen(id, v, n), seen(id, v, n, with(fresh, "x")), nil, false},
		"added with a date":               {seen(id, v), seen(id, v, with(columnOf(3, "d", oidDate), "2026-01-01")), nil, false},
		"added with a list":               {seen(id, v), seen(id, v, with(columnOf(3, "l", oidInt4List), "{1}")), nil, false},
		"added with a large number":       {seen(id, v), seen(id, v, with(columnOf(3, "l", oidInt8), "9007199254740993")), nil, false},
		"dropped":                         {seen(id, v, n), seen(id, n), nil, true},
		"renamed":                         {seen(id, v, n), seen(id, renamed, n), nil, true},
		"renamed, and one added":          {seen(id, v, n), seen(id, renamed, n, fresh), nil, true},
		"dropped, and one added":          {seen(id, v, n), seen(id, n, fresh), nil, false},
		"another type":                    {seen(id, v, n), seen(id, v, other), nil, false},
		"came and went":                   {seen(id, v, n), seen(id, renamed, n), func(now *pgcdc.Table) { now.LastAttNum, now.LastDropped = 4, 4 }, false},
		"another came and went":           {seen(id, v, n), seen(id, v, n, columnOf(5, "later", oidInt4)), func(now *pgcdc.Table) { now.LastDropped = 4 }, false},
		"one that was hidden":             {seen(id, n), seen(id, v, n), nil, false},
		"rewritten":                       {seen(id, v, n), seen(id, v, n, fresh), func(now *pgcdc.Table) { now.Relfilenode = 8 }, false},
		"another frame":                   {seen(id, v, n), seen(id, v, n, fresh), func(now *pgcdc.Table) { now.Frame = "other" }, false},
		"no frame":                        {seen(id, v, n), seen(id, v, n, fresh), func(now *pgcdc.Table) { now.Frame = "" }, false},
		"unsupported":                     {seen(id, v, n), seen(id, v, n, fresh), func(now *pgcdc.Table) { now.Unsupported = "row security" }, false},
		"the key dropped":                 {seen(id, v, n), seen(v, n), func(now *pgcdc.Table) { now.Key, now.IdentityKey = nil, nil }, false},
		"another key":                     {seen(id, v, n), seen(id, v, n, fresh), func(now *pgcdc.Table) { now.Key, now.IdentityKey = []int{2}, []int{2} }, false},
		"the whole row, added":            {whole(seen(id, v, n)), whole(seen(id, v, n, fresh)), nil, false},
		"the whole row, dropped":          {whole(seen(id, v, n)), whole(seen(id, n)), nil, false},
		"the whole row, renamed":          {whole(seen(id, v, n)), whole(seen(id, renamed, n)), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Mirror{}
			tab := m.newCopy(&c.before, 1).table
			if c.change != nil {
				c.change(&c.now)
			}
			s := tab.evolved(&c.now)
			if (s != nil) != c.ok {
				t.Fatalf("taken over: %v, want %v", s != nil, c.ok)
			}
			if s == nil {
				return
			}
			for _, col := range s.columns {
				i := slices.IndexFunc(tab.shape.columns, func(o shapeColumn) bool { return o.attNum == col.attNum })
				if i >= 0 && tab.shape.columns[i].fieldID != col.fieldID || i < 0 && col.fieldID <= tab.lastFieldID {
					t.Errorf("column %s has field id %d", col.name, col.fieldID)
				}
			}
		})
	}
}

// whole makes a table's whole row its identity.
func whole(t pgcdc.Table) pgcdc.Table {
	t.Identity, t.Key, t.IdentityKey = pgcdc.IdentityFull, nil, nil
	for i := range t.Columns {
		t.IdentityKey = append(t.IdentityKey, i)
	}
	return t
}

// TestFieldIDsAreNeverGivenAgain: a column that came and went between two commits may lie in a file that the second one names; another column
// must not have its field id, also not after a restart.
func TestFieldIDsAreNeverGivenAgain(t *testing.T) {
	w := newWorld(t, 12)
	w.faults, w.pressure, w.history = 0, false, 0
	w.allowAlters()
	w.start()
	ctx := context.Background()
	change := func(column string, add bool) {
		t.Helper()
		w.source.mu.Lock()
		def := &w.source.tables[0]
		def.Columns = slices.Clone(def.Columns)
		if add {
			def.LastAttNum++
			def.Columns = append(def.Columns, pgcdc.Column{AttNum: def.LastAttNum, Name: column, Type: typeOf(oidInt4), Fingerprint: column})
		} else {
			def.LastDropped = def.Columns[len(def.Columns)-1].AttNum
			def.Columns = def.Columns[:len(def.Columns)-1]
		}
		def.Fingerprint += column
		mt := w.table(1)
		mt.def, mt.defs = *def, append(mt.defs, defOf(def, 0))
		w.source.mu.Unlock()
		end := w.source.idle()
		w.deliver(pgcdc.Event{WALEnd: end})
		w.passed(end)
		w.look()
	}
	last := func() int {
		s := w.m.byOID[1].shape
		return s.columns[len(s.columns)-1].fieldID
	}
	change("first", true)
	first := last()
	change("first", false)
	w.check(w.m.checkpoint(ctx))
	w.crash()
	change("second", true)
	if second := last(); second <= first {
		t.Errorf("the second column has field id %d, the first had %d", second, first)
	}
	w.end()
}

// TestLookDisagrees: a look that shows other columns than the Relation, because they changed again meanwhile, says nothing of what the Relation
// means: the table is copied.
func TestLookDisagrees(t *testing.T) {
	w := newWorld(t, 13)
	w.faults, w.pressure, w.history = 0, false, 0
	w.allowAlters()
	w.start()
	w.transaction() // the session tells what the tables are
	def := w.source.tables[0]
	def.LastAttNum++
	def.Columns = append(slices.Clone(def.Columns), pgcdc.Column{AttNum: def.LastAttNum, Name: "then", Type: typeOf(oidInt4), Fingerprint: "added"})
	def.Fingerprint = "added"
	now := def
	now.Columns = slices.Clone(def.Columns)
	now.Columns[len(now.Columns)-1].Name = "now"
	w.source.mu.Lock()
	w.source.tables[0] = now
	w.source.mu.Unlock()
	w.send(w.source.commit([]message{relationMessage(&def)}))
	w.settle()
	if tab := w.m.byOID[1]; tab.state != stateFailed || tab.failure.Remedy != remedyOutdated {
		t.Errorf("the table is %s with the columns %s", tab.state, tab.shape.arrow)
	}
	w.end()
}
