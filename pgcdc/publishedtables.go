package pgcdc

// publishedTables is SQL for the relations that publications publish, as rows (publication, relation) of OIDs: what the view
// pg_publication_tables lists. The view itself opens every relation from PostgreSQL 16 on, and so waits for whoever holds one of
// them exclusively, a forgotten prepared transaction for instance; one such table would keep us from looking at all others. This reads
// nothing but tables of the catalogue, as one snapshot sees them.
//
// A publication via partition roots has the topmost tables that it names, any other the leaves below them. A partition
// that is being detached (DETACH PARTITION CONCURRENTLY) belongs to nothing above it any more.
func publishedTables(version int, publications []string) string {
	schemas := ""
	if version >= 15 { // publications of schemas came with PostgreSQL 15
		schemas = `UNION SELECT b.oid, b.pubviaroot, c.oid FROM b JOIN pg_publication_namespace s ON s.pnpubid = b.oid
				JOIN pg_class c ON c.relnamespace = s.pnnspid AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'`
	}
	// Relations with smaller OIDs than 16384 (FirstNormalObjectId) were made by initdb.
	return `WITH RECURSIVE b AS (SELECT * FROM pg_publication WHERE pubname IN (` + quoteLiterals(publications) + `)),
		chosen(publication, viaroot, relation) AS (
			SELECT b.oid, b.pubviaroot, m.prrelid FROM b JOIN pg_publication_rel m ON m.prpubid = b.oid
			` + schemas + `
			UNION SELECT b.oid, b.pubviaroot, c.oid FROM b, pg_class c WHERE b.puballtables AND c.oid >= 16384 AND c.relpersistence = 'p'
				AND (c.relkind = 'r' OR c.relkind = 'p' AND b.pubviaroot)
		), below(publication, relation) AS (
			SELECT publication, relation FROM chosen WHERE NOT viaroot
			UNION SELECT below.publication, i.inhrelid FROM below JOIN pg_class c ON c.oid = below.relation AND c.relkind = 'p'
				JOIN pg_inherits i ON i.inhparent = c.oid AND NOT i.inhdetachpending
		), above(publication, relation, ancestor) AS (
			SELECT publication, relation, relation FROM chosen WHERE viaroot
			UNION SELECT above.publication, above.relation, i.inhparent FROM above JOIN pg_class c ON c.oid = above.ancestor AND c.relispartition
				JOIN pg_inherits i ON i.inhrelid = c.oid AND NOT i.inhdetachpending
		)
		SELECT below.publication, below.relation FROM below JOIN pg_class c ON c.oid = below.relation AND c.relkind <> 'p'
		UNION SELECT publication, relation FROM chosen WHERE viaroot AND NOT EXISTS (SELECT FROM above JOIN chosen named USING (publication)
			WHERE above.publication = chosen.publication AND above.relation = chosen.relation AND above.ancestor <> above.relation
				AND named.relation = above.ancestor)`
}
