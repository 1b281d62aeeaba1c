package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Postgres is one throw-away cluster. Its methods are for one goroutine, except URL, Connect, Exec, Query and QueryRow.
// Where a method returns an error and the cluster belongs to a test, the test has already been ended by it.
type Postgres struct {
	t        testing.TB // nil outside tests
	dir      string
	bin      string
	cred     *syscall.Credential
	port     int
	settings []setting
	stranger bool
	process  *Process // nil when it was stopped
}

type setting struct{ name, value string }

// Option changes how a cluster is made.
type Option func(*Postgres)

// Setting sets a configuration parameter; a later one wins.
func Setting(name, value string) Option {
	return func(p *Postgres) { p.settings = append(p.settings, setting{name, value}) }
}

// Stranger makes a cluster with a system identifier of its own. All others begin as copies of one, and share its identifier.
func Stranger() Option { return func(p *Postgres) { p.stranger = true } }

// Mode is how Stop ends the server, as in pg_ctl.
type Mode syscall.Signal

const (
	Smart     = Mode(syscall.SIGTERM) // waits for every client
	Fast      = Mode(syscall.SIGINT)  // ends the clients, waits for walsenders, checkpoints
	Immediate = Mode(syscall.SIGQUIT) // a crash, cleaned up
)

// startLimit bounds how long a server may take to answer; crash recovery of a test's WAL takes well under it.
const startLimit = 60 * time.Second

// StartPostgres starts a cluster that ends with the test. When the test fails, the server's log is shown.
func StartPostgres(t testing.TB, opts ...Option) *Postgres {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgm") // a short name: a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(dir, opts...)
	if err != nil {
		os.RemoveAll(dir)
		t.Fatalf("start PostgreSQL: %v", err)
	}
	p.endWith(t)
	return p
}

// endWith makes the cluster a test's: its errors end the test, and the end of the test is its own.
func (p *Postgres) endWith(t testing.TB) {
	p.t = t
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("server log:\n%s", p.Log())
		}
		p.kill()
		p.Remove()
	})
}

// Start makes a cluster below dir, an existing directory, and starts it. The caller stops it and calls Remove.
func Start(dir string, opts ...Option) (*Postgres, error) {
	return start(dir, func(*Postgres) error { return nil }, opts...)
}

// start is Start; prepare changes the data directory before the server sees it.
func start(dir string, prepare func(*Postgres) error, opts ...Option) (*Postgres, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	cred, err := account()
	if err != nil {
		return nil, err
	}
	p := &Postgres{dir: dir, bin: bin, cred: cred}
	for _, opt := range opts {
		opt(p)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), give(dir, cred)); err != nil {
		return nil, err
	}
	if p.stranger {
		err = initdb(bin, cred, p.DataDir())
	} else {
		err = copyTemplate(bin, cred, p.DataDir())
	}
	if err != nil {
		return nil, err
	}
	if p.port, err = freePort(); err != nil {
		return nil, err
	}
	if err := errors.Join(p.configure(), prepare(p)); err != nil {
		return nil, err
	}
	return p, p.Start()
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// configure appends our settings to postgresql.conf; the last line of a name wins.
func (p *Postgres) configure() error {
	settings := append([]setting{
		{"listen_addresses", "127.0.0.1"},
		{"port", strconv.Itoa(p.port)},
		{"unix_socket_directories", p.dir},
		{"wal_level", "logical"},
		{"fsync", "off"},
		{"max_wal_senders", "20"},
		{"max_replication_slots", "20"},
		{"shared_buffers", "32MB"},
		{"log_line_prefix", "%m [%p] %q%u@%d %a "},
	}, p.settings...)
	var conf bytes.Buffer
	for _, s := range settings {
		fmt.Fprintf(&conf, "%s = '%s'\n", s.name, strings.ReplaceAll(s.value, "'", "''"))
	}
	f, err := os.OpenFile(filepath.Join(p.DataDir(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(conf.Bytes())
	return errors.Join(err, f.Close())
}

// Start starts a stopped or killed server and waits until it answers.
func (p *Postgres) Start() error {
	deadline := time.Now().Add(startLimit)
	for {
		err := p.launch(deadline)
		if err == nil {
			return nil
		}
		// A killed postmaster's children need a moment to notice, and hold its shared memory until then.
		if !strings.Contains(p.lastLog(), "pre-existing shared memory block") || time.Now().After(deadline) {
			return p.fail(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *Postgres) launch(deadline time.Time) error {
	cmd := exec.Command(filepath.Join(p.bin, "postgres"), "-D", p.DataDir())
	cmd.Dir = "/"
	cmd.SysProcAttr = serverProc(p.cred)
	process, err := StartProcess(cmd, p.logPath())
	if err != nil {
		return err
	}
	p.process = process
	for {
		conn, err := pgconn.Connect(context.Background(), p.socketString("postgres", "postgres"))
		if err == nil {
			return conn.Close(context.Background())
		}
		select {
		case <-process.Ended():
			return fmt.Errorf("the server ended at once; its log says:\n%s", p.lastLog())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.kill()
			return fmt.Errorf("the server does not answer: %w", err)
		}
	}
}

// Stop ends the server and waits for it, at most for a minute.
func (p *Postgres) Stop(mode Mode) error {
	if p.process == nil {
		return nil
	}
	if err := p.process.Stop(syscall.Signal(mode), startLimit); err != nil {
		return p.fail(err)
	}
	p.process = nil
	return nil
}

// Kill ends the postmaster as a power failure would; Start then recovers from the WAL.
func (p *Postgres) Kill() { p.kill() }

func (p *Postgres) kill() {
	if p.process == nil {
		return
	}
	p.process.Kill()
	p.process = nil
}

// Remove deletes everything the cluster has on disk. The server must have ended.
func (p *Postgres) Remove() error {
	p.removeShared()
	// A killed server's last children may still be writing.
	var err error
	for range 100 {
		if err = os.RemoveAll(p.dir); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// removeShared removes the System V segment by which a server that was killed still holds its data directory: nobody else would, and a system has 4,096.
func (p *Postgres) removeShared() {
	text, err := os.ReadFile(filepath.Join(p.DataDir(), "postmaster.pid")) // gone when the server ended by itself
	if lines := strings.Split(string(text), "\n"); err == nil && len(lines) > sharedLine {
		var key, id int
		if n, _ := fmt.Sscan(lines[sharedLine], &key, &id); n == 2 {
			removeSegment(id)
		}
	}
}

// sharedLine is the line of postmaster.pid, from 0, that has the segment's key and identifier (LOCK_FILE_LINE_SHMEM_KEY in PostgreSQL's pidfile.h).
const sharedLine = 6

// For returns the same cluster for a subtest, which is ended by errors in the place of the test that started it. The server is
// not to be started or stopped through it.
func (p *Postgres) For(t testing.TB) *Postgres {
	sub := *p
	sub.t = t
	return &sub
}

// Needs skips the test on a server older than a major version, which does not have what the test is about.
func (p *Postgres) Needs(version int, what string) {
	p.t.Helper()
	number, err := strconv.Atoi(p.QueryRow("SHOW server_version_num"))
	if err != nil {
		p.t.Fatal(err)
	}
	if number/10_000 < version {
		p.t.Skipf("PostgreSQL %d has no %s", number/10_000, what)
	}
}

// DataDir is the cluster's data directory.
func (p *Postgres) DataDir() string { return filepath.Join(p.dir, "data") }

// WriteFile writes a file of the data directory that only the server's user may read, such as a key or pg_hba.conf.
func (p *Postgres) WriteFile(name string, content []byte) error {
	path := filepath.Join(p.DataDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return p.fail(err)
	}
	return p.fail(errors.Join(os.Chmod(path, 0o600), give(path, p.cred)))
}

// CopyDataDir copies the data directory of a stopped server to a path that does not exist yet.
func (p *Postgres) CopyDataDir(to string) error {
	if p.process != nil {
		return p.fail(errors.New("copy the data directory: the server is running"))
	}
	return p.fail(copyDir(p.DataDir(), to))
}

// RestoreDataDir puts a copy that CopyDataDir made in the place of a stopped server's data directory.
func (p *Postgres) RestoreDataDir(from string) error {
	if p.process != nil {
		return p.fail(errors.New("restore the data directory: the server is running"))
	}
	if err := os.RemoveAll(p.DataDir()); err != nil {
		return p.fail(err)
	}
	return p.fail(copyDir(from, p.DataDir()))
}

// Log is everything that the server has logged.
func (p *Postgres) Log() string {
	log, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return string(log)
}

func (p *Postgres) lastLog() string {
	log := p.Log()
	return log[max(0, len(log)-2000):]
}

func (p *Postgres) logPath() string { return filepath.Join(p.dir, "log") }

// Port is the TCP port on 127.0.0.1.
func (p *Postgres) Port() int { return p.port }

// URL is a connection string over TCP.
func (p *Postgres) URL(user, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(user), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// SocketURL is a connection string in keyword form over the Unix socket.
func (p *Postgres) SocketURL(user, database string) string { return p.socketString(user, database) }

func (p *Postgres) socketString(user, database string) string {
	return fmt.Sprintf("host=%s port=%d user='%s' dbname='%s'", p.dir, p.port, user, database)
}

// fail ends the test, if there is one, with a non-nil error.
func (p *Postgres) fail(err error) error {
	if err != nil && p.t != nil {
		p.t.Helper()
		p.t.Fatalf("PostgreSQL: %v", err)
	}
	return err
}
