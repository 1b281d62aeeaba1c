package pgcdc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// Snapshot exports a snapshot of the source for Copy; it lives until release. It sees exactly the commits whose records end at or
// below its ConsistentPoint, F.
//
// Only the making of a logical slot gives such a pair: the server builds that snapshot from the commit records in the WAL up to
// F (https://www.postgresql.org/docs/current/logicaldecoding-explanation.html, "Exported Snapshots"). An ordinary snapshot
// sees the commits that have left the list of running transactions, which is another order: with a synchronous standby, a
// commit lies in the WAL long before others see it.
//
// The slot is a temporary one and is gone before Snapshot returns, when a transaction of ours has taken the snapshot over: the
// copies that follow keep no WAL on the server.
//
// The server waits for every transaction that has written before. When that takes longer than patience, Snapshot gives up with
// ErrHeldBack and says whom it waited for; waiting is told the same meanwhile, at most once a second, on another goroutine
// that has ended when Snapshot returns: when they are others than before, and every ten seconds.
func (s *Source) Snapshot(ctx context.Context, patience time.Duration, waiting func(whom string)) (snapshot ExportedSnapshot, release func(), err error) {
	snapshot, release, err = s.takeSnapshot(ctx, patience, waiting)
	if err != nil {
		return ExportedSnapshot{}, nil, fmt.Errorf("take a snapshot of the source: %w", err)
	}
	return snapshot, release, nil
}

func (s *Source) takeSnapshot(ctx context.Context, patience time.Duration, waiting func(string)) (ExportedSnapshot, func(), error) {
	maker, err := connect(ctx, s.replication)
	if sqlState(err) == "53300" {
		err = fmt.Errorf("%w (max_wal_senders or max_connections is used up)", err)
	}
	if err != nil {
		return ExportedSnapshot{}, nil, err
	}
	defer closeConn(maker) // the slot ends with it
	made, err := s.temporarySlot(ctx, maker, patience, waiting)
	if err != nil {
		return ExportedSnapshot{}, nil, err
	}
	holder, err := connect(ctx, s.plain)
	if err != nil {
		return ExportedSnapshot{}, nil, err
	}
	taken := ExportedSnapshot{ConsistentPoint: made.ConsistentPoint}
	err = useSnapshot(ctx, holder, made)
	var rows [][][]byte
	if err == nil {
		rows, err = query(ctx, holder, "SELECT pg_export_snapshot()")
	}
	if err == nil && (len(rows) != 1 || len(rows[0]) != 1) {
		err = malformedf("an exported snapshot without a name")
	}
	if err == nil { // the end of its session would drop it too, but some time after
		err = pglogrepl.DropReplicationSlot(ctx, maker, quoteIdent(temporaryName(s.cfg.Slot, maker.PID())), pglogrepl.DropReplicationSlotOptions{})
	}
	if err != nil {
		closeConn(holder)
		return ExportedSnapshot{}, nil, err
	}
	taken.Name = string(rows[0][0])
	end := s.copying.begin()
	return taken, func() { closeConn(holder); end() }, nil
}

// temporarySlot makes a slot on a replication connection that ends with it, and exports its snapshot, which lives until the next
// command there.
func (s *Source) temporarySlot(ctx context.Context, conn *pgconn.PgConn, patience time.Duration, waiting func(string)) (ExportedSnapshot, error) {
	making, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := s.watchHolders(making, conn.PID(), patience, cancel, waiting)
	created, err := pglogrepl.CreateReplicationSlot(making, conn, quoteIdent(temporaryName(s.cfg.Slot, conn.PID())), outputPlugin,
		pglogrepl.CreateReplicationSlotOptions{Temporary: true, Mode: pglogrepl.LogicalReplication, SnapshotAction: "EXPORT_SNAPSHOT"})
	stop()
	if err == nil && created.SnapshotName == "" {
		err = malformedf("a slot without a snapshot")
	}
	if err != nil {
		if cause := context.Cause(making); errors.Is(cause, ErrHeldBack) {
			return ExportedSnapshot{}, cause
		}
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case sqlState(err) == "53400":
			err = fmt.Errorf("%w: %w", ErrSlotLimit, err)
		case sqlState(err) == "55000":
			err = fmt.Errorf("%w: %w", ErrWALLevel, err)
		}
		return ExportedSnapshot{}, fmt.Errorf("make a temporary slot: %w", err)
	}
	point, err := parseLSN(created.ConsistentPoint)
	return ExportedSnapshot{Name: created.SnapshotName, ConsistentPoint: point}, err
}

// temporaryName is a slot name that no other session uses now: it has the session's process id.
func temporaryName(slot string, pid uint32) string {
	const most = 63 // NAMEDATALEN − 1
	suffix := fmt.Sprintf("_tmp_%d", pid)
	return slot[:min(len(slot), most-len(suffix))] + suffix
}
