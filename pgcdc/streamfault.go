package pgcdc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// lost names the end of a connection.
func lost(err error) error {
	var timeout net.Error
	switch {
	case sqlState(err) != "":
		return err
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w: %w", ErrSilent, err)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// explainStream names what the server reports in the midst of a stream. pgoutput looks publications up as they were at
// the WAL's position, so one that exists now may not exist for it.
func (s *Source) explainStream(ctx context.Context, fault *pgconn.PgError) error {
	switch fault.Code {
	case "55000", "58P01":
		return fmt.Errorf("%w: %w", ErrSlotLost, fault)
	case "42704":
		var missing error
		err := s.idle.with(ctx, func(conn *pgconn.PgConn) error {
			_, missing = s.publications(ctx, conn, majorVersion(conn.ParameterStatus("server_version")))
			return nil
		})
		switch {
		case err == nil && errors.Is(missing, ErrPublicationMissing):
			return fmt.Errorf("%w: %w", ErrPublicationDropped, missing)
		case strings.Contains(fault.Message, "publication"):
			return fmt.Errorf("%w: %w", ErrPublicationYounger, fault)
		}
	case internalError, "40000":
		if !s.whole {
			return fmt.Errorf("%w: %w", ErrStreaming, fault)
		}
	}
	if retryableState(fault.Code) {
		return fault
	}
	return fmt.Errorf("%w: slot %s, after %s: %w%s; %s", ErrDecoding, s.cfg.Slot, s.Received(), fault, faultContext(fault), decodingRemedy)
}

// internalError is what PostgreSQL (14.15, 15.18, 17.2) reports ("could not map filenode … to relation OID") when a transaction that it streams altered a
// table in a part that was rolled back, and truncated it later. 40000 is what tells it, inside, that a transaction that it
// decodes was rolled back meanwhile. Neither need be the transaction's fault: it is decoded once more as a whole.
const internalError = "XX000"

// decodingRemedy is what a person can do about WAL that its own server cannot decode. Trying again by itself would not help:
// the same record comes first.
const decodingRemedy = "the server's log has more; repair what it names (a damaged or missing file, an extension), or give the WAL up: run `pgmirror drop --warehouse` and mirror again"

// faultContext is what the server adds to a fault: its hint and the callback with the LSN of the change. The detail, which may
// show values, is left to the server's log.
func faultContext(fault *pgconn.PgError) string {
	var text string
	if fault.Hint != "" {
		text += "; hint: " + fault.Hint
	}
	if fault.Where != "" {
		text += " (" + fault.Where + ")"
	}
	return text
}

// noticeFault finds the warning with which PostgreSQL 18 passes over a publication that does not exist at the WAL's
// position, and all its changes with it. No other warning of the stream has this SQLSTATE.
func noticeFault(notice *pgproto3.NoticeResponse) error {
	if notice.SeverityUnlocalized == "WARNING" && notice.Code == "55000" {
		return fmt.Errorf("%w: %s", ErrPublicationYounger, notice.Message)
	}
	return nil
}
