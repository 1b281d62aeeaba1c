package pgcdc

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// healthy are the facts of a server with nothing to find.
func healthy() *checkFacts {
	return &checkFacts{
		cfg: Config{Publications: []string{"p"}, Slot: "s"}, version: 150018, versionText: "15.18", database: "shop", role: "mirror", host: "db.example",
		settings: map[string]string{"wal_level": "logical", "max_replication_slots": "10", "max_wal_senders": "10", "max_slot_wal_keep_size": "50000", "row_security": "off",
			"statement_timeout": "0", "hot_standby_feedback": "on"},
		roles:        map[string]bool{},
		publications: []checkedPublication{{publicationRow: publicationRow{name: "p"}}},
		relations:    []*checkedRelation{plainRelation("t", "p")},
	}
}

// plainRelation is a table with one int column as its key, published by name.
func plainRelation(name string, publications ...string) *checkedRelation {
	r := &checkedRelation{publications: publications, usage: true, selectable: true, relationRow: &relationRow{
		table:      Table{OID: 1, Schema: "public", Name: name, Kind: 'r', Persistence: 'p', Identity: IdentityDefault},
		readable:   true,
		published:  &published{by: []publishedBy{{publication: publications[0], insert: true, update: true, delete: true}}},
		attributes: []attributeRow{{attNum: 1, name: "id", typeOID: 23, typeMod: -1, format: "integer", notNull: true}},
		indexes:    []indexRow{{primary: true, immediate: true, valid: true, keys: []int16{1}}},
	}}
	r.complete(newTypeCatalog(nil))
	return r
}

// brief is a report as a line for each finding: level, check, and all that its fix holds.
func brief(report *CheckReport) string {
	var lines []string
	for _, f := range report.Findings {
		fix := append(append(append([]string{}, f.Fix.SQL...), f.Fix.Config...), f.Fix.Shell...)
		if f.Fix.Restart {
			fix = append(fix, "restart")
		}
		if f.Fix.Advice != "" {
			fix = append(fix, "("+f.Fix.Advice+")")
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s", f.Level, f.Check, strings.Join(fix, " ")))
		if f.Object == "" || f.Problem == "" || f.Why == "" || len(fix) == 0 {
			lines = append(lines, fmt.Sprintf("incomplete: %+v", f))
		}
	}
	return strings.Join(lines, "\n")
}

func refusedBy(code string) error { return &pgconn.PgError{Code: code, Message: "refused"} }

// What a test cannot provoke on a server of its own is judged by faked facts.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*checkFacts)
		want   string
	}{
		{"healthy", func(*checkFacts) {}, ""},
		{"old server", func(f *checkFacts) { f.version, f.versionText = 130014, "13.14" }, "error version: (upgrade the server to 14 or later)"},
		{"old standby", func(f *checkFacts) { f.standby = true }, "error standby: (connect to the primary)"},
		{"standby", func(f *checkFacts) { f.standby, f.version = true, 160001 },
			"note standby: (when run waits for the slot, call SELECT pg_log_standby_snapshot() on the primary)"},
		{"standby without feedback", func(f *checkFacts) {
			f.standby, f.version, f.slotFound = true, 160001, true
			f.slot = SlotInfo{Name: "s", Plugin: "pgoutput", Database: "shop", RestartLSN: 1}
			f.settings["hot_standby_feedback"] = "off"
		}, "warning hot_standby_feedback: ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf();"},
		{"idle slots are given up", func(f *checkFacts) { f.settings["idle_replication_slot_timeout"] = "60" },
			"warning idle_replication_slot_timeout: ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();"},
		{"one walsender is free", func(f *checkFacts) { f.senders = 9 }, "warning max_wal_senders: ALTER SYSTEM SET max_wal_senders = 19; restart"},
		{"two are free", func(f *checkFacts) { f.senders = 8 }, ""},
		{"no slot is free", func(f *checkFacts) { f.slots = 10 }, "error max_replication_slots: ALTER SYSTEM SET max_replication_slots = 20; restart"},
		{"ours is one of them", func(f *checkFacts) {
			f.slots, f.slotFound, f.slot = 10, true, SlotInfo{Name: "s", Plugin: "pgoutput", Database: "shop", RestartLSN: 1}
		}, ""},
		{"slot of another database", func(f *checkFacts) {
			f.slotFound, f.slot = true, SlotInfo{Name: strings.Repeat("s", 63), Plugin: "pgoutput", Database: "other", RestartLSN: 1}
		}, "error slot_mismatch: slot: " + strings.Repeat("s", 61) + "_2"},
		{"slot in danger", func(f *checkFacts) {
			f.slotFound, f.slot = true, SlotInfo{Name: "s", Plugin: "pgoutput", Database: "shop", RestartLSN: 1, WALStatus: "unreserved"}
		}, "warning slot_unreserved: ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();"},
		{"settings are taken away", func(f *checkFacts) { f.settings["statement_timeout"], f.settings["row_security"] = "5000", "on" },
			"error session: (connect to the PostgreSQL server itself, not to the pooler in front of it)\n" +
				"error session: (connect to the PostgreSQL server itself, not to the pooler in front of it)"},
		{"pooler over a socket", func(f *checkFacts) { f.replication = refusedBy("42601") },
			"error pooler: (connect to the PostgreSQL server itself, not to the pooler in front of it)"},
		{"pooler of Neon", func(f *checkFacts) { f.replication, f.host = refusedBy("08P01"), "ep-x-1-pooler.eu.aws.neon.tech" },
			"error pooler: (use the host ep-x-1.eu.aws.neon.tech)"},
		{"pooler of Azure", func(f *checkFacts) {
			f.replication, f.settings["azure.extensions"], f.address = refusedBy("42601"), "", "10.0.0.1:5432"
		}, "error pooler: (use port 5432 in place of the built-in PgBouncer's 6432)"},
		{"pg_hba", func(f *checkFacts) { f.replication = refusedBy("28000") },
			"error replication_connection: (pg_hba.conf of the source must have a line that lets the role into the database, and the network must let the connection through)"},
		{"partial publish is accepted", func(f *checkFacts) { f.cfg.PartialPublish, f.publications[0].missing = true, []string{"truncate"} },
			`warning publish: ALTER PUBLICATION "p" SET (publish = 'insert, update, delete, truncate');`},
		{"inserts alone need no identity", func(f *checkFacts) {
			f.cfg.PartialPublish, f.publications[0].missing = true, []string{"update", "delete"}
			f.relations[0].indexes = nil
		}, `warning publish: ALTER PUBLICATION "p" SET (publish = 'insert, update, delete, truncate');`},
		{"nothing to publish", func(f *checkFacts) { f.publications, f.relations, f.missing = nil, nil, []string{"p"} },
			"error publication: (no table of the database has a primary key or another replica identity: give the tables one, then make the publication)"},
		{"schemas", func(f *checkFacts) {
			f.relations = append(f.relations, plainRelation("x", "p"))
			f.relations[1].table.Schema = "PUBLIC"
		}, "note case: (nothing need be done: SHOW ALL TABLES and DESCRIBE in pgmirror sql tell the names; or rename them on the source)"},
		{"a bad table alone in FOR ALL TABLES", func(f *checkFacts) {
			f.publications[0].allTables = true
			f.relations[0].attributes[0].name = hiddenColumn
			f.relations[0].table.Columns = nil
			f.relations[0].complete(newTypeCatalog(nil))
		}, "note all_tables: (make it anew with FOR TABLE and the tables to mirror)\n" +
			`error column_name: ALTER TABLE "public"."t" RENAME COLUMN "_pgmirror_lsn" TO "source_pgmirror_lsn";`},
		{"filters that differ by operation", func(f *checkFacts) {
			f.relations[0].published.by = []publishedBy{{publication: "p", insert: true, update: true, delete: true, filter: "id > 1"}, {publication: "q", insert: true}}
			f.relations[0].table = Table{OID: 1, Schema: "public", Name: "t", Kind: 'r', Persistence: 'p', Identity: IdentityDefault}
			f.relations[0].complete(newTypeCatalog(nil))
		}, "error row_filters: (give the table the same row filter in all of them, or publish it by one of them alone)"},
		{"a partition by itself beside the table above it", func(f *checkFacts) { f.beneath = []string{`"public"."leaf"`} }, "note partition: (nothing need be done)"},
		{"partitions by themselves", func(f *checkFacts) { f.relations[0].root = `"public"."root"` },
			"note partition: (nothing need be done: query the partitions by their names. With ALTER PUBLICATION … SET (publish_via_partition_root = true) a publication's partitioned tables are one table each)"},
		{"partitions by themselves on an old server", func(f *checkFacts) { f.relations[0].root, f.version = `"public"."root"`, 140020 },
			"note partition: (nothing need be done: query the partitions by their names)"},
		{"partitions as one on an old server", func(f *checkFacts) {
			f.publications[0].root, f.relations[0].unnoticing = true, true
			f.relations[0].table.Kind = 'p'
		}, `error partitioned: ALTER PUBLICATION "p" SET (publish_via_partition_root = false); (name its partitions in the publication: each is then a table of the mirror)`},
		{"anything else that is refused", func(f *checkFacts) { f.relations[0].table.Unsupported = "some reason" },
			`error table: (make publication "p" anew with FOR TABLE and the tables to mirror)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			facts := healthy()
			c.change(facts)
			if got := brief(judge(facts)); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// A session that is seen twice in two short transactions blocks nothing.
func TestStillOpen(t *testing.T) {
	before := []blocker{{transaction: "3/1", pid: 10}, {transaction: "4/1", pid: 11}, {transaction: "5/1", pid: 12}}
	now := []blocker{{transaction: "3/2", pid: 10}, {transaction: "4/1", pid: 11, seconds: 5}, {transaction: "6/1", pid: 13}}
	if got := stillOpen(before, now); len(got) != 1 || got[0] != (blocker{transaction: "4/1", pid: 11, seconds: 5}) {
		t.Errorf("%+v", got)
	}
}

// A transaction that is still open is named with its age where that is known, and with its state.
func TestBlockers(t *testing.T) {
	facts := healthy()
	facts.blockers = []blocker{{pid: 7, user: "app", database: "other", seconds: 3725, state: "idle in transaction"}, {pid: 8, seconds: -1}}
	findings := judge(facts).Findings
	if len(findings) != 2 || findings[0].Object != `process 7 (role "app", database "other")` ||
		findings[0].Problem != "it has written in a transaction that has been open for 1h2m5s (idle in transaction)" ||
		!strings.HasSuffix(findings[1].Problem, "open for more than 1s") || findings[1].Fix.SQL[0] != "SELECT pg_terminate_backend(8);" {
		t.Errorf("%+v", findings)
	}
}

// Each provider is known by its settings and by its roles, and gets fixes that its administrator can carry out.
func TestProviders(t *testing.T) {
	for _, c := range []struct {
		name           string
		settings       []string
		roles          []string
		wal, keep, may string // for wal_level, max_slot_wal_keep_size and the right to replicate
	}{
		{"Amazon RDS or Aurora", []string{"rds.logical_replication", "rds.extensions"}, []string{"rdsadmin", "rds_superuser"},
			"(set rds.logical_replication = 1 in the instance's (for Aurora the cluster's) parameter group and reboot it)",
			"(set max_slot_wal_keep_size = 50000 in the instance's (for Aurora the cluster's) parameter group)",
			`GRANT rds_replication TO "mirror";`},
		{"Google Cloud SQL", []string{"cloudsql.logical_decoding"}, []string{"cloudsqladmin", "cloudsqlsuperuser"},
			"gcloud sql instances patch INSTANCE --database-flags=cloudsql.logical_decoding=on (this replaces the instance's list of flags: add those that it has; it may restart the instance)",
			"gcloud sql instances patch INSTANCE --database-flags=max_slot_wal_keep_size=50000 (this replaces the instance's list of flags: add those that it has; it may restart the instance)",
			`ALTER ROLE "mirror" REPLICATION;`},
		{"Azure Database for PostgreSQL", []string{"azure.extensions"}, []string{"azuresu", "azure_pg_admin"},
			"az postgres flexible-server parameter set --resource-group GROUP --server-name SERVER --name wal_level --value logical az postgres flexible-server restart --resource-group GROUP --name SERVER",
			"az postgres flexible-server parameter set --resource-group GROUP --server-name SERVER --name max_slot_wal_keep_size --value 50000",
			`ALTER ROLE "mirror" REPLICATION;`},
		{"Neon", []string{"neon.tenant_id"}, []string{"neon_superuser"},
			"(enable logical replication in the console: project, Settings, Logical Replication; it restarts the computes and cannot be undone)",
			"(max_slot_wal_keep_size belongs to Neon: ask its support for 50GB)",
			"(mirror with a role made in the Neon console, by its CLI or API: those may replicate, roles made with SQL may not)"},
		{"Supabase", nil, []string{"supabase_admin", "supabase_replication_admin"},
			"supabase --experimental --project-ref REF postgres-config update --config wal_level=logical",
			"supabase --experimental --project-ref REF postgres-config update --config max_slot_wal_keep_size=50000",
			`ALTER ROLE "mirror" REPLICATION; (run it as the role postgres)`},
		{"", nil, []string{"postgres", "some_role"}, "ALTER SYSTEM SET wal_level = logical; restart",
			"ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();", `ALTER ROLE "mirror" REPLICATION;`},
	} {
		want := "error wal_level: " + c.wal + "\nnote max_slot_wal_keep_size: " + c.keep + "\nerror replication: " + c.may
		check := func(sign string, known func(*checkFacts)) {
			facts := healthy()
			facts.settings["wal_level"], facts.settings["max_slot_wal_keep_size"] = "replica", "-1"
			facts.replication = fmt.Errorf("connect: %w", errors.Join(ErrNoReplication, refusedBy("42501")))
			known(facts)
			report := judge(facts)
			if got := brief(report); got != want || report.Provider != c.name {
				t.Errorf("%s by %s is taken for %q, with\n%s\nwant\n%s", c.name, sign, report.Provider, got, want)
			}
		}
		for _, setting := range c.settings {
			check(setting, func(f *checkFacts) { f.settings[setting] = "x" })
		}
		for _, role := range c.roles {
			check(role, func(f *checkFacts) { f.roles[role] = true })
		}
	}
}
