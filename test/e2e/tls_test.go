package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// authority signs certificates.
type authority struct {
	t           testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)}
	der, key := a.sign(template)
	a.key = key
	var err error
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// sign completes a template that says for what and until when it is. The authority's own certificate is signed by itself.
func (a *authority) sign(template *x509.Certificate) (der []byte, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	template.NotBefore = template.NotAfter.Add(-48 * time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	if der, err = x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer); err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

// issue makes a certificate and its key as PEM.
func (a *authority) issue(template *x509.Certificate) (certificate, key []byte) {
	a.t.Helper()
	der, private := a.sign(template)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// client is a template for a client certificate of a role.
func client(role string, until time.Time) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: role}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature, NotAfter: until}
}

// canary is the password of the role; it must be seen nowhere.
const canary = "c4nary-P4ssw0rd"

// fortress is a server that lets the mirror's role in over TLS alone, with a client certificate and a password, and the files that
// a client needs.
type fortress struct {
	t    testing.TB
	pg   *harness.Postgres
	dir  string
	said []string // everything that was printed
}

func newFortress(t testing.TB) *fortress {
	t.Helper()
	f := &fortress{t: t, pg: server(t, []string{"create table t(id int primary key, d time)", "insert into t values (1, null)"}), dir: t.TempDir()}
	ours, other := newAuthority(t, "our authority"), newAuthority(t, "another authority")
	certificate, key := ours.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "db"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"db.example"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature, NotAfter: time.Now().Add(time.Hour)})
	f.pg.WriteFile("server.crt", certificate)
	f.pg.WriteFile("server.key", key)
	f.pg.WriteFile("clients.crt", ours.pem())
	f.pg.WriteFile("pg_hba.conf", []byte("local all all trust\nhostssl all "+mirrorRole+" 127.0.0.1/32 scram-sha-256 clientcert=verify-full\n"))
	f.pg.Exec("alter role "+mirrorRole+" password '"+canary+"'", "alter system set ssl_ca_file = 'clients.crt'", "alter system set ssl = on", "select pg_reload_conf()")
	within(t, "the server speaks TLS", func() bool { return f.pg.QueryRow("select current_setting('ssl')") == "on" })

	f.write("root", ours.pem())
	f.write("other-root", other.pem())
	for name, issue := range map[string]func() (certificate, key []byte){
		"good":    func() ([]byte, []byte) { return ours.issue(client(mirrorRole, time.Now().Add(time.Hour))) },
		"expired": func() ([]byte, []byte) { return ours.issue(client(mirrorRole, time.Now().Add(-time.Hour))) },
		"forged":  func() ([]byte, []byte) { return other.issue(client(mirrorRole, time.Now().Add(time.Hour))) },
		"alien":   func() ([]byte, []byte) { return ours.issue(client("somebody", time.Now().Add(time.Hour))) },
	} {
		certificate, key := issue()
		f.write(name+".crt", certificate)
		f.write(name+".key", key)
	}
	return f
}

func (f *fortress) write(name string, content []byte) (path string) {
	f.t.Helper()
	path = filepath.Join(f.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// source is a connection string with a password; certificate "" has no client certificate.
func (f *fortress) source(host, root, certificate, password string) string {
	s := fmt.Sprintf("postgres://%s:%s@%s:%d/postgres?sslmode=verify-full&sslrootcert=%s", mirrorRole, password, host, f.pg.Port(), filepath.Join(f.dir, root))
	if certificate != "" {
		s += "&sslcert=" + filepath.Join(f.dir, certificate+".crt") + "&sslkey=" + filepath.Join(f.dir, certificate+".key")
	}
	return s
}

// mirror prepares one whose settings are in a file; its commands get the file too.
func (f *fortress) mirror(name, source string, more ...string) (m *Mirror, config string) {
	f.t.Helper()
	m = NewMirror(f.t, f.pg, "p")
	config = f.write(name+".yaml", []byte(strings.Join(append([]string{"source: " + source, "publication: p", "data: " + m.data, "log_level: debug"}, more...), "\n")+"\n"))
	return m, config
}

// startWith starts it with nothing of the source on the command line.
func (m *Mirror) startWith(config string) {
	m.t.Helper()
	cmd := exec.Command(program, "run", "--config", config)
	cmd.Env = environment()
	run, err := harness.StartProcess(cmd, m.logPath)
	if err != nil {
		m.t.Fatal(err)
	}
	m.run = run
}

// command runs a command and keeps what it says.
func (f *fortress) command(m *Mirror, args ...string) (out string, code int) {
	f.t.Helper()
	stdout, stderr, code := m.Command(args...)
	f.said = append(f.said, stdout, stderr)
	return stdout + stderr, code
}

// secret looks for the password in everything that was printed, in the logs and in all files of the mirrors.
func (f *fortress) secret(mirrors ...*Mirror) {
	f.t.Helper()
	said := f.said
	for _, m := range mirrors {
		said = append(said, m.Log())
		err := filepath.WalkDir(m.Data(), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) { // it was refused before it made one
				return nil
			}
			if err == nil && d.Type().IsRegular() {
				var content []byte
				content, err = os.ReadFile(path)
				said = append(said, string(content))
			}
			return err
		})
		if err != nil {
			f.t.Fatal(err)
		}
	}
	for _, text := range f.said {
		parts := strings.Split(text, ": ")
		for i := 1; i < len(parts); i++ {
			if parts[i] != "" && strings.HasSuffix(parts[i-1], parts[i]) {
				f.t.Errorf("%q is said twice: %s", parts[i], text)
			}
		}
	}
	for _, text := range said {
		if i := strings.Index(text, canary); i >= 0 {
			f.t.Errorf("the password is told: %q", text[max(0, i-200):min(len(text), i+50)])
		}
	}
}

// Every command works with a server that wants TLS, proves its name and asks for a client certificate and a password. The password
// is in no argument, log, answer, metric or file.
func TestTLS(t *testing.T) {
	t.Parallel()
	f := newFortress(t)
	address := httpAddress(t)
	m, config := f.mirror("good", f.source("127.0.0.1", "root", "good", canary), "listen: "+address)
	run := func(want int, args ...string) string {
		t.Helper()
		out, code := f.command(m, append(args, "--config", config)...)
		if code != want {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
		return out
	}
	run(0, "check")
	m.startWith(config)
	m.WaitReady()
	if got := f.pg.QueryRow("select string_agg(distinct ssl::text || ' ' || client_dn, ',') from pg_stat_ssl join pg_stat_activity using (pid) where usename = '" + mirrorRole + "'"); got != "true /CN="+mirrorRole {
		t.Errorf("connections: %s", got)
	}
	f.pg.Exec("insert into t values (2, '10:00')")
	if out := run(0, "sql", "--wait-lsn", "source", "--format", "csv", "-c", "select count(*) as n from t"); !strings.HasSuffix(out, "n\n2\n") {
		t.Errorf("sql: %s", out)
	}
	if out := run(0, "status"); !strings.Contains(out, ": streaming\n") {
		t.Errorf("status: %s", out)
	}
	run(0, "status", "--json")
	run(0, "verify")
	run(0, "checkpoint")
	run(0, "inspect", "t")
	for _, path := range []string{"/", "/metrics", "/readyz", "/healthz"} {
		_, text := httpGet(t, "http://"+address+path)
		f.said = append(f.said, text)
	}
	processes, err := exec.Command("ps", "axww", "-o", "args").Output()
	if err != nil {
		t.Fatal(err)
	}
	shown := false
	for line := range strings.Lines(string(processes)) {
		if strings.Contains(line, f.dir) { // other tests do what this one says one must not do
			shown = true
			f.said = append(f.said, line)
		}
	}
	if !shown {
		t.Error("ps does not show the mirror")
	}

	// What goes wrong in mid-life is told without it too: a table that fails, a password that has been changed, a server that is gone.
	f.pg.Exec("insert into t values (3, '24:00')")
	m.WaitStatus("the table has failed", func(s *mirror.Status) bool { return Table(t, s, "public.t").State == "failed" })
	f.pg.Exec("alter role "+mirrorRole+" password 'another'", "select pg_terminate_backend(pid) from pg_stat_activity where usename = '"+mirrorRole+"'")
	refused := m.WaitStatus("the password is refused", func(s *mirror.Status) bool {
		return s.State == "reconnecting" && strings.Contains(s.Reason, "tried again every 30s")
	})
	refusal(t, refused.Reason, "28P01", "check the password of role "+mirrorRole)
	run(0, "status")
	run(3, "check")
	f.secret(m)
	f.pg.Exec("alter role " + mirrorRole + " password '" + canary + "'")
	m.WaitStatus("the password is right again", func(s *mirror.Status) bool { return s.State == "streaming" })
	m.Kill()
	f.pg.Stop(harness.Fast)
	run(3, "check")
	run(1, "drop", "--yes")
	f.pg.Start()
	if out := run(0, "drop", "--yes", "--warehouse"); !strings.Contains(out, "dropped slot") {
		t.Errorf("drop: %s", out)
	}
	f.secret(m)
}

// What is wrong with certificate, name or password is said in words that tell which, by run and check alike, with exit code 3 and
// without the password.
func TestTLSRefused(t *testing.T) {
	t.Parallel()
	f := newFortress(t)
	var all []*Mirror
	for name, c := range map[string]struct {
		source string
		want   string
	}{
		"wrong authority":    {f.source("127.0.0.1", "other-root", "good", canary), "certificate signed by unknown authority"},
		"wrong host name":    {f.source("localhost", "root", "good", canary), "certificate is valid for db.example, not localhost"},
		"expired":            {f.source("127.0.0.1", "root", "expired", canary), "expired certificate"},
		"no certificate":     {f.source("127.0.0.1", "root", "", canary), "name the role's certificate with sslcert and sslkey"},
		"forged certificate": {f.source("127.0.0.1", "root", "forged", canary), "signed by an authority that the server knows"},
		"somebody else's":    {f.source("127.0.0.1", "root", "alien", canary), "its client certificate if the server wants one"},
		"wrong password":     {f.source("127.0.0.1", "root", "good", "wrong-"+canary), "check the password of role " + mirrorRole},
		"no TLS":             {fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/postgres?sslmode=disable", mirrorRole, canary, f.pg.Port()), "no encryption"},
	} {
		t.Run(name, func(t *testing.T) {
			m, config := f.mirror(strings.ReplaceAll(name, " ", "_"), c.source, "listen: off")
			all = append(all, m)
			for _, command := range []string{"check", "run"} {
				out, code := f.command(m, command, "--config", config)
				for range 20 {
					// The server may have closed the connection before its reason for refusing a certificate was read.
					if !strings.Contains(out, "failed to write startup message") {
						break
					}
					out, code = f.command(m, command, "--config", config)
				}
				if code != 3 || !strings.Contains(out, c.want) {
					t.Errorf("%s: exit code %d, without %q: %s", command, code, c.want, out)
				}
			}
			out, code := f.command(m, "drop", "--yes", "--config", config)
			for range 20 {
				if !strings.Contains(out, "failed to write startup message") {
					break
				}
				out, code = f.command(m, "drop", "--yes", "--config", config)
			}
			if code != 1 || !strings.Contains(out, c.want) {
				t.Errorf("drop: exit code %d, without %q: %s", code, c.want, out)
			}
		})
	}
	f.secret(all...)
}

// A source that cannot be understood or used is told without any part of it, wherever it was given.
func TestSecretsInBrokenSources(t *testing.T) {
	t.Parallel()
	f := &fortress{t: t, pg: harness.StartPostgres(t), dir: t.TempDir()}
	var all []*Mirror
	for i, source := range []string{
		"postgres://u:" + canary + "@[bad", "postgres://u:" + canary + "@h:port/d", "postgres://u:" + canary + "%zz@h/d", "postgres://u:" + canary + "@127.0.0.1:1/d?sslmode=" + canary,
		"postgres://u:" + canary + "@127.0.0.1:1/d?connect_timeout=" + canary, "postgres://u:" + canary + "@127.0.0.1:1/d?nonsense=" + canary, "postgres:// u:" + canary + "@127.0.0.1:1/d",
		"u:" + canary + "@127.0.0.1:1/d", "host=127.0.0.1 port=1 password=" + canary, "host=127.0.0.1 port=x password=" + canary, "host=127.0.0.1 port=1 password='" + canary,
		"host=127.0.0.1 port=1 " + canary, "postgres://u:" + canary + "@127.0.0.1:1/d?sslmode=verify-full&sslrootcert=/no/such/file", "postgres://u:" + canary + "@no-such-host.invalid/d?connect_timeout=2",
		"postgres://u:" + canary + "@127.0.0.1:1/d?sslpassword=" + canary, "postgres://u:" + canary + "@127.0.0.1:1/d?sslcert=/no/such&sslkey=/no/such", "service=" + canary,
	} {
		m, config := f.mirror(fmt.Sprint(i), "'"+strings.ReplaceAll(source, "'", "''")+"'", "listen: off")
		all = append(all, m)
		commands := [][]string{{"check", "--config", config}, {"check", "--publication", "p", "--source", source}, {"drop", "--yes", "--config", config}}
		if !strings.Contains(source, "127.0.0.1:1") && !strings.Contains(source, "port=1") && !strings.Contains(source, ".invalid") {
			commands = append(commands, []string{"run", "--config", config}) // others are tried again for ever
		}
		for _, args := range commands {
			if out, code := f.command(m, args...); code == 0 || !strings.HasPrefix(out, "pgmirror: ") && !strings.Contains(out, "\npgmirror: ") {
				t.Errorf("%v: exit code %d: %s", args[0], code, out)
			}
		}
	}
	for i, text := range []string{"source: [postgres://u:" + canary + "@h/d]", "source: {a: " + canary + "}", "source: \"postgres://u:" + canary + "@h/d", "source: postgres://u:" + canary + "@h: d",
		"sourc: postgres://u:" + canary + "@h/d", "source: postgres://h/d\ntoken: " + canary + "!", "source: a\nsource: " + canary, "- " + canary} {
		m := NewMirror(t, f.pg, "p")
		config := f.write(fmt.Sprintf("broken%d", i), []byte(text+"\n"))
		if out, code := f.command(m, "check", "--config", config, "--publication", "p"); code != 2 {
			t.Errorf("%d: exit code %d: %s", i, code, out)
		}
	}
	f.secret(all...)
	for _, text := range f.said {
		if strings.HasSuffix(strings.TrimSpace(text), "failed to configure TLS") {
			t.Errorf("what is wrong? %s", text)
		}
	}
}
