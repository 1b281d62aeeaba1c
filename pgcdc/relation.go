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
	Relfilenode uint32 // pg_class.relfilenode as the look's snapshot sees it: 0 when it has no storage
	Kind        byte   // pg_class.relkind: 'r' table, 'p' partitioned, whose changes are sent as its own (publish_via_partition_root)
	Persistence byte   // pg_class.relpersistence: 'p', 'u', 't'
	Identity    Identity
	Columns     []Column // the published ones, by attnum: without what a column list leaves out, and generated ones only if published
	// Generated names the generated columns that are left out.
	Generated []string
	// Key holds the indexes into Columns of the primary key, in key order; empty when there is none or a column list leaves a column of it out.
	Key []int
	// KeyDeferrable says that the primary key is checked at the end of the statement or of the transaction: inside one, two
	// rows may have it, so it finds no row.
	KeyDeferrable bool
	// IdentityKey holds the indexes into Columns that name the old row in the stream: the primary key's for
	// IdentityDefault, the index's for IdentityIndex, all for IdentityFull, none otherwise.
	IdentityKey []int
	// Unsupported is why this table cannot be mirrored yet (row security, a type, …) and what to do; empty when it can.
	Unsupported string
	// Fingerprint is equal for two looks exactly if oid, name, persistence, identity, what the pg_attribute row of every column that no list
	// leaves out says of the rows, the form that the configuration gives it, and every enum label and composite attribute of the column types are, and if the table was published in one and the same way all
	// the time between them, row filter and column list included: taken out and put back it has another one. Relfilenode is not part of it, nor
	// are nullability, statistics, storage, grants and the default of rows to come.
	Fingerprint string
	// Frame is the part of Fingerprint that is no column's: with an equal one the table differs by what its columns say of themselves alone. It is
	// Fingerprint itself when a column list chooses the columns.
	Frame string
	// LastAttNum is the highest attnum that a column of the relation has or had, LastDropped that of the dropped ones, or 0.
	LastAttNum, LastDropped int16
	// AttributeVersions is equal for two looks exactly if no pg_attribute row of the relation was written in between. When
	// it and Relfilenode both changed, the rows may have been rewritten, whatever Fingerprint says (ALTER … TYPE t USING f(c) with
	// the type that c has): RowsKept tells. Relfilenode alone is VACUUM FULL, CLUSTER or TRUNCATE, or, unless StaysLogged, SET UNLOGGED and back;
	// AttributeVersions alone means nothing.
	AttributeVersions string
	// Toast is the OID of the TOAST table, 0 without one. VACUUM FULL, CLUSTER and TRUNCATE keep it; an ALTER TABLE that writes the rows anew
	// makes another.
	Toast uint32
	// StaysLogged says that nobody can have made the table UNLOGGED for a while, which leaves no trace but another Relfilenode: the server refuses
	// it for a table that a publication names (ATPrepChangePersistence in tablecmds.c), not for one that is published with its schema, with
	// all tables, or as a partition.
	StaysLogged bool
	// WrittenBy is the transaction, without its epoch, that wrote the row of pg_class: of all that gave the table other storage the last, or one
	// after it.
	WrittenBy uint32
	// Horizon is a transaction's number (64 bits): all below it had ended when the look was taken.
	Horizon uint64
	// NoDeletes and NoTruncates say that no publication of it sends these (Config.PartialPublish): whoever follows the stream keeps rows that the source deletes.
	NoDeletes, NoTruncates bool
	// Leaves are the tables that hold the rows of a partitioned table, by OID; none of any other.
	Leaves []Leaf

	attributeXIDs []string // that wrote the rows of pg_attribute
	published     string   // published.identity
}

// Column is one column of a Table.
type Column struct {
	AttNum  int16
	Name    string
	Type    *Type
	Form    string // what the configuration makes of it; empty where that changes nothing
	NotNull bool
	// Fingerprint is equal for two looks exactly if what the pg_attribute row says of the values is, their types' included: everything but the name.
	Fingerprint string
	// Missing is what rows have that were written before the column was added, as its type prints it, nil for NULL
	// (pg_attribute.attmissingval). It means nothing once the rows are written anew.
	Missing *string
	// MissingUnknown says that the leaves of a partitioned table differ in Missing.
	MissingUnknown bool
}

// RowKey is how an old row is found, as indexes into Columns: by the primary key, where the identity is FULL and there is one that always names one row, else by the
// columns of the identity; whole says that these are all columns, of which several rows may have the same. Empty when no old row can be named.
func (t *Table) RowKey() (key []int, whole bool) {
	switch {
	case t.Identity == IdentityFull && len(t.Key) > 0 && !t.KeyDeferrable:
		return t.Key, false
	case t.Identity == IdentityFull:
		return t.IdentityKey, true
	}
	return t.IdentityKey, false
}
