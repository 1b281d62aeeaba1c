package pgcdc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

var catalogTests = map[string]serverTest{
	"Identify": catalogIdentify, "Look": catalogLook, "LookOrder": catalogLookOrder, "LookUnanswered": catalogLookUnanswered, "Refusals": catalogRefusals, "Fingerprint": catalogFingerprint,
	"Rewrite": catalogRewrite, "RowsKept": catalogRowsKept, "Unlogged": catalogUnlogged, "CreatePublication": catalogCreatePublication,
}

// The server is who its own control file says.
func catalogIdentify(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	id, err := r.Identify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := p.QueryRow("SELECT s.system_identifier, c.timeline_id, current_setting('server_version_num') FROM pg_control_system() s, pg_control_checkpoint() c")
	if got := fmt.Sprintf("%s|%d|%d", id.SystemID, id.Timeline, id.Version); got != want || id.Database != r.name || len(id.History) != 0 {
		t.Errorf("%+v, want %s", id, want)
	}
	flushed := parseLSN(t, p.QueryRow("SELECT pg_current_wal_flush_lsn()"))
	if id.WALEnd == 0 || id.WALEnd > flushed {
		t.Errorf("WAL ends at %s, now %s", id.WALEnd, flushed)
	}
}

// Columns, keys and identities are those of the catalogue, by schema and name, whatever the names are.
func catalogLook(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec(`CREATE SCHEMA "Zoo"`, `GRANT USAGE ON SCHEMA "Zoo" TO `+r.name, `ALTER DEFAULT PRIVILEGES IN SCHEMA "Zoo" GRANT SELECT ON TABLES TO `+r.name,
		`CREATE TABLE "Zoo"."naïve ""table"""(x int, "select" int, "Ü" text NOT NULL, PRIMARY KEY ("select", x) INCLUDE ("Ü"))`,
		"CREATE TABLE nokey(a int, b int)",
		"CREATE TABLE whole(a int PRIMARY KEY, b int)", "ALTER TABLE whole REPLICA IDENTITY FULL",
		"CREATE TABLE chosen(a int PRIMARY KEY, gone int, b int NOT NULL, c int NOT NULL)", "CREATE UNIQUE INDEX chosen_i ON chosen(c, b)",
		"ALTER TABLE chosen DROP gone", "ALTER TABLE chosen REPLICA IDENTITY USING INDEX chosen_i",
		"CREATE TABLE deferred(a int PRIMARY KEY DEFERRABLE)",
		"CREATE TABLE nothing(a int PRIMARY KEY)", "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
		"CREATE TABLE generated(a int PRIMARY KEY, twice int GENERATED ALWAYS AS (a * 2) STORED, b numeric(10,2))",
		`ALTER DATABASE `+r.name+` SET search_path = "$user", app, "Zoo"`)
	r.publish("FOR ALL TABLES")
	before := parseLSN(t, p.QueryRow("SELECT pg_current_wal_flush_lsn()"))
	catalog := r.look()
	var got []string
	for _, table := range catalog.Tables {
		var columns []string
		for _, c := range table.Columns {
			null := ""
			if c.NotNull {
				null = "!"
			}
			columns = append(columns, fmt.Sprintf("%d:%s:%s%s", c.AttNum, c.Name, c.Type.Name, null))
		}
		got = append(got, fmt.Sprintf("%s.%s %c%c%c %v %v %v %s", table.Schema, table.Name, table.Kind, table.Persistence, table.Identity,
			columns, table.Key, table.IdentityKey, table.Unsupported))
		filenode := fmt.Sprint(table.Relfilenode)
		if rows, _ := p.Connect("postgres", r.name); rows != nil {
			now, _ := rows.Query(fmt.Sprintf("SELECT pg_relation_filenode(%d)", table.OID))
			if now[0][0] != filenode {
				t.Errorf("%s: relfilenode %s, want %s", table.Name, filenode, now[0][0])
			}
		}
	}
	want := []string{
		`Zoo.naïve "table" rpd [1:x:integer! 2:select:integer! 3:Ü:text!] [1 0] [1 0] `,
		"public.chosen rpi [1:a:integer! 3:b:integer! 4:c:integer!] [0] [2 1] ",
		"public.deferred rpd [1:a:integer!] [0] [] ",
		"public.generated rpd [1:a:integer! 3:b:numeric(10,2)] [0] [0] ",
		"public.nokey rpd [1:a:integer 2:b:integer] [] [] ",
		"public.nothing rpn [1:a:integer!] [0] [] ",
		"public.whole rpf [1:a:integer! 2:b:integer] [0] [0 1] ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := []string{"app", "Zoo", "public"}; !slices.Equal(r.searchPath(), want) {
		t.Errorf("search path %q, want %q", r.searchPath(), want)
	}
	if catalog.CheckedLSN < before || catalog.LSN < catalog.CheckedLSN {
		t.Errorf("checked at %s, read at %s, WAL was at %s", catalog.CheckedLSN, catalog.LSN, before)
	}
}

// A look that sees more has the higher Snapshot, whatever transactions and subtransactions are in progress.
func catalogLookOrder(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.publish("FOR ALL TABLES")
	one, other := p.Open("postgres", r.name), p.Open("postgres", r.name)
	last := r.look().Snapshot
	for _, step := range []struct {
		session *harness.Session
		text    string
		ends    bool
	}{
		{one, "CREATE TABLE first(a int)", true}, {one, "BEGIN", false}, {one, "CREATE TABLE second(a int)", false}, {other, "CREATE TABLE third(a int)", true},
		{one, "SAVEPOINT s", false}, {one, "CREATE TABLE fourth(a int)", false}, {other, "CREATE TABLE fifth(a int)", true}, {one, "COMMIT", true},
	} {
		if err := step.session.Exec(step.text); err != nil {
			t.Fatal(err)
		}
		now := r.look().Snapshot
		if now < last || step.ends && now == last { // other databases' transactions count too
			t.Errorf("%d after %s, %d before", now, step.text, last)
		}
		last = now
	}
}

// searchPath is what a fresh connection finds.
func (r *rig) searchPath() []string {
	r.t.Helper()
	catalog, err := r.open().Look(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return catalog.SearchPath
}

// What cannot be mirrored yet is said of its own table alone, with what to do.
func catalogRefusals(t *testing.T, p *harness.Postgres) {
	p.Needs(15, "row filters and column lists")
	r := newRig(t, p)
	r.exec("CREATE TABLE plain(a int PRIMARY KEY)",
		"CREATE TABLE parted(a int) PARTITION BY RANGE (a)", "CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (9)",
		"CREATE TABLE filtered(a int PRIMARY KEY)", "CREATE TABLE listed(a int PRIMARY KEY, b int)",
		"CREATE TABLE secured(a int PRIMARY KEY)", "ALTER TABLE secured ENABLE ROW LEVEL SECURITY",
		"CREATE TABLE unreadable(a int PRIMARY KEY)", "REVOKE ALL ON unreadable FROM "+r.name,
		"CREATE TABLE hidden(a int PRIMARY KEY, _pgmirror_lsn int)", "CREATE TABLE empty()",
		"CREATE DOMAIN list AS int[]", "CREATE TABLE lists(a int PRIMARY KEY, p list[])")
	r.publish("FOR TABLE plain, part, filtered WHERE (a > 5), listed (a), secured, unreadable, hidden, empty, lists")
	other := r.name + "_root"
	r.exec("CREATE PUBLICATION " + other + " FOR TABLE parted WITH (publish_via_partition_root)")
	r.cfg.Publications = append(r.cfg.Publications, other)
	catalog, err := r.open().Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"plain": "", "parted": "", "filtered": "", "listed": "", "secured": "BYPASSRLS",
		"unreadable": `GRANT SELECT ON "public"."unreadable"`, "hidden": "_pgmirror_lsn", "empty": "no published column", "lists": `column "p"`,
	}
	for _, table := range catalog.Tables {
		part, ok := want[table.Name]
		if !ok || (part == "") != (table.Unsupported == "") || !strings.Contains(table.Unsupported, part) {
			t.Errorf("%s: %q, want %q", table.Name, table.Unsupported, part)
		}
		delete(want, table.Name)
	}
	if len(want) > 0 {
		t.Errorf("not seen: %v", want)
	}
}

// Each kind of change to a table's shape gives another fingerprint, and what changes no row gives the same.
func catalogFingerprint(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TYPE mood AS ENUM ('low', 'high')", "CREATE DOMAIN moods AS mood[]",
		"CREATE TYPE inner_part AS ENUM ('i')", "CREATE TYPE deepest AS (a int, b inner_part)", "CREATE TYPE part AS (a int, d deepest[])", "CREATE DOMAIN parts AS part",
		"CREATE TYPE spans AS RANGE (subtype = deepest)",
		"CREATE TABLE t(id int PRIMARY KEY, v varchar(5), w int NOT NULL, m moods, p parts, s spans)", "CREATE UNIQUE INDEX t_w ON t(w)",
		"INSERT INTO t SELECT i, 'v', i, '{low}' FROM generate_series(1, 100) i", "CREATE SCHEMA elsewhere", "GRANT USAGE ON SCHEMA elsewhere TO "+r.name)
	r.publish("FOR ALL TABLES")
	fingerprint := func() string {
		catalog := r.look()
		if len(catalog.Tables) != 1 {
			t.Fatalf("%d tables", len(catalog.Tables))
		}
		return catalog.Tables[0].Fingerprint
	}
	seen := map[string]string{fingerprint(): "the beginning"}
	last := fingerprint()
	for _, statement := range []string{
		"ALTER TABLE t ADD n int", "ALTER TABLE t ADD d int DEFAULT 7", "ALTER TABLE t ADD x int DEFAULT 8", "ALTER TABLE t DROP n",
		"ALTER TABLE t RENAME v TO v2", "ALTER TABLE t ALTER v2 TYPE varchar(9)", "ALTER TABLE t ALTER w TYPE bigint", "ALTER TABLE t RENAME TO t2",
		"ALTER TABLE t2 SET SCHEMA elsewhere", "ALTER TABLE elsewhere.t2 REPLICA IDENTITY USING INDEX t_w", "ALTER TABLE elsewhere.t2 REPLICA IDENTITY FULL",
		"ALTER TABLE elsewhere.t2 DROP CONSTRAINT t_pkey", "ALTER TABLE elsewhere.t2 ADD PRIMARY KEY (w)", "ALTER TYPE mood ADD VALUE 'middle' BEFORE 'high'",
		"ALTER TYPE mood RENAME VALUE 'low' TO 'lowest'", "ALTER TYPE part ADD ATTRIBUTE n numeric(5,2)", "ALTER TYPE part DROP ATTRIBUTE a", "ALTER TYPE part ADD ATTRIBUTE a int",
		"ALTER TYPE inner_part ADD VALUE 'j'", "ALTER TYPE inner_part RENAME VALUE 'i' TO 'k'", "ALTER TYPE deepest ADD ATTRIBUTE c text", "ALTER TYPE deepest DROP ATTRIBUTE b",
	} {
		r.exec(statement)
		now := fingerprint()
		if before, ok := seen[now]; ok {
			t.Errorf("%s: as after %s", statement, before)
		}
		seen[now], last = statement, now
	}
	for _, statement := range []string{
		"INSERT INTO elsewhere.t2(id, w) VALUES (1000, 1000)", "ANALYZE elsewhere.t2", "VACUUM elsewhere.t2", "VACUUM FREEZE elsewhere.t2",
		"ALTER TABLE elsewhere.t2 ALTER w SET STATISTICS 50", "GRANT SELECT (w) ON elsewhere.t2 TO PUBLIC", "ALTER TABLE elsewhere.t2 ALTER w SET DEFAULT 1",
		"ALTER TABLE elsewhere.t2 ALTER v2 SET STORAGE EXTERNAL", "VACUUM FULL elsewhere.t2", "REINDEX TABLE CONCURRENTLY elsewhere.t2", "TRUNCATE elsewhere.t2",
		"ALTER TYPE part RENAME ATTRIBUTE n TO m", "ALTER TYPE deepest RENAME TO deeper", "ALTER TYPE inner_part RENAME TO innermost", // a composite's text has no names
	} {
		r.exec(statement)
		if fingerprint() != last {
			t.Errorf("%s: another fingerprint", statement)
			last = fingerprint()
		}
	}
	r.exec("DROP TABLE elsewhere.t2", "CREATE TABLE t(id int PRIMARY KEY)")
	first := fingerprint()
	r.exec("DROP TABLE t", "CREATE TABLE t(id int PRIMARY KEY)")
	if fingerprint() == first {
		t.Error("a table that was made again has the old one's fingerprint")
	}
}

// A rewrite that leaves every type alone is told from VACUUM FULL and CLUSTER by the rows of pg_attribute.
func catalogRewrite(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY, v int)", "INSERT INTO t SELECT i, i FROM generate_series(1, 100) i")
	r.publish("FOR ALL TABLES")
	for _, c := range []struct {
		statement                       string
		filenode, versions, fingerprint bool
	}{
		{"ANALYZE t", false, false, false},
		{"VACUUM FULL t", true, false, false},
		{"CLUSTER t USING t_pkey", true, false, false},
		{"TRUNCATE t", true, false, false},
		{"ALTER TABLE t ALTER v TYPE int USING v * 2", true, true, false},
		{"ALTER TABLE t ALTER v SET STATISTICS 10", false, true, false},
		{"ALTER TABLE t ADD r float8 DEFAULT random()", true, true, true},
	} {
		before := r.table("t")
		r.exec(c.statement)
		after := r.table("t")
		if (before.Relfilenode != after.Relfilenode) != c.filenode || (before.AttributeVersions != after.AttributeVersions) != c.versions ||
			(before.Fingerprint != after.Fingerprint) != c.fingerprint {
			t.Errorf("%s: relfilenode %d to %d, versions changed %v, fingerprint changed %v", c.statement, before.Relfilenode, after.Relfilenode,
				before.AttributeVersions != after.AttributeVersions, before.Fingerprint != after.Fingerprint)
		}
	}
}

// Harmless changes of a table's definition beside a VACUUM FULL, CLUSTER or TRUNCATE are told from a rewriting ALTER TABLE, which is never
// taken for them, whatever came after it.
func catalogRowsKept(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	const rewrite = "ALTER TABLE t ALTER v TYPE int USING v * 2"
	for name, c := range map[string]struct {
		statements []string
		kept       bool
	}{
		"set not null, vacuum full":       {[]string{"ALTER TABLE t ALTER v SET NOT NULL", "VACUUM FULL t"}, true},
		"cluster, drop not null":          {[]string{"CLUSTER t USING t_pkey", "ALTER TABLE t ALTER w DROP NOT NULL"}, true},
		"statistics, truncate":            {[]string{"ALTER TABLE t ALTER v SET STATISTICS 7", "TRUNCATE t"}, true},
		"truncate, new rows":              {[]string{"TRUNCATE t", "INSERT INTO t VALUES (1, 1, 1)", "ALTER TABLE t ALTER v SET STATISTICS 7"}, true},
		"options, vacuum full":            {[]string{"ALTER TABLE t ALTER v SET (n_distinct = 7)", "VACUUM FULL t"}, true},
		"column grant, vacuum full":       {[]string{"GRANT SELECT (v) ON t TO PUBLIC", "VACUUM FULL t"}, true},
		"storage, cluster":                {[]string{"ALTER TABLE t ALTER big SET STORAGE MAIN", "CLUSTER t USING t_pkey"}, true},
		"default of old, vacuum full":     {[]string{"VACUUM FULL t"}, true},
		"every row changed":               {[]string{"ALTER TABLE t ALTER v SET STATISTICS 7", "VACUUM FULL t", "UPDATE t SET v = v + 1"}, true},
		"every row rewritten and changed": {[]string{rewrite, "UPDATE t SET v = v + 1"}, true},
		"rewritten":                       {[]string{rewrite}, false},
		"rewritten, vacuum full":          {[]string{rewrite, "ALTER TABLE t ALTER v SET NOT NULL", "VACUUM FULL t"}, false},
		"rewritten, most rows changed":    {[]string{rewrite, "UPDATE t SET v = 3 WHERE id > 1"}, false},
		"rewritten with new rows":         {[]string{"BEGIN; TRUNCATE t; INSERT INTO t VALUES (1, 1, 1); " + rewrite + "; COMMIT"}, false},
		"rewritten in a subtransaction":   {[]string{"BEGIN; SAVEPOINT s; " + rewrite + "; RELEASE s; COMMIT", "INSERT INTO t VALUES (1001, 1, 1)"}, false},
		"rewritten, values out of line":   {[]string{"ALTER TABLE t ALTER big TYPE text USING reverse(big)", "UPDATE t SET v = v + 1"}, false},
	} {
		r.exec("DROP TABLE IF EXISTS t", "CREATE TABLE t(id int PRIMARY KEY, v int, w int NOT NULL)", "INSERT INTO t SELECT i, i, i FROM generate_series(1, 100) i",
			"ALTER TABLE t ADD old int DEFAULT 7", "ALTER TABLE t ADD big text", "ALTER TABLE t ALTER big SET STORAGE EXTERNAL", "DROP PUBLICATION IF EXISTS "+r.name)
		if strings.Contains(name, "out of line") {
			r.exec("UPDATE t SET big = (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i) WHERE id = 50")
		}
		r.publish("FOR TABLE t")
		before := r.table("t")
		r.exec(c.statements...)
		after := r.table("t")
		if after.Relfilenode == before.Relfilenode || after.AttributeVersions == before.AttributeVersions || after.Fingerprint != before.Fingerprint {
			t.Errorf("%s: the look does not show it: %+v, before %+v", name, after, before)
		}
		for _, since := range []uint64{before.Horizon, 0} {
			kept, err := r.open().RowsKept(t.Context(), after, since)
			if err != nil {
				t.Fatal(err)
			}
			// Without a horizon old rows prove nothing, and less is certain.
			if got := kept == pgcdc.KeptCertain; got != c.kept && (since != 0 || got) || kept == pgcdc.KeptIfTruncated {
				t.Errorf("%s, horizon %d: kept is %v", name, since, kept)
			}
			// A TOAST table that stayed is a proof of its own.
			if before.Toast == 0 || before.Toast == after.Toast && !c.kept {
				t.Errorf("%s: TOAST table %d, before %d", name, after.Toast, before.Toast)
			}
		}
	}
	// A transaction that began before the rewriting one and writes after it is not taken for an old one.
	r.exec("DROP TABLE t", "CREATE TABLE t(id int PRIMARY KEY, v int)", "CREATE TABLE other(id int)", "INSERT INTO t VALUES (1, 1)", "DROP PUBLICATION "+r.name)
	r.publish("FOR TABLE t")
	long := p.Open("postgres", r.name)
	long.Exec("BEGIN", "INSERT INTO other VALUES (1)")
	before := r.table("t")
	r.exec(rewrite)
	long.Exec("INSERT INTO t VALUES (2, 2)", "COMMIT")
	after := r.table("t")
	if kept, err := r.open().RowsKept(t.Context(), after, before.Horizon); kept != pgcdc.KeptUnknown || err != nil {
		t.Errorf("a late row of an early transaction: %v, %v", kept, err)
	}
	r.exec("DROP TABLE t")
	if kept, err := r.open().RowsKept(t.Context(), after, before.Horizon); kept != pgcdc.KeptUnknown || err != nil {
		t.Errorf("a table that is gone: %v, %v", kept, err)
	}
}

// What was written to a table while it was UNLOGGED is never decoded, and when it is LOGGED again only its storage is another. The server refuses that for a
// table that a publication names.
func catalogUnlogged(t *testing.T, p *harness.Postgres) {
	const dance = "ALTER TABLE t SET UNLOGGED; INSERT INTO t VALUES (7, 7); ALTER TABLE t SET LOGGED"
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY, v int)", "CREATE TABLE wide(id int PRIMARY KEY, v text)")
	r.publish("FOR TABLE t")
	if !r.table("t").StaysLogged {
		t.Error("a table that a publication names may become UNLOGGED")
	}
	r.exec("DO $$ BEGIN BEGIN ALTER TABLE t SET UNLOGGED; EXCEPTION WHEN object_not_in_prerequisite_state THEN RETURN; END; RAISE 'the server lets it'; END $$")
	r.exec("DROP PUBLICATION " + r.name)
	r.publish("FOR ALL TABLES")
	for name, c := range map[string]struct {
		statements []string
		kept       pgcdc.Kept
	}{
		"unlogged":                           {[]string{dance}, pgcdc.KeptUnknown},
		"unlogged, all rows updated":         {[]string{dance, "UPDATE t SET v = 1"}, pgcdc.KeptIfTruncated},
		"truncated, then unlogged":           {[]string{"TRUNCATE t", "INSERT INTO t VALUES (1, 1)", dance}, pgcdc.KeptUnknown},
		"truncated and unlogged in one":      {[]string{"BEGIN; TRUNCATE t; " + dance + "; INSERT INTO t VALUES (8, 8); COMMIT"}, pgcdc.KeptUnknown},
		"vacuum full":                        {[]string{"VACUUM FULL t"}, pgcdc.KeptCertain},
		"truncated":                          {[]string{"TRUNCATE t"}, pgcdc.KeptIfTruncated},
		"truncated and filled":               {[]string{"BEGIN; TRUNCATE t; INSERT INTO t VALUES (1, 1); INSERT INTO t VALUES (2, 2); COMMIT"}, pgcdc.KeptIfTruncated},
		"unlogged and its columns described": {[]string{dance, "ALTER TABLE t ALTER v SET STATISTICS 7"}, pgcdc.KeptUnknown},
	} {
		r.exec("DROP TABLE t", "CREATE TABLE t(id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
		before := r.table("t")
		// Transactions of other tests may hold the horizon below the rows, and then nothing is certain of them.
		newest := uint64(r.number("(SELECT max(xmin::text::bigint) FROM t)"))
		for deadline := time.Now().Add(patience); before.Horizon <= newest; before = r.table("t") {
			if time.Now().After(deadline) {
				t.Fatalf("the horizon stays at %d, the rows are of %d", before.Horizon, newest)
			}
		}
		r.exec(c.statements...)
		after := r.table("t")
		if after.Relfilenode == before.Relfilenode || after.Fingerprint != before.Fingerprint || after.StaysLogged || after.Toast != 0 {
			t.Errorf("%s: the look shows %+v, before %+v", name, after, before)
		}
		kept, err := r.open().RowsKept(t.Context(), after, before.Horizon)
		if err != nil {
			t.Fatal(err)
		}
		// After an update of all rows only the transaction that wrote pg_class tells: it truncated nothing.
		if kept != c.kept && (c.kept != pgcdc.KeptUnknown || kept != pgcdc.KeptIfTruncated || len(c.statements) == 1) {
			t.Errorf("%s: kept is %v, want %v", name, kept, c.kept)
		}
		if by := r.number("(SELECT xmin::text::bigint FROM pg_class WHERE oid = 't'::regclass)"); by != int64(after.WrittenBy) {
			t.Errorf("%s: pg_class was written by %d, the look shows %d", name, by, after.WrittenBy)
		}
	}
	before := r.table("wide")
	r.exec("VACUUM FULL wide", "TRUNCATE wide")
	if same := r.table("wide"); same.Toast == 0 || same.Toast != before.Toast {
		t.Errorf("VACUUM FULL and TRUNCATE change the TOAST table: %d, before %d", same.Toast, before.Toast)
	}
	r.exec("ALTER TABLE wide SET UNLOGGED", "ALTER TABLE wide SET LOGGED")
	if other := r.table("wide"); other.Toast == before.Toast || other.AttributeVersions != before.AttributeVersions {
		t.Errorf("SET UNLOGGED and SET LOGGED keep the TOAST table: %+v", other)
	}
}

// A publication that we make leaves every table of the source as usable as it was (S-K7).
func catalogCreatePublication(t *testing.T, p *harness.Postgres) {
	var log bytes.Buffer
	r := newRig(t, p, func(c *pgcdc.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	r.exec("CREATE TABLE keyed(id int PRIMARY KEY)", "CREATE TABLE loose(id int)", "INSERT INTO loose VALUES (1)",
		"CREATE TABLE whole(id int)", "ALTER TABLE whole REPLICA IDENTITY FULL", "CREATE UNLOGGED TABLE quick(id int PRIMARY KEY)",
		`CREATE TABLE "Mixed Case"(id int PRIMARY KEY)`, "CREATE TABLE parted(id int PRIMARY KEY) PARTITION BY RANGE (id)",
		"CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (10)", "CREATE TABLE parted2 PARTITION OF parted FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id)",
		"CREATE TABLE parted3 PARTITION OF parted2 FOR VALUES FROM (10) TO (20)", "CREATE TABLE split(id int) PARTITION BY RANGE (id)",
		"CREATE TABLE split1 PARTITION OF split(PRIMARY KEY (id)) FOR VALUES FROM (0) TO (10)", "CREATE TABLE split2 PARTITION OF split FOR VALUES FROM (10) TO (20)",
		"CREATE TABLE silent(id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE silent1 PARTITION OF silent FOR VALUES FROM (0) TO (10)",
		"ALTER TABLE silent1 REPLICA IDENTITY NOTHING", "INSERT INTO split VALUES (11)", "INSERT INTO silent VALUES (1)")
	err := r.CreatePublication(t.Context(), r.name, nil)
	if err == nil || !strings.Contains(err.Error(), "CREATE PUBLICATION") || pgcdc.IsRetryable(err) {
		t.Errorf("without the right to: %v", err)
	}
	r.cfg.Source = p.URL("postgres", r.name)
	owner := r.open()
	for _, table := range []string{"loose", "missing", "split", "silent", "silent1", "nowhere.keyed"} {
		if err := owner.CreatePublication(t.Context(), r.name, []string{"keyed", table}); err == nil {
			t.Errorf("%s was published", table)
		}
	}
	published := func(name string) string {
		s := p.Open("postgres", r.name)
		rows, _ := s.Query("SELECT string_agg(schemaname || '.' || tablename, ',' ORDER BY tablename) FROM pg_publication_tables WHERE pubname = '" + name + "'")
		return rows[0][0]
	}
	if err := owner.CreatePublication(t.Context(), "Some One's", []string{`"Mixed Case"`, "public.keyed"}); err != nil || published("Some One''s") != "public.Mixed Case,public.keyed" {
		t.Errorf("two tables: %v, %s", err, published("Some One''s"))
	}
	for range 2 { // the second time it exists
		if err := owner.CreatePublication(t.Context(), r.name, nil); err != nil {
			t.Fatal(err)
		}
	}
	r.exec("CREATE TABLE parted4 PARTITION OF parted FOR VALUES FROM (20) TO (30)")
	later := "public.parted4,"
	if r.number("current_setting('server_version_num')::int") < 15_00_00 {
		later = "" // there partitions stand for themselves
	}
	if got := published(r.name); got != "public.Mixed Case,public.keyed,public.parted1,public.parted3,"+later+"public.split1,public.whole" {
		t.Errorf("published %s", got)
	}
	if !strings.Contains(log.String(), "loose") {
		t.Errorf("the log does not tell what was left out: %s", log.String())
	}
	r.exec("UPDATE loose SET id = 2", "DELETE FROM loose", "UPDATE split SET id = 12", "UPDATE silent SET id = 2")
	if err := owner.CreatePublication(t.Context(), "two", []string{"parted", "split1"}); err != nil || published("two") != "public.parted1,public.parted3,public.parted4,public.split1" {
		t.Errorf("partitions: %v, %s", err, published("two"))
	}
	p.Exec("CREATE DATABASE " + r.name + "_bare")
	r.cfg.Source = p.URL("postgres", r.name+"_bare")
	if err := r.open().CreatePublication(context.Background(), "p", nil); !errors.Is(err, pgcdc.ErrNothingToPublish) {
		t.Errorf("empty database: %v", err)
	}
}

// A look does not wait for a kept connection that says nothing, and not for ever for a new one.
func catalogLookUnanswered(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)")
	r.publish("FOR TABLE t")
	look := func() error {
		_, err := r.Look(t.Context())
		return err
	}
	if err := look(); err != nil {
		t.Fatal(err)
	}
	session := p.Open("postgres", r.name)
	defer session.Close()
	kept, err := session.Query("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pgmirror' AND backend_type = 'client backend'")
	if err != nil || len(kept) != 1 {
		t.Fatalf("%v, %v", kept, err)
	}
	pid, err := strconv.Atoi(kept[0][0])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	r.SetPatience(100*time.Millisecond, patience)
	if err := look(); err != nil {
		t.Errorf("beside a server process that is stopped: %v", err)
	}

	if err := session.Exec("BEGIN", "LOCK TABLE pg_publication"); err != nil {
		t.Fatal(err)
	}
	r.SetPatience(patience, 300*time.Millisecond)
	if err := look(); !errors.Is(err, pgcdc.ErrSilent) || !pgcdc.IsRetryable(err) || !strings.Contains(err.Error(), "within 300ms") {
		t.Errorf("of a locked catalogue: %v", err)
	}
	if err := session.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	r.SetPatience(patience, patience)
	if err := look(); err != nil {
		t.Errorf("after that: %v", err)
	}
}
