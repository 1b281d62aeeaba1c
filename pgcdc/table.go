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
		t.Columns = append(t.Columns, Column{
			AttNum: a.attNum, Name: a.name, NotNull: a.notNull, Type: types.resolve(a.typeOID, a.typeMod, a.format),
			Fingerprint: a.fingerprint(types), Missing: a.missing,
		})
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
	case t.Kind == 'p':
		return "partitioned tables are not mirrored yet as one table; run ALTER PUBLICATION … SET (publish_via_partition_root = false) to mirror its partitions"
	case r.published.underRoot:
		return "its changes are sent as those of a partitioned table, which are not mirrored yet; run ALTER PUBLICATION … SET (publish_via_partition_root = false)"
	case r.published.unnoticed:
		return "PostgreSQL 14 does not notice when a table becomes a partition of a published one, and keeps its changes back; run ALTER PUBLICATION … ADD TABLE " + name
	case t.Kind != 'r':
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
	return ""
}

// fingerprint hashes what gives the table's rows their meaning, and how they are published. Of pg_attribute it takes all rows, those of dropped
// columns too, except those that a column list leaves out, but of them not what changes no row and no meaning: nullability, statistics, storage, grants, whether there is a default for rows
// to come, and the value that a column added later has in rows of before (VACUUM FULL writes it into the rows). versions is the xmin of each of these rows.
func (r *relationRow) fingerprint(types *typeCatalog, published map[int16]bool) (contents, versions string) {
	c, v := hasher{sha256.New()}, hasher{sha256.New()}
	enums := map[uint32]bool{}
	r.head(c)
	for _, a := range r.attributes {
		v.text(a.version)
		if r.published.listed() && !published[a.attNum] {
			continue
		}
		a.hash(c)
		c.text(a.name)
		types.enumsOf(a.typeOID, enums)
	}
	c.number(0) // no attnum: the end of the columns
	r.tail(c)
	types.hashEnums(c, enums)
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
func (a *attributeRow) fingerprint(types *typeCatalog) string {
	h := hasher{sha256.New()}
	a.hash(h)
	enums := map[uint32]bool{}
	types.enumsOf(a.typeOID, enums)
	types.hashEnums(h, enums)
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

// hashEnums hashes the labels of enums, in the order of their OIDs.
func (c *typeCatalog) hashEnums(h hasher, enums map[uint32]bool) {
	oids := make([]uint32, 0, len(enums))
	for oid := range enums {
		oids = append(oids, oid)
	}
	slices.Sort(oids)
	for _, oid := range oids {
		labels := c.types[oid].EnumLabels
		h.number(uint64(oid))
		h.number(uint64(len(labels)))
		h.text(labels...)
	}
}

// enumsOf adds the enums that values of a type are made of.
func (c *typeCatalog) enumsOf(oid uint32, enums map[uint32]bool) {
	for range domainDepthMax {
		row, ok := c.types[oid]
		switch {
		case !ok:
			return
		case row.Kind == 'e':
			enums[oid] = true
			return
		case row.Base != 0:
			oid = row.Base
		case row.Elem != 0:
			oid = row.Elem
		default:
			return
		}
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
