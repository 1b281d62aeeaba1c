package pgcdc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

var leafTests = map[string]serverTest{"Sent": leavesSent, "Copied": leavesCopied, "CopyRefused": leavesCopyRefused, "UnreadLeaves": leavesUnread, "Looked": leavesLooked,
	"Kept": leavesKept, "Identities": leavesIdentities, "Missing": leavesMissing, "Publications": leavesPublications, "FourteenRefuses": leavesFourteen}

// rooted publishes a partitioned table with leaves on two levels, one of which was attached with its columns in another order and one dropped.
func rooted(t *testing.T, p *harness.Postgres) *rig {
	t.Helper()
	p = p.For(t)
	p.Needs(15, "notice of tables that become partitions")
	r := newRig(t, p)
	r.exec("CREATE TABLE root(id int, gone int, d int, v text, PRIMARY KEY (id, d)) PARTITION BY RANGE (d)", "ALTER TABLE root DROP gone",
		"CREATE TABLE a PARTITION OF root FOR VALUES FROM (0) TO (10)", "CREATE TABLE middle PARTITION OF root FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (d)",
		"CREATE TABLE b PARTITION OF middle FOR VALUES FROM (10) TO (20)", "CREATE TABLE c(v text, gone text, d int NOT NULL, id int NOT NULL, PRIMARY KEY (id, d))", "ALTER TABLE c DROP gone",
		"ALTER TABLE middle ATTACH PARTITION c FOR VALUES FROM (20) TO (30)", "INSERT INTO root SELECT i, i % 30, 'v' || i FROM generate_series(1, 300) i",
		"GRANT SELECT ON ALL TABLES IN SCHEMA public TO "+r.name)
	r.publish("FOR TABLE root WITH (publish_via_partition_root)")
	return r
}

// What the server sends of leaves is sent as the partitioned table's, in its columns: rows written to either, rows that move, old rows with the leaf's identity under the
// marker of the table's. Of a leaf's own TRUNCATE, ATTACH, DETACH and DROP it says nothing.
func leavesSent(t *testing.T, p *harness.Postgres) {
	r := rooted(t, p)
	r.exec("ALTER TABLE b REPLICA IDENTITY FULL")
	r.createSlot()
	f := r.stream(r.Source, false)
	for _, c := range []struct{ statement, want string }{
		{"BEGIN; INSERT INTO root VALUES (1001, 5, 'x'); INSERT INTO c(v, d, id) VALUES ('y', 25, 1002); COMMIT", "insert public.root 1001|5|x, insert public.root 1002|25|y"},
		{"UPDATE root SET v = 'z' WHERE id = 1002", "update public.root 1002|25|z"},
		{"UPDATE root SET d = 15 WHERE id = 1002", "delete public.root 1002|25|<n>, insert public.root 1002|15|z"},
		{"DELETE FROM root WHERE id IN (1001, 1002)", "delete public.root 1001|5|<n>, delete public.root 1002|15|z"},
		{"BEGIN; INSERT INTO root VALUES (2001, 1, 'new'); TRUNCATE a; TRUNCATE middle; INSERT INTO root VALUES (2, 2, 'after'); COMMIT", "insert public.root 2001|1|new, insert public.root 2|2|after"},
		{"BEGIN; CREATE TABLE late(id int NOT NULL, d int NOT NULL, v text, PRIMARY KEY (id, d)); INSERT INTO late VALUES (1, 30, 'before'); " +
			"ALTER TABLE root ATTACH PARTITION late FOR VALUES FROM (30) TO (40); INSERT INTO late VALUES (2, 30, 'after'); COMMIT", "insert public.root 2|30|after"},
		{"BEGIN; ALTER TABLE root DETACH PARTITION a; INSERT INTO a VALUES (7, 7, 'detached'); DROP TABLE late; INSERT INTO root VALUES (3, 11, 'x'); COMMIT", "insert public.root 3|11|x"},
		{"TRUNCATE root", "truncate 1"},
	} {
		r.exec(c.statement)
		if _, rows := f.rows(); strings.Join(rows, ", ") != c.want {
			t.Errorf("%s:\nsent %s\nwant %s", c.statement, strings.Join(rows, ", "), c.want)
		}
	}
}

// everything is each row that is copied by the given ranges, sorted.
func (r *rig) everything(snapshot pgcdc.ExportedSnapshot, table *pgcdc.Table, parts ...pgcdc.Range) (rows []string) {
	r.t.Helper()
	for _, part := range parts {
		err := r.CopyRange(r.t.Context(), snapshot, table, part, func(tuple pgcdc.Tuple) error {
			rows = append(rows, texts(tuple))
			return nil
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	slices.Sort(rows)
	return rows
}

// ranges are ranges of one block of every leaf that is measured.
func ranges(extent pgcdc.Extent) (parts []pgcdc.Range) {
	for _, leaf := range extent.Leaves {
		for from := uint32(0); from+1 < leaf.Blocks; from++ {
			parts = append(parts, pgcdc.Range{Leaf: leaf.Leaf, From: from, To: from + 1})
		}
		parts = append(parts, pgcdc.Range{Leaf: leaf.Leaf, From: max(leaf.Blocks, 1) - 1})
	}
	return parts
}

// A partitioned table is copied whole, or by ranges of its leaves, with its own columns, list and filter, as of the snapshot.
func leavesCopied(t *testing.T, p *harness.Postgres) {
	r := rooted(t, p)
	r.exec("INSERT INTO root SELECT i, i % 30, repeat('w', 500) FROM generate_series(1000, 2999) i", "CREATE TABLE empty PARTITION OF root DEFAULT", "GRANT SELECT ON empty TO "+r.name)
	filtered := r.name + "_f"
	r.exec("CREATE PUBLICATION " + filtered + " FOR TABLE root (id, d) WHERE (d BETWEEN 5 AND 22) WITH (publish_via_partition_root)")
	snapshot := r.createSlot()
	for publication, want := range map[string]int{r.name: 2300, filtered: 1381} {
		r.cfg.Publications = []string{publication}
		r.Source = r.open()
		table := r.table("root")
		extents, err := r.Extents(t.Context(), []*pgcdc.Table{table})
		if err != nil || len(extents[0].Leaves) != 4 || extents[0].Bytes < 1<<20 {
			t.Fatalf("%+v, %v", extents, err)
		}
		parts := ranges(extents[0])
		if len(parts) < 50 {
			t.Errorf("%d ranges", len(parts))
		}
		whole := r.everything(snapshot, table, pgcdc.Range{})
		if len(whole) != want {
			t.Errorf("%s: %d rows, want %d", publication, len(whole), want)
		}
		r.exec("UPDATE root SET v = v || '!', d = (d + 7) % 30 WHERE id % 5 = 1", "DELETE FROM b WHERE id % 3 = 0")
		if got := r.everything(snapshot, table, parts...); !slices.Equal(got, whole) {
			t.Errorf("%s: the ranges have %d rows, the whole table %d", publication, len(got), len(whole))
		}
	}
}

// A copy under a snapshot that had other leaves, or leaves with other storage, than the look or than there are now ends with ErrRewritten, or has what the snapshot has.
func leavesCopyRefused(t *testing.T, p *harness.Postgres) {
	for i, c := range []struct {
		statement    string
		whole, inOne string // of the copy whole and by ranges, with the look from before: "refused" or "right"
		fresh        string // of a look from after
	}{
		{"CREATE TABLE e PARTITION OF root DEFAULT", "right", "right", "refused"},
		{"CREATE TABLE e(id int NOT NULL, d int NOT NULL, v text); INSERT INTO e VALUES (1, 50, 'e'); ALTER TABLE root ATTACH PARTITION e DEFAULT", "right", "right", "refused"},
		{"ALTER TABLE root ATTACH PARTITION early DEFAULT", "right", "right", "refused"},
		{"ALTER TABLE root DETACH PARTITION a", "refused", "right", "refused"},
		{"DROP TABLE a", "refused", "refused", "refused"},
		{"TRUNCATE a", "refused", "refused", "refused"},
		{"VACUUM FULL b", "refused", "refused", "refused"},
		{"ALTER TABLE root DETACH PARTITION a; ALTER TABLE root ATTACH PARTITION a FOR VALUES FROM (0) TO (10)", "refused", "right", "refused"},
		{"ALTER TABLE middle RENAME TO between", "right", "right", "right"},
		{"ALTER TABLE a RENAME TO first", "right", "refused", "right"},
		{"ALTER TABLE root RENAME v TO w", "refused", "refused", "refused"},
		{"ALTER TABLE root ALTER v TYPE varchar(50)", "refused", "refused", "refused"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Log(c.statement)
			r := rooted(t, p)
			r.exec("CREATE TABLE early(id int NOT NULL, d int NOT NULL, v text)", "INSERT INTO early VALUES (1, 50, 'e')")
			snapshot := r.createSlot()
			before := r.table("root")
			extents, err := r.Extents(t.Context(), []*pgcdc.Table{before})
			if err != nil {
				t.Fatal(err)
			}
			r.exec(strings.Split(c.statement, "; ")...)
			r.exec("GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + r.name)
			try := func(table *pgcdc.Table, parts ...pgcdc.Range) string {
				rows := 0
				for _, part := range parts {
					err := r.CopyRange(t.Context(), snapshot, table, part, func(pgcdc.Tuple) error { rows++; return nil })
					if errors.Is(err, pgcdc.ErrRewritten) {
						return "refused"
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if rows != 300 {
					return fmt.Sprintf("%d rows", rows)
				}
				return "right"
			}
			if got := try(before, pgcdc.Range{}); got != c.whole {
				t.Errorf("whole: %s, want %s", got, c.whole)
			}
			if got := try(before, ranges(extents[0])...); got != c.inOne {
				t.Errorf("by ranges: %s, want %s", got, c.inOne)
			}
			if got := try(r.table("root"), pgcdc.Range{}); got != c.fresh {
				t.Errorf("with a new look: %s, want %s", got, c.fresh)
			}
		})
	}
}

// The right to read the partitioned table is enough, also where row security would hide the rows of a leaf from whom reads it by its name: it is copied whole.
func leavesUnread(t *testing.T, p *harness.Postgres) {
	r := rooted(t, p)
	r.exec("CREATE TABLE hidden PARTITION OF root FOR VALUES FROM (30) TO (40)", "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY", "INSERT INTO root VALUES (1, 31, 'x')", "CREATE SCHEMA closed",
		"CREATE TABLE closed.e PARTITION OF root DEFAULT", "INSERT INTO root VALUES (1, 100, 'y')", "REVOKE SELECT ON a FROM "+r.name)
	snapshot := r.createSlot()
	table := r.table("root")
	if table.Unsupported != "" {
		t.Fatal(table.Unsupported)
	}
	extents, err := r.Extents(t.Context(), []*pgcdc.Table{table})
	if err != nil || len(extents[0].Leaves) != 0 || extents[0].Blocks != 0 || extents[0].Bytes < 5*8192 {
		t.Fatalf("%+v, %v", extents, err)
	}
	if rows := r.everything(snapshot, table, pgcdc.Range{}); len(rows) != 302 {
		t.Errorf("%d rows", len(rows))
	}
	for i := range table.Leaves {
		kept, err := r.LeafKept(t.Context(), &table.Leaves[i], true, table.Horizon)
		if err != nil || kept != pgcdc.KeptUnknown {
			t.Errorf("leaf %d: %v, %v", i, kept, err)
		}
	}
}

// leafOf finds a leaf of root by the OID of its table.
func (r *rig) leafOf(table *pgcdc.Table, name string) *pgcdc.Leaf {
	r.t.Helper()
	oid := uint32(r.number("'" + name + "'::regclass::oid"))
	for i := range table.Leaves {
		if table.Leaves[i].OID == oid {
			return &table.Leaves[i]
		}
	}
	return nil
}

// A look tells leaves that were made as partitions and have always been some from those that may have come with rows, and those that were gone for a while from those that were not.
func leavesLooked(t *testing.T, p *harness.Postgres) {
	r := rooted(t, p)
	alike := "(id int NOT NULL, d int NOT NULL DEFAULT 7, v text)"
	for _, c := range []struct {
		leaf       string
		statements []string
		fresh      bool
	}{
		{"made", []string{"CREATE TABLE made PARTITION OF root FOR VALUES FROM (100) TO (110)"}, true},
		{"with_rows", []string{"BEGIN; CREATE TABLE with_rows PARTITION OF root FOR VALUES FROM (110) TO (120); INSERT INTO root VALUES (1, 110, 'x'); COMMIT"}, true},
		{"behind", []string{"BEGIN; SAVEPOINT s; CREATE TABLE behind PARTITION OF root (v DEFAULT 'd') FOR VALUES FROM (120) TO (130); RELEASE s; COMMIT", "ANALYZE behind", "VACUUM behind"}, true},
		{"attached", []string{"CREATE TABLE attached" + alike, "ALTER TABLE root ATTACH PARTITION attached FOR VALUES FROM (130) TO (140)"}, false},
		{"at_once", []string{"BEGIN; CREATE TABLE at_once" + alike + "; INSERT INTO at_once VALUES (1, 140, 'x'); ALTER TABLE root ATTACH PARTITION at_once FOR VALUES FROM (140) TO (150); COMMIT"}, false},
		{"truncated", []string{"CREATE TABLE truncated PARTITION OF root FOR VALUES FROM (150) TO (160)", "INSERT INTO root VALUES (1, 150, 'x')", "TRUNCATE truncated"}, false},
		{"deep", []string{"CREATE TABLE high PARTITION OF root FOR VALUES FROM (160) TO (170) PARTITION BY LIST (d)", "CREATE TABLE deep PARTITION OF high FOR VALUES IN (160)"}, true},
		{"below", []string{"CREATE TABLE loose" + alike + " PARTITION BY LIST (d)", "CREATE TABLE below PARTITION OF loose FOR VALUES IN (170)", "INSERT INTO below VALUES (1, 170, 'x')",
			"ALTER TABLE root ATTACH PARTITION loose FOR VALUES FROM (170) TO (180)"}, false},
		{"again", []string{"CREATE TABLE again PARTITION OF root FOR VALUES FROM (180) TO (190)", "ALTER TABLE root DETACH PARTITION again",
			"ALTER TABLE root ATTACH PARTITION again FOR VALUES FROM (180) TO (190)"}, false},
		{"again_at_once", []string{"BEGIN; CREATE TABLE again_at_once PARTITION OF root FOR VALUES FROM (190) TO (200); ALTER TABLE root DETACH PARTITION again_at_once; INSERT INTO again_at_once VALUES (1, 190, 'x'); " +
			"ALTER TABLE root ATTACH PARTITION again_at_once FOR VALUES FROM (190) TO (200); COMMIT"}, false},
	} {
		r.exec(c.statements...)
		leaf := r.leafOf(r.table("root"), c.leaf)
		if leaf == nil || leaf.Fresh != c.fresh {
			t.Errorf("%s: %+v, want fresh %v", c.leaf, leaf, c.fresh)
		}
	}
	path := func(name string) string {
		leaf := r.leafOf(r.table("root"), name)
		if leaf == nil {
			return ""
		}
		return leaf.Path
	}
	made, deep := path("made"), path("deep")
	r.exec("ALTER TABLE made RENAME TO renamed", "ALTER TABLE renamed RENAME TO made", "VACUUM FULL made", "TRUNCATE root", "ALTER TABLE root ADD COLUMN extra int", "ALTER TABLE root DROP COLUMN extra")
	if path("made") != made || path("deep") != deep {
		t.Errorf("%q and %q were %q and %q", path("made"), path("deep"), made, deep)
	}
	r.exec("ALTER TABLE root DETACH PARTITION high", "ALTER TABLE root ATTACH PARTITION high FOR VALUES FROM (160) TO (170)", "ALTER TABLE root DETACH PARTITION made CONCURRENTLY")
	if path("deep") == deep || path("deep") == "" || path("made") != "" {
		t.Errorf("after a detachment: %q was %q, %q", path("deep"), deep, path("made"))
	}
}

// VACUUM FULL, CLUSTER and SET TABLESPACE keep a leaf's rows, a TRUNCATE and an ALTER TABLE do not, and one that has arrived empty brought none.
func leavesKept(t *testing.T, p *harness.Postgres) {
	r := rooted(t, p)
	var before *pgcdc.Table
	newest := uint64(r.number("(SELECT max(xmin::text::bigint) FROM root)"))
	eventually(t, "transactions of other tests do not hold the horizon below the rows", func() bool {
		before = r.table("root")
		return before.Horizon > newest
	})
	for _, c := range []struct {
		statement string
		leaf      string
		kept      pgcdc.Kept
	}{
		{"VACUUM FULL a", "a", pgcdc.KeptCertain}, {"CLUSTER b USING b_pkey", "b", pgcdc.KeptCertain}, {"BEGIN; TRUNCATE a; INSERT INTO a VALUES (1, 1, 'x'); COMMIT", "a", pgcdc.KeptIfTruncated},
		{"TRUNCATE b", "b", pgcdc.KeptIfTruncated}, {"ALTER TABLE root ALTER v TYPE text USING v || '!'", "c", pgcdc.KeptUnknown}, {"ALTER TABLE c SET UNLOGGED", "c", pgcdc.KeptUnknown},
	} {
		known := r.leafOf(before, c.leaf)
		r.exec(c.statement)
		leaf := r.leafOf(r.table("root"), c.leaf)
		if leaf.Relfilenode == known.Relfilenode || leaf.Path != known.Path {
			t.Errorf("%s: %+v was %+v", c.statement, leaf, known)
		}
		for _, horizon := range []uint64{before.Horizon, 0} {
			kept, err := r.LeafKept(t.Context(), leaf, false, horizon)
			want := c.kept
			if horizon == 0 {
				want = pgcdc.KeptUnknown
			}
			if err != nil || kept != want {
				t.Errorf("%s, horizon %d: %v, %v", c.statement, horizon, kept, err)
			}
		}
	}
	alike := "(id int NOT NULL, d int NOT NULL, v text)"
	r.exec("CREATE TABLE e"+alike, "CREATE TABLE f"+alike, "INSERT INTO f VALUES (1, 110, 'f')", "CREATE TABLE g"+alike, "TRUNCATE g")
	for i, name := range []string{"e", "f", "g"} {
		r.exec(fmt.Sprintf("ALTER TABLE root ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)", name, 100+10*i, 110+10*i), "GRANT SELECT ON "+name+" TO "+r.name)
		kept, err := r.LeafKept(t.Context(), r.leafOf(r.table("root"), name), true, before.Horizon)
		if err != nil || (kept == pgcdc.KeptCertain) != (name == "e") {
			t.Errorf("%s: %v, %v", name, kept, err)
		}
	}
	// A lock holds the question back for a moment only.
	session := r.p.Open("postgres", r.name)
	defer session.Close()
	session.Exec("BEGIN", "LOCK TABLE e IN ACCESS EXCLUSIVE MODE")
	if kept, err := r.LeafKept(t.Context(), r.leafOf(r.table("root"), "e"), true, 0); !pgcdc.IsRetryable(err) || kept != pgcdc.KeptUnknown {
		t.Errorf("of a locked leaf: %v, %v", kept, err)
	}
}

// The old row of an update or delete has the columns of the leaf's identity: where they do not name the table's rows, the table is refused with what repairs it.
func leavesIdentities(t *testing.T, p *harness.Postgres) {
	for name, c := range map[string]struct {
		statements []string
		want       string // parts of what is refused
		repaired   string
	}{
		"key":              {nil, "", ""},
		"full leaf":        {[]string{"ALTER TABLE a REPLICA IDENTITY FULL"}, "", ""},
		"full table, keys": {[]string{"ALTER TABLE root REPLICA IDENTITY FULL"}, "", ""},
		"leaf without":     {[]string{"ALTER TABLE a REPLICA IDENTITY NOTHING"}, "", ""},
		"wider index":      {[]string{"ALTER TABLE a ALTER v SET NOT NULL, ADD UNIQUE (d, v, id)", "ALTER TABLE a REPLICA IDENTITY USING INDEX a_d_v_id_key"}, "", ""},
		"other index": {[]string{"ALTER TABLE a ALTER v SET NOT NULL, ADD UNIQUE (d, v)", "ALTER TABLE a REPLICA IDENTITY USING INDEX a_d_v_key"},
			`"public"."a" has a replica identity without the column "id"`, "ALTER TABLE a REPLICA IDENTITY FULL"},
		"full without key": {[]string{"ALTER TABLE root DROP CONSTRAINT root_pkey", "ALTER TABLE root REPLICA IDENTITY FULL", "ALTER TABLE b ADD PRIMARY KEY (id, d)"},
			`"public"."b" does not have the table's replica identity FULL`, "ALTER TABLE b REPLICA IDENTITY FULL"},
		"leaf alone": {[]string{"ALTER TABLE root DROP CONSTRAINT root_pkey", "ALTER TABLE c ADD PRIMARY KEY (id, d)"},
			`"public"."c" lets updates and deletes through`, `ALTER TABLE root REPLICA IDENTITY FULL; ALTER TABLE c REPLICA IDENTITY FULL`},
		"inserts alone": {[]string{"ALTER TABLE root DROP CONSTRAINT root_pkey", "ALTER TABLE c ADD PRIMARY KEY (id, d)", "ALTER PUBLICATION $P SET (publish = 'insert, truncate')"}, "", ""},
		"unlogged":      {[]string{"ALTER TABLE a SET UNLOGGED"}, `"public"."a" is not in the WAL`, "ALTER TABLE a SET LOGGED"},
		"foreign": {[]string{"ALTER TABLE root DROP CONSTRAINT root_pkey", "CREATE FOREIGN DATA WRAPPER w", "CREATE SERVER s FOREIGN DATA WRAPPER w", "CREATE FOREIGN TABLE f PARTITION OF root DEFAULT SERVER s"},
			`"public"."f" is a foreign table`, "ALTER TABLE root DETACH PARTITION f"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rooted(t, p)
			r.cfg.PartialPublish = true
			r.Source = r.open()
			for _, s := range c.statements {
				r.exec(strings.ReplaceAll(s, "$P", r.name))
			}
			got := r.table("root").Unsupported
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Fatalf("refused by %q, want %q", got, c.want)
			}
			if c.repaired == "" {
				return
			}
			for _, s := range strings.Split(c.repaired, "; ") {
				if quoted := strings.NewReplacer("TABLE ", `TABLE "public"."`, " REPLICA", `" REPLICA`, " SET", `" SET`, " DETACH PARTITION f", `" DETACH PARTITION "public"."f"`).Replace(s); !strings.Contains(got, quoted) {
					t.Errorf("%q does not say %q", got, quoted)
				}
				r.exec(s)
			}
			if got := r.table("root").Unsupported; got != "" {
				t.Errorf("repaired, it is refused by %q", got)
			}
		})
	}
}

// What rows from before show in a new column is what all leaves say, or nobody knows.
func leavesMissing(t *testing.T, p *harness.Postgres) {
	r := rooted(t, p)
	r.exec("ALTER TABLE root ADD COLUMN five int DEFAULT 5", "ALTER TABLE root ADD COLUMN none int")
	shown := func(name string) string {
		for _, c := range r.table("root").Columns {
			switch {
			case c.Name == name && c.MissingUnknown:
				return "unknown"
			case c.Name == name && c.Missing == nil:
				return "NULL"
			case c.Name == name:
				return *c.Missing
			}
		}
		return ""
	}
	if shown("five") != "5" || shown("none") != "NULL" || shown("v") != "NULL" {
		t.Errorf("%s, %s, %s", shown("five"), shown("none"), shown("v"))
	}
	r.exec("CREATE TABLE e PARTITION OF root DEFAULT")
	if shown("five") != "unknown" || shown("none") != "NULL" {
		t.Errorf("with a leaf that came later: %s, %s", shown("five"), shown("none"))
	}
}

// Of several publications, each change is sent once, as the topmost table that any of them sends it as, with that one's filter and list.
func leavesPublications(t *testing.T, p *harness.Postgres) {
	r := rooted(t, p)
	r.more("p_leaf FOR TABLE b WHERE (id > 1000)", "p_middle FOR TABLE middle WITH (publish_via_partition_root)", "p_plain FOR TABLE root")
	r.cfg.Publications = append(r.cfg.Publications, r.name)
	r.Source = r.open()
	r.createSlot()
	f := r.stream(r.Source, false)
	r.exec("BEGIN; INSERT INTO root VALUES (2001, 1, 'a'); INSERT INTO b VALUES (1000, 11, 'b'); INSERT INTO middle VALUES (1001, 21, 'c'); COMMIT")
	if _, rows := f.rows(); strings.Join(rows, ", ") != "insert public.root 2001|1|a, insert public.root 1000|11|b, insert public.root 1001|21|c" {
		t.Errorf("sent %s", strings.Join(rows, ", "))
	}
	if tables := r.look().Tables; len(tables) != 1 || tables[0].Name != "root" || tables[0].Unsupported != "" || len(tables[0].Columns) != 3 {
		t.Errorf("looked at %+v", tables)
	}
	snapshot, release, err := r.Snapshot(context.Background(), patience, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if rows := r.everything(snapshot, r.table("root"), pgcdc.Range{}); len(rows) != 303 {
		t.Errorf("%d rows", len(rows))
	}
	// Without the table above, the middle is one; the leaf's own row filter is no one's.
	r.exec("ALTER PUBLICATION " + r.name + " SET (publish_via_partition_root = false)")
	var names []string
	for _, table := range r.look().Tables {
		names = append(names, table.Name)
	}
	if strings.Join(names, " ") != "a middle" {
		t.Errorf("looked at %v", names)
	}
}

// PostgreSQL 14 does not notice when a table becomes a partition: there, and there alone, a partitioned table as one is refused.
func leavesFourteen(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE root(id int PRIMARY KEY) PARTITION BY LIST (id)", "CREATE TABLE leaf PARTITION OF root DEFAULT")
	r.publish("FOR TABLE root WITH (publish_via_partition_root)")
	refused := r.number("current_setting('server_version_num')::int") < 15_00_00
	if table := r.table("root"); strings.Contains(table.Unsupported, "does not notice") != refused || !refused && table.Unsupported != "" {
		t.Errorf("%q", table.Unsupported)
	}
}
