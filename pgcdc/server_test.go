package pgcdc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// decodeServer is a throw-away PostgreSQL whose send and output functions the decoders are held against.
type decodeServer struct {
	config *pgconn.Config
	conn   *pgconn.PgConn
}

// TestDecodingAgreesWithServer runs the tests that need a server on one.
func TestDecodingAgreesWithServer(t *testing.T) {
	server := startDecodeServer(t)
	t.Run("transactions", func(t *testing.T) { testTransactions(t, server) })
	t.Run("values", func(t *testing.T) { testValues(t, server) })
	t.Run("forms", func(t *testing.T) { testForms(t, server) })
	t.Run("streamed", func(t *testing.T) { testStreamed(t, server) })
}

// startDecodeServer makes a cluster in a temporary directory and ends it with the test. A machine without PostgreSQL
// fails the test.
func startDecodeServer(t *testing.T) *decodeServer {
	t.Helper()
	bin, err := postgresBin()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pgcdc") // t.TempDir's name is too long for a socket and closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	credential, err := serverUser(dir)
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, credential
		// The server must not inherit a pipe: pg_ctl would seem to run as long as the server does.
		output, err := os.Create(filepath.Join(dir, name+".out"))
		if err != nil {
			t.Fatal(err)
		}
		defer output.Close()
		cmd.Stdout, cmd.Stderr = output, output
		if err := cmd.Run(); err != nil {
			text, _ := os.ReadFile(output.Name())
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
	}
	data := filepath.Join(dir, "data")
	run("initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--pgdata", data)
	run("pg_ctl", "start", "--wait", "--pgdata", data, "--log", filepath.Join(dir, "log"), "--options",
		fmt.Sprintf("-c listen_addresses='' -c unix_socket_directories=%s -c fsync=off -c wal_level=logical -c max_wal_senders=2 -c max_replication_slots=2 -c max_prepared_transactions=4 -c logical_decoding_work_mem=64kB", dir))
	t.Cleanup(func() { run("pg_ctl", "stop", "--mode=immediate", "--pgdata", data) })

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	config, err := pgconn.ParseConfig(fmt.Sprintf("host=%s user=postgres dbname=postgres client_encoding=UTF8 datestyle=ISO "+
		"intervalstyle=postgres timezone=UTC bytea_output=hex extra_float_digits=3", dir))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(ctx)) })
	return &decodeServer{config: config, conn: conn}
}

// postgresBin is the directory that PGMIRROR_PG_BIN names, or that of the newest PostgreSQL of this machine.
func postgresBin() (string, error) {
	if dir := os.Getenv("PGMIRROR_PG_BIN"); dir != "" {
		return dir, nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("no PostgreSQL server on this machine: initdb is neither in PATH nor in /usr/lib/postgresql (%v)", err)
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

// serverUser gives dir to the user postgres when the test runs as root, as whom no server starts.
func serverUser(dir string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	postgres, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("tests run by root need a user to run the server: %w", err)
	}
	uid, err := strconv.Atoi(postgres.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(postgres.Gid)
	if err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, os.Chown(dir, uid, gid)
}

// exec runs statements that give no rows.
func (s *decodeServer) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := s.conn.Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%v\nin %s", err, sql)
	}
}

// query runs a statement with text parameters and returns its rows in a format: 0 text, 1 binary. A nil value is NULL.
func (s *decodeServer) query(t *testing.T, format int16, sql string, params ...string) [][][]byte {
	t.Helper()
	values := make([][]byte, len(params))
	for i, param := range params {
		values[i] = []byte(param)
	}
	result := s.conn.ExecParams(t.Context(), sql, values, nil, nil, []int16{format}).Read()
	if result.Err != nil {
		t.Fatalf("%v\nin %s", result.Err, sql)
	}
	return result.Rows
}

// value is query for one row of one column, as text.
func (s *decodeServer) value(t *testing.T, sql string, params ...string) string {
	t.Helper()
	return string(s.query(t, 0, sql, params...)[0][0])
}

// typeCatalog reads pg_type.
func (s *decodeServer) typeCatalog(t *testing.T) *typeCatalog {
	t.Helper()
	var rows []typeRow
	for _, row := range s.query(t, 0, typesSQL+" from pg_type t join pg_namespace n on n.oid = t.typnamespace") {
		r := rowReader{row: row}
		rows = append(rows, readType(&r))
		if r.err != nil {
			t.Fatal(r.err)
		}
	}
	return newTypeCatalog(rows)
}
