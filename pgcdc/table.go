package pgcdc

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
)

// complete fills in the table's columns, keys, fingerprint and the reason why it cannot be mirrored, if there is one.
func (r *relationRow) complete(types *typeCatalog) {
	t := &r.table
	published, _ := r.published.columns(r.attributes)
	position := map[int16]int{}   // attnum → index into Columns
	generated := map[int16]bool{} // those that are left out
	for _, a := range r.attributes {
		if !published[a.attNum] {
			if a.generated != 0 {
				t.Generated = append(t.Generated, a.name)
				generated[a.attNum] = true
			}
			continue
		}
		position[a.attNum] = len(t.Columns)
		c := Column{AttNum: a.attNum, Name: a.name, NotNull: a.notNull, Type: types.resolve(a.typeOID, a.typeMod, a.format)}
		if form, ok := r.forms[ColumnName{t.Schema, t.Name, a.name}]; ok {
			if other := c.Type.as(form); other != c.Type {
				c.Type, c.Form = other, form.String()
			}
		}
		c.Missing, c.Fingerprint = a.missing, a.fingerprint(types, c.Form)
		if t.Kind == 'p' {
			value, known := r.missingInLeaves(a.name)
			c.Missing, c.MissingUnknown = value, !known
		}
		t.Columns = append(t.Columns, c)
	}
	keysPublished := true
	columnsOf := func(index indexRow) (columns []int) {
		for _, attNum := range index.keys {
			i, ok := position[attNum]
			if !ok {
				// While a column list leaves it out, the server refuses updates and deletes.
				keysPublished = keysPublished && !generated[attNum]
				return nil
			}
			columns = append(columns, i)
		}
		return columns
	}
	for _, index := range r.indexes {
		if !index.valid {
			continue
		}
		if index.primary {
			t.Key, t.KeyDeferrable = columnsOf(index), !index.immediate
		}
		// A deferrable key is no identity: inside a transaction two rows may have it.
		if index.immediate && (index.primary && t.Identity == IdentityDefault || index.identity && t.Identity == IdentityIndex) {
			t.IdentityKey = columnsOf(index)
		}
	}
	if t.Identity == IdentityFull {
		for i := range t.Columns {
			t.IdentityKey = append(t.IdentityKey, i)
		}
	}
	for _, k := range r.keyColumns() {
		t.Columns[k].Type = t.Columns[k].Type.asKey()
	}
	t.Unsupported = r.unsupported(keysPublished)
	t.Fingerprint, t.AttributeVersions = r.fingerprint(types, published)
	t.Frame = r.frame()
	t.published = r.published.identity
	for _, a := range r.attributes {
		t.attributeXIDs = append(t.attributeXIDs, a.version)
		t.LastAttNum = max(t.LastAttNum, a.attNum)
		if a.dropped {
			t.LastDropped = max(t.LastDropped, a.attNum)
		}
	}
}

// conflicting says that publications list different columns.
func (r *relationRow) conflicting() bool {
	_, agreed := r.published.columns(r.attributes)
	return !agreed
}

// filteredAlike says that all operations that are published have the same row filter.
func (r *relationRow) filteredAlike() bool {
	_, agreed := r.published.condition()
	return agreed
}

// unsupported is why the table cannot be mirrored yet and what to do, or empty.
func (r *relationRow) unsupported(keysPublished bool) string {
	t := &r.table
	name := qualified(t.Schema, t.Name)
	switch {
	case r.unnoticing:
		return "PostgreSQL 14 does not notice when a table becomes a partition, and keeps its changes back; run ALTER PUBLICATION … SET (publish_via_partition_root = false) and name its partitions"
	case r.published.unnoticed:
		return "PostgreSQL 14 does not notice when a table becomes a partition of a published one, and keeps its changes back; run ALTER PUBLICATION … ADD TABLE " + name
	case t.Kind != 'r' && t.Kind != 'p':
		return fmt.Sprintf("relations of kind %q are not mirrored; take it out of the publication", t.Kind)
	case t.Persistence != 'p':
		return "only permanent tables are in the WAL; run ALTER TABLE " + name + " SET LOGGED"
	case !r.readable:
		return "the role may not read it; run GRANT USAGE ON SCHEMA " + quoteIdent(t.Schema) + " and GRANT SELECT ON " + name + " to it"
	case r.conflicting():
		return "publications list different columns of it, which ends the stream at its first change; list the same ones in all"
	case !r.filteredAlike():
		return "publications filter its inserts, updates and deletes differently, so that a row's changes would come in part; let them filter alike"
	case r.secured:
		return "row security hides rows from the role; give it BYPASSRLS"
	case len(t.Columns) == 0:
		return "it has no published column; take it out of the publication"
	case !keysPublished:
		return "a column of its key is not published; choose another REPLICA IDENTITY"
	}
	for _, c := range t.Columns {
		if c.Name == hiddenColumn {
			return "the column " + hiddenColumn + " has the name of the mirror's own; rename it"
		}
		if c.Type.Unsupported != "" {
			return "column " + quoteIdent(c.Name) + ": " + c.Type.Unsupported
		}
	}
	if c, why := r.inexactKey(); c != nil {
		return "column " + quoteIdent(c.Name) + ": " + why
	}
	return r.unsupportedLeaf()
}

// keyColumns lists the columns by which rows are found, or may be.
func (r *relationRow) keyColumns() []int {
	t := &r.table
	if t.Identity == IdentityFull {
		return t.Key
	}
	return append(slices.Clone(t.Key), t.IdentityKey...)
}

const (
	inexactDouble = "the setting types makes it double, under which two keys could be one; make it text or decimal(p,s)"
	inexactName   = "functions and operators of one name that take other arguments have the same text, so two keys could be one; make it regprocedure or regoperator, or choose another REPLICA IDENTITY"
)

// inexactKey is a column of a key that is mirrored in a form which may be equal for values that differ, and why; nil when there is none.
func (r *relationRow) inexactKey() (*Column, string) {
	const regproc, regoper = 24, 2203
	for _, k := range r.keyColumns() {
		c := &r.table.Columns[k]
		t := c.Type
		if t.form == formNumeric && t.Kind == KindFloat8 {
			return c, inexactDouble
		}
		if t.Elem != nil {
			t = t.Elem
		}
		if t.base == regproc || t.base == regoper {
			return c, inexactName
		}
	}
	return nil, ""
}

// fingerprint hashes what gives the table's rows their meaning, and how they are published. Of pg_attribute it takes all rows, those of dropped
// columns too, except those that a column list leaves out, but of them not what changes no row and no meaning: nullability, statistics, storage, grants, whether there is a default for rows
// to come, and the value that a column added later has in rows of before (VACUUM FULL writes it into the rows). versions is the xmin of each of these rows.
func (r *relationRow) fingerprint(types *typeCatalog, published map[int16]bool) (contents, versions string) {
	c, v := hasher{sha256.New()}, hasher{sha256.New()}
	parts := map[uint32]bool{}
	r.head(c)
	for _, a := range r.attributes {
		v.text(a.version)
		if r.published.listed() && !published[a.attNum] {
			continue
		}
		a.hash(c)
		c.text(a.name)
		types.partsOf(a.typeOID, parts)
	}
	for _, column := range r.table.Columns {
		if column.Form != "" {
			c.text("mirrored as", column.Name, column.Form)
		}
	}
	c.number(0) // no attnum: the end of the columns
	r.tail(c)
	types.hashParts(c, parts)
	return c.sum(), v.sum()
}

// frame hashes what fingerprint does, without the columns.
func (r *relationRow) frame() string {
	if r.published.listed() {
		return r.table.Fingerprint
	}
	h := hasher{sha256.New()}
	r.head(h)
	r.tail(h)
	return h.sum()
}

func (r *relationRow) head(h hasher) {
	t := &r.table
	h.number(uint64(t.OID))
	h.text(t.Schema, t.Name, string([]byte{t.Persistence, t.Kind, byte(t.Identity)}), r.published.identity)
}

func (r *relationRow) tail(h hasher) {
	h.number(uint64(len(r.indexes)))
	for _, index := range r.indexes {
		h.text(fmt.Sprint(index))
	}
}

// fingerprint is Column.Fingerprint.
func (a *attributeRow) fingerprint(types *typeCatalog, form string) string {
	h := hasher{sha256.New()}
	a.hash(h)
	h.text(form)
	parts := map[uint32]bool{}
	types.partsOf(a.typeOID, parts)
	types.hashParts(h, parts)
	return h.sum()
}

// hash takes what the row says of the column's values.
func (a *attributeRow) hash(h hasher) {
	h.number(uint64(a.attNum))
	h.number(uint64(a.typeOID))
	h.number(uint64(uint32(a.typeMod)))
	h.number(uint64(a.collation))
	h.text(fmt.Sprint(a.dropped), string([]byte{a.generated}))
}

// hashParts hashes what the text of enums and composites depends on beside the value: labels, and attributes.
func (c *typeCatalog) hashParts(h hasher, parts map[uint32]bool) {
	oids := sortedKeys(parts)
	for _, oid := range oids {
		if row := c.types[oid]; row.Kind == 'e' {
			h.number(uint64(oid))
			h.number(uint64(len(row.EnumLabels)))
			h.text(row.EnumLabels...)
		}
	}
	for _, oid := range oids {
		row := c.types[oid]
		if row.Kind != 'c' {
			continue
		}
		h.number(0) // no enum
		h.number(uint64(oid))
		h.number(uint64(len(row.Attributes)))
		for _, a := range row.Attributes {
			h.number(uint64(a.attNum))
			h.number(uint64(a.typeOID))
			h.number(uint64(uint32(a.typeMod)))
		}
	}
}

// partsOf adds a type and all types that its values are made of.
func (c *typeCatalog) partsOf(oid uint32, parts map[uint32]bool) {
	row, ok := c.types[oid]
	if !ok || parts[oid] {
		return
	}
	parts[oid] = true
	for _, part := range []uint32{row.Base, row.Elem, row.Subtype} {
		c.partsOf(part, parts)
	}
	for _, a := range row.Attributes {
		c.partsOf(a.typeOID, parts)
	}
}

// hasher writes every part with its length, so that no two lists of parts look alike.
type hasher struct{ hash.Hash }

func (h hasher) number(n uint64) { h.Write(binary.BigEndian.AppendUint64(nil, n)) }

func (h hasher) text(parts ...string) {
	for _, part := range parts {
		h.number(uint64(len(part)))
		h.Write([]byte(part))
	}
}

func (h hasher) sum() string { return hex.EncodeToString(h.Sum(nil)) }
