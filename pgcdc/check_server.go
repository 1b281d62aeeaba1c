package pgcdc

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// slotKeepLeast is the smallest bound in MB of the WAL that a slot may keep with which a mirror survives a while of being down: a
// busy server writes a gigabyte in a minute or two.
const slotKeepLeast = 1024

// slotKeepWanted is the bound that is suggested.
const slotKeepWanted = "50GB"

// senderRoom is how many walsenders the mirror takes at once: its stream, and one that holds a snapshot or asks a question.
const senderRoom = 2

// server judges the server's settings.
func (j *judgement) server() {
	if level, known := j.settings["wal_level"]; known && level != "logical" {
		j.add(Finding{LevelError, "wal_level", "setting wal_level", "it is " + level, "the WAL does not hold what logical replication decodes",
			j.provider.setting("wal_level", "logical")})
	}
	j.room()
	switch keep, known := j.settings["max_slot_wal_keep_size"]; {
	case !known:
	case strings.HasPrefix(keep, "-"):
		j.add(Finding{LevelNote, "max_slot_wal_keep_size", "setting max_slot_wal_keep_size", "a slot may keep WAL without bound",
			"while the mirror is down, the source's disk can fill; with a bound the slot is given up instead, and the mirror copied anew",
			j.provider.setting("max_slot_wal_keep_size", slotKeepWanted)})
	case j.number("max_slot_wal_keep_size") < slotKeepLeast:
		j.add(Finding{LevelWarning, "max_slot_wal_keep_size", "setting max_slot_wal_keep_size", "a slot may keep no more than " + keep + " MB of WAL",
			"a short stop of the mirror is enough to lose the slot, and everything is then copied anew", j.provider.setting("max_slot_wal_keep_size", slotKeepWanted)})
	}
	if j.number("idle_replication_slot_timeout") > 0 {
		j.add(Finding{LevelWarning, "idle_replication_slot_timeout", "setting idle_replication_slot_timeout", "the server gives up slots that were unused for that long",
			"a mirror that is down for longer loses its slot, and everything is then copied anew", j.provider.setting("idle_replication_slot_timeout", "0")})
	}
	j.standbyFindings()
	for _, o := range j.overrides {
		if value := strings.TrimSuffix(o.value, "ms"); strings.Trim(value, "0") == "" && value != "" {
			continue
		}
		j.add(Finding{LevelNote, "timeout", "setting " + o.name, o.name + " is " + o.value + " for " + o.owner(),
			"pgmirror sets its own sessions free of it, so the mirror does not need this; a COPY or pg_recvlogical by hand as that role is cut off", Fix{SQL: []string{o.reset()}}})
	}
}

// owner says whose setting it is.
func (o roleSetting) owner() string {
	switch {
	case o.role != "" && o.database != "":
		return "role " + quoteIdent(o.role) + " in database " + quoteIdent(o.database)
	case o.role != "":
		return "role " + quoteIdent(o.role)
	case o.database != "":
		return "database " + quoteIdent(o.database)
	}
	return "all roles"
}

func (o roleSetting) reset() string {
	switch {
	case o.role != "" && o.database != "":
		return "ALTER ROLE " + quoteIdent(o.role) + " IN DATABASE " + quoteIdent(o.database) + " RESET " + o.name + ";"
	case o.role != "":
		return "ALTER ROLE " + quoteIdent(o.role) + " RESET " + o.name + ";"
	case o.database != "":
		return "ALTER DATABASE " + quoteIdent(o.database) + " RESET " + o.name + ";"
	}
	return "ALTER ROLE ALL RESET " + o.name + ";"
}

// room judges whether a slot and walsenders are free. A slot that is there needs none, nor do the senders of its user.
func (j *judgement) room() {
	if most := j.number("max_replication_slots"); j.slots >= most && !j.slotFound {
		j.add(Finding{LevelError, "max_replication_slots", "setting max_replication_slots", fmt.Sprintf("all %d replication slots are taken", most),
			"the mirror needs one of its own", j.provider.setting("max_replication_slots", strconv.Itoa(j.slots+10))})
	}
	most := j.number("max_wal_senders")
	if j.slot.Active || j.senders+senderRoom <= most {
		return
	}
	level, why := LevelWarning, "the mirror uses two for moments, when it starts and while it copies"
	if j.senders >= most {
		level, why = LevelError, "the mirror cannot open its stream"
	}
	j.add(Finding{level, "max_wal_senders", "setting max_wal_senders", fmt.Sprintf("%d of %d are taken", j.senders, most), why,
		j.provider.setting("max_wal_senders", strconv.Itoa(j.senders+10))})
}

func (j *judgement) standbyFindings() {
	if !j.standby {
		return
	}
	if j.version < 160000 {
		j.add(Finding{LevelError, "standby", "server", "it is a standby", "logical decoding on a standby came with PostgreSQL 16", Fix{Advice: "connect to the primary"}})
		return
	}
	if j.settings["hot_standby_feedback"] == "off" {
		j.add(Finding{LevelWarning, "hot_standby_feedback", "setting hot_standby_feedback", "it is off on this standby",
			"the primary then removes catalogue rows that the slot needs, and the slot is lost", j.provider.setting("hot_standby_feedback", "on")})
	}
	if !j.slotFound {
		j.add(Finding{LevelNote, "standby", "server", "it is a standby", "making the slot waits until the primary logs its running transactions, which an idle one does not",
			Fix{Advice: "when run waits for the slot, call SELECT pg_log_standby_snapshot() on the primary"}})
	}
}

// connection judges whether sessions are what we asked for, and whether the replication protocol is understood.
func (j *judgement) connection() {
	for _, name := range sessionTimeouts {
		if value, known := j.settings[name]; known && value != "0" {
			j.add(sessionFinding(name, value, j.provider))
		}
	}
	if value, known := j.settings["row_security"]; known && value != "off" {
		j.add(sessionFinding("row_security", value, j.provider))
	}
	err := j.replication
	switch state := sqlState(err); {
	case err == nil:
	case errors.Is(err, ErrNoReplication):
		j.add(Finding{LevelError, "replication", "role " + quoteIdent(j.role), "it may not replicate", "the mirror reads the source's logical replication stream",
			j.provider.replication(j.role)})
	case state == "42601" || state == "08P01":
		j.add(j.pooler())
	case state == "53300" && j.senders+1 > j.number("max_wal_senders"): // said by room
	default:
		j.add(Finding{LevelError, "replication_connection", "server", "no replication connection can be opened: " + err.Error(), "the mirror reads the source's logical replication stream",
			Fix{Advice: "pg_hba.conf of the source must have a line that lets the role into the database, and the network must let the connection through"}})
	}
}

func sessionFinding(name, value string, p provider) Finding {
	return Finding{LevelError, "session", "setting " + name, "a session of ours has " + name + " = " + value + ", though it asked for another value",
		"something between us and the server takes the settings of new connections away, so that the mirror's would be cut off or see other values", Fix{Advice: p.direct}}
}

// pooler says that the other side is no PostgreSQL server, and where that is if it can be told.
func (j *judgement) pooler() Finding {
	f := poolerFinding(j.host, j.provider.direct)
	if f.Fix.Config == nil && j.address != "" && j.provider.name == "" {
		f.Fix.Config = []string{"source: " + j.sourceAt(j.address)}
		f.Fix.Advice += "; the server calls itself " + j.address + " (add the password and TLS settings as they were)"
	}
	return f
}

// sourceAt is a connection string in keyword form, without a secret.
func (j *judgement) sourceAt(address string) string {
	colon := strings.LastIndexByte(address, ':')
	host := strings.Trim(address[:colon], "[]")
	quote := func(value string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace("host="+host+" port="+address[colon+1:]+" user="+quote(j.role)+" dbname="+quote(j.database)) + `"`
}

// poolerFinding is about a pooler at host; direct is the provider's way past it, empty when it is not known.
func poolerFinding(host, direct string) Finding {
	switch {
	case strings.Contains(host, "-pooler."):
		direct = "use the host " + strings.Replace(host, "-pooler.", ".", 1)
	case strings.HasSuffix(host, ".pooler.supabase.com"):
		direct = supabase.direct
	case direct == "":
		direct = selfManaged.direct
	}
	return Finding{LevelError, "pooler", "server", "it does not understand the replication protocol: it is a connection pooler, such as PgBouncer",
		"a replication stream cannot pass through a pooler", Fix{Advice: direct}}
}
