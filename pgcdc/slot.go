package pgcdc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	outputPlugin = "pgoutput"
	// slotPatience is how long a dying connection may hold our slot: a killed process's walsender ends when it next
	// writes, which a busy server does at once and an idle one within its keepalives.
	slotPatience = 10 * time.Second
	slotPause    = 100 * time.Millisecond
	// defaultSlotNotice is when a slot that is still being made is worth a word in the log.
	defaultSlotNotice = 5 * time.Second
)

// Slot looks the configured slot up. A slot of another plugin or database is found too; Stream and DropSlot refuse it.
func (s *Source) Slot(ctx context.Context) (info SlotInfo, found bool, err error) {
	err = s.idle.with(ctx, func(conn *pgconn.PgConn) error {
		info, found, err = slotInfo(ctx, conn, s.cfg.Slot)
		return err
	})
	if err != nil {
		return SlotInfo{}, false, fmt.Errorf("look up slot %s: %w", s.cfg.Slot, err)
	}
	return info, found, nil
}

func slotInfo(ctx context.Context, conn *pgconn.PgConn, name string) (SlotInfo, bool, error) {
	rows, err := query(ctx, conn, `SELECT coalesce(plugin, ''), coalesce(database, ''), temporary, active, coalesce(active_pid, 0),
		coalesce(restart_lsn, '0/0'), coalesce(confirmed_flush_lsn, '0/0'), coalesce(wal_status, ''),
		coalesce(wal_end - restart_lsn, 0)::bigint, coalesce(wal_end, '0/0')
		FROM pg_replication_slots, LATERAL (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END) w(wal_end)
		WHERE slot_name = `+quoteLiteral(name))
	if err != nil || len(rows) == 0 {
		return SlotInfo{}, false, err
	}
	r := rowReader{row: rows[0]}
	info := SlotInfo{
		Name: name, Plugin: r.text(), Database: r.text(), Temporary: r.bool(), Active: r.bool(), ActivePID: int32(r.int(32)),
		RestartLSN: r.lsn(), ConfirmedFlush: r.lsn(), WALStatus: r.text(), RetainedBytes: r.int(64), WALEnd: r.lsn(),
	}
	return info, true, r.err
}

// checkSlot refuses a slot that cannot be streamed from.
func checkSlot(info SlotInfo, found bool, database string) error {
	switch {
	case !found:
		return ErrSlotMissing
	case info.Plugin == "":
		return fmt.Errorf("%w (it is a physical slot)", ErrSlotMismatch)
	case info.Plugin != outputPlugin:
		return fmt.Errorf("%w (its plugin is %s)", ErrSlotMismatch, info.Plugin)
	case info.Database != database:
		return fmt.Errorf("%w (it is of database %s)", ErrSlotMismatch, info.Database)
	case info.WALStatus == "lost" || info.RestartLSN == 0:
		return ErrSlotLost
	}
	return nil
}

// CreateSlot makes the configured slot and exports its snapshot, which lives until CloseSnapshot or the connection's end.
// The server makes a slot only when every transaction that wrote before has ended; those it waits for are logged.
func (s *Source) CreateSlot(ctx context.Context) (ExportedSnapshot, error) {
	s.CloseSnapshot()
	conn, err := connect(ctx, s.replication)
	if err != nil {
		return ExportedSnapshot{}, err
	}
	stopWatching := s.watchBlockers(ctx, conn.PID())
	created, err := pglogrepl.CreateReplicationSlot(ctx, conn, quoteIdent(s.cfg.Slot), outputPlugin,
		pglogrepl.CreateReplicationSlotOptions{Mode: pglogrepl.LogicalReplication, SnapshotAction: slotOptions(majorVersion(conn.ParameterStatus("server_version")))})
	stopWatching()
	if err == nil && created.SnapshotName == "" {
		err = malformedf("a slot without a snapshot")
	}
	var point LSN
	if err == nil {
		point, err = parseLSN(created.ConsistentPoint)
	}
	if err != nil {
		closeConn(conn)
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case sqlState(err) == "42710":
			err = ErrSlotExists
		case sqlState(err) == "55000":
			err = fmt.Errorf("%w: %w", ErrWALLevel, err)
		}
		return ExportedSnapshot{}, fmt.Errorf("make slot %s: %w", s.cfg.Slot, err)
	}
	s.snapshotLock.Lock()
	s.snapshot, s.snapshotEnd = conn, s.copying.begin()
	s.snapshotLock.Unlock()
	return ExportedSnapshot{Name: created.SnapshotName, ConsistentPoint: point}, nil
}

// slotOptions are the options of a new slot in the words of a server's major version. Where the server can (17), a standby that synchronizes
// slots has this one too and the mirror goes on from it after a failover; where none does, that costs nothing
// (https://www.postgresql.org/docs/17/logicaldecoding-explanation.html#LOGICALDECODING-REPLICATION-SLOTS-SYNCHRONIZATION).
func slotOptions(version int) string {
	if version >= 17 {
		return "(SNAPSHOT 'export', FAILOVER)"
	}
	return "EXPORT_SNAPSHOT"
}

// watchBlockers says whom the making of a slot waits for: to Waiting, and, when that takes long, to the log, again when others
// are waited for. stop ends and joins it. What it cannot find out is not worth an error: making the slot will meet the same
// fault.
func (s *Source) watchBlockers(ctx context.Context, pid uint32) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.waiting.Store(nil)
		began, told := time.Now(), ""
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(s.slotNotice, holdersPause)):
			}
			holders, err := s.holders(ctx, pid, time.Since(began))
			if err != nil {
				continue
			}
			var pids []string
			for _, h := range holders {
				pids = append(pids, strconv.FormatInt(h.pid, 10))
			}
			whom, blocking := describeHolders(holders), strings.Join(pids, ",")
			var said *string
			if whom != "" {
				text := "the slot waits for older transactions to end: " + whom
				said = &text
			}
			s.waiting.Store(said)
			if blocking != "" && blocking != told && time.Since(began) >= s.slotNotice {
				s.log.Warn("the slot waits for older transactions to end", "slot", s.cfg.Slot, "blocking_pids", blocking, "blockers", whom)
				told = blocking
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// Waiting says for whom CreateSlot waits on the source; empty when it does not.
func (s *Source) Waiting() string {
	if whom := s.waiting.Load(); whom != nil {
		return *whom
	}
	return ""
}

// CloseSnapshot ends the exported snapshot, if there is one. Copies that have begun are not disturbed.
func (s *Source) CloseSnapshot() {
	s.snapshotLock.Lock()
	conn, end := s.snapshot, s.snapshotEnd
	s.snapshot, s.snapshotEnd = nil, nil
	s.snapshotLock.Unlock()
	if conn != nil {
		closeConn(conn)
		end()
	}
}

// DropSlot removes the configured slot, waiting for a dying owner to leave it; an absent slot is no error. A slot that
// has our name but another plugin or database is left alone (ErrSlotMismatch), one that stays in use too (ErrSlotActive).
func (s *Source) DropSlot(ctx context.Context) error {
	s.CloseSnapshot()
	err := s.idle.with(ctx, func(conn *pgconn.PgConn) error {
		return retryWhileActive(ctx, func() error {
			info, found, err := slotInfo(ctx, conn, s.cfg.Slot)
			if err != nil || !found {
				return err
			}
			if err := checkSlot(info, found, s.database()); err != nil && !errors.Is(err, ErrSlotLost) {
				return err
			}
			if info.Active {
				return fmt.Errorf("%w (process %d)", ErrSlotActive, info.ActivePID)
			}
			_, err = query(ctx, conn, "SELECT pg_drop_replication_slot("+quoteLiteral(s.cfg.Slot)+")")
			switch sqlState(err) {
			case "42704": // somebody else was quicker
				return nil
			case "55006":
				return ErrSlotActive
			}
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("drop slot %s: %w", s.cfg.Slot, err)
	}
	return nil
}

// retryWhileActive calls f until it ends otherwise than with ErrSlotActive or slotPatience is over.
func retryWhileActive(ctx context.Context, f func() error) error {
	deadline := time.Now().Add(slotPatience)
	for {
		err := f()
		if !errors.Is(err, ErrSlotActive) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(slotPause):
		}
	}
}

// database is the one that we are connected to: libpq's default is the role's name.
func (s *Source) database() string {
	if s.plain.Database != "" {
		return s.plain.Database
	}
	return s.plain.User
}
