package pgcdc

import (
	"cmp"
	"slices"
	"strings"
)

// configLine is the beginning of the column's line below types in mirror.yaml.
func (c ColumnName) configLine() string {
	name := c.String()
	if strings.Contains(name, `"`) {
		name = "'" + strings.ReplaceAll(name, "'", "''") + "'"
	}
	return "  " + name + ": "
}

// formFinding judges a column that the setting types gives a form; it reports whether that keeps the table from being mirrored.
func (j *judgement) formFinding(r *checkedRelation, c *Column) (refused bool) {
	f := Finding{LevelNote, "types", "column " + r.qualified() + "." + quoteIdent(c.Name), "the setting types makes it " + c.Form, "", Fix{
		Advice: "nothing need be done; without the line it has the form of its type, and the table is copied again"}}
	switch key, why := r.inexactKey(); {
	case c.Type.Unsupported != "":
		f.Level, f.Problem = LevelError, c.Type.Unsupported
	case key != nil && key.Name == c.Name:
		f.Level, f.Problem = LevelError, why
	case c.Type.Kind == KindText && !c.Type.BinaryOK:
		f.Why = "it is the text that PostgreSQL prints; the stream comes in text for it, which costs about a sixth of the speed of decoding"
	case c.Type.Kind == KindText:
		f.Why = "it is the text that PostgreSQL prints"
	case c.Type.Kind == KindDecimal:
		f.Why = "a value with more digits, NaN and infinities are not representable"
	default:
		f.Why = "it is the nearest double, as a cast to float8 gives; what is out of a double's range is not representable"
	}
	if f.Level == LevelError {
		f.Why, f.Fix.Advice = "the table would fail at the start", "change its line below types, or take it out"
	}
	j.add(f)
	return f.Level == LevelError
}

// unknownForms are names in the setting types that no published column has, and forms that a column has by itself.
func (j *judgement) unknownForms() {
	if len(j.missing) > 0 {
		return
	}
	columns := map[ColumnName]*Column{}
	for _, r := range j.relations {
		for i := range r.table.Columns {
			columns[ColumnName{r.table.Schema, r.table.Name, r.table.Columns[i].Name}] = &r.table.Columns[i]
		}
	}
	names := make([]ColumnName, 0, len(j.cfg.Types))
	for name := range j.cfg.Types {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b ColumnName) int { return cmp.Compare(a.String(), b.String()) })
	for _, name := range names {
		switch c := columns[name]; {
		case c == nil:
			j.add(Finding{LevelError, "types", "column " + name.String(), "the setting types names it, and no published table has such a column",
				"a name that is misspelt leaves the column that was meant as it is", Fix{Advice: "correct its line below types (schema.table.column, as the catalogue has the names), or take it out"}})
		case c.Form == "":
			j.add(Finding{LevelNote, "types", "column " + name.String(), "the setting types makes it " + j.cfg.Types[name].String() + ", which it is by itself",
				"the line changes nothing", Fix{Advice: "take the line out, or leave it"}})
		}
	}
}
