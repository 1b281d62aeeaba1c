package pgcdc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

// Every way of libpq to give a password and to demand encryption works against a server that insists on both, and a refusal
// is final and tells no password.
func TestConnect(t *testing.T) {
	p := harness.StartPostgres(t)
	certificate, key := selfSigned(t)
	p.WriteFile("server.crt", []byte(certificate))
	p.WriteFile("server.key", []byte(key))
	const password = "s3cr et'\\x"
	p.Exec("CREATE ROLE locked LOGIN REPLICATION PASSWORD 's3cr et''\\x'", "CREATE ROLE weak LOGIN", "CREATE ROLE plain LOGIN REPLICATION PASSWORD 'x'", "CREATE ROLE kept_out LOGIN REPLICATION",
		"CREATE DATABASE closed", "REVOKE CONNECT ON DATABASE closed FROM PUBLIC", "ALTER SYSTEM SET ssl = on")
	rest, err := os.ReadFile(filepath.Join(p.DataDir(), "pg_hba.conf"))
	if err != nil {
		t.Fatal(err)
	}
	rules := "hostssl all locked 127.0.0.1/32 scram-sha-256\nhost all locked 127.0.0.1/32 reject\nhostssl all plain 127.0.0.1/32 reject\nhostnossl all plain 127.0.0.1/32 scram-sha-256\n"
	p.WriteFile("pg_hba.conf", append([]byte(rules), rest...))
	p.Exec("SELECT pg_reload_conf()")
	eventually(t, "the server speaks TLS", func() bool { return p.QueryRow("SELECT current_setting('ssl')") == "on" })

	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	root := file("root.crt", certificate)
	base := fmt.Sprintf("host=127.0.0.1 port=%d user=locked dbname=postgres", p.Port())
	quoted := `'s3cr et\'\\x'`
	open := func(source string) error {
		s, err := pgcdc.New(pgcdc.Config{Source: source, Publications: []string{"p"}, Slot: "s"})
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.Identify(t.Context())
		return err
	}
	passfile := file("pass", fmt.Sprintf("127.0.0.1:%d:*:locked:s3cr et'\\\\x\n", p.Port()))
	services := file("services", fmt.Sprintf("[shop]\nhost=127.0.0.1\nport=%d\nuser=locked\ndbname=postgres\nsslmode=require\n", p.Port()))
	for name, c := range map[string]struct {
		source string
		env    map[string]string
	}{
		"keywords, verify-full": {base + " password=" + quoted + " sslmode=verify-full channel_binding=require sslrootcert=" + root, nil},
		"URL":                   {fmt.Sprintf("postgresql://locked:s3cr%%20et%%27%%5Cx@127.0.0.1:%d/postgres?sslmode=require", p.Port()), nil},
		"environment": {"", map[string]string{"PGHOST": "127.0.0.1", "PGPORT": fmt.Sprint(p.Port()), "PGUSER": "locked", "PGDATABASE": "postgres",
			"PGPASSWORD": password, "PGSSLMODE": "verify-ca", "PGSSLROOTCERT": root}},
		"pass file":    {base + " sslmode=prefer", map[string]string{"PGPASSFILE": passfile}},
		"service file": {"service=shop", map[string]string{"PGSERVICEFILE": services, "PGPASSWORD": password}},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range c.env {
				t.Setenv(key, value)
			}
			if err := open(c.source); err != nil {
				t.Error(err)
			}
		})
	}
	for name, source := range map[string]string{
		"no password":       base + " sslmode=require",
		"no TLS":            fmt.Sprintf("host=127.0.0.1 port=%d user=plain dbname=postgres password='wr0ng s3cr' sslmode=prefer", p.Port()),
		"wrong password":    base + " password='wr0ng s3cr' sslmode=require",
		"no encryption":     base + " password=" + quoted + " sslmode=disable",
		"unknown authority": base + " password=" + quoted + " sslmode=verify-full sslrootcert=" + file("other.crt", otherAuthority(t)),
		"another host": fmt.Sprintf("host=localhost port=%d user=locked dbname=postgres password=%s sslmode=verify-full sslrootcert=%s",
			p.Port(), quoted, root),
		"missing database":    strings.Replace(base, "dbname=postgres", "dbname=none", 1) + " password=" + quoted + " sslmode=require",
		"missing role":        fmt.Sprintf("host=127.0.0.1 port=%d user=nobody_here dbname=postgres password=s3cr sslmode=disable", p.Port()),
		"no right to connect": fmt.Sprintf("host=127.0.0.1 port=%d user=kept_out dbname=closed password=s3cr sslmode=disable", p.Port()),
		"no replication":      fmt.Sprintf("host=127.0.0.1 port=%d user=weak dbname=postgres password=s3cr sslmode=disable", p.Port()),
	} {
		t.Run(name, func(t *testing.T) {
			err := open(source)
			if err == nil || pgcdc.IsRetryable(err) || strings.Contains(err.Error(), "s3cr") {
				t.Errorf("%v", err)
			}
			if errors.Is(err, pgcdc.ErrNoReplication) != (name == "no replication") {
				t.Errorf("%v", err)
			}
			if missing := strings.Contains(err.Error(), "no password was supplied"); missing != (name == "no password") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
			if name == "no TLS" && (!strings.Contains(err.Error(), "password authentication failed") || strings.Contains(err.Error(), "reject")) {
				t.Errorf("%v", err)
			}
			if name == "no right to connect" && !strings.Contains(err.Error(), "GRANT CONNECT") {
				t.Errorf("%v", err)
			}
		})
	}
	// What is not there yet may come.
	if err := open("host=127.0.0.1 port=1 user=u sslmode=disable"); err == nil || !pgcdc.IsRetryable(err) {
		t.Errorf("refused connection: %v", err)
	}
	if err := open("host=" + dir + " user=u"); err == nil || !pgcdc.IsRetryable(err) {
		t.Errorf("missing socket: %v", err)
	}
	if err := open(p.SocketURL("postgres", "postgres")); err != nil {
		t.Errorf("socket: %v", err)
	}
}

// A server without logical WAL is refused with what to change.
func TestWALLevel(t *testing.T) {
	p := harness.StartPostgres(t, harness.Setting("wal_level", "replica"))
	r := newRig(t, p)
	if _, err := r.Identify(t.Context()); !errors.Is(err, pgcdc.ErrWALLevel) || pgcdc.IsRetryable(err) {
		t.Errorf("identify: %v", err)
	}
	if _, err := r.CreateSlot(t.Context()); !errors.Is(err, pgcdc.ErrWALLevel) || pgcdc.IsRetryable(err) {
		t.Errorf("make a slot: %v", err)
	}
}

// selfSigned makes a certificate for 127.0.0.1.
func selfSigned(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}

func otherAuthority(t *testing.T) string {
	t.Helper()
	certificate, _ := selfSigned(t)
	return certificate
}
