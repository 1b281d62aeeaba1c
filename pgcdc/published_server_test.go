package pgcdc_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

var publishedTests = map[string]serverTest{
	"Rows": publishedRows, "Identity": publishedIdentity, "Refusals": publishedRefusals, "CopyRefuses": publishedCopyRefuses, "Ranges": publishedRanges,
	"Tables": publishedTables, "Locked": publishedLocked, "Attached": publishedAttached, "Deep": publishedDeep,
}

// more makes further publications of the rig and configures them all.
func (r *rig) more(publications ...string) {
	r.t.Helper()
	r.cfg.Publications = nil
	for _, p := range publications {
		name, what, _ := strings.Cut(p, " ")
		r.exec("CREATE PUBLICATION " + name + " " + what)
		r.cfg.Publications = append(r.cfg.Publications, name)
	}
	r.cfg.PartialPublish = true
	r.Source = r.open()
}

// What a copy holds is what pgoutput sends when the same rows are inserted: the same rows, the same columns. The server decides, whatever
// publishes a table: filters, several publications, schemas, partitions, lists, generated columns, sets of operations.
func publishedRows(t *testing.T, p *harness.Postgres) {
	p.Needs(15, "row filters and column lists")
	r := newRig(t, p)
	columns := map[string]string{ // name of the table to its columns, when they are not (id, v, w)
		"generated": "id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, v int, w text",
		"dropped":   "id int PRIMARY KEY, gone int, v int, w text",
		"sent":      "id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, v int, w text",
		"named":     "id int PRIMARY KEY, v int, w text, twice int GENERATED ALWAYS AS (id * 2) STORED, thrice int GENERATED ALWAYS AS (id * 3) STORED",
	}
	names := []string{"plain", "one", "both", "open", "nothing", "texts", "schema.filtered", "schema.same", "listed", "listed_alike", "list_and_filter", "generated", "dropped",
		"updates_open", "updates_too", "inserts_only", "never_inserted", "parted.a", "parted.b", "deep.a", "full_list"}
	publishGenerated := r.number("current_setting('server_version_num')") >= 180000
	if publishGenerated {
		names = append(names, "sent", "named")
	}
	r.exec(`CREATE SCHEMA "schema"`, `CREATE SCHEMA parted`, "CREATE SCHEMA deep", `GRANT USAGE ON SCHEMA "schema", parted, deep TO `+r.name,
		"CREATE TABLE parted.root(id int PRIMARY KEY, v int, w text) PARTITION BY RANGE (id)",
		"CREATE TABLE parted.a PARTITION OF parted.root FOR VALUES FROM (0) TO (50)", "CREATE TABLE parted.b PARTITION OF parted.root FOR VALUES FROM (50) TO (1000)",
		"CREATE TABLE deep.root(id int PRIMARY KEY, v int, w text) PARTITION BY RANGE (id)",
		"CREATE TABLE deep.middle PARTITION OF deep.root FOR VALUES FROM (0) TO (1000) PARTITION BY RANGE (id)",
		"CREATE TABLE deep.a PARTITION OF deep.middle FOR VALUES FROM (0) TO (1000)")
	for _, name := range names {
		if strings.HasPrefix(name, "parted.") || strings.HasPrefix(name, "deep.") {
			continue
		}
		definition := columns[name]
		if definition == "" {
			definition = "id int PRIMARY KEY, v int, w text"
		}
		r.exec("CREATE TABLE " + quoted(name) + "(" + definition + ")")
	}
	r.exec("ALTER TABLE dropped DROP gone", "GRANT SELECT ON ALL TABLES IN SCHEMA public, \"schema\", parted, deep TO "+r.name)
	publications := []string{
		`p1 FOR TABLE plain, one WHERE (id > 20), "both" WHERE (id < 10), "open" WHERE (id < 10), nothing WHERE (v > 3 OR NULL),
			"texts" WHERE (w = 'it''s 3' OR w LIKE '%\1' OR upper(w) ~ '^X' OR (id % 7, w) IN ((2, 'é 2'))),
			"schema".filtered WHERE (id = 1), listed (id, v), listed_alike (id, w), list_and_filter (w, id) WHERE (id > 50),
			generated, dropped WHERE (v = 5), updates_open, updates_too WHERE (id < 5), parted.root,
			parted.b WHERE (id > 90), deep.root, full_list (id, v, w) WITH (publish = 'insert, update, delete, truncate')`,
		`p2 FOR TABLE "both" WHERE (id > 90), "open", listed_alike (w, id), full_list`,
		`p3 FOR TABLES IN SCHEMA "schema", TABLE "schema".same WHERE (id < 5)`,
		`p4 FOR TABLE updates_open, updates_too WHERE (id < 5), never_inserted WHERE (id < 7) WITH (publish = 'update')`,
		`p5 FOR TABLE inserts_only (v) WHERE (w IS NULL AND v < 50) WITH (publish = 'insert')`,
	}
	if publishGenerated {
		publications = append(publications, "p6 FOR TABLE sent WHERE (id > 4), named (id, thrice) WITH (publish_generated_columns = stored)")
	}
	r.more(publications...)
	r.createSlot()
	f := r.stream(r.Source, true)
	insert := `BEGIN;`
	for _, name := range names {
		root := name
		switch name {
		case "never_inserted", "parted.b":
			continue
		case "parted.a":
			root = "parted.root"
		case "deep.a":
			root = "deep.root"
		}
		insert += `INSERT INTO ` + quoted(root) + `(id, v, w) SELECT i, CASE WHEN i % 4 <> 0 THEN i % 9 END,
			CASE i % 6 WHEN 0 THEN NULL WHEN 1 THEN 'a\1' WHEN 2 THEN 'é ' || i WHEN 3 THEN 'it''s ' || i ELSE 'xx' END FROM generate_series(0, 99) i;`
	}
	r.exec(insert + "COMMIT")
	r.exec("INSERT INTO never_inserted SELECT i FROM generate_series(0, 99) i")
	_, rows := f.rows()
	sent := map[string][]string{}
	for _, row := range rows {
		name, values, _ := strings.Cut(strings.TrimPrefix(row, "insert "), " ")
		sent[strings.TrimPrefix(name, "public.")] = append(sent[strings.TrimPrefix(name, "public.")], values)
	}
	snapshot, release, err := r.Snapshot(t.Context(), patience, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	catalog := r.look()
	seen := 0
	for i := range catalog.Tables {
		table := &catalog.Tables[i]
		name := strings.TrimPrefix(table.Schema+"."+table.Name, "public.")
		if table.Kind == 'p' {
			t.Errorf("%s is listed", name)
			continue
		}
		seen++
		if table.Unsupported != "" {
			t.Errorf("%s: %s", name, table.Unsupported)
			continue
		}
		var copied []string
		if err := r.Copy(t.Context(), snapshot, table, func(tuple pgcdc.Tuple) error {
			copied = append(copied, texts(tuple))
			return nil
		}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := sent[name]
		if name == "never_inserted" { // the updates of which would bring these
			for i := range 7 {
				want = append(want, fmt.Sprintf("%08x|<n>|<n>", i))
			}
		}
		slices.Sort(copied)
		slices.Sort(want)
		if !slices.Equal(copied, want) {
			t.Errorf("%s: copied %d rows, sent were %d\n%.300v\n%.300v", name, len(copied), len(want), copied, want)
		}
		columns := map[string]int{"sent": 4, "named": 2, "listed": 2, "listed_alike": 2, "list_and_filter": 2, "inserts_only": 1}
		if want := columns[name]; want != 0 && len(table.Columns) != want || want == 0 && len(table.Columns) != 3 {
			t.Errorf("%s has %d columns", name, len(table.Columns))
		}
		if all := len(want) == 100 || strings.HasPrefix(name, "parted.") && len(want) == 50; all != slices.Contains([]string{"plain", "open", "updates_open", "schema.filtered", "schema.same", "listed",
			"listed_alike", "generated", "parted.a", "deep.a", "full_list", "named"}, name) {
			t.Errorf("%s: the server sent %d rows: the case shows nothing", name, len(want))
		}
	}
	if seen != len(names) {
		t.Errorf("%d tables, want %d", seen, len(names))
	}
}

// quoted quotes the parts of a qualified name.
func quoted(name string) string {
	parts := strings.Split(name, ".")
	for i := range parts {
		parts[i] = harness.Ident(parts[i])
	}
	return strings.Join(parts, ".")
}

// Whatever may have kept a change from being sent changes the fingerprint, also when all is again as it was; what could not, does not.
func publishedIdentity(t *testing.T, p *harness.Postgres) {
	p.Needs(15, "row filters and column lists")
	r := newRig(t, p)
	r.exec("CREATE SCHEMA s", "CREATE SCHEMA elsewhere", "GRANT USAGE ON SCHEMA s, elsewhere TO "+r.name, "CREATE ROLE owner_"+r.name+" SUPERUSER",
		"CREATE TABLE t(id int PRIMARY KEY, v int, w int)", "CREATE TABLE other(id int PRIMARY KEY)", "CREATE TABLE s.t(id int PRIMARY KEY)",
		"CREATE TABLE root(id int PRIMARY KEY) PARTITION BY LIST (id)", "CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1)", "CREATE TABLE second(id int PRIMARY KEY)",
		"CREATE TABLE listed(id int PRIMARY KEY, v int, w int)")
	r.more("p1 FOR TABLE t WHERE (id > 5), root, listed (id, v)", "p2 FOR TABLES IN SCHEMA s", "p3 FOR TABLE other")
	fingerprints := func() map[string]string {
		found := map[string]string{}
		for _, table := range r.look().Tables {
			if table.Schema+"."+table.Name != "public.second" {
				found[strings.TrimPrefix(table.Schema+"."+table.Name, "public.")] = table.Fingerprint
			}
		}
		return found
	}
	for _, c := range []struct{ statements, changes string }{
		{"ALTER PUBLICATION p1 DROP TABLE t; ALTER PUBLICATION p1 ADD TABLE t WHERE (id > 5)", "t"},
		{"ALTER PUBLICATION p1 SET TABLE t WHERE (id > 6), root, listed (id, v)", "t"},
		{"ALTER PUBLICATION p1 SET TABLE t WHERE (id > 6), root, listed (v, id)", ""},
		{"ALTER PUBLICATION p1 SET TABLE t, root, listed (id, v)", "t"},
		{"ALTER PUBLICATION p1 SET TABLE t (id), root, listed (id, v)", "t"},
		{"ALTER PUBLICATION p1 SET TABLE t (id, w), root, listed (id, v)", "t"},
		{"ALTER PUBLICATION p1 SET TABLE t (id, v, w), root, listed (id, v)", "t"},
		{"ALTER TABLE listed ADD x int; ALTER TABLE listed RENAME w TO u; ALTER TABLE listed DROP x", ""},
		{"ALTER TABLE listed RENAME v TO x", "listed"},
		{"ALTER PUBLICATION p1 DROP TABLE root; ALTER PUBLICATION p1 ADD TABLE root", "leaf"},
		{"ALTER TABLE root DETACH PARTITION leaf; ALTER TABLE root ATTACH PARTITION leaf FOR VALUES IN (1)", "leaf"},
		{"ALTER TABLE root ATTACH PARTITION second FOR VALUES IN (2)", ""},
		{"ALTER PUBLICATION p1 SET (publish = 'insert'); ALTER PUBLICATION p1 SET (publish = 'insert, update, delete, truncate')", "leaf listed t"},
		{"ALTER PUBLICATION p1 SET (publish_via_partition_root = true); ALTER PUBLICATION p1 SET (publish_via_partition_root = false)", "leaf listed t"},
		{"ALTER PUBLICATION p2 DROP TABLES IN SCHEMA s; ALTER PUBLICATION p2 ADD TABLES IN SCHEMA s", "s.t"},
		{"ALTER TABLE s.t SET SCHEMA elsewhere; ALTER TABLE elsewhere.t SET SCHEMA s", "s.t"},
		{"DROP PUBLICATION p2; CREATE PUBLICATION p2 FOR TABLES IN SCHEMA s", "s.t"},
		{"DROP PUBLICATION p3; CREATE PUBLICATION p3 FOR ALL TABLES", "leaf listed other s.t t"},
		{"DROP PUBLICATION p3; CREATE PUBLICATION p3 FOR TABLE other", "leaf listed other s.t t"},
		{"ALTER PUBLICATION p3 RENAME TO p4; ALTER PUBLICATION p4 RENAME TO p3", "other"}, // in between, changes may have been passed over
		{"COMMENT ON PUBLICATION p1 IS 'x'; ALTER TABLE t OWNER TO owner_" + r.name + "; GRANT SELECT ON t TO PUBLIC", ""},
		{"CREATE TABLE third(id int); ALTER PUBLICATION p1 ADD TABLE third; ALTER PUBLICATION p1 DROP TABLE third; DROP TABLE third", ""},
		{"CREATE PUBLICATION p5 FOR ALL TABLES; DROP PUBLICATION p5", ""},
		{"VACUUM FREEZE pg_publication, pg_publication_rel, pg_publication_namespace, pg_inherits, pg_depend", ""},
		{"VACUUM FULL pg_publication; VACUUM FULL pg_publication_rel; VACUUM FULL pg_inherits; REINDEX TABLE pg_publication_rel", ""},
	} {
		before := fingerprints()
		for _, s := range strings.Split(c.statements, "; ") {
			r.exec(s)
		}
		var changed []string
		for name, now := range fingerprints() {
			if before[name] != now {
				changed = append(changed, name)
			}
		}
		slices.Sort(changed)
		if got := strings.Join(changed, " "); got != c.changes {
			t.Errorf("%s: other fingerprints have %q, want %q", c.statements, got, c.changes)
		}
	}
}

// What the stream cannot bring as a table of its own is refused, also by the publication that alone would be right.
func publishedRefusals(t *testing.T, p *harness.Postgres) {
	p.Needs(15, "row filters and column lists")
	r := newRig(t, p)
	r.exec("CREATE SCHEMA s", "GRANT USAGE ON SCHEMA s TO "+r.name, "CREATE TABLE root(id int PRIMARY KEY) PARTITION BY LIST (id)", "CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1)",
		"CREATE TABLE s.root(id int PRIMARY KEY) PARTITION BY LIST (id)", "CREATE TABLE middle PARTITION OF s.root FOR VALUES IN (1) PARTITION BY LIST (id)",
		"CREATE TABLE low PARTITION OF middle FOR VALUES IN (1)", "CREATE TABLE differing(id int PRIMARY KEY, v int)", "CREATE TABLE self(id int PRIMARY KEY) PARTITION BY LIST (id)",
		"CREATE TABLE own PARTITION OF self FOR VALUES IN (1)", "CREATE TABLE unkeyed(id int PRIMARY KEY, v int)",
		"CREATE TABLE in_part(id int PRIMARY KEY)", "CREATE TABLE in_part2(id int PRIMARY KEY)", "CREATE TABLE alike(id int PRIMARY KEY)",
		"CREATE TABLE computed(id int, twice int GENERATED ALWAYS AS (id * 2) STORED, PRIMARY KEY (id, twice))")
	r.more("p1 FOR TABLE leaf, low, differing (id), own, unkeyed (v), computed, in_part WHERE (id > 1), in_part2 WHERE (id > 1), alike WHERE (id > 1)", "p2 FOR TABLE root, differing, own WITH (publish_via_partition_root)",
		"p3 FOR TABLES IN SCHEMA s WITH (publish_via_partition_root)",
		"p4 FOR TABLE in_part, in_part2 WHERE (id > 2), alike WHERE (id > 1) WITH (publish = 'insert, delete')", "p5 FOR TABLE alike WHERE (id > 1) WITH (publish = 'update')")
	want := map[string]string{
		"differing": "different columns",
		"own":       "", "unkeyed": "", "in_part": "filter its inserts", "in_part2": "filter its inserts", "alike": "", "computed": "a column of its key is not published",
	}
	// The partitioned tables are tables themselves, and their leaves none.
	if found := len(r.look().Tables); found != len(want)+2 {
		t.Errorf("%d tables", found)
	}
	for name, part := range want {
		table := r.table(name)
		if (part == "") != (table.Unsupported == "") || !strings.Contains(table.Unsupported, part) {
			t.Errorf("%s: %q, want %q", name, table.Unsupported, part)
		}
		if name == "unkeyed" && (len(table.Key) != 0 || len(table.IdentityKey) != 0 || len(table.Columns) != 1) {
			t.Errorf("%s: %+v", name, table)
		}
	}
	r.createSlot()
	f := r.stream(r.Source, true)
	r.exec("BEGIN; INSERT INTO root VALUES (1); INSERT INTO s.root VALUES (1); INSERT INTO self VALUES (1); COMMIT")
	// The server says that these refusals are right.
	_, rows := f.rows()
	if got := strings.Join(rows, " "); got != "insert public.root 00000001 insert s.root 00000001 insert public.own 00000001" {
		t.Errorf("sent: %s", got)
	}
}

// A copy under a snapshot at which the table was published in another way ends with ErrRewritten: between the two, the stream brought
// something else than the copy has.
func publishedCopyRefuses(t *testing.T, p *harness.Postgres) {
	p.Needs(15, "row filters and column lists")
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY, v int)", "INSERT INTO t SELECT i, i FROM generate_series(1, 100) i", "CREATE TABLE second(id int PRIMARY KEY)")
	r.more("p1 FOR TABLE t WHERE (id <= 10)", "p2 FOR TABLE second")
	snapshot := r.createSlot()
	before := r.table("t")
	for _, c := range []struct {
		statement string
		rows      int // -1: the copy is refused
	}{
		{"ALTER PUBLICATION p2 SET (publish = 'insert')", 10}, {"COMMENT ON PUBLICATION p1 IS 'x'", 10}, {"ALTER PUBLICATION p1 ADD TABLE second", 10},
		{"ALTER PUBLICATION p1 SET TABLE t WHERE (id <= 20)", -1}, {"ALTER PUBLICATION p1 DROP TABLE t", -1}, {"ALTER PUBLICATION p1 ADD TABLE t WHERE (id <= 10)", -1},
	} {
		r.exec(c.statement)
		for i, table := range []*pgcdc.Table{before, r.freshTable("t", before)} {
			rows := 0
			err := r.Copy(t.Context(), snapshot, table, func(pgcdc.Tuple) error { rows++; return nil })
			if table == before && err == nil && rows == 10 || err == nil && rows == c.rows || c.rows < 0 && errors.Is(err, pgcdc.ErrRewritten) && rows == 0 {
				continue // as it was looked at first, it is the snapshot's
			}
			t.Errorf("%s: look %d: %d rows, %v", c.statement, i, rows, err)
		}
	}
}

// Ranges of a table with a row filter hold, all together, the rows that pass it, and read no more than their blocks, even where the filter
// has an index. So does a sample.
func publishedRanges(t *testing.T, p *harness.Postgres) {
	p.Needs(15, "row filters and column lists")
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY, v text) WITH (autovacuum_enabled = off)", "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 4000) i",
		"ANALYZE t")
	r.more("p1 FOR TABLE t WHERE (id % 2 = 1 AND id <= 500)")
	snapshot := r.createSlot()
	table := r.table("t")
	scans := r.number("(SELECT coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = 't')")
	var got []int
	for _, part := range []pgcdc.Range{{From: 0, To: 20}, {From: 20, To: 21}, {From: 21}} {
		got = append(got, r.idsIn(snapshot, table, part)...)
	}
	if now := r.number("(SELECT coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = 't')"); now != scans {
		t.Errorf("%d scans of an index", now-scans)
	}
	slices.Sort(got)
	if len(got) != 250 || got[0] != 1 || got[249] != 499 {
		t.Errorf("%d rows: %v", len(got), got)
	}
	var sample []int
	const third = 1 << 62
	if err := r.CopySample(t.Context(), snapshot, table, table.Key, third, func(tuple pgcdc.Tuple) error {
		id := int(binary.BigEndian.Uint32(tuple[0].Data))
		if !pgcdc.InSample([]byte(fmt.Sprint(id)), third) {
			t.Errorf("%d is not of the sample", id)
		}
		sample = append(sample, id)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range got {
		if pgcdc.InSample([]byte(fmt.Sprint(id)), third) != slices.Contains(sample, id) {
			t.Errorf("%d is wrong in the sample", id)
		}
	}
	if len(sample) < 20 || len(sample) > 120 || slices.Max(sample) > 499 {
		t.Errorf("a sample of %d rows up to %d", len(sample), slices.Max(sample))
	}
}

// A table whose changes the server has looked at before it became a partition of a published one is sent from then on. PostgreSQL 14 goes on keeping
// its changes back until the publication is altered, so there such a table is refused.
func publishedAttached(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE root(id int PRIMARY KEY) PARTITION BY LIST (id)", "CREATE TABLE early PARTITION OF root FOR VALUES IN (1)", "CREATE TABLE late(id int PRIMARY KEY)",
		"CREATE TABLE other(id int PRIMARY KEY)")
	r.more("p1 FOR TABLE root, other")
	r.createSlot()
	f := r.stream(r.Source, true)
	r.exec("INSERT INTO late VALUES (2)", "INSERT INTO other VALUES (1)")
	sent := func(want string) {
		t.Helper()
		if _, rows := f.rows(); strings.Join(rows, " ") != want {
			t.Errorf("sent %s, want %s", rows, want)
		}
	}
	sent("insert public.other 00000001")
	r.exec("ALTER TABLE root ATTACH PARTITION late FOR VALUES IN (2, 3)", "INSERT INTO late VALUES (3)", "INSERT INTO other VALUES (2)")
	if r.number("current_setting('server_version_num')::int") < 15_00_00 {
		sent("insert public.other 00000002")
		for _, name := range []string{"early", "late"} {
			if why := r.table(name).Unsupported; !strings.Contains(why, "ALTER PUBLICATION") || !strings.Contains(why, `ADD TABLE "public"."`+name+`"`) {
				t.Errorf("%s: %q", name, why)
			}
		}
		r.exec("ALTER PUBLICATION p1 ADD TABLE late", "TRUNCATE late", "INSERT INTO late VALUES (3)")
		sent("truncate 1")
	}
	sent("insert public.late 00000003")
	if why := r.table("late").Unsupported; why != "" {
		t.Errorf("refused: %s", why)
	}
}

// A table is found published in the same way by every look and by its copy, however many ways there are: a partition of partitions is in a
// publication of all tables, or of its schema, once for each table above it.
func publishedDeep(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	what := []string{"FOR ALL TABLES"}
	if r.number("current_setting('server_version_num')") >= 150000 {
		what = append(what, "FOR TABLES IN SCHEMA public")
	}
	r.exec("CREATE TABLE r(id int PRIMARY KEY) PARTITION BY RANGE (id)", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO "+r.name,
		"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO "+r.name)
	above := "r"
	for _, name := range []string{"r1", "r2", "r3"} {
		r.exec("CREATE TABLE " + name + " PARTITION OF " + above + " DEFAULT PARTITION BY RANGE (id)")
		above = name
	}
	for i := range 20 { // more tables make the server choose other plans
		r.exec(fmt.Sprintf("CREATE TABLE leaf%d PARTITION OF r3 FOR VALUES FROM (%d) TO (%d)", i, i, i+1), fmt.Sprintf("CREATE TABLE t%d(id int PRIMARY KEY)", i))
	}
	r.exec("INSERT INTO r SELECT generate_series(0, 19)")
	for i, w := range what {
		r.more(fmt.Sprintf("deep%d %s", i, w))
		snapshot, release, err := r.Snapshot(t.Context(), patience, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		catalog := r.look()
		for j := range catalog.Tables {
			table, rows := &catalog.Tables[j], 0
			if err := r.Copy(t.Context(), snapshot, table, func(pgcdc.Tuple) error { rows++; return nil }); err != nil {
				t.Errorf("%s: %v", w, err)
			} else if strings.HasPrefix(table.Name, "leaf") && rows != 1 {
				t.Errorf("%s: %s has %d rows", w, table.Name, rows)
			}
		}
	}
}
