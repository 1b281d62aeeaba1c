package pgcdc

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// lockPatience is how long a question about a table's rows waits for an ALTER TABLE or VACUUM FULL that is under way.
const lockPatience = "2s"

// RowsKept says whether it is certain that since a look with the given horizon (0: unknown) the table's rows were changed by nothing that
// the stream does not tell. t is a later look's, whose Relfilenode and AttributeVersions both differ: either a rewriting ALTER TABLE, of which
// the stream says nothing, or one that rewrote nothing (SET NOT NULL, SET STATISTICS, column grants) and a VACUUM FULL, CLUSTER or TRUNCATE.
//
// A rewriting ALTER TABLE writes every row anew in its own transaction, which is one of those that wrote the rows of pg_attribute and had
// not ended at the horizon; VACUUM FULL and CLUSTER leave each row's xmin as it was. So the rows were kept if one of them is older than the
// horizon; or if none is of such a transaction and no value waits out of line that an update might have left where the rewriting put it.
// The second question reads the table once. An ALTER TABLE that comes after the look shows in the next one.
func (s *Source) RowsKept(ctx context.Context, t *Table, since uint64) (bool, error) {
	kept := false
	err := s.idle.with(ctx, func(conn *pgconn.PgConn) error {
		l := looker{ctx: ctx, conn: conn}
		for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "SET LOCAL lock_timeout = '" + lockPatience + "'"} {
			if _, err := query(ctx, conn, sql); err != nil {
				return err
			}
		}
		var err error
		if kept, err = l.rowsKept(t, since); err != nil {
			return err
		}
		_, err = query(ctx, conn, "COMMIT")
		return err
	})
	switch sqlState(err) {
	case "42P01", "3F000", "42501": // no such table or schema any more, or no right to read it: the next look says so
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the rows of %s: %w", qualified(t.Schema, t.Name), err)
	}
	return kept, nil
}

func (l *looker) rowsKept(t *Table, since uint64) (kept bool, err error) {
	name := qualified(t.Schema, t.Name)
	known := false // whether row numbers, which have 32 bits, can be compared with the horizon
	err = l.rows("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint", func(r *rowReader) error {
		next := uint64(r.int(64))
		known = since != 0 && since <= next && next-since < 1<<31
		return nil
	})
	if err != nil {
		return false, err
	}
	ask := func(sql string) (yes bool, err error) {
		err = l.rows(sql, func(r *rowReader) error { yes = r.bool(); return nil })
		return yes, err
	}
	writers := "SELECT x FROM unnest('{" + strings.Join(t.attributeXIDs, ",") + "}'::xid[]) x"
	horizon := fmt.Sprintf("age('%d'::xid)", uint32(since))
	if known {
		if kept, err = ask("SELECT EXISTS (SELECT FROM ONLY " + name + " WHERE age(xmin) > " + horizon + ")"); kept || err != nil {
			return kept, err
		}
		writers += " WHERE age(x) <= " + horizon
	}
	inLine, err := ask(fmt.Sprintf("SELECT coalesce(pg_relation_size(nullif(reltoastrelid, 0)), 0) = 0 FROM pg_class WHERE oid = %d", t.OID))
	if err != nil || !inLine {
		return false, err
	}
	return ask("SELECT NOT EXISTS (SELECT FROM ONLY " + name + " WHERE xmin = ANY (ARRAY(" + writers + ")))")
}
