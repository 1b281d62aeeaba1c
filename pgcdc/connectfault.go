package pgcdc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// ExplainConnect says in one line why a connection could not be made, and what a person can do about it. Of several attempts, over TLS and
// without, and to several hosts, it tells the one that came furthest.
func ExplainConnect(ctx context.Context, cfg *pgconn.Config, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = furthest(err)
	var hint string
	switch sqlState(err) {
	case "42501":
		var fault *pgconn.PgError
		if errors.As(err, &fault) && fault.Routine != "CheckMyDatabase" {
			return fmt.Errorf("%w: %w", ErrNoReplication, err)
		}
		hint = "run GRANT CONNECT ON DATABASE … TO the role"
	case "28P01":
		hint = "check the password of role " + cfg.User + ", and its client certificate if the server wants one"
		if cfg.Password == "" {
			hint = "no password was supplied for role " + cfg.User + ": put it into ~/.pgpass (mode 0600), PGPASSWORD or the config file"
		}
	case "28000":
		hint = "pg_hba.conf of the source must let role " + cfg.User + " in, and the role must exist and have LOGIN"
		if strings.Contains(err.Error(), "client certificate") {
			hint = "name the role's certificate with sslcert and sslkey, signed by an authority that the server knows (ssl_ca_file)"
		}
	case "3D000":
		hint = "name an existing database in --source"
	case "42704": // a setting that we pin is not known
		return fmt.Errorf("%w: %w", ErrVersion, err)
	case "08P01":
		hint = "connect to the server itself, not through a connection pooler"
	default:
		return err
	}
	return fmt.Errorf("%w (%s)", err, hint)
}

// furthest is the attempt of a connection that came furthest; of several, the first.
func furthest(err error) error {
	var whole *pgconn.ConnectError
	if !errors.As(err, &whole) {
		return err
	}
	attempts := []error{errors.Unwrap(whole)}
	if joined, ok := attempts[0].(interface{ Unwrap() []error }); ok {
		attempts = joined.Unwrap()
	}
	best := attempts[0]
	for _, one := range attempts[1:] {
		if reached(one) > reached(best) {
			best = one
		}
	}
	return best
}

// reached says how far an attempt came.
func reached(err error) int {
	switch {
	case sqlState(err) == "28000": // not even let in
		return 2
	case sqlState(err) != "":
		return 3
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return 0
	}
	return 1
}
