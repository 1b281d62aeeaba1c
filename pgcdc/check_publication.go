package pgcdc

import (
	"fmt"
	"slices"
	"strings"
)

// checkedPublication is one of the configured publications.
type checkedPublication struct {
	publicationRow
	allTables bool
	root      bool // publish_via_partition_root
}

// readPublications reads the publications that exist, their relations, and what they pass over.
func (f *checkFacts) readPublications(l *looker, found []publicationRow) error {
	for _, name := range f.cfg.Publications {
		if !slices.ContainsFunc(found, func(p publicationRow) bool { return p.name == name }) {
			f.missing = append(f.missing, name)
		}
	}
	if len(found) == 0 {
		return nil
	}
	names := make([]string, len(found))
	for i, p := range found {
		names[i] = p.name
	}
	err := l.rows("SELECT pubname, puballtables, pubviaroot FROM pg_publication WHERE pubname IN ("+quoteLiterals(names)+") ORDER BY pubname", func(r *rowReader) error {
		name := r.text()
		if i := slices.Index(names, name); i >= 0 {
			f.publications = append(f.publications, checkedPublication{found[i], r.bool(), r.bool()})
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = l.rows(`SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' AND c.relpersistence = 'u' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
			AND EXISTS (SELECT FROM pg_publication b WHERE b.pubname IN (`+quoteLiterals(names)+`) AND `+wholesale(l.version)+`) ORDER BY 1, 2`, func(r *rowReader) error {
		f.unlogged = append(f.unlogged, qualified(r.text(), r.text()))
		return nil
	})
	if err != nil {
		return err
	}
	return f.readRelations(l, found)
}

// readCandidates reads what a missing publication could hold, and the publications that exist.
func (f *checkFacts) readCandidates(l *looker) (err error) {
	if f.candidates, err = allCandidates(l.ctx, l.conn); err != nil {
		return err
	}
	err = l.rows("SELECT pubname FROM pg_publication ORDER BY pubname", func(r *rowReader) error {
		f.others = append(f.others, r.text())
		return nil
	})
	if err != nil || len(f.candidates) == 0 {
		return err
	}
	oids, index := make([]uint32, len(f.candidates)), map[uint32]int{}
	for i, c := range f.candidates {
		oids[i], index[c.oid] = c.oid, i
	}
	rows, err := l.types(oids)
	if err != nil {
		return err
	}
	types := newTypeCatalog(rows)
	return l.rows(`SELECT attrelid, attname, atttypid, atttypmod, format_type(atttypid, atttypmod) FROM pg_attribute
		WHERE attnum > 0 AND NOT attisdropped AND attrelid IN (`+joinOIDs(oids)+`) ORDER BY attrelid, attnum`, func(r *rowReader) error {
		i, known := index[r.oid()]
		name, oid, mod, formatted := r.text(), r.oid(), int32(r.int(32)), r.text()
		if !known || f.candidates[i].refused != "" {
			return nil
		}
		if t := types.resolve(oid, mod, formatted); t.Unsupported != "" {
			f.candidates[i].refused, _ = strings.CutSuffix(t.Unsupported, whatToDo)
		} else if name == hiddenColumn {
			f.candidates[i].refused = "a column has the name of the mirror's own"
		}
		return nil
	})
}

// wholesale is SQL for whether publication b publishes all tables or those of the schema n; the latter came with PostgreSQL 15.
func wholesale(version int) string {
	if version < 15 {
		return "b.puballtables"
	}
	return "(b.puballtables OR EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = b.oid AND s.pnnspid = n.oid))"
}

// publicationFindings judges the publications as a whole.
func (j *judgement) publicationFindings() {
	for _, name := range j.missing {
		var tables, left []string
		for _, c := range j.candidates {
			switch {
			case !c.usable:
			case c.refused != "":
				left = append(left, qualified(c.schema, c.name)+" ("+c.refused+")")
			default:
				tables = append(tables, qualified(c.schema, c.name))
			}
		}
		problem := "it does not exist"
		if len(j.others) > 0 {
			quoted := make([]string, len(j.others))
			for i, other := range j.others {
				quoted[i] = quoteIdent(other)
			}
			problem += "; this database has " + strings.Join(quoted, ", ")
		}
		fix := Fix{Advice: "no table of the database has a primary key or another replica identity: give the tables one, then make the publication"}
		if len(tables) > 0 {
			fix = Fix{SQL: []string{createPublication(name, tables)}, Advice: "these are all tables with a usable replica identity: leave out those that you do not want. run --create-publication makes one by itself, if the role owns the tables"}
			if len(left) > 0 {
				fix.Advice += ". Not mirrored, and so left out: " + strings.Join(left, ", ")
			}
			if len(j.others) > 0 {
				fix.Advice = "is it one of those that exist? Then name it with --publication. Else: " + fix.Advice
			}
		}
		j.add(Finding{LevelError, "publication", "publication " + quoteIdent(name), problem, "the publication says which tables are mirrored", fix})
	}
	for _, p := range j.publications {
		object := "publication " + quoteIdent(p.name)
		if len(p.missing) > 0 {
			level := LevelError
			if j.cfg.PartialPublish {
				level = LevelWarning
			}
			j.add(Finding{level, "publish", object, "it leaves out " + strings.Join(p.missing, ", "), "the mirror would differ from the source after the first of them",
				Fix{SQL: []string{"ALTER PUBLICATION " + quoteIdent(p.name) + " SET (publish = 'insert, update, delete, truncate');"}}})
		}
		if !slices.ContainsFunc(j.relations, func(r *checkedRelation) bool { return slices.Contains(r.publications, p.name) }) {
			j.add(Finding{LevelWarning, "empty_publication", object, "it has no tables", "there is nothing to mirror",
				Fix{Advice: "ALTER PUBLICATION " + quoteIdent(p.name) + " ADD TABLE …"}})
		}
		if p.allTables {
			fix, ok := j.remake(p.name)
			if !ok {
				fix = Fix{Advice: "make it anew with FOR TABLE and the tables to mirror"}
			}
			j.add(Finding{LevelNote, "all_tables", object, "it is FOR ALL TABLES", "a table that is made later is published at once, and without a primary key its updates and deletes fail", fix})
		}
	}
	for _, table := range j.unlogged {
		j.add(Finding{LevelWarning, "unlogged", "table " + table, "it is unlogged", "it is not in the WAL, so the publication passes it over and the mirror does not have it",
			Fix{SQL: []string{"ALTER TABLE " + table + " SET LOGGED;"}, Advice: "this writes the whole table; after it the table is published"}})
	}
}

func createPublication(name string, tables []string) string {
	return "CREATE PUBLICATION " + quoteIdent(name) + " FOR TABLE ONLY " + strings.Join(tables, ", ONLY ") + ";"
}

// remake makes a publication of all tables or of a schema anew, of those of its tables that can be mirrored whole. It reports
// false when there are none.
func (j *judgement) remake(name string) (Fix, bool) {
	var tables []string
	for _, r := range j.relations {
		if slices.Contains(r.publications, name) && r.unsupportedAside() == "" && r.identityUsable() {
			tables = append(tables, r.qualified()+r.published.part(name, r.attributes))
		}
	}
	if len(tables) == 0 {
		return Fix{}, false
	}
	fix := Fix{SQL: []string{"DROP PUBLICATION " + quoteIdent(name) + ";", createPublication(name, tables)}}
	if j.slotFound {
		fix.Advice = "a publication that is made anew does not work with an older slot: run pgmirror drop --warehouse and mirror again afterwards"
	}
	return fix, true
}

// takeOut takes a relation out of every publication that it is in.
func (j *judgement) takeOut(r *checkedRelation) Fix {
	var fix Fix
	for _, name := range r.publications {
		if members := r.membersIn(name); len(members) > 0 && !slices.Contains(r.wholesale, name) {
			for _, m := range members {
				fix.SQL = append(fix.SQL, fmt.Sprintf("ALTER PUBLICATION %s DROP TABLE ONLY %s;", quoteIdent(name), m.table))
			}
			continue
		}
		again, ok := j.remake(name)
		if !ok {
			again.Advice = "make publication " + quoteIdent(name) + " anew with FOR TABLE and the tables to mirror"
		}
		fix.SQL = append(fix.SQL, again.SQL...)
		fix.Advice = again.Advice
	}
	return fix
}

// publishWhole publishes all columns of a relation wherever a column list leaves some out. Row filters stay.
func publishWhole(r *checkedRelation) Fix {
	var fix Fix
	for _, b := range r.published.by {
		if b.listed {
			b.listed = false
			all := published{by: []publishedBy{b}}
			fix.SQL = append(fix.SQL, fmt.Sprintf("ALTER PUBLICATION %s DROP TABLE ONLY %s;", quoteIdent(b.publication), r.qualified()),
				fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE ONLY %s%s;", quoteIdent(b.publication), r.qualified(), all.part(b.publication, nil)))
		}
	}
	return fix
}
