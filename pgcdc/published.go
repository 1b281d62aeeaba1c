package pgcdc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// published is how the configured publications publish one relation. pgoutput sends a change when any of them does
// (get_rel_sync_entry in PostgreSQL's pgoutput.c).
type published struct {
	by []publishedBy // in the order of the publications' names
	// identity names every row of the catalogue by which the relation is published, and the version of each that can be changed. It is
	// equal at two times exactly if, as far as these rows tell, the relation was published in one and the same way all the time
	// between: whoever takes a table out and puts it back makes another row.
	identity string
	// underRoot says that its changes are sent as those of a partitioned table that it belongs to.
	underRoot bool
	// unnoticed says that it is published as a partition alone, by a server that does not notice when a table becomes one: before
	// PostgreSQL 15, pgoutput goes on keeping back the changes of a table that it has looked at before (rel_sync_cache_relation_cb in pgoutput.c),
	// until the publication is altered or the stream begins again after that.
	unnoticed bool
	// vanished says that the relation was dropped after the snapshot, so that its filters have no text.
	vanished bool
}

// publishedBy is one publication's part.
type publishedBy struct {
	publication    string
	insert, update bool   // operations that it publishes
	delete         bool   //
	generated      bool   // stored generated columns too
	whole          bool   // with all tables or with its schema: without filter or list
	filter         string // an SQL condition, or without texts something that differs exactly where filters do; empty when there is none
	columns        []int16
	listed         bool // only columns are published
}

// publishedRow is one row of the catalogue that publishes a relation, or a partitioned table that it belongs to.
type publishedRow struct {
	publishedBy
	above             bool // it is of a partitioned table above, or of that one's schema
	wholesale         bool
	viaRoot           bool
	partitioned       bool // the relation is
	filtered          bool
	version, identity string
}

// publishedSQL reads these rows. Everything comes from tables of the catalogue, as one snapshot sees it; only the text of a filter has the
// names of now. A publication's own row has a version, because ALTER PUBLICATION … SET writes it; rows of pg_publication_rel and
// pg_publication_namespace are never written again, not even for another filter: they are replaced. A partition belongs to what is above it by
// pg_inherits, a table to its schema by pg_depend; both of their rows can be written again.
//
// With texts, filters are SQL, and the question waits for whoever holds a filtered table exclusively. Without, a filter is the tree that the
// catalogue keeps, less the positions of its parts in the statement that made it. The order is whole: what is read twice is read in one order, also
// of a partition of a partition that FOR ALL TABLES publishes three times.
func publishedSQL(version int, publications []string, oids []uint32, texts bool) string {
	filter := "regexp_replace(m.prqual::text, ' :location -?[0-9]+', '', 'g')"
	if texts {
		filter = "pg_get_expr(m.prqual, m.prrelid)"
	}
	tables := "SELECT 'table', m.prpubid, m.oid, false, NULL::text, NULL::text FROM pg_publication_rel m WHERE m.prrelid = up.member"
	if version >= 15 { // row filters, column lists and publications of schemas came with PostgreSQL 15
		tables = `SELECT 'table', m.prpubid, m.oid, m.prqual IS NOT NULL, ` + filter + `, array_to_string(m.prattrs::int2[], ' ')
				FROM pg_publication_rel m WHERE m.prrelid = up.member
			UNION ALL SELECT 'schema', s.pnpubid, s.oid, false, NULL, NULL FROM pg_publication_namespace s WHERE s.pnnspid = up.schema`
	}
	generated := "false"
	if version >= 18 {
		generated = "b.pubgencols = 's'"
	}
	return `WITH RECURSIVE up(leaf, kind, member, schema, partition, path) AS (
			SELECT c.oid, c.relkind, c.oid, c.relnamespace, c.relispartition, '' FROM pg_class c WHERE c.oid IN (` + joinOIDs(oids) + `)
			UNION ALL
			SELECT up.leaf, up.kind, p.oid, p.relnamespace, p.relispartition, up.path || i.inhparent || '@' || i.xmin || ' '
			FROM up JOIN pg_inherits i ON up.partition AND i.inhrelid = up.member AND NOT i.inhdetachpending JOIN pg_class p ON p.oid = i.inhparent
		)
		SELECT up.leaf, b.pubname, b.pubinsert, b.pubupdate, b.pubdelete, ` + generated + `, b.pubviaroot, up.kind = 'p', up.member <> up.leaf, m.kind <> 'table',
			m.filtered, m.filter, m.columns IS NOT NULL, m.columns,
			concat_ws(' ', m.kind, m.id, up.path, CASE WHEN m.kind = 'schema' THEN (SELECT string_agg(d.xmin::text, ' ') FROM pg_depend d
				WHERE d.classid = 'pg_class'::regclass AND d.objid = up.member AND d.objsubid = 0 AND d.refclassid = 'pg_namespace'::regclass) END),
			b.oid || '@' || b.xmin
		FROM up, LATERAL (` + tables + ` UNION ALL
			SELECT 'all', a.oid, a.oid, false, NULL, NULL FROM pg_publication a WHERE a.puballtables) m(kind, publication, id, filtered, filter, columns)
		JOIN pg_publication b ON b.oid = m.publication
		WHERE b.pubname IN (` + quoteLiterals(publications) + `) ORDER BY up.leaf, b.pubname COLLATE "C", up.member <> up.leaf, m.kind, m.id, up.member`
}

// readPublished reads how relations are published now, or as the snapshot of the connection's transaction sees it.
func readPublished(ctx context.Context, conn *pgconn.PgConn, publications []string, oids []uint32, texts bool) (map[uint32]*published, error) {
	version := majorVersion(conn.ParameterStatus("server_version"))
	rows, err := query(ctx, conn, publishedSQL(version, publications, oids, texts))
	if err != nil {
		return nil, err
	}
	found := map[uint32][]publishedRow{}
	for _, row := range rows {
		r := rowReader{row: row}
		oid := r.oid()
		p := publishedRow{publishedBy: publishedBy{
			publication: r.text(), insert: r.bool(), update: r.bool(), delete: r.bool(), generated: r.bool(),
		}, viaRoot: r.bool(), partitioned: r.bool(), above: r.bool(), wholesale: r.bool(), filtered: r.bool()}
		p.filter, p.listed = r.text(), r.bool()
		for _, text := range strings.Fields(r.text()) {
			attNum, err := strconv.ParseInt(text, 10, 16)
			if err != nil {
				return nil, malformedf("a column list that is none")
			}
			p.columns = append(p.columns, int16(attNum))
		}
		p.identity, p.version = r.text(), r.text()
		if r.err != nil {
			return nil, r.err
		}
		found[oid] = append(found[oid], p)
	}
	of := make(map[uint32]*published, len(oids))
	for _, oid := range oids {
		p := newPublished(found[oid])
		p.unnoticed = version < 15 && !slices.ContainsFunc(found[oid], func(r publishedRow) bool { return !r.above })
		of[oid] = p
	}
	return of, nil
}

// newPublished puts the rows of one relation together, each publication's into one. A partition's filter and list are those that name itself:
// those of a table above it hold only for changes that are sent as that table's.
func newPublished(rows []publishedRow) *published {
	p := &published{}
	h := hasher{sha256.New()}
	for _, r := range rows {
		h.text(r.version, r.identity)
		if r.filtered && r.filter == "" {
			p.vanished = true
		}
		p.underRoot = p.underRoot || r.above && r.viaRoot
		if r.partitioned && !r.viaRoot {
			continue // that one publishes the leaves, which are sent as the topmost table that any publication sends them as
		}
		last := len(p.by) - 1
		if last < 0 || p.by[last].publication != r.publication {
			p.by = append(p.by, publishedBy{
				publication: r.publication, insert: r.insert, update: r.update, delete: r.delete, generated: r.generated,
			})
			last++
		}
		switch by := &p.by[last]; {
		case r.above:
		case r.wholesale:
			by.whole = true // these rows come first
		case !by.whole:
			by.filter, by.columns, by.listed = r.filter, r.columns, r.listed
		}
	}
	p.identity = h.sum()
	return p
}

// condition selects the rows that the relation's copy must have: those whose changes are sent. Rows that several publications publish need pass
// one of the filters; one publication without a filter publishes all, and the condition is empty. It reports false when publications that publish
// other operations filter them otherwise (pgoutput_row_filter_init in pgoutput.c keeps a filter for each): the changes of a row would be sent in part.
func (p *published) condition() (condition string, agreed bool) {
	conditions := map[string]bool{}
	for _, publishes := range []func(publishedBy) bool{
		func(b publishedBy) bool { return b.insert }, func(b publishedBy) bool { return b.update }, func(b publishedBy) bool { return b.delete },
	} {
		var filters []string
		for _, b := range p.by {
			if publishes(b) {
				filters = append(filters, b.filter)
			}
		}
		if len(filters) > 0 {
			condition = anyOf(filters)
			conditions[condition] = true
		}
	}
	return condition, len(conditions) <= 1
}

// anyOf is SQL for whether one of the conditions holds; an empty one always does, and then it is empty itself.
func anyOf(conditions []string) string {
	if slices.Contains(conditions, "") {
		return ""
	}
	conditions = slices.Sorted(slices.Values(conditions))
	return "((" + strings.Join(slices.Compact(conditions), ") OR (") + "))"
}

// columns says which columns are published, by attnum. It reports false when publications differ in that: the server then ends the stream with
// an error at the table's first change.
func (p *published) columns(attributes []attributeRow) (set map[int16]bool, agreed bool) {
	agreed = true
	for i := range p.by {
		b := &p.by[i]
		own := map[int16]bool{}
		for _, a := range attributes {
			// A list may name stored generated columns from PostgreSQL 18 on; virtual ones are never published.
			if !a.dropped && (b.listed && slices.Contains(b.columns, a.attNum) || !b.listed && (a.generated == 0 || b.generated && a.generated == 's')) {
				own[a.attNum] = true
			}
		}
		if set == nil {
			set = own
		}
		agreed = agreed && maps.Equal(set, own)
	}
	return set, agreed
}

// leftOut is which operations a publication of the relation leaves out and what to do, or empty.
func (p *published) leftOut(publications []publicationRow) string {
	for _, b := range p.by {
		i := slices.IndexFunc(publications, func(r publicationRow) bool { return r.name == b.publication })
		if i >= 0 && len(publications[i].missing) > 0 {
			return fmt.Sprintf("publication %s leaves out %s; run ALTER PUBLICATION … SET (publish = 'insert, update, delete, truncate') or set partial_publish",
				quoteIdent(b.publication), strings.Join(publications[i].missing, ", "))
		}
	}
	return ""
}

// neverSends says that every publication of the relation leaves an operation out.
func (p *published) neverSends(operation string, publications []publicationRow) bool {
	return len(p.by) > 0 && !slices.ContainsFunc(p.by, func(b publishedBy) bool {
		i := slices.IndexFunc(publications, func(r publicationRow) bool { return r.name == b.publication })
		return i < 0 || !slices.Contains(publications[i].missing, operation)
	})
}

// listed says that a publication publishes only some columns on purpose.
func (p *published) listed() bool {
	return slices.ContainsFunc(p.by, func(b publishedBy) bool { return b.listed })
}

// part is what a publication publishes of the relation, as it stands behind a table's name in CREATE PUBLICATION.
func (p *published) part(publication string, attributes []attributeRow) string {
	i, found := slices.BinarySearchFunc(p.by, publication, func(b publishedBy, name string) int { return cmp.Compare(b.publication, name) })
	if !found {
		return ""
	}
	part := ""
	if p.by[i].listed {
		var names []string
		for _, a := range attributes {
			if slices.Contains(p.by[i].columns, a.attNum) {
				names = append(names, quoteIdent(a.name))
			}
		}
		part = " (" + strings.Join(names, ", ") + ")"
	}
	if p.by[i].filter != "" {
		part += " WHERE (" + p.by[i].filter + ")"
	}
	return part
}
