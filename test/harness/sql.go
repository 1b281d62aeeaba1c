package harness

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Connect opens a session; the test's end closes it. Outside tests the caller does.
func (p *Postgres) Connect(user, database string) (*Session, error) {
	conn, err := pgconn.Connect(context.Background(), p.socketString(user, database))
	if err != nil {
		return nil, p.fail(err)
	}
	s := &Session{p: p, conn: conn}
	if p.t != nil {
		p.t.Cleanup(s.Close)
	}
	return s, nil
}

// Open is Connect for tests.
func (p *Postgres) Open(user, database string) *Session {
	s, _ := p.Connect(user, database)
	return s
}

// Session is one connection, for what needs an open transaction.
type Session struct {
	p    *Postgres
	conn *pgconn.PgConn
}

// Close ends the session.
func (s *Session) Close() { s.conn.Close(context.Background()) }

// Exec runs statements one after the other.
func (s *Session) Exec(sql ...string) error {
	for _, one := range sql {
		if _, err := s.conn.Exec(context.Background(), one).ReadAll(); err != nil {
			return s.p.fail(fmt.Errorf("%s: %w", one, err))
		}
	}
	return nil
}

// Query returns the rows of one statement as text; NULL is "<null>".
func (s *Session) Query(sql string) ([][]string, error) {
	results, err := s.conn.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		return nil, s.p.fail(fmt.Errorf("%s: %w", sql, err))
	}
	var rows [][]string
	for _, values := range results[len(results)-1].Rows {
		row := make([]string, len(values))
		for i, value := range values {
			row[i] = "<null>"
			if value != nil {
				row[i] = string(value)
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// Exec runs statements as superuser in the database postgres, each in a transaction of its own.
func (p *Postgres) Exec(sql ...string) error { return p.ExecIn("postgres", sql...) }

// ExecIn is Exec in another database.
func (p *Postgres) ExecIn(database string, sql ...string) error {
	s, err := p.session(database)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Exec(sql...)
}

// Query returns the rows of one statement as text, as superuser in the database postgres.
func (p *Postgres) Query(sql string) ([][]string, error) {
	s, err := p.session("postgres")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Query(sql)
}

// QueryRow returns the only row of a statement, its columns joined by "|"; no row is "".
func (p *Postgres) QueryRow(sql string) string {
	rows, err := p.Query(sql)
	if err != nil || len(rows) == 0 {
		return ""
	}
	return strings.Join(rows[0], "|")
}

func (p *Postgres) session(database string) (*Session, error) {
	conn, err := pgconn.Connect(context.Background(), p.socketString("postgres", database))
	if err != nil {
		return nil, p.fail(err)
	}
	return &Session{p: p, conn: conn}, nil
}

// CreateMirrorRole makes a role with what pgmirror needs and no more: LOGIN, REPLICATION, and SELECT on the tables, present
// and future, of the given schemas (public if none) of a database.
func (p *Postgres) CreateMirrorRole(role, database string, schemas ...string) error {
	if len(schemas) == 0 {
		schemas = []string{"public"}
	}
	if err := p.Exec("CREATE ROLE " + Ident(role) + " LOGIN REPLICATION"); err != nil {
		return err
	}
	for _, schema := range schemas {
		err := p.ExecIn(database,
			"GRANT USAGE ON SCHEMA "+Ident(schema)+" TO "+Ident(role),
			"GRANT SELECT ON ALL TABLES IN SCHEMA "+Ident(schema)+" TO "+Ident(role),
			"ALTER DEFAULT PRIVILEGES IN SCHEMA "+Ident(schema)+" GRANT SELECT ON TABLES TO "+Ident(role))
		if err != nil {
			return err
		}
	}
	return nil
}

// Ident quotes an SQL identifier.
func Ident(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
