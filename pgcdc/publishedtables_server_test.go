package pgcdc_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgmirror/test/harness"
)

// A look has the tables that the server's own view lists, for every kind of publication over partitions of two levels, tables of several
// schemas and kinds, and for a partition that its parent is named beside.
func publishedTables(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE SCHEMA s", "CREATE TABLE plain(a int)", "CREATE UNLOGGED TABLE unlogged(a int)", "CREATE VIEW seen AS SELECT 1", "CREATE TABLE s.plain(a int)",
		"CREATE UNLOGGED TABLE s.unlogged(a int)",
		"CREATE TABLE root(a int) PARTITION BY RANGE (a)", "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (5)",
		"CREATE TABLE s.middle PARTITION OF root FOR VALUES FROM (5) TO (9) PARTITION BY RANGE (a)", "CREATE TABLE leaf PARTITION OF s.middle FOR VALUES FROM (5) TO (6)",
		"CREATE TABLE s.leaf PARTITION OF s.middle FOR VALUES FROM (6) TO (9)",
		"CREATE TABLE childless(a int) PARTITION BY RANGE (a)", "CREATE TABLE parent(a int)", "CREATE TABLE child() INHERITS (parent)")
	kinds := []string{"FOR ALL TABLES", "", "FOR TABLE plain", "FOR TABLE root", "FOR TABLE root, leaf", "FOR TABLE s.middle, low", "FOR TABLE root, s.middle",
		"FOR TABLE s.middle, s.leaf", "FOR TABLE s.leaf, plain", "FOR TABLE childless", "FOR TABLE parent", "FOR TABLE ONLY parent"}
	if r.number("current_setting('server_version_num')") >= 150000 {
		kinds = append(kinds, "FOR TABLES IN SCHEMA s", "FOR TABLES IN SCHEMA public", "FOR TABLES IN SCHEMA public, s", "FOR TABLES IN SCHEMA s, TABLE root", "FOR TABLES IN SCHEMA s, TABLE leaf, plain")
	}
	for i, kind := range kinds {
		for _, root := range []string{"false", "true"} {
			name := fmt.Sprintf("p%d_%s", i, root)
			r.exec("CREATE PUBLICATION " + name + " " + kind + " WITH (publish_via_partition_root = " + root + ")")
			rows, err := p.Open("postgres", r.name).Query("SELECT DISTINCT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = '" + name + "'")
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			for _, row := range rows {
				want = append(want, row[0])
			}
			r.cfg.Publications = []string{name}
			catalog, err := r.open().Look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range catalog.Tables {
				got = append(got, table.Schema+"."+table.Name)
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s, via root %s: %v, the server lists %v", kind, root, got, want)
			}
		}
	}
}

// A look waits for nobody who holds tables exclusively, such as a prepared transaction with a TRUNCATE, whatever publishes them.
func publishedLocked(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(a int PRIMARY KEY)", "CREATE TABLE filtered(a int PRIMARY KEY)")
	filter := ""
	if r.number("current_setting('server_version_num')") >= 150000 {
		filter = " WHERE (a > 5)"
	}
	r.more("all_tables FOR ALL TABLES", "named FOR TABLE t, filtered"+filter)
	holder := p.Open("postgres", r.name)
	holder.Exec("BEGIN", "LOCK TABLE t, filtered IN ACCESS EXCLUSIVE MODE")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	catalog, err := r.Look(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range catalog.Tables {
		if table.Unsupported != "" {
			t.Errorf("%s: %s", table.Name, table.Unsupported)
		}
		names = append(names, table.Name)
	}
	if got := strings.Join(names, " "); got != "filtered t" {
		t.Errorf("the look has %q", got)
	}
	holder.Exec("COMMIT")
}
