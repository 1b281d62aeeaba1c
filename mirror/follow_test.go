package mirror

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/pgcdc"
)

// logText is a log that a test reads while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// following is a mirror that follows its source, with its log.
func (b *bank) following(t *testing.T) (*Mirror, *logText) {
	t.Helper()
	log := &logText{}
	m := b.mirror(t)
	m.clock = eagerClock{}
	m.cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	b.going(t, m)
	return m, log
}

// TestMendableRefusal: a password that is wrong now, or a publication that is missing, is tried again and said so; when it is mended, the
// mirror goes on where it was.
func TestMendableRefusal(t *testing.T) {
	for name, fault := range map[string]error{
		"password":    &pgconn.PgError{Code: "28P01", Message: "password authentication failed"},
		"rights":      &pgconn.PgError{Code: "42501", Message: "permission denied for database"},
		"publication": fmt.Errorf("publication p: %w", pgcdc.ErrPublicationMissing),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBank(8)
			var now faultNow
			b.source.fault = now.get
			m, log := b.following(t)
			opened(t, m)
			b.transfer()
			now.set(fault)
			b.transfer() // the stream ends at its commit
			until(t, m, func(st *Status) bool {
				return st.State == "reconnecting" && strings.Contains(st.Reason, "tried again every 30s") && strings.Contains(st.Reason, fault.Error())
			})
			if missing := strings.Contains(m.shared.get().reason, "even when it is made again"); missing != (name == "publication") || strings.Contains(m.shared.get().reason, "create it or") {
				t.Errorf("the reason is %q", m.shared.get().reason)
			}
			now.set(nil)
			opened(t, m)
			b.equal(t, m)
			if text := log.String(); !strings.Contains(text, "the source refuses the mirror") || strings.Contains(text, "msg=refused") {
				t.Errorf("the log is\n%s", text)
			}
		})
	}
}

// TestFinalRefusal: a stream that cannot go on is refused for good, without the word twice; tables that wait to be copied are no news then.
func TestFinalRefusal(t *testing.T) {
	for _, fault := range []error{fmt.Errorf("%w: %w", pgcdc.ErrPublicationDropped, pgcdc.ErrPublicationMissing), pgcdc.ErrSlotLost} {
		b := newBank(8)
		var now faultNow
		b.source.fault = now.get
		m, log := b.following(t)
		opened(t, m)
		now.set(fault)
		b.transfer()
		until(t, m, func(st *Status) bool { return st.State == "refused" })
		if reason := m.shared.get().reason; strings.Contains(reason, "refused: ") || strings.Contains(reason, "`pgmirror drop`") {
			t.Errorf("the reason is %q", reason)
		}
		if err := m.inTurn(t.Context(), func() error { m.wantJoin(2, m.byOID[2], "asked for"); return nil }); err != nil {
			t.Fatal(err)
		}
		until(t, m, func(st *Status) bool { return st.Tables[1].ResyncWaits != "" })
		if text := log.String(); strings.Contains(text, "tables cannot be copied yet") {
			t.Errorf("the log is\n%s", text)
		}
	}
}

// TestNeverReached: of a source that was not reached yet no connection is lost.
func TestNeverReached(t *testing.T) {
	b := newBank(8)
	b.live(t, func(*Mirror) {})
	var now faultNow
	now.set(&netError{})
	b.source.fault = now.get
	m, log := b.following(t)
	until(t, m, func(*Status) bool { return strings.Contains(log.String(), "the source cannot be reached yet") })
	if text := log.String(); strings.Contains(text, "connection to the source lost") {
		t.Errorf("the log is\n%s", text)
	}
	now.set(nil)
	opened(t, m)
}

// faultNow is the fault that a source has now.
type faultNow struct {
	mu  sync.Mutex
	err error
}

func (f *faultNow) set(err error) { f.mu.Lock(); f.err = err; f.mu.Unlock() }
func (f *faultNow) get(string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// TestJoinOnAFullDisk: a table that cannot be copied because the disk is full is an error of the log, and is copied when there is room.
func TestJoinOnAFullDisk(t *testing.T) {
	b := newBank(8)
	m, log := b.following(t)
	opened(t, m)
	var full atomic.Bool
	full.Store(true)
	b.source.mu.Lock()
	b.source.copied = func(uint32) error {
		if full.Load() {
			return fmt.Errorf("write a file: %w", syscall.ENOSPC)
		}
		return nil
	}
	b.source.mu.Unlock()
	if err := m.inTurn(t.Context(), func() error { m.wantJoin(2, m.byOID[2], "asked for"); return nil }); err != nil {
		t.Fatal(err)
	}
	until(t, m, func(st *Status) bool { return strings.Contains(st.Tables[1].ResyncWaits, "no space left") })
	until(t, m, func(*Status) bool {
		return strings.Contains(log.String(), `level=ERROR msg="tables cannot be copied yet"`)
	})
	full.Store(false)
	until(t, m, stands("streaming"))
	b.equal(t, m)
}
