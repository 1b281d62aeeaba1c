package pgcdc

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// startStream connects and starts replication. The slot's row is checked first, because it says more than the error.
func (s *Source) startStream(ctx context.Context, from LSN, binary bool) (*stream, error) {
	conn, err := connect(ctx, s.replication)
	if err != nil {
		return nil, err
	}
	st, err := s.startReplication(ctx, conn, from, binary)
	if err != nil {
		closeConn(conn)
		return nil, err
	}
	return st, nil
}

func (s *Source) startReplication(ctx context.Context, conn *pgconn.PgConn, from LSN, binary bool) (*stream, error) {
	version := majorVersion(conn.ParameterStatus("server_version"))
	// What becomes partial after the first stream began stops its own tables, which the looks see to.
	_, err := s.publications(ctx, conn, version)
	if err != nil && (!s.streamed || errors.Is(err, ErrPublicationMissing) || !errors.Is(err, ErrPublicationPartial)) {
		return nil, err
	}
	info, found, err := slotInfo(ctx, conn, s.cfg.Slot)
	if err != nil {
		return nil, err
	}
	if err := checkSlot(info, found, s.database()); err != nil {
		return nil, err
	}
	if info.Active {
		return nil, fmt.Errorf("%w (process %d)", ErrSlotActive, info.ActivePID)
	}
	err = pglogrepl.StartReplication(ctx, conn, quoteIdent(s.cfg.Slot), from,
		pglogrepl.StartReplicationOptions{Mode: pglogrepl.LogicalReplication, PluginArgs: s.pluginOptions(version, binary)})
	if err != nil {
		switch sqlState(err) {
		case "55006":
			return nil, fmt.Errorf("%w: %w", ErrSlotActive, err)
		case "42704":
			return nil, fmt.Errorf("%w: %w", ErrSlotMissing, err)
		case "55000", "58P01": // invalidated, or its WAL is gone
			return nil, fmt.Errorf("%w: %w", ErrSlotLost, err)
		}
		return nil, lost(err)
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		return nil, err
	}
	silent, err := limitSilence(hijacked.Conn, silenceIntervals*s.cfg.StatusInterval)
	if err != nil {
		hijacked.Conn.Close()
		return nil, err
	}
	st := &stream{
		source: s, conn: hijacked.Conn, silent: silent, frontend: hijacked.Frontend, floor: info.ConfirmedFlush,
		asked: make(chan struct{}, 1), done: make(chan struct{}),
	}
	st.receivedUpTo(info.ConfirmedFlush)
	s.streamed = true
	return st, nil
}

// pluginOptions are pgoutput's. Versions 2 to 4 of its protocol differ only in what is not asked for here: two_phase (a prepared
// transaction arrives when it is committed) and streaming 'parallel'. A transaction that takes more than the server's
// logical_decoding_work_mem is streamed, so that the server need not write it to its own disk, nor send it all at its commit.
// https://www.postgresql.org/docs/current/protocol-logical-replication.html
func (s *Source) pluginOptions(version int, binary bool) []string {
	protocol := 4
	switch {
	case version < 15:
		protocol = 2
	case version < 16:
		protocol = 3
	}
	options := []string{
		fmt.Sprintf("proto_version '%d'", protocol),
		"publication_names " + quoteLiteral(s.publicationNames()),
		"messages 'true'", // those of WaitPoint move an idle stream
	}
	if !s.whole {
		options = append(options, "streaming 'on'")
	}
	if binary {
		options = append(options, "binary 'true'")
	}
	return options
}
