package pgcdc

import (
	"slices"
	"strings"
)

// provider is who runs a managed server: its administrator is no superuser, and settings are not changed by SQL.
type provider struct {
	name string
	// setting changes a setting of the server.
	setting func(name, value string) Fix
	// replication gives a role the right to replicate.
	replication func(role string) Fix
	// direct says how to reach the server past the provider's pooler.
	direct string
	// bypass is what to know about ALTER ROLE … BYPASSRLS.
	bypass string
}

// providerSigns are the settings and roles by which a provider is known. The order decides.
var providerSigns = []struct {
	settings, roles []string
	provider        *provider
}{
	{[]string{"rds.logical_replication", "rds.extensions"}, []string{"rdsadmin", "rds_superuser"}, &rds},
	{[]string{"cloudsql.logical_decoding", "cloudsql.iam_authentication"}, []string{"cloudsqladmin", "cloudsqlsuperuser"}, &cloudSQL},
	{[]string{"azure.extensions"}, []string{"azuresu", "azure_pg_admin"}, &azure},
	{[]string{"neon.tenant_id", "neon.timeline_id"}, []string{"neon_superuser", "cloud_admin"}, &neon},
	{nil, []string{"supabase_admin", "supabase_replication_admin"}, &supabase},
}

var providerSettings, providerRoles = func() (settings, roles []string) {
	for _, sign := range providerSigns {
		settings, roles = append(settings, sign.settings...), append(roles, sign.roles...)
	}
	return settings, roles
}()

// providerOf recognises a managed server; any other is selfManaged.
func providerOf(f *checkFacts) provider {
	for _, sign := range providerSigns {
		known := slices.ContainsFunc(sign.settings, func(name string) bool { _, ok := f.settings[name]; return ok })
		if known || slices.ContainsFunc(sign.roles, func(name string) bool { return f.roles[name] }) {
			return *sign.provider
		}
	}
	return selfManaged
}

// needRestart are those of the settings that we ask to change which the server reads only when it starts.
var needRestart = []string{"wal_level", "max_replication_slots", "max_wal_senders"}

const ownerInstead = "; if that is refused, make the role the owner of the tables: ALTER TABLE … OWNER TO"

var selfManaged = provider{
	setting: func(name, value string) Fix {
		fix := Fix{SQL: []string{"ALTER SYSTEM SET " + name + " = " + quoteSetting(value) + ";"}}
		if slices.Contains(needRestart, name) {
			fix.Restart = true
		} else {
			fix.SQL = append(fix.SQL, "SELECT pg_reload_conf();")
		}
		return fix
	},
	replication: alterReplication,
	direct:      "connect to the PostgreSQL server itself, not to the pooler in front of it",
}

// https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/PostgreSQL.Concepts.General.FeatureSupport.LogicalReplication.html
var rds = provider{
	name: "Amazon RDS or Aurora",
	setting: func(name, value string) Fix {
		if name == "wal_level" {
			name, value = "rds.logical_replication", "1"
		}
		advice := "set " + name + " = " + inUnits(name, value) + " in the instance's (for Aurora the cluster's) parameter group"
		if name == "rds.logical_replication" || slices.Contains(needRestart, name) {
			advice += " and reboot it"
		}
		return Fix{Advice: advice}
	},
	replication: func(role string) Fix { return Fix{SQL: []string{"GRANT rds_replication TO " + quoteIdent(role) + ";"}} },
	direct:      "use the instance's own endpoint in place of the RDS Proxy's",
	bypass:      "run it as the master user" + ownerInstead,
}

// https://cloud.google.com/sql/docs/postgres/replication/configure-logical-replication
var cloudSQL = provider{
	name: "Google Cloud SQL",
	setting: func(name, value string) Fix {
		if name == "wal_level" {
			name, value = "cloudsql.logical_decoding", "on"
		}
		return Fix{
			Shell:  []string{"gcloud sql instances patch INSTANCE --database-flags=" + name + "=" + inUnits(name, value)},
			Advice: "this replaces the instance's list of flags: add those that it has; it may restart the instance",
		}
	},
	replication: alterReplication,
	direct:      "connect to the instance itself or through the Cloud SQL Auth Proxy, not through managed connection pooling",
	bypass:      "run it as a member of cloudsqlsuperuser" + ownerInstead,
}

// https://learn.microsoft.com/azure/postgresql/flexible-server/concepts-logical
var azure = provider{
	name: "Azure Database for PostgreSQL",
	setting: func(name, value string) Fix {
		fix := Fix{Shell: []string{"az postgres flexible-server parameter set --resource-group GROUP --server-name SERVER --name " + name + " --value " + inUnits(name, value)}}
		if slices.Contains(needRestart, name) {
			fix.Shell = append(fix.Shell, "az postgres flexible-server restart --resource-group GROUP --name SERVER")
		}
		return fix
	},
	replication: alterReplication,
	direct:      "use port 5432 in place of the built-in PgBouncer's 6432",
	bypass:      "run it as the server's administrator" + ownerInstead,
}

// https://neon.com/docs/guides/logical-replication-neon
var neon = provider{
	name: "Neon",
	setting: func(name, value string) Fix {
		if name == "wal_level" {
			return Fix{Advice: "enable logical replication in the console: project, Settings, Logical Replication; it restarts the computes and cannot be undone"}
		}
		return Fix{Advice: name + " belongs to Neon: ask its support for " + value}
	},
	replication: func(role string) Fix {
		return Fix{Advice: "mirror with a role made in the Neon console, by its CLI or API: those may replicate, roles made with SQL may not"}
	},
	direct: `use the host name without "-pooler"`,
	bypass: "a role made in the Neon console has it already",
}

// https://supabase.com/docs/guides/database/custom-postgres-config
var supabase = provider{
	name: "Supabase",
	setting: func(name, value string) Fix {
		return Fix{Shell: []string{"supabase --experimental --project-ref REF postgres-config update --config " + name + "=" + inUnits(name, value)}}
	},
	replication: func(role string) Fix {
		fix := alterReplication(role)
		fix.Advice = "run it as the role postgres"
		return fix
	},
	direct: "use the direct connection, db.<project>.supabase.co port 5432, in place of pooler.supabase.com; it needs IPv6 or the IPv4 add-on",
	bypass: "run it as the role postgres",
}

func alterReplication(role string) Fix {
	return Fix{SQL: []string{"ALTER ROLE " + quoteIdent(role) + " REPLICATION;"}}
}

// quoteSetting quotes a value only when it is more than one word or number.
func quoteSetting(value string) string {
	if strings.Trim(value, "abcdefghijklmnopqrstuvwxyz") == "" || strings.Trim(value, "0123456789") == "" {
		return value
	}
	return quoteLiteral(value)
}

// inUnits is a value as a parameter group takes it: without a unit, in the setting's own one.
func inUnits(name, value string) string {
	if gigabytes, ok := strings.CutSuffix(value, "GB"); ok && name == "max_slot_wal_keep_size" { // megabytes
		return gigabytes + "000"
	}
	return value
}
