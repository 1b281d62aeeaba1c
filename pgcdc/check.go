package pgcdc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// Level says how much a Finding matters.
type Level string

const (
	LevelError   Level = "error"   // run would refuse to start, or a table would fail
	LevelWarning Level = "warning" // the mirror works, but something else will not, or not for long
	LevelNote    Level = "note"    // good to know
)

// Finding is one thing that Check has to say about the source.
type Finding struct {
	Level   Level  `json:"level"`
	Check   string `json:"check"`  // what was looked at; a stable name such as wal_level
	Object  string `json:"object"` // the setting, role, table, … as a person would name it
	Problem string `json:"problem"`
	Why     string `json:"why"`
	Fix     Fix    `json:"fix"`
}

// preventing are the checks whose errors keep a new mirror from starting at all, while others cost a table, as type does, or may
// be gone in a moment, as replication_connection. The slot is not among them: a mirror knows more of its own than Check does.
var preventing = []string{
	"version", "standby", "connect", "replication", "pooler", "session", "wal_level", "max_replication_slots", "publication", "publish", "column_lists", "types",
}

// Prevents says that a new mirror cannot start before the finding is repaired.
func (f Finding) Prevents() bool {
	return f.Level == LevelError && slices.Contains(preventing, f.Check)
}

// Fix is what makes a finding go away. What stands in SQL, Config and Shell can be pasted as it is.
type Fix struct {
	// SQL holds statements, each with its semicolon and in this order, for a superuser (or the owner of what they change) in
	// the source's database. Some may not run in a transaction block.
	SQL []string `json:"sql,omitempty"`
	// Restart says that the server must be restarted after SQL.
	Restart bool     `json:"restart,omitempty"`
	Config  []string `json:"config,omitempty"` // lines of mirror.yaml
	Shell   []string `json:"shell,omitempty"`  // commands
	// Advice is what cannot be pasted, and what to know before pasting.
	Advice string `json:"advice,omitempty"`
}

// CheckOptions is what Check must know beyond Config.
type CheckOptions struct {
	// NullUnrepresentable says that on_unrepresentable is null.
	NullUnrepresentable bool
	// Quick leaves out what takes a wait: whether open transactions stay open.
	Quick bool
}

// CheckReport is the answer of Check.
type CheckReport struct {
	Version  string `json:"version"`
	Database string `json:"database"`
	Role     string `json:"role"`
	Provider string `json:"provider,omitempty"` // who runs the server, if that can be seen
	// TableBytes is the size on the source of all published tables without their indexes.
	TableBytes int64     `json:"table_bytes"`
	Findings   []Finding `json:"findings"`
}

// Check asks the server for everything that would keep the mirror from working, or the source from working with it. It changes
// nothing. An error means that the question could not be put; what is known to be wrong with a connection is a finding.
// When transactions are open that write and the slot is not there yet, it takes a second longer: those that are still open
// then would hold up the making of the slot.
func (s *Source) Check(ctx context.Context, options CheckOptions) (*CheckReport, error) {
	conn, err := connect(ctx, s.plain)
	if err != nil {
		if finding, known := s.connectFinding(err); known {
			return &CheckReport{Database: s.database(), Role: s.plain.User, Findings: []Finding{finding}}, nil
		}
		return nil, err
	}
	defer closeConn(conn)
	facts, err := s.gather(ctx, conn, options)
	if err != nil {
		return nil, fmt.Errorf("check the source: %w", err)
	}
	if facts.replication = s.probeReplication(ctx); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return judge(facts), nil
}

// probeReplication says what keeps the replication protocol from being spoken.
func (s *Source) probeReplication(ctx context.Context) error {
	conn, err := connect(ctx, s.replication)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	_, err = pglogrepl.IdentifySystem(ctx, conn)
	return err
}

// connectFinding explains why there is not even an ordinary connection, when there is a cure for it.
func (s *Source) connectFinding(err error) (Finding, bool) {
	var server *pgconn.PgError
	switch {
	case errors.Is(err, ErrVersion):
		return versionFinding(""), true
	case sqlState(err) == "08P01":
		return poolerFinding(s.plain.Host, ""), true
	case errors.As(err, &server) && server.Code == "42501":
		return Finding{
			LevelError, "connect", "database " + quoteIdent(s.database()), "role " + quoteIdent(s.plain.User) + " may not connect to it",
			"nothing else can be checked", Fix{SQL: []string{"GRANT CONNECT ON DATABASE " + quoteIdent(s.database()) + " TO " + quoteIdent(s.plain.User) + ";"}},
		}, true
	}
	return Finding{}, false
}

func versionFinding(version string) Finding {
	problem := "the server is older than PostgreSQL 14"
	if version != "" {
		problem += ": " + version
	}
	return Finding{LevelError, "version", "server", problem, "its logical replication lacks what the mirror needs", Fix{Advice: "upgrade the server to 14 or later"}}
}

// judge makes the report. It depends on nothing but the facts.
func judge(facts *checkFacts) *CheckReport {
	j := &judgement{checkFacts: facts, provider: providerOf(facts)}
	if facts.version < 140000 {
		j.add(versionFinding(facts.versionText))
	}
	j.server()
	j.connection()
	j.publicationFindings()
	j.tableFindings()
	j.slotFindings()
	return &CheckReport{
		Version: facts.versionText, Database: facts.database, Role: facts.role, Provider: j.provider.name,
		TableBytes: facts.tableBytes, Findings: j.findings,
	}
}

// judgement is the report in the making.
type judgement struct {
	*checkFacts
	provider provider
	findings []Finding
}

func (j *judgement) add(f Finding) { j.findings = append(j.findings, f) }
