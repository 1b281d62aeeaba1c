package pgcdc

import (
	"fmt"
	"slices"
	"strings"
)

// leafFindings judges the partitions of a table that is sent as one (publish_via_partition_root); it reports whether one keeps it from being mirrored. What
// several partitions have alike is one finding.
func (j *judgement) leafFindings(r *checkedRelation) (refused bool) {
	if r.unnoticing {
		var fix Fix
		for _, p := range j.publications {
			if p.root && slices.Contains(r.publications, p.name) {
				fix.SQL = append(fix.SQL, "ALTER PUBLICATION "+quoteIdent(p.name)+" SET (publish_via_partition_root = false);")
			}
		}
		fix.Advice = "name its partitions in the publication: each is then a table of the mirror"
		j.add(Finding{LevelError, "partitioned", "table " + r.qualified(), "its partitions are sent as one table (publish_via_partition_root)",
			"PostgreSQL 14 does not notice when a table becomes a partition, and keeps its changes back; it would fail at the start", fix})
		return true
	}
	var reasons, unnamed, unread []string
	faulty, fixes := map[string][]string{}, map[string][]string{}
	for i := range r.table.Leaves {
		leaf := &r.table.Leaves[i]
		reason, fix := leaf.unsupported()
		if reason == "" {
			reason, fix = r.unlikeIdentity(leaf)
		}
		switch {
		case reason != "":
			if faulty[reason] == nil {
				reasons = append(reasons, reason)
			}
			faulty[reason], fixes[reason] = append(faulty[reason], leaf.qualified()), append(fixes[reason], fix...)
		case !leaf.identified:
			unnamed = append(unnamed, leaf.qualified())
		}
		if !leaf.directly {
			unread = append(unread, leaf.qualified())
		}
	}
	for _, reason := range reasons {
		var sql []string
		for _, s := range fixes[reason] {
			if s += ";"; !slices.Contains(sql, s) {
				sql = append(sql, s)
			}
		}
		j.add(Finding{LevelError, "partition", "table " + r.qualified(), "partition " + strings.Join(faulty[reason], ", ") + " " + reason,
			"the stream would not bring the changes of its rows as they are, so the table would fail at the start", Fix{SQL: sql}})
	}
	if len(unnamed) > 0 && j.sendsOldRows(r) {
		var sql []string
		if key, _ := r.table.RowKey(); len(key) == 0 {
			sql = append(sql, "ALTER TABLE "+r.qualified()+" REPLICA IDENTITY FULL;")
		}
		for _, leaf := range unnamed {
			sql = append(sql, "ALTER TABLE "+leaf+" REPLICA IDENTITY FULL;")
		}
		j.add(Finding{LevelWarning, "identity", "table " + r.qualified(), "partition " + strings.Join(unnamed, ", ") + " has no primary key and no other replica identity",
			"updates and deletes of its rows fail on the source while it is published, so the mirror gets only its inserts",
			Fix{SQL: sql, Advice: "a primary key of the table is better where there is one to be had: smaller WAL, quicker look-ups"}})
	}
	if len(unread) > 0 && r.selectable {
		j.add(Finding{LevelNote, "partition", "table " + r.qualified(), "role " + quoteIdent(j.role) + " may not read partition " + strings.Join(unread, ", ") + " by its own name",
			"the table is then copied over one connection, and copied again after VACUUM FULL of a partition",
			Fix{SQL: []string{"GRANT SELECT ON " + strings.Join(unread, ", ") + " TO " + quoteIdent(j.role) + ";"}}})
	}
	return len(reasons) > 0
}

// beneathFinding names tables that a publication has and that are sent as the rows of others.
func (j *judgement) beneathFinding() {
	for _, table := range j.beneath {
		j.add(Finding{LevelNote, "partition", "table " + table, "its changes are sent as those of a partitioned table above it (publish_via_partition_root)",
			"its rows are that table's in the mirror, and it is none itself", Fix{Advice: "nothing need be done"}})
	}
}

// aloneFindings names partitioned tables whose partitions are tables of the mirror.
func (j *judgement) aloneFindings() {
	partitions := map[string][]string{}
	for _, r := range j.relations {
		if r.root != "" && !r.published.unnoticed {
			partitions[r.root] = append(partitions[r.root], r.qualified())
		}
	}
	advice := "nothing need be done: query the partitions by their names"
	if j.version >= 150000 {
		advice += ". With ALTER PUBLICATION … SET (publish_via_partition_root = true) a publication's partitioned tables are one table each"
	}
	for _, root := range sortedKeys(partitions) {
		j.add(Finding{LevelNote, "partition", "table " + root, "it arrives as its partitions: " + someOf(partitions[root]), "each is a table of the mirror, and it is none itself", Fix{Advice: advice}})
	}
}

// someOf lists the first few.
func someOf(names []string) string {
	const few = 5
	if more := len(names) - few; more > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), more)
	}
	return strings.Join(names, ", ")
}
