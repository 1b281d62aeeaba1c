package pgcdc

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Leaf is one of the tables that hold the rows of a partitioned table, on whatever level, as a look shows it. The stream sends its rows as
// those of the partitioned table; of what becomes of the leaf itself it says nothing.
type Leaf struct {
	OID         uint32
	Relfilenode uint32
	// Path names the rows of pg_inherits by which it belongs to the table, and their versions: equal in two looks exactly if it belonged to the
	// table all the time between.
	Path string
	// Fresh says that no row was ever in it but while it belonged to the table, as far as its storage tells: it and all levels above it were made as partitions
	// (CREATE TABLE … PARTITION OF) and never detached, and it has the storage that it was made with.
	Fresh bool
	// WrittenBy is the transaction that wrote its row of pg_class, as Table.WrittenBy.
	WrittenBy uint32

	schema, name      string
	above             string // qualified, of the table that it is a partition of
	kind, persistence byte
	identity          Identity
	identityColumns   []string // of the index that is its identity; none when there is none
	identified        bool     // it has an identity, so that the server lets updates and deletes through
	directly          bool     // the role may read it by its own name, all rows
}

func (l *Leaf) qualified() string { return qualified(l.schema, l.name) }

// original says that it has the storage that its table was made with, whose number is the table's.
func (l *Leaf) original() bool { return l.Relfilenode == l.OID }

// leafMissing is what the leaves say of one column that was added later.
type leafMissing struct {
	leaves, values int // how many have such a value, and how many different ones they are
	value          *string
}

// treeSQL is a WITH clause: tree has everything below the given partitioned tables, each with its path. A row of pg_attribute that says of a column
// that it is inherited and was written by the very command that wrote those of the system columns was written by the CREATE TABLE: ATTACH and DETACH
// PARTITION write these rows again (MergeAttributesIntoExisting and RemoveInheritance in tablecmds.c). xmax 0: nobody has tried to write it since, which would hide cmin.
func treeSQL(roots []uint32) string {
	return `WITH RECURSIVE tree(root, member, above, path, born) AS (
			SELECT c.oid, c.oid, 0::oid, '', true FROM pg_class c WHERE c.oid IN (` + joinOIDs(roots) + `)
			UNION ALL
			SELECT tree.root, i.inhrelid, i.inhparent, tree.path || i.inhparent || '@' || i.xmin || ' ', tree.born AND EXISTS (
				SELECT FROM pg_attribute s JOIN pg_attribute a ON a.attrelid = s.attrelid AND a.xmin = s.xmin AND a.cmin = s.cmin
				WHERE s.attrelid = i.inhrelid AND s.attnum = -1 AND s.xmax = 0 AND a.attnum > 0 AND a.attinhcount > 0 AND a.xmax = 0)
			FROM tree JOIN pg_inherits i ON i.inhparent = tree.member AND NOT i.inhdetachpending
		)`
}

// readLeaves reads the leaves of partitioned tables, by OID.
func (l *looker) readLeaves(roots []uint32) (map[uint32][]Leaf, error) {
	found := map[uint32][]Leaf{}
	err := l.rows(treeSQL(roots)+`
		SELECT tree.root, c.oid, c.relfilenode, tree.path, tree.born, c.xmin, n.nspname, c.relname, an.nspname, ac.relname, c.relkind, c.relpersistence, c.relreplident,
			coalesce(has_schema_privilege(n.oid, 'USAGE'), false), coalesce(has_table_privilege(c.oid, 'SELECT'), false), coalesce(row_security_active(c.oid), false),
			(SELECT json_agg(a.attname) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
				WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
					AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END)
		FROM tree JOIN pg_class c ON c.oid = tree.member AND c.relkind <> 'p' JOIN pg_namespace n ON n.oid = c.relnamespace
			JOIN pg_class ac ON ac.oid = tree.above JOIN pg_namespace an ON an.oid = ac.relnamespace
		ORDER BY tree.root, c.oid`, func(r *rowReader) error {
		root := r.oid()
		leaf := Leaf{OID: r.oid(), Relfilenode: r.oid(), Path: r.text(), Fresh: r.bool(), WrittenBy: r.oid(), schema: r.text(), name: r.text()}
		leaf.above = qualified(r.text(), r.text())
		leaf.kind, leaf.persistence, leaf.identity = r.char(), r.char(), Identity(r.char())
		usable, selectable, secured := r.bool(), r.bool(), r.bool()
		leaf.directly = usable && selectable && !secured
		if columns := r.optional(); columns != nil {
			if err := json.Unmarshal([]byte(*columns), &leaf.identityColumns); err != nil {
				return malformedf("an index's columns that are none")
			}
		}
		leaf.Fresh = leaf.Fresh && leaf.original()
		leaf.identified = leaf.identity == IdentityFull || len(leaf.identityColumns) > 0
		found[root] = append(found[root], leaf)
		return nil
	})
	return found, err
}

// leaves gives partitioned tables their leaves and what these say of columns that were added later: the partitioned table itself has no rows, and no value for them.
func (l *looker) leaves(relations map[uint32]*relationRow) error {
	var roots []uint32
	for oid, r := range relations {
		if r.table.Kind == 'p' {
			roots = append(roots, oid)
		}
	}
	if len(roots) == 0 {
		return nil
	}
	slices.Sort(roots)
	found, err := l.readLeaves(roots)
	if err != nil {
		return err
	}
	for _, oid := range roots {
		r := relations[oid]
		r.table.Leaves, r.missing, r.unnoticing = found[oid], map[string]leafMissing{}, l.version < 15
	}
	return l.rows(treeSQL(roots)+`, missing(root, name, value) AS (
			SELECT tree.root, a.attname, (a.attmissingval::text::text[])[1]
			FROM tree JOIN pg_attribute a ON a.attrelid = tree.member AND a.attnum > 0 AND a.atthasmissing AND NOT a.attisdropped
		) SELECT root, name, count(*), count(DISTINCT value), min(value) FROM missing GROUP BY root, name`, func(r *rowReader) error {
		if relation := relations[r.oid()]; relation != nil {
			relation.missing[r.text()] = leafMissing{int(r.int(32)), int(r.int(32)), r.optional()}
		}
		return nil
	})
}

// missingInLeaves is what a column of a partitioned table shows in rows that were written before it was added; known is false when leaves differ in
// that, or some do not say.
func (r *relationRow) missingInLeaves(column string) (value *string, known bool) {
	m := r.missing[column]
	return m.value, m.leaves == 0 || m.leaves == len(r.table.Leaves) && m.values == 1
}

// unsupportedLeaf is why the table cannot be mirrored because of one of its leaves and what to do, or empty.
func (r *relationRow) unsupportedLeaf() string {
	for i := range r.table.Leaves {
		leaf := &r.table.Leaves[i]
		reason, fix := leaf.unsupported()
		if reason == "" {
			reason, fix = r.unlikeIdentity(leaf)
		}
		if reason != "" {
			return "its partition " + leaf.qualified() + " " + reason + "; run " + strings.Join(fix, " and ")
		}
	}
	return ""
}

// unsupported is why the stream does not bring a leaf's rows, and the statements that repair it.
func (l *Leaf) unsupported() (reason string, fix []string) {
	switch {
	case l.kind != 'r':
		return "is a foreign table, whose rows are not in the WAL", []string{"ALTER TABLE " + l.above + " DETACH PARTITION " + l.qualified()}
	case l.persistence != 'p':
		return "is not in the WAL", []string{"ALTER TABLE " + l.qualified() + " SET LOGGED"}
	}
	return "", nil
}

// unlikeIdentity is why the old rows that a leaf's updates and deletes bring do not name rows of the table, and the statements that repair it. They have
// the columns of the leaf's identity, while the Relation message shows the table's. Of a leaf without an identity the server refuses updates and deletes.
func (r *relationRow) unlikeIdentity(leaf *Leaf) (reason string, fix []string) {
	t := &r.table
	if !leaf.identified || !slices.ContainsFunc(r.published.by, func(b publishedBy) bool { return b.update || b.delete }) {
		return "", nil
	}
	key, whole := t.RowKey()
	full := []string{"ALTER TABLE " + leaf.qualified() + " REPLICA IDENTITY FULL"}
	switch {
	case len(key) == 0:
		return "lets updates and deletes through, and the table has no replica identity by which their rows could be found",
			append([]string{"ALTER TABLE " + qualified(t.Schema, t.Name) + " REPLICA IDENTITY FULL"}, full...)
	case leaf.identity == IdentityFull:
		return "", nil
	case whole:
		return "does not have the table's replica identity FULL", full
	}
	for _, k := range key {
		if name := t.Columns[k].Name; !slices.Contains(leaf.identityColumns, name) {
			return "has a replica identity without the column " + quoteIdent(name) + ", by which the table's rows are found", full
		}
	}
	return "", nil
}

// sameLeaves says whether a partitioned table had the same leaves in two looks, with the same storage.
func sameLeaves(a, b []Leaf) bool {
	return slices.EqualFunc(a, b, func(a, b Leaf) bool { return a.OID == b.OID && a.Relfilenode == b.Relfilenode && a.Path == b.Path })
}

// leaf finds a leaf by its OID; nil when it is none.
func (t *Table) leaf(oid uint32) *Leaf {
	if i := slices.IndexFunc(t.Leaves, func(l Leaf) bool { return l.OID == oid }); i >= 0 {
		return &t.Leaves[i]
	}
	return nil
}

// leavesDirectly says whether the role may read every leaf by its own name. It need not: the right to read the partitioned table is one to read it whole.
func (t *Table) leavesDirectly() bool {
	return !slices.ContainsFunc(t.Leaves, func(l Leaf) bool { return !l.directly })
}

// LeafKept says what is certain of a leaf's rows since a look with the given horizon (0: unknown). Either it has other storage than it had then: its rows were
// kept if one of them is older than the horizon, for a TRUNCATE leaves none and an ALTER TABLE writes all anew, while VACUUM FULL, CLUSTER and SET TABLESPACE
// leave each row's xmin as it was. KeptIfTruncated says that a TRUNCATE took them: an ALTER TABLE would have left rows of its own, unless it was not the last to write the
// row of pg_class, or found none. Or it has arrived since, and not as a new one (Leaf.Fresh): then no row came with it if it has none, and has the storage that it was made with.
// A leaf that the role may not read by its own name is unknown.
func (s *Source) LeafKept(ctx context.Context, leaf *Leaf, arrived bool, since uint64) (Kept, error) {
	if !leaf.directly || arrived && !leaf.original() {
		return KeptUnknown, nil
	}
	return s.askOfRows(ctx, leaf.qualified(), func(l *looker) (Kept, error) {
		if arrived {
			return l.keptIf(KeptCertain, "SELECT NOT EXISTS (SELECT FROM ONLY "+leaf.qualified()+")")
		}
		known, err := l.comparable(since)
		if err != nil || !known {
			return KeptUnknown, err
		}
		kept, err := l.keptIf(KeptCertain, "SELECT EXISTS (SELECT FROM ONLY "+leaf.qualified()+" WHERE age(xmin) > "+ageOf(since)+")")
		if err != nil || kept == KeptCertain {
			return kept, err
		}
		return l.keptIf(KeptIfTruncated, "SELECT "+notByItsWriter(leaf.qualified(), leaf.OID))
	})
}

// keptIf is yes if the source answers the question with yes.
func (l *looker) keptIf(yes Kept, sql string) (kept Kept, err error) {
	err = l.rows(sql, func(r *rowReader) error {
		if r.bool() {
			kept = yes
		}
		return nil
	})
	return kept, err
}

// checkLeaves compares a partitioned table's leaves as the snapshot of the connection sees them with what table was looked at with, and what the lock that was taken
// holds with what is now: a leaf alone, or, with leaf nil, all of them.
func (s *Source) checkLeaves(ctx context.Context, conn *pgconn.PgConn, table *Table, leaf *Leaf) error {
	l := looker{ctx: ctx, conn: conn}
	seen, err := l.readLeaves([]uint32{table.OID})
	if err != nil {
		return err
	}
	if !sameLeaves(seen[table.OID], table.Leaves) {
		return fmt.Errorf("%w (it has other partitions)", ErrRewritten)
	}
	if leaf == nil {
		return s.idle.with(ctx, func(other *pgconn.PgConn) error {
			l := looker{ctx: ctx, conn: other}
			now, err := l.readLeaves([]uint32{table.OID})
			if err == nil && slices.ContainsFunc(table.Leaves, func(was Leaf) bool {
				return !slices.ContainsFunc(now[table.OID], func(is Leaf) bool { return sameLeaves([]Leaf{was}, []Leaf{is}) })
			}) {
				err = fmt.Errorf("%w (a partition has left or has other storage)", ErrRewritten)
			}
			return err
		})
	}
	if err := checkStorage(ctx, conn, leaf.OID, leaf.qualified()); err != nil {
		return err
	}
	shape, err := readShape(ctx, conn, leaf.OID)
	if err != nil {
		return err
	}
	return s.idle.with(ctx, func(other *pgconn.PgConn) error {
		current, err := readShape(ctx, other, leaf.OID)
		if err == nil && !slices.Equal(shape, current) {
			err = fmt.Errorf("%w (its columns are others)", ErrRewritten)
		}
		return err
	})
}

// chosenLeaves is the condition that leaves out a leaf that was attached after the snapshot: a scan of the partitioned table reads those of now.
func (t *Table) chosenLeaves() string {
	oids := make([]uint32, len(t.Leaves))
	for i := range t.Leaves {
		oids[i] = t.Leaves[i].OID
	}
	if len(oids) == 0 {
		return "false"
	}
	return "tableoid = ANY ('{" + strings.ReplaceAll(joinOIDs(oids), " ", "") + "}'::oid[])"
}
