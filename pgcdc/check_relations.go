package pgcdc

import "slices"

// checkedRelation is a published relation with what Check must know beyond a look.
type checkedRelation struct {
	*relationRow
	publications      []string // of the configured ones, those that list it
	wholesale         []string // of these, those that publish it with its schema or with all tables
	members           []membership
	root              string   // qualified: the partitioned table that it is a partition of; "" if it is none
	usage, selectable bool     // whether the role may use the schema and read the relation
	dimensions        []string // columns declared with more than one dimension
}

// membership says that a publication names a relation or one that it is a partition of.
type membership struct {
	publication string
	table       string // qualified; the relation itself or the one it is a partition of
}

func (r *checkedRelation) qualified() string { return qualified(r.table.Schema, r.table.Name) }

func (r *checkedRelation) membersIn(publication string) []membership {
	return slices.DeleteFunc(slices.Clone(r.members), func(m membership) bool { return m.publication != publication })
}

// identityUsable says whether the server lets updates and deletes through while the relation is published.
func (r *checkedRelation) identityUsable() bool {
	t := &r.table
	if r.leavesOutIdentity() {
		return false
	}
	return t.Identity == IdentityFull || slices.ContainsFunc(r.indexes, func(i indexRow) bool {
		return i.valid && i.immediate && (i.primary && t.Identity == IdentityDefault || i.identity && t.Identity == IdentityIndex)
	})
}

// leavesOutIdentity says that a column list leaves out a column of the replica identity.
func (r *checkedRelation) leavesOutIdentity() bool {
	if !r.published.listed() {
		return false
	}
	t := &r.table
	published, _ := r.published.columns(r.attributes)
	for _, i := range r.indexes {
		if (i.primary && t.Identity == IdentityDefault || i.identity && t.Identity == IdentityIndex) &&
			slices.ContainsFunc(i.keys, func(attNum int16) bool { return !published[attNum] }) {
			return true
		}
	}
	return t.Identity == IdentityFull && slices.ContainsFunc(r.attributes, func(a attributeRow) bool { return !a.dropped && !published[a.attNum] })
}

// unsupportedAside is why the mirror refuses the relation, rights and row security aside: those are the role's.
func (r *checkedRelation) unsupportedAside() string {
	if r.readable && !r.secured {
		return r.table.Unsupported
	}
	aside := *r.relationRow
	aside.readable, aside.secured = true, false
	return aside.unsupported(true)
}

// readRelations reads the relations as a look does, and more.
func (f *checkFacts) readRelations(l *looker, found []publicationRow) error {
	rows, err := l.complete(found)
	f.beneath = l.beneath
	if err != nil || len(rows) == 0 {
		return err
	}
	oids := make([]uint32, len(rows))
	of := make(map[uint32]*checkedRelation, len(rows))
	for i, row := range rows {
		oids[i] = row.table.OID
		of[row.table.OID] = &checkedRelation{relationRow: row}
		f.relations = append(f.relations, of[row.table.OID])
	}
	return f.readAround(l, found, oids, of)
}

// readAround reads who publishes the relations and how, and what the role may do with them. A relation that was made since
// the first of the questions is passed over.
func (f *checkFacts) readAround(l *looker, found []publicationRow, oids []uint32, of map[uint32]*checkedRelation) error {
	names := make([]string, len(found))
	for i, p := range found {
		names[i] = p.name
	}
	in, published := joinOIDs(oids), quoteLiterals(names)
	each := func(sql string, read func(*checkedRelation, *rowReader)) error {
		return l.rows(sql, func(r *rowReader) error {
			relation := of[r.oid()]
			if relation == nil {
				relation = &checkedRelation{relationRow: &relationRow{}}
			}
			read(relation, r)
			return nil
		})
	}
	err := each(`SELECT c.oid, b.pubname, `+wholesale(l.version)+`
		FROM (`+publishedTables(l.version, names)+`) p JOIN pg_class c ON c.oid = p.relation JOIN pg_namespace n ON n.oid = c.relnamespace
			JOIN pg_publication b ON b.oid = p.publication
		WHERE c.oid IN (`+in+`) ORDER BY b.pubname`, func(c *checkedRelation, r *rowReader) {
		c.publications = append(c.publications, r.text())
		if r.bool() {
			c.wholesale = append(c.wholesale, c.publications[len(c.publications)-1])
		}
	})
	if err != nil {
		return err
	}
	err = each(`SELECT c.oid, b.pubname, n.nspname, k.relname
		FROM pg_class c, LATERAL (SELECT c.oid AS id UNION SELECT relid FROM pg_partition_ancestors(c.oid)) a, pg_publication_rel m, pg_publication b, pg_class k, pg_namespace n
		WHERE m.prrelid = a.id AND b.oid = m.prpubid AND k.oid = m.prrelid AND n.oid = k.relnamespace
			AND b.pubname IN (`+published+`) AND c.oid IN (`+in+`) ORDER BY b.pubname, n.nspname, k.relname`, func(c *checkedRelation, r *rowReader) {
		c.members = append(c.members, membership{r.text(), qualified(r.text(), r.text())})
	})
	if err != nil {
		return err
	}
	err = each(`SELECT c.oid, n.nspname, k.relname FROM pg_class c JOIN pg_class k ON k.oid = pg_partition_root(c.oid) JOIN pg_namespace n ON n.oid = k.relnamespace
		WHERE c.relispartition AND c.oid IN (`+in+`)`, func(c *checkedRelation, r *rowReader) { c.root = qualified(r.text(), r.text()) })
	if err != nil {
		return err
	}
	err = each(`SELECT c.oid, coalesce(has_schema_privilege(c.relnamespace, 'USAGE'), true), coalesce(has_table_privilege(c.oid, 'SELECT'), true), -- NULL: dropped just now
			coalesce((SELECT sum(pg_table_size(relid)) FROM pg_partition_tree(c.oid)), pg_table_size(c.oid), 0)
		FROM pg_class c WHERE c.oid IN (`+in+`)`, func(c *checkedRelation, r *rowReader) {
		c.usage, c.selectable = r.bool(), r.bool()
		f.tableBytes += r.int(64)
	})
	if err != nil {
		return err
	}
	return each(`SELECT attrelid, attname FROM pg_attribute WHERE attndims > 1 AND attnum > 0 AND NOT attisdropped AND attrelid IN (`+in+`) ORDER BY attrelid, attnum`,
		func(c *checkedRelation, r *rowReader) { c.dimensions = append(c.dimensions, r.text()) })
}
