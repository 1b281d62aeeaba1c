package pgcdc

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// checkFacts is what Check has read. Judging it needs no server.
type checkFacts struct {
	options CheckOptions
	cfg     Config

	version     int // server_version_num
	versionText string
	database    string
	role        string
	host        string            // as configured
	address     string            // host:port of the server as it sees itself; empty over a Unix socket
	settings    map[string]string // pg_settings.setting, in the setting's own unit; absent when the server does not know it
	roles       map[string]bool   // which of providerRoles exist
	standby     bool
	slots       int // in use
	senders     int // in use
	overrides   []roleSetting

	publications []checkedPublication
	missing      []string // publications that do not exist
	relations    []*checkedRelation
	beneath      []string    // looker.beneath
	candidates   []candidate // what a missing publication could hold
	others       []string    // publications of the database, when one is missing
	unlogged     []string    // qualified names that a publication of all tables or of a schema passes over
	tableBytes   int64

	slot      SlotInfo
	slotFound bool
	slotUser  string // application name of the slot's process
	blockers  []blocker
	prepared  []string // prepared transactions that are older than blockedAfter

	replication error // what the replication protocol met
}

// roleSetting is a setting that ALTER ROLE or ALTER DATABASE gave to our sessions. An empty role or database means all.
type roleSetting struct{ role, database, name, value string }

// blocker is a session that has written in a transaction which is still open.
type blocker struct {
	transaction string // virtual transaction
	pid         int64
	user        string
	database    string
	seconds     int64 // age of the transaction; -1 when the role may not see it
	state       string
}

// blockedAfter is for how long a transaction must be open to be named: shorter ones end before a person has read of them.
const blockedAfter = time.Second

// checkedSettings are the settings that are judged.
var checkedSettings = []string{
	"server_version_num", "server_version", "wal_level", "max_replication_slots", "max_wal_senders", "max_slot_wal_keep_size", "idle_replication_slot_timeout",
	"hot_standby_feedback", "row_security", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout",
}

// sessionTimeouts end a session or statement that takes long.
var sessionTimeouts = []string{
	"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout",
}

func (s *Source) gather(ctx context.Context, conn *pgconn.PgConn, options CheckOptions) (*checkFacts, error) {
	f := &checkFacts{options: options, cfg: s.cfg, host: s.plain.Host, settings: map[string]string{}, roles: map[string]bool{}}
	l := looker{ctx: ctx, conn: conn, version: majorVersion(conn.ParameterStatus("server_version")), texts: true, forms: s.cfg.Types}
	open, err := l.blockers() // first, so that what comes next fills the second until they are read again
	if err != nil {
		return nil, err
	}
	read := time.Now()
	for _, step := range []func(*looker) error{f.readServer, f.readUse, f.readOverrides} {
		if err := step(&l); err != nil {
			return nil, err
		}
	}
	found, err := s.publications(ctx, conn, l.version)
	if err != nil && !errors.Is(err, ErrPublicationMissing) && !errors.Is(err, ErrPublicationPartial) {
		return nil, err
	}
	if err := f.readPublications(&l, found); err != nil {
		return nil, err
	}
	if len(f.missing) > 0 {
		if err := f.readCandidates(&l); err != nil {
			return nil, err
		}
	}
	if f.slot, f.slotFound, err = slotInfo(ctx, conn, s.cfg.Slot); err != nil {
		return nil, err
	}
	if f.slot.Active {
		err = l.rows("SELECT application_name FROM pg_stat_activity WHERE pid = "+strconv.Itoa(int(f.slot.ActivePID)), func(r *rowReader) error {
			f.slotUser = r.text()
			return nil
		})
	}
	if err != nil || f.slotFound || options.Quick {
		return f, err
	}
	return f, f.readBlockers(&l, open, read)
}

func (f *checkFacts) readServer(l *looker) error {
	err := l.rows(`SELECT s.name, v.value FROM unnest(ARRAY[`+quoteLiterals(append(checkedSettings, providerSettings...))+`]) s(name),
		LATERAL (SELECT coalesce((SELECT setting FROM pg_settings p WHERE p.name = s.name), current_setting(s.name, true)) AS value) v WHERE v.value IS NOT NULL`,
		func(r *rowReader) error {
			name := r.text()
			f.settings[name] = r.text()
			return nil
		})
	if err != nil {
		return err
	}
	f.version, f.versionText = f.number("server_version_num"), f.settings["server_version"]
	err = l.rows("SELECT rolname FROM pg_roles WHERE rolname IN ("+quoteLiterals(providerRoles)+")", func(r *rowReader) error {
		f.roles[r.text()] = true
		return nil
	})
	if err != nil {
		return err
	}
	return l.rows("SELECT current_database(), session_user, pg_is_in_recovery(), coalesce(host(inet_server_addr()), ''), coalesce(inet_server_port(), 0)", func(r *rowReader) error {
		f.database, f.role, f.standby = r.text(), r.text(), r.bool()
		if host, port := r.text(), r.text(); host != "" {
			f.address = net.JoinHostPort(host, port)
		}
		return nil
	})
}

// readUse counts what is taken. The counts are visible to every role.
func (f *checkFacts) readUse(l *looker) error {
	return l.rows("SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_stat_replication)", func(r *rowReader) error {
		f.slots, f.senders = int(r.int(32)), int(r.int(32))
		return nil
	})
}

func (f *checkFacts) readOverrides(l *looker) error {
	return l.rows(`SELECT coalesce(r.rolname, ''), coalesce(d.datname, ''), split_part(c.line, '=', 1), substr(c.line, strpos(c.line, '=') + 1)
		FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole LEFT JOIN pg_database d ON d.oid = s.setdatabase, unnest(s.setconfig) c(line)
		WHERE (s.setrole = 0 OR r.rolname = session_user) AND (s.setdatabase = 0 OR d.datname = current_database())
			AND split_part(c.line, '=', 1) IN (`+quoteLiterals(append([]string{"wal_sender_timeout"}, sessionTimeouts...))+`) ORDER BY 1, 2, 3`, func(r *rowReader) error {
		f.overrides = append(f.overrides, roleSetting{r.text(), r.text(), r.text(), r.text()})
		return nil
	})
}

// blockers lists the sessions that have a transaction id: those that making a slot waits for. The locks are visible to every
// role, the age and state of a transaction only to its own role and to members of pg_read_all_stats.
func (l *looker) blockers() ([]blocker, error) {
	var found []blocker
	err := l.rows(`SELECT DISTINCT l.virtualtransaction, a.pid, coalesce(a.usename, ''), coalesce(a.datname, ''),
			coalesce(floor(extract(epoch FROM clock_timestamp() - a.xact_start))::bigint, -1), coalesce(a.state, '')
		FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid() ORDER BY 2`, func(r *rowReader) error {
		found = append(found, blocker{transaction: r.text(), pid: r.int(32), user: r.text(), database: r.text(), seconds: r.int(64), state: r.text()})
		return nil
	})
	return found, err
}

// readBlockers keeps those of the transactions seen at a time before that are still open blockedAfter later.
func (f *checkFacts) readBlockers(l *looker, before []blocker, at time.Time) error {
	if len(before) > 0 {
		select {
		case <-l.ctx.Done():
			return l.ctx.Err()
		case <-time.After(time.Until(at.Add(blockedAfter))):
		}
		now, err := l.blockers()
		if err != nil {
			return err
		}
		f.blockers = stillOpen(before, now)
	}
	return l.rows("SELECT gid FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - interval '"+blockedAfter.String()+"' ORDER BY gid", func(r *rowReader) error {
		f.prepared = append(f.prepared, r.text())
		return nil
	})
}

// stillOpen returns those of now whose transaction was open before; a session may have begun another since.
func stillOpen(before, now []blocker) []blocker {
	seen := map[string]bool{}
	for _, b := range before {
		seen[b.transaction] = true
	}
	return slices.DeleteFunc(now, func(b blocker) bool { return !seen[b.transaction] })
}

// number is a setting's value; 0 when the server does not have it.
func (f *checkFacts) number(setting string) int {
	n, _ := strconv.Atoi(f.settings[setting])
	return n
}
