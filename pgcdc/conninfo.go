package pgcdc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	// applicationName is ours in pg_stat_activity, unless the connection string has another.
	applicationName = "pgmirror"
	// defaultConnectTimeout holds when the connection string has none: a firewall that drops packets would take minutes.
	defaultConnectTimeout = 15 * time.Second
	// closeGrace is how long we wait for the driver to end a connection: after a cancelled statement it cancels it on the
	// server too (a slot that is being made would outlive us) and reads what is under way.
	closeGrace = 2 * time.Second
	// readBuffer is what is read from the socket at once in the stream and in copies: pgproto3 alone reads 8 KiB.
	readBuffer = 128 << 10
)

// pinned are the settings that change what values look like, which rows are seen, how long a connection may live, or what a look at the catalogue costs.
// They are sent in the startup packet, where they win over the role's and the database's defaults and over PGOPTIONS.
// https://www.postgresql.org/docs/current/runtime-config-client.html
var pinned = map[string]string{
	"DateStyle":                           "ISO",
	"IntervalStyle":                       "postgres",
	"TimeZone":                            "UTC",
	"extra_float_digits":                  "3",
	"bytea_output":                        "hex",
	"client_encoding":                     "UTF8",
	"lc_monetary":                         "C",
	"quote_all_identifiers":               "off",
	"standard_conforming_strings":         "on",
	"client_min_messages":                 "warning", // missing publications are warnings since PostgreSQL 18
	"row_security":                        "off",     // an error in place of rows silently left out
	"statement_timeout":                   "0",
	"lock_timeout":                        "0",
	"idle_in_transaction_session_timeout": "0",
	"idle_session_timeout":                "0",
	"jit":                                 "off", // the estimates of recursive catalogue queries are high enough for it: 65 ms in place of 2
}

// localKeywords are libpq keywords that the driver would take for server settings. What concerns only the client's own
// comfort is left out; what asks for a protection that we would not give is refused.
// https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
var localKeywords = map[string]bool{ // whether it may be left out
	"keepalives": true, "keepalives_idle": true, "keepalives_interval": true, "keepalives_count": true, "tcp_user_timeout": true,
	"sslcompression": true, "gsslib": true, "gssdelegation": true, "load_balance_hosts": true, "sslkeylogfile": true,
	"hostaddr": false, "requirepeer": false, "sslcrl": false, "sslcrldir": false,
	"ssl_min_protocol_version": false, "ssl_max_protocol_version": false,
}

// parseSource reads a libpq connection string and what the environment adds to it. Its errors hold no password.
func parseSource(source string) (*pgconn.Config, error) {
	cfg, err := pgconn.ParseConfig(source)
	if err != nil {
		return nil, errors.New("source: the connection string cannot be used: " + parseReason(err))
	}
	params := cfg.RuntimeParams
	for keyword, harmless := range localKeywords {
		if _, ok := params[keyword]; ok && !harmless {
			return nil, fmt.Errorf("source: the keyword %s is not supported; remove it", keyword)
		}
		delete(params, keyword)
	}
	if mode, ok := params["gssencmode"]; ok && mode == "require" {
		return nil, errors.New("source: gssencmode=require is not supported; use sslmode")
	}
	delete(params, "gssencmode")
	if params["application_name"] == "" {
		params["application_name"] = applicationName
		if name := params["fallback_application_name"]; name != "" {
			params["application_name"] = name
		}
	}
	delete(params, "fallback_application_name")
	delete(params, "replication")
	for name := range params { // setting names ignore case: ours must be the only one
		for ours := range pinned {
			if strings.EqualFold(name, ours) {
				delete(params, name)
			}
		}
	}
	for name, value := range pinned {
		params[name] = value
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = defaultConnectTimeout
	}
	dialer := &net.Dialer{
		Timeout:         cfg.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 10 * time.Second, Count: 4},
	}
	cfg.DialFunc = dialer.DialContext
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return pgproto3.NewFrontend(bufio.NewReaderSize(r, readBuffer), w)
	}
	return cfg, nil
}

// parseReason is what is wrong with a connection string, without any part of it. The driver masks only passwords that it
// recognizes, so its text is cut to the fixed words; faults of files and keywords keep their detail.
func parseReason(err error) string {
	reason := err.Error()
	if i := strings.LastIndex(reason, "`: "); i >= 0 {
		reason = reason[i+len("`: "):]
	}
	for _, words := range []string{"failed to parse as URL", "failed to parse as keyword/value", "invalid port"} {
		if strings.HasPrefix(reason, words) {
			return words
		}
	}
	return reason
}

// replicationConfig makes the configuration of replication connections: the server gives up on us after silence, and we on it.
func replicationConfig(base *pgconn.Config, silence time.Duration) *pgconn.Config {
	cfg := base.Copy()
	cfg.RuntimeParams["replication"] = "database"
	cfg.RuntimeParams["wal_sender_timeout"] = strconv.FormatInt(silence.Milliseconds(), 10)
	dial := base.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &silenceConn{Conn: conn}, nil // below TLS: the driver's channel binding wants to see the TLS connection
	}
	return cfg
}

// connect opens a connection and sets what the startup packet cannot carry: a setting that not every version knows, and
// the search path, so that the name of an object in a value (regclass) and in a type is always written in one way.
func connect(ctx context.Context, cfg *pgconn.Config) (*pgconn.PgConn, error) {
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the source: %w", ExplainConnect(ctx, cfg, err))
	}
	version := majorVersion(conn.ParameterStatus("server_version"))
	set := "SET search_path = pg_catalog"
	switch {
	case version < 14:
		err = ErrVersion
	case version >= 17:
		set += "; SET transaction_timeout = 0"
	}
	if err == nil {
		_, err = query(ctx, conn, set)
	}
	if err != nil {
		closeConn(conn)
		return nil, fmt.Errorf("connect to the source: %w", err)
	}
	return conn, nil
}

// majorVersion reads the first number of server_version, such as "15.18 (Debian)" or "19beta1".
func majorVersion(version string) int {
	end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		version = version[:end]
	}
	n, _ := strconv.Atoi(version)
	return n
}

// closeConn ends a connection and, for a while, waits until the driver has ended it.
func closeConn(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	conn.Close(ctx)
	select {
	case <-conn.CleanupDone():
	case <-ctx.Done():
	}
}

// query runs statements and returns the rows of the last one, as text; a nil value is NULL.
func query(ctx context.Context, conn *pgconn.PgConn, sql string) ([][][]byte, error) {
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	if len(results) == 0 {
		return nil, nil
	}
	return results[len(results)-1].Rows, nil
}

// quoteLiteral makes an SQL string; standard_conforming_strings is on.
func quoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func quoteIdent(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func qualified(schema, name string) string { return quoteIdent(schema) + "." + quoteIdent(name) }

func quoteLiterals(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quoteLiteral(s)
	}
	return strings.Join(quoted, ", ")
}
