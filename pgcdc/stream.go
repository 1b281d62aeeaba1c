package pgcdc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	// goodbyeLimit is how long the server may take to end the stream when we ask it to. In the midst of a large
	// transaction it does not listen.
	goodbyeLimit = time.Second
	// A server that shuts down asks for our position again the moment we told it, until we have flushed everything
	// (WalSndDone in PostgreSQL's walsender.c). In its life it asks once in half a wal_sender_timeout, and that only if we
	// are silent. So shutdownPings questions within shutdownWindow, without anything else in between, tell.
	shutdownPings  = 5
	shutdownWindow = 2 * time.Second
)

// Stream sends every commit above from in order, and keepalives between them, until ctx ends (then the result is its
// error) or the connection is lost. It blocks while out is full; the server is answered meanwhile. Nothing is sent on
// out after it returned. The first event tells the slot's confirmed LSN: the stream has begun. Whoever receives a Transaction
// releases it.
//
//	caller's goroutine:  server ─▶ receive ─▶ assembler ─▶ out
//	status goroutine:    server ◀─ status (asked, acknowledged, every StatusInterval, at the end)
func (s *Source) Stream(ctx context.Context, from LSN, binary bool, out chan<- Event) error {
	if !s.streaming.TryLock() {
		return errors.New("stream: another stream is running")
	}
	defer s.streaming.Unlock()
	err := s.stream(ctx, from, binary, out)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.whole = s.whole || errors.Is(err, ErrStreaming)
	return fmt.Errorf("stream from slot %s: %w", s.cfg.Slot, err)
}

func (s *Source) stream(ctx context.Context, from LSN, binary bool, out chan<- Event) error {
	var st *stream
	err := retryWhileActive(ctx, func() (err error) {
		st, err = s.startStream(ctx, from, binary)
		return err
	})
	if err != nil {
		return err
	}
	s.assembler.reset()
	return st.run(ctx, out)
}

// stream is one connection that is streaming.
type stream struct {
	source   *Source
	conn     net.Conn
	silent   *silenceConn // below conn
	frontend *pgproto3.Frontend
	floor    LSN // what the slot had confirmed: a status never tells less

	received  atomic.Uint64 // in this connection
	heard     atomic.Bool   // something came since the last status
	asked     chan struct{} // the server wants a status
	done      chan struct{} // the receiver has ended
	delivered LSN           // the largest that an event told
	pings     []time.Time   // the newest questions in a row
}

// run receives until the stream ends, then joins the status goroutine and closes the connection.
func (st *stream) run(ctx context.Context, out chan<- Event) error {
	var statuses sync.WaitGroup
	statuses.Go(func() { st.sendStatuses(ctx) })
	err := st.receive(ctx, out)
	if ctx.Err() != nil {
		st.drain()
	}
	close(st.done)
	statuses.Wait()
	st.conn.Close()
	return err
}

func (st *stream) receive(ctx context.Context, out chan<- Event) (err error) {
	events := &handover{out: out}
	if err := events.add(ctx, Event{WALEnd: st.floor}); err != nil { // the stream has begun
		return err
	}
	st.silent.beforeRead = func() error {
		st.source.staged.Store(st.source.assembler.memory)
		if err := events.flush(ctx); err != nil || st.source.cfg.Admit == nil {
			return err
		}
		return st.source.cfg.Admit(ctx)
	}
	defer func() {
		st.silent.beforeRead = nil
		err = errors.Join(err, events.flush(ctx))
	}()
	for {
		message, err := st.frontend.Receive()
		if err != nil {
			return lost(err)
		}
		st.heard.Store(true)
		switch m := message.(type) {
		case *pgproto3.CopyData:
			event, err := st.data(m.Data)
			if err != nil {
				return err
			}
			if event == (Event{}) {
				continue
			}
			if event.Transaction != nil {
				if !st.source.backlog.room(event.Transaction) { // what is held makes room
					if err := events.flush(ctx); err != nil {
						event.Transaction.Release()
						return err
					}
				}
				if err := st.source.backlog.enter(ctx, event.Transaction); err != nil {
					event.Transaction.Release()
					return err
				}
			}
			if err := events.add(ctx, event); err != nil {
				return err
			}
		case *pgproto3.ErrorResponse:
			return st.source.explainStream(ctx, pgconn.ErrorResponseToPgError(m))
		case *pgproto3.NoticeResponse:
			if err := noticeFault(m); err != nil {
				return err
			}
		case *pgproto3.CopyDone, *pgproto3.CommandComplete:
			return fmt.Errorf("%w: the server ended the stream", ErrShutdown)
		}
	}
}

// data takes the content of one CopyData. The zero Event means that there is nothing to tell.
func (st *stream) data(data []byte) (Event, error) {
	if len(data) == 0 {
		return Event{}, malformedf("an empty replication message")
	}
	switch data[0] {
	case pglogrepl.XLogDataByteID:
		return st.walData(data[1:])
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		return st.keepalive(data[1:])
	}
	return Event{}, malformedf("replication message %q", data[0])
}

func (st *stream) walData(data []byte) (Event, error) {
	st.pings = st.pings[:0]
	message, err := pglogrepl.ParseXLogData(data)
	if err != nil {
		return Event{}, malformedf("a WAL message of %d bytes", len(data))
	}
	st.receivedUpTo(message.WALStart)
	transaction, err := st.source.assembler.message(message.WALData)
	if err != nil || transaction == nil {
		return Event{}, err
	}
	st.receivedUpTo(transaction.EndLSN)
	st.delivered = max(st.delivered, transaction.EndLSN)
	return Event{Transaction: transaction}, nil
}

func (st *stream) keepalive(data []byte) (Event, error) {
	message, err := pglogrepl.ParsePrimaryKeepaliveMessage(data)
	if err != nil {
		return Event{}, malformedf("a keepalive of %d bytes", len(data))
	}
	st.receivedUpTo(message.ServerWALEnd)
	if message.ReplyRequested {
		select {
		case st.asked <- struct{}{}:
		default:
		}
		if st.shuttingDown(time.Now()) {
			return Event{}, ErrShutdown
		}
	} else {
		st.pings = st.pings[:0]
	}
	if message.ServerWALEnd <= st.delivered {
		return Event{}, nil
	}
	st.delivered = message.ServerWALEnd
	return Event{WALEnd: message.ServerWALEnd}, nil
}

// shuttingDown notes a question for our position and says whether the server asks only because it wants to end.
func (st *stream) shuttingDown(now time.Time) bool {
	st.pings = append(st.pings, now)
	if len(st.pings) > shutdownPings {
		st.pings = st.pings[1:]
	}
	return len(st.pings) == shutdownPings && now.Sub(st.pings[0]) < shutdownWindow
}

func (st *stream) receivedUpTo(lsn LSN) {
	raise(&st.received, lsn)
	raise(&st.source.received, lsn)
}

// raise sets a position to lsn unless it is there or beyond, and says whether it did.
func raise(position *atomic.Uint64, lsn LSN) bool {
	for {
		old := position.Load()
		if old >= uint64(lsn) {
			return false
		}
		if position.CompareAndSwap(old, uint64(lsn)) {
			return true
		}
	}
}

// sendStatuses runs until the receiver has ended. It closes the connection when a status cannot be sent, and, once ctx
// has ended, when the server takes too long to say goodbye; both end the receiver.
func (st *stream) sendStatuses(ctx context.Context) {
	ticker := time.NewTicker(st.source.cfg.StatusInterval)
	defer ticker.Stop()
	for {
		reply := false
		select {
		case <-st.done:
			return
		case <-ctx.Done():
			st.goodbye()
			return
		case <-st.asked:
		case <-st.source.wake:
		case <-ticker.C:
			// An idle server is silent because it hears from us; its answer shows that it lives.
			reply = !st.heard.Swap(false)
		}
		if err := st.send(st.status(reply)); err != nil {
			st.conn.Close()
			return
		}
	}
}

// status tells what has arrived and what is durable: what was acknowledged, and never less than the slot had.
func (st *stream) status(reply bool) []byte {
	flushed := max(st.floor, LSN(st.source.acknowledged.Load()))
	return appendStatus(nil, max(flushed, LSN(st.received.Load())), flushed, time.Now(), reply)
}

func (st *stream) send(data []byte) error {
	if err := st.conn.SetWriteDeadline(time.Now().Add(silenceIntervals * st.source.cfg.StatusInterval)); err != nil {
		return err
	}
	_, err := st.conn.Write(data)
	return err
}

// goodbye tells the last position and asks the server to end the stream.
func (st *stream) goodbye() {
	data, err := (&pgproto3.CopyDone{}).Encode(st.status(false))
	if err == nil {
		err = st.send(data)
	}
	if err == nil {
		select {
		case <-st.done:
		case <-time.After(goodbyeLimit):
		}
	}
	st.conn.Close()
}

// drain reads until the server has ended the stream or the connection is closed: closing a socket with unread data could
// lose the last status.
func (st *stream) drain() {
	for {
		message, err := st.frontend.Receive()
		if err != nil {
			return
		}
		switch message.(type) {
		case *pgproto3.CommandComplete, *pgproto3.ErrorResponse:
			return
		}
	}
}
