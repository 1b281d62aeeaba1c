package pgcdc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// IsRetryable says whether the same call may succeed later without anybody's help: the source was lost, is silent, refuses
// connections, starts or stops, one side is out of a resource, or the slot is still held by a connection that is ending. It is
// false for a cancelled context, and for what a person must repair.
func IsRetryable(err error) bool {
	for _, lasting := range lastingErrors {
		if errors.Is(err, lasting) {
			return false
		}
	}
	return anyLeaf(err, retryableLeaf)
}

// lastingErrors are never retryable, whatever they wrap.
var lastingErrors = []error{
	ErrRewritten, ErrVersion, ErrWALLevel, ErrNoReplication,
	ErrSlotMissing, ErrSlotLost, ErrSlotMismatch, ErrSlotExists,
	ErrPublicationMissing, ErrPublicationDropped, ErrPublicationYounger, ErrPublicationPartial, ErrNothingToPublish,
	ErrProtocol, ErrDecoding,
}

// IsMendable says of an error that is not retryable whether a person can mend the source so that the same call succeeds, and the mirror goes
// on where it was: a password, rights, a certificate, a setting. It is false when changes are lost, or the WAL cannot be read.
func IsMendable(err error) bool {
	for _, final := range finalErrors {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}

var finalErrors = []error{
	ErrRewritten, ErrVersion, ErrSlotMissing, ErrSlotLost, ErrSlotMismatch, ErrSlotExists,
	ErrPublicationDropped, ErrPublicationYounger, ErrNothingToPublish, ErrProtocol, ErrDecoding,
}

// passingErrors are retryable by themselves.
var passingErrors = []error{
	ErrLost, ErrSilent, ErrShutdown, ErrSnapshotLost, ErrSlotActive, ErrSpill, ErrStreaming,
	io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, net.ErrClosed, pgconn.ErrConnClosed,
}

func retryableLeaf(err error) bool {
	if slices.Contains(passingErrors, err) {
		return true
	}
	switch e := err.(type) {
	case *pgconn.PgError:
		return retryableState(e.Code)
	case *tls.CertificateVerificationError, tls.RecordHeaderError, tls.AlertError,
		x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		return false
	case syscall.Errno: // of a file: those of a connection are inside a net.OpError
		return false
	case net.Error: // also a name that does not resolve: the resolver may be what is down
		// What the other side of TLS says of our certificate comes as an alert of an unexported type, below this Op of crypto/tls.
		var remote *net.OpError
		return !errors.As(err, &remote) || remote.Op != "remote error" || !strings.Contains(remote.Err.Error(), "certificate")
	}
	return false
}

// retryableState judges an SQLSTATE. https://www.postgresql.org/docs/current/errcodes-appendix.html
func retryableState(code string) bool {
	switch code {
	case "57P01", "57P02", "57P03", // shutting down, crashed, not accepting connections yet
		"57P05",          // idle session timeout
		"57014",          // somebody cancelled our statement
		"55006", "55P03", // object in use, lock not available
		"40001", "40P01": // serialization failure, deadlock
		return true
	}
	// Connection exceptions and insufficient resources, but not a configured limit such as max_replication_slots.
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "53") && code != "53400"
}

// anyLeaf walks everything that err wraps. An error that wraps others is a leaf too: net.OpError says more than its cause.
func anyLeaf(err error, is func(error) bool) bool {
	if err == nil {
		return false
	}
	if is(err) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if _, failed := err.(*tls.CertificateVerificationError); failed {
			return false
		}
		return anyLeaf(e.Unwrap(), is)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(one error) bool { return anyLeaf(one, is) })
	}
	return false
}

// sqlState is the SQLSTATE of a server's error, or empty.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
