package pgcdc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// hiddenColumn is the mirror's own column; no source column may have its name.
const hiddenColumn = "_pgmirror_lsn"

// walPosition is SQL for the end of the WAL that has been written (primary) or replayed (standby).
const walPosition = `SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END`

// defaultLookTime is how long a look may take, which takes milliseconds, and seconds where there are thousands of tables. One over a connection that
// nobody answers would keep the mirror from what changes for a quarter of an hour.
const defaultLookTime = 2 * time.Minute

// Look reads the catalogue: every relation of the publications as one snapshot sees them. Everything is read from tables of
// the catalogue and not by functions that look into the server's cache, because the cache may be newer than the snapshot,
// and a look that mixed the two could take a rewriting ALTER for a VACUUM FULL.
//
// Tables of a publication that leaves out an operation cannot be mirrored, unless that is accepted: each says so. A missing publication is an error.
func (s *Source) Look(ctx context.Context) (*Catalog, error) {
	var catalog *Catalog
	limited, cancel := context.WithTimeout(ctx, s.lookTime)
	defer cancel()
	err := s.idle.with(limited, func(conn *pgconn.PgConn) error {
		var err error
		catalog, err = s.look(limited, conn)
		return err
	})
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w: no answer within %s; is a table of the catalogue locked?", ErrSilent, s.lookTime)
		}
		return nil, fmt.Errorf("look at the catalogue: %w", err)
	}
	return catalog, nil
}

func (s *Source) look(ctx context.Context, conn *pgconn.PgConn) (*Catalog, error) {
	checked, err := readLSN(ctx, conn)
	if err != nil {
		return nil, err
	}
	if _, err := query(ctx, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
		return nil, err
	}
	seen, err := snapshotSize(ctx, conn)
	if err != nil {
		return nil, err
	}
	l := looker{ctx: ctx, conn: conn, version: majorVersion(conn.ParameterStatus("server_version")), forms: s.cfg.Types}
	publications, err := s.publications(ctx, conn, l.version)
	if err != nil && (errors.Is(err, ErrPublicationMissing) || !errors.Is(err, ErrPublicationPartial)) {
		return nil, err
	}
	partial := err != nil
	tables, err := l.tables(publications, partial)
	if err != nil {
		return nil, err
	}
	path, err := l.searchPath()
	if err != nil {
		return nil, err
	}
	if _, err := query(ctx, conn, "COMMIT"); err != nil {
		return nil, err
	}
	after, err := readLSN(ctx, conn)
	if err != nil {
		return nil, err
	}
	return &Catalog{LSN: after, CheckedLSN: checked, Snapshot: seen, Tables: tables, SearchPath: path}, nil
}

// snapshotSize counts the transactions whose end the connection's snapshot sees: the ids below its xmax but those in progress. It takes subtransactions in
// progress for ended, as pg_current_snapshot does not list them; whoever is counted stays so.
func snapshotSize(ctx context.Context, conn *pgconn.PgConn) (uint64, error) {
	rows, err := query(ctx, conn, "SELECT pg_snapshot_xmax(s)::text::bigint - (SELECT count(*) FROM pg_snapshot_xip(s)) FROM pg_current_snapshot() s")
	if err != nil {
		return 0, err
	}
	if len(rows) != 1 {
		return 0, malformedf("no snapshot")
	}
	r := rowReader{row: rows[0]}
	size := uint64(r.int(64))
	return size, r.err
}

func readLSN(ctx context.Context, conn *pgconn.PgConn) (LSN, error) {
	rows, err := query(ctx, conn, walPosition)
	if err != nil {
		return 0, err
	}
	if len(rows) != 1 {
		return 0, malformedf("no WAL position")
	}
	r := rowReader{row: rows[0]}
	lsn := r.lsn()
	return lsn, r.err
}

// looker reads one look inside its transaction.
type looker struct {
	ctx     context.Context
	conn    *pgconn.PgConn
	version int  // major
	texts   bool // filters are read as SQL, which waits for locks of their tables
	forms   map[ColumnName]Form
	beneath []string // qualified: published tables that were passed over, because they are sent as the rows of a table above
}

// relationRow is what the catalogue says of one published relation, beyond Table.
type relationRow struct {
	table             Table
	readable, secured bool
	published         *published
	forms             map[ColumnName]Form // as configured, for columns of any table
	attributes        []attributeRow
	indexes           []indexRow
	// Of a partitioned table:
	missing    map[string]leafMissing // by column, where leaves have one
	unnoticing bool                   // the server does not notice when a table becomes a partition
}

// attributeRow is a row of pg_attribute.
type attributeRow struct {
	attNum             int16
	name, format       string
	typeOID, collation uint32
	typeMod            int32
	notNull, dropped   bool
	generated          byte
	version            string  // xmin
	missing            *string // attmissingval
}

// indexRow is a row of pg_index, of a primary key or the chosen identity.
type indexRow struct {
	primary, identity, immediate, valid bool
	keys                                []int16 // attnums
}

func (l *looker) rows(sql string, each func(*rowReader) error) error {
	rows, err := query(l.ctx, l.conn, sql)
	if err != nil {
		return err
	}
	for _, row := range rows {
		r := rowReader{row: row}
		if err := each(&r); err != nil {
			return err
		}
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

// tables reads the published relations as the mirror sees them. With partial, those of which an operation may be left out are refused.
func (l *looker) tables(publications []publicationRow, partial bool) ([]Table, error) {
	relations, err := l.complete(publications)
	if err != nil || len(relations) == 0 {
		return nil, err
	}
	horizon, err := l.horizon()
	if err != nil {
		return nil, err
	}
	tables := make([]Table, len(relations))
	for i, r := range relations {
		r.table.Horizon = horizon
		r.table.NoDeletes, r.table.NoTruncates = r.published.neverSends("delete", publications), r.published.neverSends("truncate", publications)
		if partial && r.table.Unsupported == "" {
			r.table.Unsupported = r.published.leftOut(publications)
		}
		tables[i] = r.table
	}
	return tables, nil
}

// horizon is below every transaction that has not ended for the look's snapshot.
func (l *looker) horizon() (xid uint64, err error) {
	err = l.rows("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint", func(r *rowReader) error {
		xid = uint64(r.int(64))
		return nil
	})
	return xid, err
}

// complete reads the published relations whole, by schema and name.
func (l *looker) complete(publications []publicationRow) ([]*relationRow, error) {
	relations, err := l.relations(publications)
	if err != nil || len(relations) == 0 {
		return nil, err
	}
	oids := make([]uint32, len(relations))
	byOID := make(map[uint32]*relationRow, len(relations))
	for i, r := range relations {
		oids[i] = r.table.OID
		byOID[r.table.OID] = r
	}
	if err := l.attributes(oids, byOID); err != nil {
		return nil, err
	}
	if err := l.indexes(oids, byOID); err != nil {
		return nil, err
	}
	if err := l.leaves(byOID); err != nil {
		return nil, err
	}
	types, err := l.types(oids)
	if err != nil {
		return nil, err
	}
	catalog := newTypeCatalog(types)
	for _, r := range relations {
		r.forms = l.forms
		r.complete(catalog)
	}
	return relations, nil
}

// relations reads the published relations, by schema and name.
func (l *looker) relations(publications []publicationRow) ([]*relationRow, error) {
	names := make([]string, len(publications))
	for i, p := range publications {
		names[i] = p.name
	}
	sql := `SELECT c.oid, n.nspname, c.relname, c.relfilenode, c.relkind, c.relpersistence, c.relreplident, c.reltoastrelid, c.xmin,
			EXISTS (SELECT FROM pg_publication_rel m JOIN pg_publication b ON b.oid = m.prpubid
				WHERE m.prrelid = c.oid AND b.pubname IN (` + quoteLiterals(names) + `)),
			coalesce(has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE'), false),
			coalesce(row_security_active(c.oid), false)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid IN (SELECT relation FROM (` + publishedTables(l.version, names) + `) p)
		ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"`
	var relations []*relationRow
	var oids []uint32
	err := l.rows(sql, func(r *rowReader) error {
		row := &relationRow{
			table: Table{
				OID: r.oid(), Schema: r.text(), Name: r.text(), Relfilenode: r.oid(), Kind: r.char(), Persistence: r.char(),
				Identity: Identity(r.char()), Toast: r.oid(), WrittenBy: r.oid(), StaysLogged: r.bool(),
			},
			readable: r.bool(), secured: r.bool(),
		}
		relations, oids = append(relations, row), append(oids, row.table.OID)
		return nil
	})
	if err != nil || len(relations) == 0 {
		return nil, err
	}
	how, err := readPublished(l.ctx, l.conn, names, oids, l.texts)
	if err != nil {
		return nil, err
	}
	// A filter of a table that was dropped since the snapshot has no text: the next look knows it no more. What is sent as the rows of a table above is no
	// table of its own, whichever publication names it.
	return slices.DeleteFunc(relations, func(r *relationRow) bool {
		r.published = how[r.table.OID]
		if r.published.underRoot {
			l.beneath = append(l.beneath, qualified(r.table.Schema, r.table.Name))
		}
		return len(r.published.by) == 0 || r.published.vanished || r.published.underRoot
	}), nil
}

// attributesSQL reads the rows of pg_attribute of some relations. A NOT NULL constraint that was never validated
// (PostgreSQL 18) does not count.
func attributesSQL(oids []uint32) string {
	return `SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation,
			a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = a.attrelid AND k.contype = 'n'
				AND k.conkey = ARRAY[a.attnum] AND NOT k.convalidated),
			a.attisdropped, a.attgenerated, a.xmin,
			format_type(a.atttypid, a.atttypmod),
			CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END
		FROM pg_attribute a WHERE a.attnum > 0 AND a.attrelid IN (` + joinOIDs(oids) + `) ORDER BY a.attrelid, a.attnum`
}

func readAttribute(r *rowReader) attributeRow {
	return attributeRow{
		attNum: int16(r.int(16)), name: r.text(), typeOID: r.oid(), typeMod: int32(r.int(32)), collation: r.oid(),
		notNull: r.bool(), dropped: r.bool(), generated: r.char(), version: r.text(), format: r.text(),
		missing: r.optional(),
	}
}

func (l *looker) attributes(oids []uint32, relations map[uint32]*relationRow) error {
	return l.rows(attributesSQL(oids), func(r *rowReader) error {
		relation := relations[r.oid()]
		if relation == nil {
			return malformedf("a column of a table that was not asked for")
		}
		relation.attributes = append(relation.attributes, readAttribute(r))
		return nil
	})
}

func (l *looker) indexes(oids []uint32, relations map[uint32]*relationRow) error {
	sql := `SELECT indrelid, indisprimary, indisreplident, indimmediate, indisvalid, indnkeyatts, indkey
		FROM pg_index WHERE (indisprimary OR indisreplident) AND indrelid IN (` + joinOIDs(oids) + `)
		ORDER BY indrelid, indisprimary, indkey::text`
	return l.rows(sql, func(r *rowReader) error {
		relation := relations[r.oid()]
		index := indexRow{primary: r.bool(), identity: r.bool(), immediate: r.bool(), valid: r.bool()}
		count := int(r.int(16))
		for _, text := range strings.Fields(r.text()) { // the columns of INCLUDE come last
			if len(index.keys) == count {
				break
			}
			one := rowReader{row: [][]byte{[]byte(text)}}
			index.keys = append(index.keys, int16(one.int(16)))
			if one.err != nil {
				return one.err
			}
		}
		if relation == nil {
			return malformedf("an index of a table that was not asked for")
		}
		relation.indexes = append(relation.indexes, index)
		return nil
	})
}

// types reads every type that the relations' columns have, with all types that values of them are made of.
func (l *looker) types(oids []uint32) ([]typeRow, error) {
	need := `WITH RECURSIVE need(oid) AS (
			SELECT DISTINCT atttypid FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped AND attrelid IN (` + joinOIDs(oids) + `)
			UNION
			SELECT v.oid FROM need JOIN pg_type t ON t.oid = need.oid, LATERAL (
				VALUES (t.typbasetype), (t.typelem)
				UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE r.rngtypid = t.oid
				UNION ALL SELECT r.rngtypid FROM pg_range r WHERE r.rngmultitypid = t.oid
				UNION ALL SELECT a.atttypid FROM pg_attribute a WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
			) v(oid) WHERE v.oid <> 0
		) `
	var types []typeRow
	index := map[uint32]int{}
	err := l.rows(need+typesSQL+` FROM need JOIN pg_type t ON t.oid = need.oid JOIN pg_namespace n ON n.oid = t.typnamespace ORDER BY t.oid`, func(r *rowReader) error {
		row := readType(r)
		index[row.OID] = len(types)
		types = append(types, row)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = l.rows(need+`SELECT e.enumtypid, e.enumlabel FROM need JOIN pg_enum e ON e.enumtypid = need.oid ORDER BY e.enumtypid, e.enumsortorder`,
		func(r *rowReader) error {
			i, ok := index[r.oid()]
			if !ok {
				return malformedf("a label of an enum that was not asked for")
			}
			types[i].EnumLabels = append(types[i].EnumLabels, r.text())
			return nil
		})
	if err != nil {
		return nil, err
	}
	err = l.rows(need+`SELECT t.oid, a.attnum, a.atttypid, a.atttypmod FROM need JOIN pg_type t ON t.oid = need.oid AND t.typtype = 'c'
			JOIN pg_attribute a ON a.attrelid = t.typrelid WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY t.oid, a.attnum`,
		func(r *rowReader) error {
			i, ok := index[r.oid()]
			if !ok {
				return malformedf("an attribute of a composite type that was not asked for")
			}
			types[i].Attributes = append(types[i].Attributes, typeAttribute{int16(r.int(16)), r.oid(), int32(r.int(32))})
			return nil
		})
	return types, err
}

// typesSQL selects what readType reads, from pg_type t and pg_namespace n. hstore's send function writes lengths in the
// server's encoding before text in the client's: it is of use only where they are the same.
const typesSQL = `SELECT t.oid, t.typname, n.nspname, t.typtype, t.typcategory, t.typbasetype, t.typtypmod,
			CASE WHEN t.typsubscript = 'pg_catalog.array_subscript_handler'::regproc THEN t.typelem ELSE 0 END, t.typdelim,
			t.typsend <> 0 AND (t.typname <> 'hstore' OR getdatabaseencoding() = 'UTF8'),
			coalesce((SELECT e.extname FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
				WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'), ''),
			coalesce((SELECT r.rngsubtype FROM pg_range r WHERE r.rngtypid = t.oid), (SELECT r.rngtypid FROM pg_range r WHERE r.rngmultitypid = t.oid), 0)`

func readType(r *rowReader) typeRow {
	return typeRow{
		OID: r.oid(), Name: r.text(), Schema: r.text(), Kind: r.char(), Category: r.char(), Base: r.oid(), BaseMod: int32(r.int(32)),
		Elem: r.oid(), Delim: r.char(), HasSend: r.bool(), Extension: r.text(), Subtype: r.oid(),
	}
}
