package pgcdc

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// WaitPoint returns an LSN at or above the end of every commit that returned to its client before the call, and sees to it
// that the stream passes that LSN soon. On a primary this is the insert position: with asynchronous commit the write
// position may lie below one's own commit. Then an empty transactional message is written and flushed, so that WAL up to
// it is sent; on a standby the replayed position is below what can be sent.
func (s *Source) WaitPoint(ctx context.Context) (LSN, error) {
	var lsn LSN
	err := s.idle.with(ctx, func(conn *pgconn.PgConn) (err error) {
		rows, err := query(ctx, conn, "SELECT pg_is_in_recovery()")
		if err != nil {
			return err
		}
		if lsn, err = readLSN(ctx, conn); err != nil {
			return err
		}
		if len(rows) == 1 && len(rows[0]) == 1 && string(rows[0][0]) == "t" {
			return nil
		}
		_, err = query(ctx, conn, "BEGIN READ WRITE; SET LOCAL synchronous_commit = local; "+
			"SELECT pg_logical_emit_message(true, 'pgmirror', ''); COMMIT")
		if sqlState(err) == "42501" {
			// Without it the server flushes by itself: asynchronous commits within three wal_writer_delay, all else with
			// the next running-transactions record (LOG_SNAPSHOT_INTERVAL_MS, 15 s).
			s.log.Debug("the role may not execute pg_logical_emit_message; waiting takes longer", "err", err)
			_, err = query(ctx, conn, "ROLLBACK")
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("ask the source for its position: %w", err)
	}
	return lsn, nil
}
