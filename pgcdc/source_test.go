package pgcdc

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A status is read back by the driver's own decoder, and pglogrepl's reader of each field agrees; a zero flush stays zero.
func TestStatusBytes(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 123000, time.UTC)
	for _, flushed := range []LSN{0, 1, 0x16B374D848, 0xFFFFFFFFFFFFFFFF} {
		data := appendStatus(nil, 0xFFFFFFFFFFFFFFFF, flushed, now, true)
		if data[0] != 'd' || int(binary.BigEndian.Uint32(data[1:])) != len(data)-1 {
			t.Fatalf("frame % x", data[:5])
		}
		var copyData pgproto3.CopyData
		if err := copyData.Decode(data[5:]); err != nil {
			t.Fatal(err)
		}
		body := copyData.Data
		if len(body) != 34 || body[0] != pglogrepl.StandbyStatusUpdateByteID || body[33] != 1 {
			t.Fatalf("body % x", body)
		}
		positions := []LSN{LSN(binary.BigEndian.Uint64(body[1:])), LSN(binary.BigEndian.Uint64(body[9:])), LSN(binary.BigEndian.Uint64(body[17:]))}
		if want := []LSN{0xFFFFFFFFFFFFFFFF, flushed, flushed}; !slices.Equal(positions, want) {
			t.Fatalf("positions %v, want %v", positions, want)
		}
		micros := int64(binary.BigEndian.Uint64(body[25:]))
		if sent := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(micros) * time.Microsecond); !sent.Equal(now) {
			t.Fatalf("time %v", sent)
		}
	}
}

// The flushed position of a status is at least the slot's own and never falls, whatever is acknowledged.
func TestStatusNeverFalls(t *testing.T) {
	s, err := New(Config{Source: "host=/nowhere", Publications: []string{"p"}, Slot: "s"})
	if err != nil {
		t.Fatal(err)
	}
	st := &stream{source: s, floor: 100}
	flushed := func() (write, flush uint64) {
		data := st.status(false)
		return binary.BigEndian.Uint64(data[6:]), binary.BigEndian.Uint64(data[14:])
	}
	for _, step := range []struct{ acknowledge, received, write, flush LSN }{
		{0, 0, 100, 100}, {50, 0, 100, 100}, {120, 0, 120, 120}, {110, 200, 200, 120}, {150, 200, 200, 150},
	} {
		s.Acknowledge(step.acknowledge)
		st.receivedUpTo(step.received)
		if write, flush := flushed(); LSN(write) != step.write || LSN(flush) != step.flush {
			t.Fatalf("after %v: write %d flush %d", step, write, flush)
		}
	}
}

// Questions in a tight row mean that the server shuts down; the same number spread over a server's life does not, nor
// does one with data in between.
func TestShutdownPings(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	st := &stream{}
	for i := range 20 {
		if st.shuttingDown(start.Add(time.Duration(i) * time.Second)) {
			t.Fatalf("question %d, one a second", i)
		}
	}
	st = &stream{}
	for i := range shutdownPings {
		if got := st.shuttingDown(start.Add(time.Duration(i) * time.Millisecond)); got != (i == shutdownPings-1) {
			t.Fatalf("question %d: %v", i, got)
		}
	}
}

// Each error that a source can meet is judged as its documentation says.
func TestIsRetryable(t *testing.T) {
	server := func(code string) error { return &pgconn.PgError{Severity: "FATAL", Code: code} }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{context.Canceled, false},
		{errors.New("anything else"), false},
		{ErrLost, true}, {ErrSilent, true}, {ErrShutdown, true}, {ErrSlotActive, true}, {ErrSnapshotLost, true},
		{io.ErrUnexpectedEOF, true}, {io.EOF, true},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: expired certificate")}, false},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}, true},
		{&fs.PathError{Op: "write", Err: syscall.ENOSPC}, false},
		{fmt.Errorf("%w: %w", ErrSpill, &fs.PathError{Op: "write", Err: syscall.ENOSPC}), true},
		{fmt.Errorf("%w: %w", ErrStreaming, server("XX000")), true},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, true},
		{x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, false},
		{server("57P01"), true}, {server("57P02"), true}, {server("57P03"), true}, {server("53300"), true}, {server("08006"), true},
		{server("55006"), true}, {server("40P01"), true}, {server("53400"), false},
		{server("28P01"), false}, {server("28000"), false}, {server("3D000"), false}, {server("42501"), false}, {server("42704"), false},
		{server("XX000"), false}, {server("22P02"), false},
		{ErrSlotMissing, false}, {ErrSlotLost, false}, {ErrSlotMismatch, false}, {ErrSlotExists, false}, {ErrPublicationMissing, false},
		{ErrPublicationYounger, false}, {ErrPublicationPartial, false}, {ErrVersion, false}, {ErrWALLevel, false}, {ErrRewritten, false},
		{ErrNoReplication, false}, {ErrNothingToPublish, false}, {ErrProtocol, false},
		{fmt.Errorf("%w: %w", ErrSlotLost, server("57P01")), false}, // what must be repaired wins
		{errors.Join(server("28P01"), io.EOF), true},                // several hosts: one may come back
	} {
		for _, err := range []error{c.err, fmt.Errorf("doing: %w", c.err)} {
			if c.err == nil {
				err = nil
			}
			if got := IsRetryable(err); got != c.want {
				t.Errorf("IsRetryable(%v) = %v", err, got)
			}
		}
	}
}

// Only PostgreSQL 18's warning about a publication that it passes over ends a stream.
func TestNoticeFault(t *testing.T) {
	skipped := &pgproto3.NoticeResponse{Severity: "WARNUNG", SeverityUnlocalized: "WARNING", Code: "55000", Message: `skipped loading publication "p"`}
	if err := noticeFault(skipped); !errors.Is(err, ErrPublicationYounger) {
		t.Errorf("skipped publication: %v", err)
	}
	if err := noticeFault(&pgproto3.NoticeResponse{SeverityUnlocalized: "WARNING", Code: "01000"}); err != nil {
		t.Errorf("another warning: %v", err)
	}
}

// Every fault of a configuration is told at once, and none of them with the password.
func TestConfigFaults(t *testing.T) {
	_, err := New(Config{
		Source: "postgres://u:s3cret@h:port/d", Slot: "No Slot", Publications: []string{"p", "", "p", strings.Repeat("x", 64)},
		SpillBytes: -1, StatusInterval: -1,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"source:", "slot:", "named twice", `""`, "64", "spill bytes", "status interval"} {
		if part == "64" {
			part = strings.Repeat("x", 64)
		}
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}

// No way to write a connection string wrongly brings its password into the error.
func TestPasswordStaysOut(t *testing.T) {
	for _, source := range []string{
		"postgres://u:s3cret@h:port/d",
		"postgres://u:s3cret@[::1/d",
		"postgres://u:p/s3cret@h/d?x=%zz",
		"postgres://u:s3cret%zz@h/d",
		"host=h password=s3cret sslmode=maybe",
		"host=h password='s3cret sslmode=disable",
		"host=h password = s3cret port=x",
		"host=h password='s3 cret s3cret' port=99999999",
		"host=h password=s3cret target_session_attrs=best",
		"host=h password=s3cret sslrootcert=/does/not/exist sslmode=verify-full",
		"host=h password=s3cret requirepeer=x",
		"host=h password=s3cret gssencmode=require",
		"host=h password=s3cret novalue",
	} {
		_, err := New(Config{Source: source, Publications: []string{"p"}, Slot: "s"})
		if err == nil {
			t.Errorf("accepted %s", source)
		} else if strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// All of libpq's ways to say the same give the same connection, ours being the settings that count.
func TestConnectionStrings(t *testing.T) {
	t.Setenv("PGOPTIONS", "-c datestyle=German")
	t.Setenv("PGTZ", "Asia/Kolkata")
	t.Setenv("PGPASSWORD", "pw")
	for _, source := range []string{
		"postgresql://u@h:5433/d?sslmode=disable&keepalives=1&keepalives_idle=5&gssencmode=prefer&datestyle=SQL",
		"host=h port=5433 user=u dbname=d sslmode=disable tcp_user_timeout=9 fallback_application_name=x application_name=pgmirror statement_timeout=5",
	} {
		cfg, err := parseSource(source)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Host != "h" || cfg.Port != 5433 || cfg.User != "u" || cfg.Database != "d" || cfg.Password != "pw" || cfg.TLSConfig != nil {
			t.Errorf("%s: %s %d %s %s", source, cfg.Host, cfg.Port, cfg.User, cfg.Database)
		}
		want := map[string]string{"application_name": "pgmirror", "options": "-c datestyle=German"}
		for name, value := range pinned {
			want[name] = value
		}
		if len(cfg.RuntimeParams) != len(want) {
			t.Errorf("%s: settings %v", source, cfg.RuntimeParams)
		}
		for name, value := range want {
			if cfg.RuntimeParams[name] != value {
				t.Errorf("%s: %s is %q, not %q", source, name, cfg.RuntimeParams[name], value)
			}
		}
	}
	cfg, err := parseSource("host=h sslmode=verify-full")
	if err != nil || cfg.TLSConfig == nil || cfg.TLSConfig.InsecureSkipVerify || cfg.TLSConfig.ServerName != "h" {
		t.Errorf("verify-full: %v %+v", err, cfg)
	}
}

// PostgreSQL's own examples of search paths; the list form is that of SplitIdentifierString.
func TestSearchPath(t *testing.T) {
	for list, want := range map[string][]string{
		`"$user", public`:           {"public"},
		`app, "My Schema" , PUBLIC`: {"app", "My Schema", "public"},
		`"a""b","c,d"`:              {`a"b`, "c,d"},
		``:                          nil,
		`""`:                        nil,
		`"open`:                     {"open"},
	} {
		if got := parseSearchPath(list); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", list, got, want)
		}
	}
}

// A history file as PostgreSQL writes it after two promotions.
func TestHistory(t *testing.T) {
	got, err := parseHistory("1\t0/3000148\tno recovery target specified\n\n# a comment\n2\t1/5000000\tbefore 2026-01-01 00:00:00+00\n")
	want := []TimelineSwitch{{1, 0x3000148}, {2, 0x105000000}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, broken := range []string{"1", "x\t0/1\t", "1\t0-1\tr", "1\t0/1g\tr", "99999999999\t0/1\tr"} {
		if _, err := parseHistory(broken); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %v", broken, err)
		}
	}
}
