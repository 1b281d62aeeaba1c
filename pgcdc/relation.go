package pgcdc

// Identity is a relation's replica identity (pg_class.relreplident).
type Identity byte

const (
	IdentityDefault Identity = 'd' // the primary key
	IdentityFull    Identity = 'f' // every column
	IdentityIndex   Identity = 'i' // the columns of a chosen unique index
	IdentityNothing Identity = 'n'
)

// Relation is a relation's shape as a Relation message states it at one point of the WAL. It is never changed.
type Relation struct {
	OID      uint32
	Schema   string
	Name     string
	Identity Identity
	Columns  []RelationColumn
}

// RelationColumn is one column of a Relation. Key marks the identity's columns; with identity FULL all are marked.
type RelationColumn struct {
	Name    string
	TypeOID uint32
	TypeMod int32
	Key     bool
}

// Table is what the catalogue says of one published relation at one look.
type Table struct {
	OID         uint32
	Schema      string
	Name        string
	Relfilenode uint32 // pg_relation_filenode(): 0 when it has no storage
	Kind        byte   // pg_class.relkind: 'r' table, 'p' partitioned
	Persistence byte   // pg_class.relpersistence: 'p', 'u', 't'
	Identity    Identity
	Columns     []Column // the published ones, by attnum; generated ones are left out unless published
	// Key holds the indexes into Columns of the primary key, in key order; empty when there is none.
	Key []int
	// IdentityKey holds the indexes into Columns that name the old row in the stream: the primary key's for
	// IdentityDefault, the index's for IdentityIndex, all for IdentityFull, none otherwise.
	IdentityKey []int
	// Unsupported is why this table cannot be mirrored yet (partitioned, row filter, column list, row security, …) and
	// what to do; empty when it can.
	Unsupported string
	// Fingerprint is equal for two looks exactly if oid, name, persistence, identity, every pg_attribute row and every
	// enum label of the column types are. Relfilenode is not part of it.
	Fingerprint string
}

// Column is one column of a Table.
type Column struct {
	AttNum  int16
	Name    string
	Type    *Type
	NotNull bool
}
