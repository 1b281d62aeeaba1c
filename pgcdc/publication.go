package pgcdc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// publicationRow is what pg_publication says of one publication.
type publicationRow struct {
	name      string
	missing   []string // operations that it leaves out
	generated bool     // stored generated columns are published (from PostgreSQL 18 on)
}

// publications reads the configured publications and refuses missing ones, and partial ones unless they are accepted.
func (s *Source) publications(ctx context.Context, conn *pgconn.PgConn, version int) ([]publicationRow, error) {
	generated := "'n'"
	if version >= 18 {
		generated = "pubgencols::text"
	}
	rows, err := query(ctx, conn, `SELECT pubname, pubinsert, pubupdate, pubdelete, pubtruncate, `+generated+`
		FROM pg_publication WHERE pubname IN (`+quoteLiterals(s.cfg.Publications)+`)`)
	if err != nil {
		return nil, err
	}
	var found []publicationRow
	for _, row := range rows {
		r := rowReader{row: row}
		p := publicationRow{name: r.text()}
		for _, operation := range []string{"insert", "update", "delete", "truncate"} {
			if !r.bool() {
				p.missing = append(p.missing, operation)
			}
		}
		p.generated = r.char() == 's'
		if r.err != nil {
			return nil, r.err
		}
		found = append(found, p)
	}
	return found, s.checkPublications(found)
}

// checkPublications reports every fault of the configured publications together.
func (s *Source) checkPublications(found []publicationRow) error {
	var faults []error
	for _, name := range s.cfg.Publications {
		i := slices.IndexFunc(found, func(p publicationRow) bool { return p.name == name })
		switch {
		case i < 0:
			faults = append(faults, fmt.Errorf("publication %s: %w", quoteIdent(name), ErrPublicationMissing))
		case len(found[i].missing) > 0 && !s.cfg.PartialPublish:
			faults = append(faults, fmt.Errorf("publication %s leaves out %s: %w", quoteIdent(name),
				strings.Join(found[i].missing, ", "), ErrPublicationPartial))
		}
	}
	return errors.Join(faults...)
}

// publicationNames is the value of pgoutput's option publication_names.
func (s *Source) publicationNames() string {
	quoted := make([]string, len(s.cfg.Publications))
	for i, name := range s.cfg.Publications {
		quoted[i] = quoteIdent(name)
	}
	return strings.Join(quoted, ",")
}

// candidate is a table that a new publication may hold.
type candidate struct {
	oid          uint32
	schema, name string
	refused      string // why check would not have it published: the mirror cannot hold it; empty when it can
	usable       bool   // has an identity with which updates and deletes go on working once it is published, and so do all its partitions
}

// identityUsable is SQL for what the server demands of a published table before it lets an update or delete through
// (CheckCmdReplicaIdentity in PostgreSQL's execReplication.c).
const identityUsable = `(c.relreplident = 'f' OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
	AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END))`

// CreatePublication makes a publication of the given tables, written as in SQL ("schema.table", unqualified names by the
// database's search path), or, with none, of every table of the database that has a usable identity. It always names the
// tables: a publication FOR ALL TABLES makes updates of tables without identity fail on the source, so those are left
// out with a warning, or refused when they were asked for. A publication of that name that exists already is left as it is.
func (s *Source) CreatePublication(ctx context.Context, name string, tables []string) error {
	err := s.idle.with(ctx, func(conn *pgconn.PgConn) error {
		rows, err := query(ctx, conn, "SELECT FROM pg_publication WHERE pubname = "+quoteLiteral(name))
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			s.log.Info("the publication exists already", "publication", name)
			return nil
		}
		candidates, err := listedCandidates(ctx, conn, tables)
		if len(tables) == 0 {
			candidates, err = allCandidates(ctx, conn)
		}
		if err != nil {
			return err
		}
		published, err := s.choose(candidates, len(tables) > 0)
		if err != nil {
			return err
		}
		statement := "CREATE PUBLICATION " + quoteIdent(name) + " FOR TABLE ONLY " + strings.Join(published, ", ONLY ")
		_, err = query(ctx, conn, statement)
		if sqlState(err) == "42501" {
			return fmt.Errorf("%w (the role must own the tables and have CREATE on the database; or run as their owner: %s)", err, statement)
		}
		if err == nil {
			s.log.Info("made the publication", "publication", name, "tables", len(published))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("make publication %s: %w", quoteIdent(name), err)
	}
	return nil
}

// choose returns the qualified names to publish.
func (s *Source) choose(candidates []candidate, asked bool) ([]string, error) {
	var published []string
	var faults []error
	for _, c := range candidates {
		table := qualified(c.schema, c.name)
		reason := ""
		if !c.usable {
			reason = "it has no usable identity, so that its updates and deletes would fail once it is published; " +
				"add a primary key or run ALTER TABLE " + table + " REPLICA IDENTITY FULL"
		}
		switch {
		case reason == "":
			published = append(published, table)
		case asked:
			faults = append(faults, fmt.Errorf("table %s: %s", table, reason))
		default:
			s.log.Warn("left out of the publication", "relation", table, "reason", reason)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if len(published) == 0 {
		return nil, ErrNothingToPublish
	}
	return published, nil
}

// allCandidates are the permanent tables outside of system schemas. A partitioned table stands for its partitions, those to come
// included; where one of them has no usable identity, the partitions stand for themselves, as before PostgreSQL 15 (published.unnoticed).
func allCandidates(ctx context.Context, conn *pgconn.PgConn) ([]candidate, error) {
	stands := `CASE WHEN c.relkind = 'p' THEN NOT c.relispartition AND ` + partitionsUsable("c.oid") + `
		ELSE NOT c.relispartition OR NOT ` + partitionsUsable("pg_partition_root(c.oid)") + ` END`
	if majorVersion(conn.ParameterStatus("server_version")) < 15 {
		stands = "c.relkind = 'r'"
	}
	return readCandidates(ctx, conn, `c.relpersistence = 'p' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND `+stands)
}

// partitionsUsable is SQL for whether all of a partitioned table's levels have an identity that lets updates and deletes through.
func partitionsUsable(root string) string {
	return `NOT EXISTS (SELECT FROM pg_partition_tree(` + root + `) t JOIN pg_class c ON c.oid = t.relid WHERE NOT ` + identityUsable + `)`
}

// listedCandidates resolves names as a session with the role's own search path would.
func listedCandidates(ctx context.Context, conn *pgconn.PgConn, tables []string) ([]candidate, error) {
	var oids []string
	var faults []error
	for _, table := range tables {
		rows, err := query(ctx, conn, `BEGIN READ ONLY;
			SELECT set_config('search_path', reset_val, true) FROM pg_settings WHERE name = 'search_path';
			SELECT coalesce(pg_catalog.to_regclass(`+quoteLiteral(table)+`)::pg_catalog.oid, 0)`)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", table, err)
		}
		if _, err := query(ctx, conn, "COMMIT"); err != nil {
			return nil, err
		}
		if len(rows) != 1 || len(rows[0]) != 1 || string(rows[0][0]) == "0" {
			faults = append(faults, fmt.Errorf("table %s does not exist", table))
			continue
		}
		oids = append(oids, string(rows[0][0]))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if len(oids) == 0 {
		return nil, nil
	}
	return readCandidates(ctx, conn, "c.oid IN ("+strings.Join(oids, ", ")+")")
}

func readCandidates(ctx context.Context, conn *pgconn.PgConn, condition string) ([]candidate, error) {
	rows, err := query(ctx, conn, `SELECT c.oid, n.nspname, c.relname, CASE c.relkind WHEN 'p' THEN `+partitionsUsable("c.oid")+` ELSE `+identityUsable+` END
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND `+condition+` ORDER BY n.nspname, c.relname`)
	if err != nil {
		return nil, err
	}
	var candidates []candidate
	for _, row := range rows {
		r := rowReader{row: row}
		candidates = append(candidates, candidate{oid: r.oid(), schema: r.text(), name: r.text(), usable: r.bool()})
		if r.err != nil {
			return nil, r.err
		}
	}
	return candidates, nil
}

// joinOIDs writes an SQL list of OIDs; it must not be empty.
func joinOIDs(oids []uint32) string {
	list := make([]string, len(oids))
	for i, oid := range oids {
		list[i] = strconv.FormatUint(uint64(oid), 10)
	}
	return strings.Join(list, ", ")
}
