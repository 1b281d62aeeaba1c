package pgcdc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// tableFindings judges the published relations.
func (j *judgement) tableFindings() {
	j.rights()
	for _, r := range j.relations {
		refused := j.refusals(r)
		refused = j.columnFindings(r) || refused
		if reason := r.unsupportedAside(); reason != "" && !refused {
			j.add(Finding{LevelError, "table", "table " + r.qualified(), reason, "the table would fail at the start", j.takeOut(r)})
		}
		j.identity(r)
	}
	j.beneathFinding()
	j.aloneFindings()
	j.unknownForms()
	j.sameButForCase()
}

// rights judges what the role may read, in one finding for each schema.
func (j *judgement) rights() {
	unreadable := map[string][]string{}
	unusable := map[string]bool{}
	for _, r := range j.relations {
		if !r.selectable {
			unreadable[r.table.Schema] = append(unreadable[r.table.Schema], r.qualified())
		}
		if !r.usage {
			unusable[r.table.Schema] = true
		}
	}
	role := quoteIdent(j.role)
	for _, schema := range sortedKeys(unusable) {
		j.add(Finding{LevelError, "usage", "schema " + quoteIdent(schema), "role " + role + " may not use it", "the first copy reads the tables in it",
			Fix{SQL: []string{"GRANT USAGE ON SCHEMA " + quoteIdent(schema) + " TO " + role + ";"}}})
	}
	for _, schema := range sortedKeys(unreadable) {
		tables := strings.Join(unreadable[schema], ", ")
		j.add(Finding{LevelError, "select", "schema " + quoteIdent(schema), "role " + role + " may not read " + tables, "the first copy reads them",
			Fix{SQL: []string{"GRANT SELECT ON " + tables + " TO " + role + ";"}}})
	}
}

// refusals are the reasons for which a whole relation cannot be mirrored; it reports whether there is one.
func (j *judgement) refusals(r *checkedRelation) (refused bool) {
	object := "table " + r.qualified()
	add := func(f Finding) {
		j.add(f)
		refused = true
	}
	refused = j.leafFindings(r)
	if r.published.unnoticed {
		var fix Fix
		for _, name := range r.publications {
			fix.SQL = append(fix.SQL, "ALTER PUBLICATION "+quoteIdent(name)+" ADD TABLE "+r.qualified()+";")
		}
		add(Finding{LevelError, "partition", object, "it is published as a partition alone",
			"PostgreSQL 14 does not notice when a table becomes a partition of a published one, and keeps its changes back; it would fail at the start", fix})
	}
	if r.secured {
		fix := Fix{SQL: []string{"ALTER ROLE " + quoteIdent(j.role) + " BYPASSRLS;"}, Advice: j.provider.bypass}
		add(Finding{LevelError, "row_security", object, "row security applies to role " + quoteIdent(j.role),
			"a copy would leave out the rows that it may not see, while the stream brings them all", fix})
	}
	if !r.filteredAlike() {
		add(Finding{LevelError, "row_filters", object, "publications " + strings.Join(r.publications, ", ") + " filter its inserts, updates and deletes differently",
			"the changes of a row would come in part, so the table would fail at the start", Fix{Advice: "give the table the same row filter in all of them, or publish it by one of them alone"}})
	}
	if r.conflicting() {
		add(Finding{LevelError, "column_lists", object, "publications " + strings.Join(r.publications, ", ") + " list different columns of it",
			"the server ends the stream with an error at the table's first change", publishWhole(r)})
	}
	return refused
}

// columnFindings judges names and types; it reports whether one keeps the table from being mirrored.
func (j *judgement) columnFindings(r *checkedRelation) (refused bool) {
	var numerics, types, asText []string
	for _, c := range r.table.Columns {
		object := "column " + r.qualified() + "." + quoteIdent(c.Name)
		if c.Name == hiddenColumn {
			j.add(Finding{LevelError, "column_name", object, "it has the name of the mirror's own column", "the table would fail at the start",
				Fix{SQL: []string{"ALTER TABLE " + r.qualified() + " RENAME COLUMN " + quoteIdent(c.Name) + " TO " + quoteIdent(r.freeName(c.Name)) + ";"}}})
			refused = true
		}
		line := (ColumnName{r.table.Schema, r.table.Name, c.Name}).configLine()
		switch {
		case c.Form != "":
			refused = j.formFinding(r, &c) || refused
		case c.Type.Unsupported != "":
			reason, _ := strings.CutSuffix(c.Type.Unsupported, whatToDo)
			types, asText = append(types, "column "+quoteIdent(c.Name)+": "+reason), append(asText, line+"text")
		}
		if slices.Contains(r.dimensions, c.Name) && c.Type.Unsupported == "" && c.Form == "" && !j.options.NullUnrepresentable {
			j.add(Finding{LevelWarning, "dimensions", object, "it is declared as an array of more than one dimension",
				"the mirror has lists; at the first value of more than one dimension the table fails", Fix{
					Config: []string{"types:", line + "text"},
					Advice: `the column is then the text that PostgreSQL prints; or set on_unrepresentable: "null", which makes such values NULL and counts them`,
				}})
		}
		if c.Type.unconstrainedNumeric() && c.Form == "" {
			numerics = append(numerics, quoteIdent(c.Name))
		}
	}
	if len(types) > 0 {
		fix := Fix{Config: append([]string{"types:"}, asText...), Advice: "they are then the text that PostgreSQL prints; or take the table out of the publication"}
		j.add(Finding{LevelError, "type", "table " + r.qualified(), strings.Join(types, "; "), "the table would fail at the start", fix})
		refused = true
	}
	if len(numerics) > 0 {
		first := numerics[0]
		j.add(Finding{LevelWarning, "numeric", "table " + r.qualified(), "numeric without a precision that fits 38 digits: " + strings.Join(numerics, ", "),
			"Iceberg's decimals have fixed scales, so the mirror holds the exact text: ORDER BY, max, min and < compare it as text, in which '9' is above '10', and sum does not take it", Fix{
				Advice: "ALTER TABLE " + r.qualified() + " ALTER COLUMN " + first + " TYPE numeric(p,s), with p up to 38 and a scale s that rounds none of its values; or a line below the setting types, decimal(p,s) or double; or write CAST(" + first + " AS DECIMAL(38,s)) in queries",
			}})
	}
	return refused
}

func (t *Type) unconstrainedNumeric() bool {
	if t.Elem != nil {
		return t.Elem.unconstrainedNumeric()
	}
	return t.base == oidNumeric && t.Kind == KindText
}

// freeName is a name for a column that the table does not have yet.
func (r *checkedRelation) freeName(name string) string {
	for {
		name = "source" + name
		if !slices.ContainsFunc(r.attributes, func(a attributeRow) bool { return a.name == name }) {
			return name
		}
	}
}

// identity judges whether the old rows of updates and deletes can be named. Without an identity the server refuses them.
func (j *judgement) identity(r *checkedRelation) {
	if r.table.Kind == 'p' { // its updates and deletes are its leaves'
		return
	}
	if r.identityUsable() || !j.sendsOldRows(r) {
		return
	}
	problem, deferrable, primary := "it has no primary key and no other replica identity", false, false
	for _, i := range r.indexes {
		primary = primary || i.primary && i.valid
		deferrable = deferrable || i.primary && !i.immediate
	}
	fix := Fix{SQL: []string{"ALTER TABLE " + r.qualified() + " REPLICA IDENTITY FULL;"}, Advice: "a primary key is better where there is one to be had: smaller WAL, quicker look-ups"}
	switch {
	case r.leavesOutIdentity():
		problem, fix = "a column list leaves out a column of its replica identity", publishWhole(r)
	case r.table.Identity == IdentityDefault && deferrable:
		problem, fix.Advice = "its primary key is deferrable, which is no replica identity", ""
	case primary && !deferrable:
		problem = "its replica identity is nothing, or an index that is gone or not valid"
		fix = Fix{SQL: []string{"ALTER TABLE " + r.qualified() + " REPLICA IDENTITY DEFAULT;"}}
	}
	j.add(Finding{LevelWarning, "identity", "table " + r.qualified(), problem,
		"updates and deletes of it fail on the source while it is published, so the mirror gets only its inserts", fix})
}

// sendsOldRows says whether a publication of the relation sends updates or deletes.
func (j *judgement) sendsOldRows(r *checkedRelation) bool {
	return slices.ContainsFunc(j.publications, func(p checkedPublication) bool {
		return slices.Contains(r.publications, p.name) && !(slices.Contains(p.missing, "update") && slices.Contains(p.missing, "delete"))
	})
}

// sameButForCase names what DuckDB cannot tell apart.
func (j *judgement) sameButForCase() {
	var schemas, tables []string
	for _, r := range j.relations {
		if !slices.Contains(schemas, r.table.Schema) {
			schemas = append(schemas, r.table.Schema)
		}
		tables = append(tables, r.qualified())
		var columns []string
		for _, c := range r.table.Columns {
			columns = append(columns, quoteIdent(c.Name))
		}
		j.alike("columns", "table "+r.qualified(), columns)
	}
	for i := range schemas {
		schemas[i] = quoteIdent(schemas[i])
	}
	j.alike("schemas", "database "+quoteIdent(j.database), schemas)
	j.alike("tables", "database "+quoteIdent(j.database), tables)
}

func (j *judgement) alike(what, object string, names []string) {
	groups := map[string][]string{}
	for _, name := range names {
		folded := strings.ToLower(name)
		groups[folded] = append(groups[folded], name)
	}
	for _, folded := range sortedKeys(groups) {
		if len(groups[folded]) > 1 {
			j.add(Finding{LevelNote, "case", object, fmt.Sprintf("%s that differ only by case: %s", what, strings.Join(groups[folded], ", ")),
				"DuckDB ignores case: the one in lower case keeps its name, the others are shown as Name_1, Name_2", Fix{
					Advice: "nothing need be done: SHOW ALL TABLES and DESCRIBE in pgmirror sql tell the names; or rename them on the source",
				}})
		}
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
