package mirror

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgmirror/readstate"
)

// TestSlotWatch: from half of the limit on a checkpoint is due; the slot is to be dropped only when it keeps more than the limit for several
// looks in a row and not less each time.
func TestSlotWatch(t *testing.T) {
	w := slotWatch{limit: 100}
	for i, look := range []struct {
		kept                   int64
		checkpoint, over, drop bool
	}{
		{49, false, false, false}, {50, true, false, false}, {100, true, true, false}, {110, true, true, false}, {120, true, true, false},
		{119, true, true, false}, {118, true, true, false}, // it catches up
		{118, true, true, false}, {118, true, true, false}, {130, true, true, false}, {99, true, false, false},
		{100, true, true, false}, {100, true, true, false}, {100, true, true, false}, {100, true, true, true}, {101, true, true, true},
	} {
		if got, want := w.see(look.kept), (slotJudgement{look.checkpoint, look.over, look.drop}); got != want {
			t.Errorf("look %d, %d kept: %+v, want %+v", i, look.kept, got, want)
		}
	}
}

// TestSlotKeepsMuch: when the slot keeps much WAL, what is visible is made durable and acknowledged long before checkpoint_interval is over; above
// the limit status and log say so, until it keeps less again.
func TestSlotKeepsMuch(t *testing.T) {
	b := newBank(12)
	b.limit = 1000
	log := &logText{}
	m := b.mirror(t)
	m.clock = eagerClock{}
	m.cfg.Log, m.cfg.CheckpointInterval = slog.New(slog.NewTextHandler(log, nil)), time.Hour
	b.going(t, m)
	opened(t, m)
	b.source.keep(500)
	b.transfer()
	last := b.source.end()
	until(t, m, func(st *Status) bool { return st.DurableLSN == last.String() && st.SlotWarning == "" })
	b.source.keep(1000)
	until(t, m, func(st *Status) bool {
		return st.State == "streaming" && strings.Contains(st.SlotWarning, "max_slot_wal") && st.SlotLimitBytes == 1000
	})
	b.source.keep(10)
	until(t, m, func(st *Status) bool { return st.SlotWarning == "" })
	text := log.String()
	if strings.Count(text, "the slot keeps too much WAL") != 1 || strings.Count(text, "the slot keeps less WAL again") != 1 {
		t.Errorf("the log is\n%s", text)
	}
	if _, there, _ := b.source.Slot(context.Background()); !there {
		t.Error("the slot is gone though nobody said it may be dropped")
	}
}

// TestSlotDropped: with drop-slot a slot that keeps too much is dropped after what is visible was made durable; the mirror is refused with the
// reason, and answers queries.
func TestSlotDropped(t *testing.T) {
	b := newBank(13)
	b.limit, b.drop = 1000, true
	m, log := b.following(t)
	opened(t, m)
	b.transfer()
	b.source.keep(2000)
	until(t, m, func(st *Status) bool {
		return st.State == "refused" && strings.Contains(st.Reason, "on_max_slot_wal: drop-slot")
	})
	until(t, m, func(*Status) bool {
		_, there, _ := b.source.Slot(context.Background())
		return !there
	})
	if err := b.read(t.Context(), m, readstate.PinRequest{}); err != nil {
		t.Fatal(err)
	}
	if durable, high := m.shared.get().durable, m.marks.high(); durable != high {
		t.Errorf("visible %s, durable %s", high, durable)
	}
	if text := log.String(); !strings.Contains(text, "the slot is dropped to free the source of its WAL") {
		t.Errorf("the log is\n%s", text)
	}
}
