package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"pgmirror/pgcdc"
)

// target is what the settings say about the source, without its secrets.
type target struct {
	source   string // for the packages that connect; never logged
	database string
	slot     string
}

// target finds the source's database and the slot's name. Nothing is connected to.
func (s *settings) target() (target, error) {
	if s.Source == "" && os.Getenv("PGHOST") == "" && os.Getenv("PGSERVICE") == "" && os.Getenv("PGDATABASE") == "" {
		return target{}, usage(errors.New("source is not set: use --source, PGMIRROR_SOURCE, the config file or PG* variables"))
	}
	config, err := parseSource(s.Source)
	if err != nil {
		return target{}, err
	}
	t := target{source: s.Source, database: config.Database, slot: s.Slot}
	if t.database == "" { // as the server does
		t.database = config.User
	}
	if t.slot == "" {
		t.slot = slotFor(t.database)
	}
	return t, nil
}

// parseSource reads a libpq URL or keyword string. Its error leaves the string out, and every cause that could repeat a
// part of it: the string may hold a password.
func parseSource(source string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(source)
	if err == nil {
		return config, nil
	}
	reason := "it is neither a URL such as postgres://user@host/database nor keywords such as host=h dbname=d"
	for _, known := range []string{"failed to read service", "invalid sslcertmode", "invalid connect_timeout", "invalid port",
		"failed to configure TLS", "sslmode is invalid", `both "sslcert" and "sslkey" are required`, "failed to decode sslkey", "unable to find sslpassword",
		"unable to decrypt key", "unable to load cert", "unable to add CA to cert pool", "unknown target_session_attrs", "unknown channel_binding", "invalid require_auth"} {
		if strings.Contains(err.Error(), known) && !strings.Contains(source, known) {
			reason = known
		}
	}
	var file *fs.PathError
	if errors.As(err, &file) { // a path, which the string names openly
		reason += ": " + file.Error()
	}
	return nil, usage(fmt.Errorf("source cannot be read: %s", reason))
}

// connect opens one ordinary connection, for what the replication packages do not do.
func (t target) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := parseSource(t.source)
	if err != nil {
		return nil, err
	}
	config.ConnectTimeout = min(positive(config.ConnectTimeout, connectTimeout), connectTimeout)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the source: %w", pgcdc.ExplainConnect(ctx, &config.Config, err))
	}
	return conn, nil
}

// connectTimeout bounds how long a command waits for a server that does not answer.
const connectTimeout = 10 * time.Second

func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}
