package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"pgmirror/test/harness"
)

// receive reads a slot with pgmirror's options and hands each message, lent for the call, to each until that returns false. An
// empty slot name makes a temporary slot at the present end of WAL.
func receive(ctx context.Context, pg *harness.Postgres, slot string, each func(message []byte) (more bool)) (err error) {
	version, err := majorVersion(pg)
	if err != nil {
		return err
	}
	conn, err := pgconn.Connect(ctx, pg.URL(mirrorRole, "postgres")+"&replication=database")
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if slot == "" {
		slot = "bench_temporary"
		_, err := pglogrepl.CreateReplicationSlot(ctx, conn, slot, "pgoutput", pglogrepl.CreateReplicationSlotOptions{Temporary: true, Mode: pglogrepl.LogicalReplication, SnapshotAction: "NOEXPORT_SNAPSHOT"})
		if err != nil {
			return fmt.Errorf("make a temporary slot: %w", err)
		}
	}
	var options []string
	for _, o := range pluginOptions(version) {
		options = append(options, o[0]+" '"+o[1]+"'")
	}
	if err := pglogrepl.StartReplication(ctx, conn, slot, 0, pglogrepl.StartReplicationOptions{Mode: pglogrepl.LogicalReplication, PluginArgs: options}); err != nil {
		return fmt.Errorf("start replication from %s: %w", slot, err)
	}
	for {
		message, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		switch message := message.(type) {
		case *pgproto3.CopyData:
			switch message.Data[0] {
			case pglogrepl.XLogDataByteID:
				const header = 1 + 8 + 8 + 8 // kind, start, end, time
				if !each(message.Data[header:]) {
					return nil
				}
			case pglogrepl.PrimaryKeepaliveMessageByteID:
				if message.Data[len(message.Data)-1] == 0 {
					continue
				}
				if err := pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: 1}); err != nil {
					return err
				}
			}
		case *pgproto3.ErrorResponse:
			return errors.New(strings.TrimSpace(message.Severity + ": " + message.Message))
		}
	}
}

// dropSlot drops a slot as soon as the walsender that read it has gone.
func dropSlot(ctx context.Context, pg *harness.Postgres, slot string) error {
	conn, err := pgconn.Connect(ctx, pg.URL(mirrorRole, "postgres")+"&replication=database")
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return pglogrepl.DropReplicationSlot(ctx, conn, slot, pglogrepl.DropReplicationSlotOptions{Wait: true})
}

// postgresEpoch is where PostgreSQL's clock begins.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// commitOf reads a Commit or Stream Commit message: the transaction's end and when it was committed.
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
func commitOf(message []byte) (end pglogrepl.LSN, at time.Time, ok bool) {
	switch {
	case len(message) == 26 && message[0] == 'C':
	case len(message) == 30 && message[0] == 'c':
		message = message[4:] // its xid comes first
	default:
		return 0, time.Time{}, false
	}
	end = pglogrepl.LSN(binary.BigEndian.Uint64(message[10:]))
	micros := int64(binary.BigEndian.Uint64(message[18:]))
	return end, postgresEpoch.Add(time.Duration(micros) * time.Microsecond), true
}

// receiveDelays measures for a while how long after its commit the end of a transaction arrives at a client that does nothing
// with it, in milliseconds.
func receiveDelays(ctx context.Context, pg *harness.Postgres, length time.Duration) (delays []float64, err error) {
	end := time.Now().Add(length)
	err = receive(ctx, pg, "", func(message []byte) bool {
		if _, at, ok := commitOf(message); ok {
			delays = append(delays, inMillis(time.Since(at)))
		}
		return time.Now().Before(end)
	})
	return delays, err
}
