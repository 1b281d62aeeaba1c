package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"pgmirror/pgcdc"
)

// follow keeps the stream going until ctx ends: it connects, checks that source and mirror belong together, copies what was
// never copied, and streams; when the connection is lost it tries again, from 1 s to 30 s apart, while queries are answered.
// The first connection that shows a fault for a person ends the mirror. A later one is tried again every 30 s when the person can mend it on
// the source, and else stops the stream. caller is what
// the first copy obeys: a half-made copy is not worth a last checkpoint.
func (m *Mirror) follow(ctx, caller context.Context) error {
	wait := firstRetry
	var begun atomic.Bool
	connected := false
	for {
		first := !connected
		err := m.connect(ctx, caller, func() { begun.Store(true) })
		if begun.Swap(false) {
			connected, wait = true, firstRetry
		}
		if ctx.Err() != nil || caller.Err() != nil {
			return nil
		}
		if m.slotGivenUp() {
			return m.dropSlot(ctx)
		}
		var lost *lostStream
		if errors.As(err, &lost) {
			err = lost.err
		}
		err = m.explain(err)
		if errors.Is(err, errStreamEnded) {
			continue
		}
		if isDiskFull(err) { // of the first copy, whose files are removed before it begins again
			m.setState("copying", fmt.Sprintf("the disk of the data directory takes no more (%s); free space there: the copy begins again every %s until then", err, lastRetry))
			m.cfg.Log.Error("the disk takes no more: the copy begins again when there is room", "err", err, "retry_in", lastRetry)
			wait = lastRetry
		} else if !pgcdc.IsRetryable(err) {
			// A fork shows itself only when the stream has begun.
			if !connected || first && errors.Is(err, ErrRefused) {
				return err
			}
			if errors.Is(err, ErrRefused) || !pgcdc.IsMendable(err) {
				m.cfg.Log.Error("refused", "err", err)
				m.setState("refused", strings.TrimPrefix(err.Error(), ErrRefused.Error()+": "))
				<-ctx.Done()
				return nil
			}
			wait = lastRetry
			m.setState("reconnecting", fmt.Sprintf("%s; somebody must mend this, and it is tried again every %s", err, wait))
			m.cfg.Log.Error("the source refuses the mirror", "err", err, "retry_in", wait)
		} else {
			m.setState("reconnecting", err.Error())
			m.cfg.Log.Warn(trouble(connected), "err", err, "retry_in", wait)
		}
		select {
		case <-m.clock.After(wait):
		case <-m.slotGiven:
		case <-ctx.Done():
			return nil
		case <-caller.Done():
			return nil
		}
		wait = min(2*wait, lastRetry)
	}
}

// The pause before the first and before every late attempt to connect again.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// trouble names what keeps the stream from going on.
func trouble(connected bool) string {
	if connected {
		return "connection to the source lost"
	}
	return "the source cannot be reached yet"
}

// explain adds to an error what it means for this mirror: once a slot sends changes, a publication that is missing is not just to be made.
func (m *Mirror) explain(err error) error {
	if !errors.Is(err, pgcdc.ErrPublicationMissing) || errors.Is(err, pgcdc.ErrPublicationDropped) {
		return err
	}
	if m.shared.get().opened {
		return fmt.Errorf("%w; what is written while it is missing cannot be read later, even when it is made again: if anything was, %s", err, startAnew)
	}
	return fmt.Errorf("%w; create it or run with --create-publication", err)
}

// lostStream is the end of a stream that had begun.
type lostStream struct{ err error }

func (e *lostStream) Error() string { return e.err.Error() }
func (e *lostStream) Unwrap() error { return e.err }

// connect makes one attempt; it returns when the stream has ended. streaming is called when it begins.
func (m *Mirror) connect(ctx, caller context.Context, streaming func()) error {
	id, err := m.source.Identify(ctx)
	if err != nil {
		return err
	}
	var phase phase
	if err := m.inTurn(ctx, func() error { phase = m.doc.Phase; return nil }); err != nil {
		return err
	}
	if phase != phaseStreaming {
		if err := m.firstCopy(caller, id); err != nil {
			return err
		}
	} else if err := m.admit(ctx, id); err != nil {
		return err
	}
	slot, found, err := m.source.Slot(ctx)
	if err != nil {
		return err
	}
	if err := m.checkSlot(slot, found); err != nil {
		return err
	}
	began := m.clock.Now()
	catalog, err := m.source.Look(ctx)
	if err != nil {
		return err
	}
	binary := binaryOK(catalog)
	if err := m.drain(ctx); err != nil {
		return err
	}
	kept, err := m.rowsKept(ctx, catalog)
	if err != nil {
		return err
	}
	refusable, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	if err := m.inTurn(ctx, func() error {
		m.refuseStream = refuse
		if err := m.sharedOnce(func() error { m.resolve(catalog, kept); return nil }); err != nil {
			return err
		}
		m.looks = append(m.looks, look{catalog, kept, began, false})
		m.guard.begin(m.lastCommit, slot.ConfirmedFlush)
		m.binary = binary
		m.begun = func() {
			m.setState("streaming", "")
			streaming()
			m.cfg.Log.Info("streaming", "lsn", slot.ConfirmedFlush.String(), "slot", m.cfg.Slot, "binary", binary)
		}
		return nil
	}); err != nil {
		return err
	}
	stream, end := context.WithCancel(refusable)
	defer end()
	m.endStream.Store(&end)
	err = m.source.Stream(stream, slot.ConfirmedFlush, binary, m.events)
	// Whether the stream had begun is known once what it delivered is applied.
	if drained := m.drain(ctx); drained != nil {
		return &lostStream{drained}
	}
	switch cause := context.Cause(refusable); {
	case errors.Is(cause, ErrRefused):
		err = cause
	case err == nil:
		err = errors.New("the stream ended")
	case stream.Err() != nil && ctx.Err() == nil:
		err = errStreamEnded
	}
	return &lostStream{err}
}

// errStreamEnded: we ended the stream ourselves, to begin another one.
var errStreamEnded = errors.New("the stream begins again")

// restartStream ends the stream, if there is one, so that the next begins at once: in the format that the tables want now.
func (m *Mirror) restartStream() {
	if end := m.endStream.Load(); end != nil {
		(*end)()
	}
}

// drain waits until everything that an earlier connection delivered is applied: the next one begins by sending some of it
// again.
func (m *Mirror) drain(ctx context.Context) error {
	for {
		// A turn comes between two events, so none is half done in it.
		empty := false
		err := m.inTurn(ctx, func() error { empty = len(m.events) == 0; return nil })
		if err != nil || empty {
			return err
		}
	}
}

func (m *Mirror) setState(state, reason string) {
	m.shared.set(func(s *sharedState) { s.state, s.reason = state, oneLine(reason) })
}

// oneLine joins the lines of an error that is several.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\t' }), "; ")
}

// admit refuses a server that is not the one the mirror follows, or that has gone back behind it.
func (m *Mirror) admit(ctx context.Context, id pgcdc.Identification) error {
	return m.inTurn(ctx, func() error {
		const remedy = "connect to the right server, or " + startAnew + " to copy this one"
		if id.SystemID != m.doc.SystemID {
			return fmt.Errorf("%w: the source has system identifier %s, the mirror follows %s; %s", ErrRefused, id.SystemID, m.doc.SystemID, remedy)
		}
		if id.Database != m.doc.Database {
			return fmt.Errorf("%w: the source database is %q, the mirror follows %q; %s", ErrRefused, id.Database, m.doc.Database, remedy)
		}
		if id.WALEnd < m.durable {
			return fmt.Errorf("%w: the source's WAL ends at %s, the mirror holds everything up to %s: the server has gone back (restored, or an old standby?); %s", ErrRefused, id.WALEnd, m.durable, remedy)
		}
		if id.Timeline == m.doc.Timeline {
			return nil
		}
		for _, h := range id.History {
			if h.Timeline != m.doc.Timeline {
				continue
			}
			if h.End < m.durable {
				return fmt.Errorf("%w: the source left timeline %d at %s, the mirror holds everything up to %s on it; %s", ErrRefused, h.Timeline, h.End, m.durable, remedy)
			}
			m.cfg.Log.Warn("the source is on a new timeline", "was", m.doc.Timeline, "is", id.Timeline)
			m.doc.Timeline = id.Timeline
			m.forgetLooks(h.End)
			return nil
		}
		return fmt.Errorf("%w: the source is on timeline %d, whose history does not contain ours, %d; %s", ErrRefused, id.Timeline, m.doc.Timeline, remedy)
	})
}

// checkSlot refuses a slot that cannot continue where the mirror stands.
func (m *Mirror) checkSlot(s pgcdc.SlotInfo, found bool) error {
	const remedy = "changes are lost for good: " + startAnew + " to copy the source anew"
	if !found {
		return fmt.Errorf("%w: the replication slot %q does not exist any more; %s", ErrRefused, m.cfg.Slot, remedy)
	}
	if s.Plugin != "pgoutput" || s.Database != m.shared.get().database {
		return fmt.Errorf("%w: the replication slot %q belongs to plugin %q and database %q; choose another --slot", ErrRefused, m.cfg.Slot, s.Plugin, s.Database)
	}
	if s.WALStatus == "lost" {
		return fmt.Errorf("%w: the server has removed WAL that the replication slot %q still needed (max_slot_wal_keep_size); %s", ErrRefused, m.cfg.Slot, remedy)
	}
	if durable := m.shared.get().durable; s.ConfirmedFlush > durable {
		return fmt.Errorf("%w: the replication slot %q is confirmed up to %s, the mirror only holds everything up to %s (was it made anew or moved?); %s", ErrRefused, m.cfg.Slot, s.ConfirmedFlush, durable, remedy)
	}
	return nil
}
