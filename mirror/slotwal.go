package mirror

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pgmirror/pgcdc"
)

// The WAL that the slot keeps on the source grows while we do not acknowledge, and while a transaction of the source stays open. What can be
// done about it, by how much is kept:
//
//	from half of max_slot_wal on   a checkpoint is made at once and acknowledged, whatever checkpoint_interval says
//	from max_slot_wal on           log, status and metric tell; with on_max_slot_wal: drop-slot the slot is dropped when that does not get less
//
// Only a running pgmirror that reaches the source can do this; max_slot_wal_keep_size on the source holds always.

// slotPoll is the time between two looks at the slot.
const slotPoll = 10 * time.Second

// dropLooks is the number of looks in a row at which a slot keeps too much and not less than before, until it is dropped: a mirror that was
// away and catches up is not to lose its slot for that.
const dropLooks = 4

// slotWatch is what the looks at the slot have seen.
type slotWatch struct {
	limit int64 // bytes
	kept  int64 // at the look before
	stuck int   // looks in a row above the limit with not less than before
}

// slotJudgement is what a look makes due.
type slotJudgement struct {
	checkpoint bool // more than half is kept
	over       bool // all of it is
	drop       bool // and that for some time
}

// see judges one look.
func (w *slotWatch) see(kept int64) (j slotJudgement) {
	j.checkpoint, j.over = kept >= w.limit/2, kept >= w.limit
	if j.over && kept >= w.kept {
		w.stuck++
	} else {
		w.stuck = 0
	}
	w.kept = kept
	j.drop = w.stuck >= dropLooks
	return j
}

// slotLoop looks at the slot from time to time.
func (m *Mirror) slotLoop(ctx context.Context) error {
	if m.cfg.MaxSlotWAL == 0 {
		return nil
	}
	w := slotWatch{limit: m.cfg.MaxSlotWAL}
	for {
		select {
		case <-m.clock.After(slotPoll):
		case <-ctx.Done():
			return nil
		}
		slot, found, err := m.source.Slot(ctx)
		if err != nil || !found { // the stream meets the same fault, and tells of it
			continue
		}
		j := w.see(slot.RetainedBytes)
		if j.checkpoint && m.marks.high() > m.shared.get().durable {
			signal(m.wantCut)
		}
		m.tellSlot(slot, j.over)
		if j.drop && m.cfg.DropSlot && m.mayDropSlot() {
			m.giveSlotUp(ctx, slot)
			return nil
		}
	}
}

// mayDropSlot says whether the mirror follows with the slot: that of a first copy or of a mirror that is refused is left to people.
func (m *Mirror) mayDropSlot() bool {
	s := m.shared.get()
	return s.opened && (s.state == "streaming" || s.state == "reconnecting")
}

// tellSlot logs when the slot begins or ceases to keep too much, and shows it in status.
func (m *Mirror) tellSlot(slot pgcdc.SlotInfo, over bool) {
	told := ""
	if over {
		told = m.slotWarning(slot)
	}
	was := m.shared.get().slotTold
	m.shared.set(func(s *sharedState) { s.slotTold = told })
	switch {
	case told != "" && was == "":
		m.cfg.Log.Error("the slot keeps too much WAL on the source", "slot", m.cfg.Slot, "bytes", slot.RetainedBytes, "limit", m.cfg.MaxSlotWAL, "err", told)
	case told == "" && was != "":
		m.cfg.Log.Info("the slot keeps less WAL again", "slot", m.cfg.Slot, "bytes", slot.RetainedBytes)
	}
}

// slotWarning says why the slot keeps so much, and what to do.
func (m *Mirror) slotWarning(slot pgcdc.SlotInfo) string {
	text := fmt.Sprintf("the slot keeps %d MiB of WAL on the source, max_slot_wal is %d MiB: ", slot.RetainedBytes>>20, m.cfg.MaxSlotWAL>>20)
	switch why := m.cfg.Disk.Paused(); {
	case why != "":
		text += why
	case slot.ConfirmedFlush > slot.RestartLSN && int64(slot.ConfirmedFlush-slot.RestartLSN) >= slot.RetainedBytes/2:
		text += "most of it for a transaction that is open on the source; end the oldest of pg_stat_activity (xact_start) or of pg_prepared_xacts"
	default:
		text += "the mirror is behind: see its state, lag and memory"
	}
	if m.cfg.DropSlot {
		return text + ". If it does not get less, the slot is dropped (on_max_slot_wal)"
	}
	return text + ". Before the source's disk fills, drop the mirror: pgmirror drop"
}

// giveSlotUp makes what is there durable, and lets follow drop the slot.
func (m *Mirror) giveSlotUp(ctx context.Context, slot pgcdc.SlotInfo) {
	m.cfg.Log.Error("the slot is dropped to free the source of its WAL (on_max_slot_wal)", "slot", m.cfg.Slot, "bytes", slot.RetainedBytes, "limit", m.cfg.MaxSlotWAL)
	if err := m.checkpoint(ctx); err != nil && ctx.Err() == nil {
		m.cfg.Log.Error("checkpoint before the slot is dropped", "err", err)
	}
	close(m.slotGiven)
	m.restartStream()
}

func (m *Mirror) slotGivenUp() bool {
	select {
	case <-m.slotGiven:
		return true
	default:
		return false
	}
}

// dropSlot drops the slot that was given up, trying until it is gone, and then leaves the mirror as it is: queries are answered.
func (m *Mirror) dropSlot(ctx context.Context) error {
	reason := fmt.Errorf("%w: the slot %q was dropped because it kept more than max_slot_wal (%d MiB) of WAL on the source (on_max_slot_wal: drop-slot); %s to copy the source anew",
		ErrRefused, m.cfg.Slot, m.cfg.MaxSlotWAL>>20, startAnew)
	m.setState("refused", strings.TrimPrefix(reason.Error(), ErrRefused.Error()+": "))
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := m.source.DropSlot(ctx)
		if err == nil {
			m.cfg.Log.Error("refused", "err", reason)
			<-ctx.Done()
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		m.cfg.Log.Error("the slot cannot be dropped yet", "slot", m.cfg.Slot, "err", err, "retry_in", wait)
		select {
		case <-m.clock.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}
