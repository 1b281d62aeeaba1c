package pgcdc

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// lockPatience is how long a question about a table's rows waits for an ALTER TABLE or VACUUM FULL that is under way.
const lockPatience = "2s"

// Kept is what is known of a table's rows since a look.
type Kept uint8

const (
	// KeptUnknown: they may have been changed in a way that the stream does not tell.
	KeptUnknown Kept = iota
	// KeptIfTruncated: they were not, if a TRUNCATE in the transaction Table.WrittenBy made the storage.
	KeptIfTruncated
	// KeptCertain: they were not.
	KeptCertain
)

// RowsKept says what is certain of a table's rows since a look with the given horizon (0: unknown). t is a later look's, whose Relfilenode differs: a VACUUM
// FULL, CLUSTER or TRUNCATE, of which the stream says what there is to say, or an ALTER TABLE that wrote the rows anew, of which it says nothing. The
// latter either wrote AttributeVersions too, perhaps with other values, or is SET UNLOGGED and back, with whatever was written between, unless StaysLogged.
//
// An ALTER TABLE writes every row anew in its own transaction; VACUUM FULL and CLUSTER leave each row's xmin as it was. So the rows were kept if one of them
// is older than the horizon. Where they are all newer, those of an ALTER TABLE have one of the transactions that wrote the rows of pg_attribute and had
// not ended at the horizon; if there are none, and no value waits out of line that an update might have left where the rewriting put it, the rows were kept.
// SET LOGGED leaves no such trace, but the row of pg_class has its transaction, if it was the last to write that, and was written by a later command than the rows.
// Beside the first question each reads the table once. An ALTER TABLE that comes after the look shows in the next one.
func (s *Source) RowsKept(ctx context.Context, t *Table, since uint64) (Kept, error) {
	return s.askOfRows(ctx, qualified(t.Schema, t.Name), func(l *looker) (Kept, error) { return l.rowsKept(t, since) })
}

// askOfRows asks about the rows of a relation, in a transaction that does not wait long for their lock.
func (s *Source) askOfRows(ctx context.Context, name string, ask func(*looker) (Kept, error)) (Kept, error) {
	kept := KeptUnknown
	err := s.idle.with(ctx, func(conn *pgconn.PgConn) error {
		l := looker{ctx: ctx, conn: conn}
		for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "SET LOCAL lock_timeout = '" + lockPatience + "'"} {
			if _, err := query(ctx, conn, sql); err != nil {
				return err
			}
		}
		var err error
		if kept, err = ask(&l); err != nil {
			return err
		}
		_, err = query(ctx, conn, "COMMIT")
		return err
	})
	switch sqlState(err) {
	case "42P01", "3F000", "42501": // no such table or schema any more, or no right to read it: the next look says so
		return KeptUnknown, nil
	}
	if err != nil {
		return KeptUnknown, fmt.Errorf("look at the rows of %s: %w", name, err)
	}
	return kept, nil
}

func (l *looker) rowsKept(t *Table, since uint64) (Kept, error) {
	name := qualified(t.Schema, t.Name)
	known, err := l.comparable(since)
	if err != nil {
		return KeptUnknown, err
	}
	ask := func(sql string) (yes bool, err error) {
		err = l.rows(sql, func(r *rowReader) error { yes = r.bool(); return nil })
		return yes, err
	}
	as := func(kept Kept, yes bool, err error) (Kept, error) {
		if err != nil || !yes {
			kept = KeptUnknown
		}
		return kept, err
	}
	writers := "SELECT x FROM unnest('{" + strings.Join(t.attributeXIDs, ",") + "}'::xid[]) x"
	horizon := ageOf(since)
	if known {
		if old, err := ask("SELECT EXISTS (SELECT FROM ONLY " + name + " WHERE age(xmin) > " + horizon + ")"); old || err != nil {
			return as(KeptCertain, old, err)
		}
		writers += " WHERE age(x) <= " + horizon
	}
	if !t.StaysLogged {
		yes, err := ask("SELECT " + notByItsWriter(name, t.OID))
		return as(KeptIfTruncated, yes, err)
	}
	inLine, err := ask(fmt.Sprintf("SELECT coalesce(pg_relation_size(nullif(reltoastrelid, 0)), 0) = 0 FROM pg_class WHERE oid = %d", t.OID))
	if err != nil || !inLine {
		return KeptUnknown, err
	}
	yes, err := ask("SELECT NOT EXISTS (SELECT FROM ONLY " + name + " WHERE xmin = ANY (ARRAY(" + writers + ")))")
	return as(KeptCertain, yes, err)
}

// notByItsWriter is SQL for whether no row of a relation was written by the transaction that wrote its row of pg_class, before it wrote that.
func notByItsWriter(name string, oid uint32) string {
	return fmt.Sprintf("NOT EXISTS (SELECT FROM ONLY %s t, pg_class c WHERE c.oid = %d AND t.xmin = c.xmin AND t.cmin::text::bigint <= c.cmin::text::bigint)", name, oid)
}

// comparable says whether the transactions of rows, which have 32 bits, can be compared with a horizon.
func (l *looker) comparable(since uint64) (known bool, err error) {
	err = l.rows("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint", func(r *rowReader) error {
		next := uint64(r.int(64))
		known = since != 0 && since <= next && next-since < 1<<31
		return nil
	})
	return known, err
}

// ageOf is SQL for the age of a horizon: older rows have a greater one.
func ageOf(horizon uint64) string { return fmt.Sprintf("age('%d'::xid)", uint32(horizon)) }
