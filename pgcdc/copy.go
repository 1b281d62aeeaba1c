package pgcdc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Copy sends every row of a table that the exported snapshot sees and that the publications' row filters let through, in binary where the
// type allows it, else as the text of the type's output function. The tuple is lent until row returns; an error of row ends the copy and is wrapped. It ends with
// ErrRewritten when the relation's storage or columns are no longer the snapshot's or no longer those of table, or when it was published in
// another way at the snapshot than when table was looked at: what the stream brings would not fit the copy. Copies
// of several tables may run at once, each on a connection of its own.
func (s *Source) Copy(ctx context.Context, snapshot ExportedSnapshot, table *Table, row func(Tuple) error) error {
	if err := s.copyTable(ctx, snapshot, table, "", row); err != nil {
		return fmt.Errorf("copy %s: %w", qualified(table.Schema, table.Name), err)
	}
	return nil
}

// copyTable copies the rows for which the condition where holds; all of them when it is empty.
func (s *Source) copyTable(ctx context.Context, snapshot ExportedSnapshot, table *Table, where string, row func(Tuple) error) error {
	return s.copyPart(ctx, snapshot, table, nil, where, "", row)
}

// copyPart is copyTable with other settings for the COPY itself, and with leaf of that part of a partitioned table.
func (s *Source) copyPart(ctx context.Context, snapshot ExportedSnapshot, table *Table, leaf *Leaf, where, settings string, row func(Tuple) error) error {
	return s.copying.with(ctx, func(conn *pgconn.PgConn) error {
		if err := s.copyOver(ctx, conn, snapshot, table, leaf, where, settings, row); err != nil {
			return err
		}
		_, err := query(ctx, conn, "COMMIT") // lets go of the lock
		return err
	})
}

// copyOver is copyPart over a connection, in a transaction that it leaves open.
func (s *Source) copyOver(ctx context.Context, conn *pgconn.PgConn, snapshot ExportedSnapshot, table *Table, leaf *Leaf, where, settings string, row func(Tuple) error) error {
	if err := useSnapshot(ctx, conn, snapshot); err != nil {
		return err
	}
	// From the lock on, nobody can rewrite or alter the table until we are done; what was done before is seen by comparing.
	from := "ONLY " + qualified(table.Schema, table.Name)
	switch {
	case leaf != nil:
		from = "ONLY " + leaf.qualified()
	case table.Kind == 'p': // the lock is on all leaves too
		from = qualified(table.Schema, table.Name)
	}
	_, err := query(ctx, conn, "LOCK TABLE "+from+" IN ACCESS SHARE MODE")
	switch sqlState(err) {
	case "42P01", "3F000", "42809": // no such table, no such schema, not a table
		return fmt.Errorf("%w (it was dropped or renamed)", ErrRewritten)
	}
	if err != nil {
		return err
	}
	published, err := s.checkUnchanged(ctx, conn, table, leaf)
	if err != nil {
		return err
	}
	if settings != "" {
		if _, err := query(ctx, conn, settings); err != nil {
			return err
		}
	}
	filter, _ := published.condition()
	leaves := ""
	if table.Kind == 'p' && leaf == nil {
		leaves = table.chosenLeaves()
	}
	statement, formats := copyStatement(table, from, filter, where, leaves)
	parser := newCopyParser(formats, row)
	if _, err := conn.CopyTo(ctx, parser, statement); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return parser.finish()
}

// useSnapshot begins a transaction that sees what the exported snapshot sees.
func useSnapshot(ctx context.Context, conn *pgconn.PgConn, snapshot ExportedSnapshot) error {
	_, err := query(ctx, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT "+quoteLiteral(snapshot.Name))
	switch sqlState(err) {
	case "22023", "42704", "55000", "58P01": // no such file in pg_snapshots, or its owner has ended
		return fmt.Errorf("%w: %w", ErrSnapshotLost, err)
	}
	return err
}

// checkUnchanged compares the locked table as the snapshot sees it with what it is now. A relation rewritten after the
// snapshot reads as empty under it, without any error; https://www.postgresql.org/docs/current/mvcc-caveats.html. The
// columns of now are read on another connection, since ours sees the catalogue of the snapshot. Of a partitioned table, the lock is on leaf, or on everything. It returns how
// the table is published for the snapshot; the filters' text has the names of now, as the COPY must.
func (s *Source) checkUnchanged(ctx context.Context, conn *pgconn.PgConn, table *Table, leaf *Leaf) (*published, error) {
	if err := checkStorage(ctx, conn, table.OID, qualified(table.Schema, table.Name)); err != nil {
		return nil, err
	}
	if table.Kind == 'p' {
		if err := s.checkLeaves(ctx, conn, table, leaf); err != nil {
			return nil, err
		}
	}
	how, err := readPublished(ctx, conn, s.cfg.Publications, []uint32{table.OID}, true)
	if err != nil {
		return nil, err
	}
	published := how[table.OID]
	if published.identity != table.published || published.vanished {
		return nil, fmt.Errorf("%w (it is published in another way)", ErrRewritten)
	}
	seen, err := readShape(ctx, conn, table.OID)
	if err != nil {
		return nil, err
	}
	var current []attributeRow
	err = s.copying.with(ctx, func(other *pgconn.PgConn) (err error) {
		current, err = readShape(ctx, other, table.OID)
		return err
	})
	if err != nil {
		return nil, err
	}
	if columns, _ := published.columns(current); !slices.Equal(seen, current) || !shapeFits(table, current, columns) {
		return nil, fmt.Errorf("%w (its columns are others)", ErrRewritten)
	}
	return published, nil
}

// checkStorage compares the name and the storage of a relation as the snapshot sees them with what they are now. A partitioned table has no storage.
func checkStorage(ctx context.Context, conn *pgconn.PgConn, oid uint32, name string) error {
	rows, err := query(ctx, conn, fmt.Sprintf("SELECT relfilenode, coalesce(pg_relation_filenode(oid), 0), coalesce(to_regclass(%s)::oid = oid, false) FROM pg_class WHERE oid = %d",
		quoteLiteral(name), oid))
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("%w (the snapshot does not have it)", ErrRewritten)
	}
	r := rowReader{row: rows[0]}
	then, now, same := r.oid(), r.oid(), r.bool()
	if r.err == nil && (!same || then != now) {
		return fmt.Errorf("%w (its storage is another)", ErrRewritten)
	}
	return r.err
}

// readShape reads the columns of a table, without what says nothing of rows that exist.
func readShape(ctx context.Context, conn *pgconn.PgConn, oid uint32) ([]attributeRow, error) {
	rows, err := query(ctx, conn, attributesSQL([]uint32{oid}))
	if err != nil {
		return nil, err
	}
	var shape []attributeRow
	for _, row := range rows {
		r := rowReader{row: row}
		r.oid() // attrelid
		a := readAttribute(&r)
		if r.err != nil {
			return nil, r.err
		}
		a.version, a.format, a.notNull, a.missing = "", "", false, nil
		shape = append(shape, a)
	}
	return shape, nil
}

// shapeFits says whether exactly the columns that Look found are published.
func shapeFits(table *Table, shape []attributeRow, published map[int16]bool) bool {
	columns := table.Columns
	for _, a := range shape {
		if !published[a.attNum] {
			continue
		}
		if len(columns) == 0 {
			return false
		}
		if c := columns[0]; c.AttNum != a.attNum || c.Name != a.name || c.Type.OID != a.typeOID || c.Type.Mod != a.typeMod {
			return false
		}
		columns = columns[1:]
	}
	return len(columns) == 0
}

// copyStatement makes the COPY of a table's rows in from that meet all conditions (an empty one is none) and says in which format each column comes. IS DISTINCT FROM NULL, because a
// composite value of NULLs IS NULL without being it; format's %s is the type's output function, which a cast to text is
// not always (a char(n) cast to text loses its blanks).
func copyStatement(table *Table, from string, conditions ...string) (string, []Format) {
	var list strings.Builder
	formats := make([]Format, len(table.Columns))
	for i, c := range table.Columns {
		if i > 0 {
			list.WriteString(", ")
		}
		name := quoteIdent(c.Name)
		if c.Type.BinaryOK {
			formats[i] = FormatBinary
			list.WriteString(name)
			continue
		}
		formats[i] = FormatText
		fmt.Fprintf(&list, "CASE WHEN %s IS DISTINCT FROM NULL THEN pg_catalog.format('%%s', %s) END", name, name)
	}
	where := ""
	if conditions = slices.DeleteFunc(conditions, func(c string) bool { return c == "" }); len(conditions) > 0 {
		where = " WHERE " + strings.Join(conditions, " AND ")
	}
	return "COPY (SELECT " + list.String() + " FROM " + from + where + ") TO STDOUT (FORMAT binary)", formats
}
