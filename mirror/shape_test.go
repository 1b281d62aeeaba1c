package mirror

import (
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
)

// testShape is the shape of a table as the first copy makes it.
func testShape(t *testing.T, def pgcdc.Table) *shape {
	t.Helper()
	s, err := newShape(&def, func(a *arrow.Schema) *arrow.Schema {
		withIDs, _ := iceberg.AssignFieldIDs(a, 0)
		return withIDs
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestShapeMode: how old rows are found follows from the replica identity and the primary key.
func TestShapeMode(t *testing.T) {
	for _, tc := range []struct {
		name    string
		def     pgcdc.Table
		mode    identityMode
		key     []int
		integer bool
	}{
		{"primary key", tableDef(1, "t", 'd', []int{1}, []int{1}, oidText, oidInt8), keyed, []int{1}, true},
		{"no primary key", tableDef(1, "t", 'd', nil, nil, oidText), insertOnly, nil, false},
		{"nothing", tableDef(1, "t", 'n', []int{0}, nil, oidInt4), insertOnly, nil, false},
		{"index", tableDef(1, "t", 'i', []int{0}, []int{1}, oidInt4, oidText), keyed, []int{1}, false},
		{"full", tableDef(1, "t", 'f', nil, []int{0, 1}, oidInt4, oidText), wholeRow, []int{0, 1}, false},
		{"full of one integer", tableDef(1, "t", 'f', nil, []int{0}, oidInt4), wholeRow, []int{0}, false},
		{"full beside a primary key", tableDef(1, "t", 'f', []int{0}, []int{0, 1}, oidInt4, oidText), keyed, []int{0}, true},
		{"two columns", tableDef(1, "t", 'd', []int{1, 0}, []int{1, 0}, oidInt4, oidInt4), keyed, []int{1, 0}, false},
		{"uuid", tableDef(1, "t", 'd', []int{0}, []int{0}, oidUID), keyed, []int{0}, false},
		{"bool", tableDef(1, "t", 'd', []int{0}, []int{0}, oidBool), keyed, []int{0}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := testShape(t, tc.def)
			if s.mode != tc.mode || !slices.Equal(s.key, tc.key) || s.integer != tc.integer {
				t.Errorf("mode %d, key %v, integer %v; want %d, %v, %v", s.mode, s.key, s.integer, tc.mode, tc.key, tc.integer)
			}
			for i := range s.columns {
				if nullable := s.arrow.Field(i).Nullable; nullable == slices.Contains(tc.def.Key, i) {
					t.Errorf("column %d: nullable is %v", i, nullable)
				}
			}
			again, err := recoveredShape(s.arrow, s.mode, s.key)
			if err != nil {
				t.Fatal(err)
			}
			if again.integer != s.integer || again.resolved {
				t.Error("a recovered shape differs")
			}
			if err := again.resolve(&tc.def); err != nil || !again.resolved {
				t.Errorf("resolve: %v", err)
			}
		})
	}
}

// TestShapeDiffers: a Relation message that differs from the table in a way that matters is seen, one that does not is not.
func TestShapeDiffers(t *testing.T) {
	relation := func(def pgcdc.Table) *pgcdc.Relation {
		r := &pgcdc.Relation{OID: def.OID, Schema: def.Schema, Name: def.Name, Identity: def.Identity}
		for i, c := range def.Columns {
			key := slices.Contains(def.IdentityKey, i)
			r.Columns = append(r.Columns, pgcdc.RelationColumn{Name: c.Name, TypeOID: c.Type.OID, TypeMod: c.Type.Mod, Key: key})
		}
		return r
	}
	keyedDef := tableDef(1, "t", 'd', []int{0}, []int{0}, oidInt4, oidNumeric, oidText)
	fullDef := tableDef(1, "t", 'f', nil, []int{0, 1}, oidInt4, oidText)
	insertsDef := tableDef(1, "t", 'n', nil, nil, oidInt4, oidText)
	for _, tc := range []struct {
		name   string
		def    pgcdc.Table
		change func(*pgcdc.Relation)
		says   string // part of the reason; empty when nothing differs
	}{
		{"nothing", keyedDef, func(*pgcdc.Relation) {}, ""},
		{"name", keyedDef, func(r *pgcdc.Relation) { r.Name = "u" }, "now called public.u"},
		{"schema", keyedDef, func(r *pgcdc.Relation) { r.Schema = "s" }, "now called s.t"},
		{"column added", keyedDef, func(r *pgcdc.Relation) { r.Columns = append(r.Columns, pgcdc.RelationColumn{Name: "x"}) }, "4 columns instead of 3"},
		{"column dropped", keyedDef, func(r *pgcdc.Relation) { r.Columns = r.Columns[:2] }, "2 columns instead of 3"},
		{"column renamed", keyedDef, func(r *pgcdc.Relation) { r.Columns[1].Name = "x" }, `column "c1" is now "x"`},
		{"columns swapped", keyedDef, func(r *pgcdc.Relation) { r.Columns[1].Name, r.Columns[2].Name = "c2", "c1" }, `column "c1" is now "c2"`},
		{"type", keyedDef, func(r *pgcdc.Relation) { r.Columns[2].TypeOID = 1043 }, `column "c2" has another type`},
		{"type modifier", keyedDef, func(r *pgcdc.Relation) { r.Columns[1].TypeMod++ }, `column "c1" has another type`},
		{"identity to full", keyedDef, func(r *pgcdc.Relation) {
			r.Identity = pgcdc.IdentityFull
			for i := range r.Columns {
				r.Columns[i].Key = true
			}
		}, ""},
		{"identity to another column", keyedDef, func(r *pgcdc.Relation) {
			r.Identity = pgcdc.IdentityIndex
			r.Columns[0].Key, r.Columns[2].Key = false, true
		}, "replica identity has other columns"},
		{"identity to nothing", keyedDef, func(r *pgcdc.Relation) { r.Identity, r.Columns[0].Key = pgcdc.IdentityNothing, false }, "replica identity has other columns"},
		{"full to default", fullDef, func(r *pgcdc.Relation) { r.Identity = pgcdc.IdentityDefault }, "no longer FULL"},
		{"full", fullDef, func(*pgcdc.Relation) {}, ""},
		{"inserts only", insertsDef, func(*pgcdc.Relation) {}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tab := &table{name: nameOf(&tc.def)}
			s := testShape(t, tc.def)
			r := relation(tc.def)
			tc.change(r)
			why := s.differs(tab, r)
			if (why == "") != (tc.says == "") || !strings.Contains(why, tc.says) {
				t.Errorf("differs: %q, want %q", why, tc.says)
			}
		})
	}
}

// TestShapeResolveRefuses: a table whose definition changed while the mirror was stopped is not taken for the known one.
func TestShapeResolveRefuses(t *testing.T) {
	def := tableDef(1, "t", 'd', []int{0}, []int{0}, oidInt4, oidNumeric, oidText)
	for name, change := range map[string]func(*pgcdc.Table){
		"column renamed": func(d *pgcdc.Table) { d.Columns[2].Name = "x" },
		"other type":     func(d *pgcdc.Table) { d.Columns[2].Type = typeOf(oidInt8) },
		"other scale":    func(d *pgcdc.Table) { d.Columns[1].Type = pgcdc.BuiltinType(oidNumeric, 10<<16|3+4) },
		"column dropped": func(d *pgcdc.Table) { d.Columns = d.Columns[:2] },
		"other key":      func(d *pgcdc.Table) { d.Key, d.IdentityKey = []int{2}, []int{2} },
		"other identity": func(d *pgcdc.Table) { d.Identity, d.IdentityKey = pgcdc.IdentityNothing, nil },
		"unsupported":    func(d *pgcdc.Table) { d.Unsupported = "it is partitioned" },
	} {
		t.Run(name, func(t *testing.T) {
			known := testShape(t, def)
			s, err := recoveredShape(known.arrow, known.mode, known.key)
			if err != nil {
				t.Fatal(err)
			}
			changed := def
			changed.Columns = slices.Clone(def.Columns)
			change(&changed)
			if err := s.resolve(&changed); err == nil {
				t.Error("the change went unnoticed")
			}
		})
	}
	if _, err := recoveredShape(testShape(t, def).arrow, keyed, []int{3}); err == nil {
		t.Error("a stored identity may name a column that is not there")
	}
}
