package mirror

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/pgcdc"
)

// modelDef is one definition that a model table had.
type modelDef struct {
	attNums []int16
	names   []string
	from    LSN // it came after everything up to here
	used    LSN // end of the first commit that changed rows of it; 0 for none
}

func defOf(t *pgcdc.Table, from LSN) modelDef {
	d := modelDef{from: from}
	for _, c := range t.Columns {
		d.attNums, d.names = append(d.attNums, c.AttNum), append(d.names, c.Name)
	}
	return d
}

// allowAlters lets the columns of tables change from now on.
func (w *world) allowAlters() {
	w.alters = true
	for i, t := range w.tables {
		d := &t.def
		d.Frame, d.LastAttNum = "frame", int16(len(d.Columns))
		for c := range d.Columns {
			d.Columns[c].Fingerprint = fmt.Sprint(d.Columns[c].AttNum)
		}
		t.defs, t.missing = []modelDef{defOf(d, 0)}, map[int16]cell{}
		t.excused = map[string]bool{}
		w.source.tables[i] = *d
	}
}

// in is a row version as a definition shows it.
func (v *version) in(t *modelTable, attNums []int16) []cell {
	if v.attNums == nil {
		return v.cells
	}
	cells := make([]cell, len(attNums))
	for i, a := range attNums {
		if at := slices.Index(v.attNums, a); at >= 0 {
			cells[i] = v.cells[at]
		} else {
			cells[i] = t.missing[a]
		}
	}
	return cells
}

// now is a row version as the present definition shows it.
func (v *version) now(t *modelTable) []cell {
	if v.attNums == nil {
		return v.cells
	}
	return v.in(t, t.attNums())
}

func (t *modelTable) attNums() []int16 {
	if t.defs == nil {
		return nil
	}
	return t.defs[len(t.defs)-1].attNums
}

// alterColumns adds, drops or renames a column of a table, which the stream does not tell before the table's next row.
func (w *world) alterColumns() {
	w.t.Helper()
	w.settle()
	t := w.tables[w.rng.IntN(len(w.tables))]
	if w.pending(t) {
		if w.rng.IntN(3) > 0 {
			return
		}
		w.excuse(t) // what both changes come to may not be known in place
	}
	def := t.def
	def.Columns = slices.Clone(def.Columns)
	w.serial++
	whole := def.Identity == pgcdc.IdentityFull && def.Key == nil
	what := ""
	switch n := w.rng.IntN(5); {
	case n == 0 || whole:
		i := w.rng.IntN(len(def.Columns))
		what = "rename " + def.Columns[i].Name
		def.Columns[i].Name = fmt.Sprint("r", w.serial)
	case n < 3 && len(def.Columns) < 20:
		def.LastAttNum++
		c := pgcdc.Column{AttNum: def.LastAttNum, Name: fmt.Sprint("a", w.serial), Fingerprint: fmt.Sprint(def.LastAttNum)}
		types := []uint32{oidInt4, oidText, oidInt8, oidNumeric, oidBool, oidDate, oidUID, oidTimestampTZ, oidInt4List}
		oid := types[w.rng.IntN(len(types))]
		c.Type = typeOf(oid)
		if !slices.Contains([]uint32{oidDate, oidTimestampTZ, oidInt4List}, oid) && w.rng.IntN(2) == 0 {
			value := w.value(oid)
			c.Missing, t.missing[c.AttNum] = &value.wire, value
		}
		def.Columns = append(def.Columns, c)
		what = "add " + c.Name
	default:
		i := w.rng.IntN(len(def.Columns))
		if isKey(&def, i) || w.badValue(def.Columns[i].Type.OID) != nil || len(def.Columns) < 3 {
			return
		}
		what = "drop " + def.Columns[i].Name
		def.LastDropped = max(def.LastDropped, def.Columns[i].AttNum)
		def.Columns = slices.Delete(def.Columns, i, i+1)
		less := func(keys []int) []int {
			keys = slices.DeleteFunc(slices.Clone(keys), func(k int) bool { return k == i })
			for j, k := range keys {
				if k > i {
					keys[j]--
				}
			}
			return keys
		}
		def.Key, def.IdentityKey = less(def.Key), less(def.IdentityKey)
		if len(def.Key) == 0 {
			def.Key = nil
		}
	}
	if def.Identity == pgcdc.IdentityFull {
		def.IdentityKey = nil
		for i := range def.Columns {
			def.IdentityKey = append(def.IdentityKey, i)
		}
	}
	def.Fingerprint = fmt.Sprint("altered ", w.serial)
	w.note("alter %s: %s", def.Name, what)
	t.def = def
	t.defs = append(t.defs, defOf(&def, w.source.end()))
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	w.source.tables[slices.IndexFunc(w.source.tables, func(s pgcdc.Table) bool { return s.OID == def.OID })] = def
}

// excuse lets the content that the mirror shows of a table fail because of a change of columns.
func (w *world) excuse(t *modelTable) {
	if v := w.viewAt(t.def.Name, maxLSN); v != nil {
		t.excused[v.table.uuid] = true
	}
}

// pending says that the mirror does not know the table's present definition, or does not follow the table.
func (w *world) pending(t *modelTable) bool {
	v := w.viewAt(t.def.Name, maxLSN)
	return v == nil || v.state != stateStreaming || !t.defs[len(t.defs)-1].is(v.schema)
}

// is says that a schema has the definition's columns. Names that were dropped or given up never come again.
func (d *modelDef) is(schema *arrow.Schema) bool {
	return slices.EqualFunc(d.names, schema.Fields(), func(name string, f arrow.Field) bool { return name == f.Name })
}

// expected lists the rows that a table must show at an LSN in the columns that it shows.
func (w *world) expected(t *modelTable, schema *arrow.Schema, at LSN) []string {
	w.t.Helper()
	return t.shownIn(at, w.columnsShown(t, schema, at))
}

// columnsShown are the columns of a schema, which must be those of the LSN: not younger, and not older than rows up to it.
func (w *world) columnsShown(t *modelTable, schema *arrow.Schema, at LSN) []int16 {
	w.t.Helper()
	if t.defs == nil {
		return t.attNums()
	}
	var had []int // more than one, when a column came and went
	for i := range t.defs {
		if t.defs[i].is(schema) {
			had = append(had, i)
		}
	}
	if len(had) == 0 {
		w.fatal("table %s at %s has columns that it never had: %s", t.def.Name, at, schema)
	}
	for _, i := range had {
		if t.defs[i].from <= at && (i+1 == len(t.defs) || t.defs[i+1].used == 0 || at < t.defs[i+1].used) {
			return t.defs[i].attNums
		}
	}
	w.fatal("table %s at %s has the columns of another time: %s", t.def.Name, at, schema)
	return nil
}

// look takes a look at the catalogue, which may last.
func (w *world) look() {
	w.t.Helper()
	w.settle()
	w.note("look")
	if w.rng.IntN(3) == 0 {
		w.source.looked = func() {
			w.note("meanwhile")
			if w.alters {
				w.alterColumns()
			} else {
				w.silently()
			}
			for range 3 {
				w.transaction()
			}
			w.settle()
		}
	}
	_, err := w.m.look(context.Background(), true)
	w.check(err)
}

// TestModelAlters is TestModel with columns that come, go, and get other names.
func TestModelAlters(t *testing.T) {
	first, last := uint64(1), uint64(*modelSeeds)
	if *modelSeed != 0 {
		first, last = *modelSeed, *modelSeed
	}
	taken := 0
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := runWorld(t, seed+1<<32, (*world).allowAlters)
			taken += w.taken
		})
	}
	if *modelSeed == 0 && !t.Failed() && taken < int(last) {
		t.Errorf("only %d changes of columns were taken over in place", taken)
	}
}
