package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// Disk decides whether more may be taken in, by what is free on the data directory's disk and by whether writing succeeds:
//
//	free < least, or a write was refused ─▶ paused: the stream and copies wait, compaction too; all else goes on
//	free ≥ 9/8 least, and writing succeeds ─▶ the stream goes on by itself
//
// What was taken in before goes on to files and checkpoints in the space below least, so that the source may forget it. A nil Disk never
// pauses. Any goroutine may call its methods.
type Disk struct {
	least   func() (int64, error) // bytes
	measure func() (free int64, err error)

	mu      sync.Mutex
	free    int64 // bytes, as last measured; -1 when that is not known
	floor   int64 // least, as last measured
	short   bool
	refused map[string]error // by what was to be written
	room    chan struct{}    // closed while there is room
}

// NewDisk makes a Disk with room. least says how many bytes must stay free, 0 that it does not matter; measure, how many are free for us.
func NewDisk(least, measure func() (int64, error)) *Disk {
	d := &Disk{least: least, measure: measure, free: -1, refused: map[string]error{}, room: make(chan struct{})}
	close(d.room)
	return d
}

// Wait returns when there is room, or the context's error.
func (d *Disk) Wait(ctx context.Context) error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	room := d.room
	d.mu.Unlock()
	select {
	case <-room:
		return nil
	default:
	}
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look measures what is free and says whether Paused is another now.
func (d *Disk) look() (changed bool, err error) {
	if d == nil {
		return false, nil
	}
	floor, err := d.least()
	if err != nil {
		return false, err
	}
	free, err := d.measure()
	if err != nil {
		return false, err
	}
	return d.change(func() {
		d.free, d.floor = free, floor
		if d.short {
			d.short = free < floor+floor/8 // else it would come and go with every file
		} else {
			d.short = free < floor
		}
	}), nil
}

// wrote notes how writing something ended, and says whether Paused is another now.
func (d *Disk) wrote(what string, err error) (changed bool) {
	if d == nil {
		return false
	}
	return d.change(func() {
		if err != nil {
			d.refused[what] = err
		} else {
			delete(d.refused, what)
		}
	})
}

func (d *Disk) change(how func()) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.pausedLocked() != ""
	how()
	now := d.pausedLocked() != ""
	switch {
	case now && !before:
		d.room = make(chan struct{})
	case before && !now:
		close(d.room)
	}
	return now != before
}

// Paused says why nothing more is taken in and what to do; empty while there is room.
func (d *Disk) Paused() string {
	if d == nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pausedLocked()
}

const remedyDisk = "free space there, and it goes on by itself; until then nothing more is read and the source keeps its WAL"

func (d *Disk) pausedLocked() string {
	for _, err := range d.refused {
		return fmt.Sprintf("the disk of the data directory takes no more (%s): %s", oneLine(err.Error()), remedyDisk)
	}
	if d.short {
		return fmt.Sprintf("the disk of the data directory is almost full: less than min_free_disk, %d MiB, is free: %s", d.floor>>20, remedyDisk)
	}
	return ""
}

// status is what is free and what must stay so, in bytes; ok is false while that is not known.
func (d *Disk) status() (free, least int64, ok bool) {
	if d == nil {
		return 0, 0, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free, d.floor, d.free >= 0
}

// isDiskFull says that an error is a disk of ours that takes no more: what was to be written can be written again later.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS)
}

// diskPoll is the time between two looks at what is free.
const diskPoll = time.Second

// diskLoop looks at what is free from time to time.
func (m *Mirror) diskLoop(ctx context.Context) error {
	if m.cfg.Disk == nil {
		return nil
	}
	told := ""
	for {
		changed, err := m.cfg.Disk.look()
		switch {
		case err == nil:
			told = ""
		case err.Error() != told:
			told = err.Error()
			m.cfg.Log.Warn("what is free on the data directory's disk is not known", "err", err)
		}
		if changed {
			m.tellDisk()
		}
		select {
		case <-m.clock.After(diskPoll):
		case <-ctx.Done():
			return nil
		}
	}
}

// tellDisk logs a change of Disk.Paused.
func (m *Mirror) tellDisk() {
	if why := m.cfg.Disk.Paused(); why != "" {
		m.cfg.Log.Error("paused", "err", why)
		return
	}
	m.cfg.Log.Info("there is room on the disk: going on")
	signal(m.flusher.wake) // what had to wait
	signal(m.compactor.wake)
}

// untilWritten calls do until the disk takes what it writes, from 1 s to 30 s apart; the reader is paused meanwhile. What do did not
// write it must be able to write again. Any other error it returns. Nil is also returned when the mirror stops.
func (m *Mirror) untilWritten(ctx context.Context, what string, do func() error) error {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := do()
		if !isDiskFull(err) {
			if m.cfg.Disk.wrote(what, nil) {
				m.tellDisk()
			}
			return err
		}
		if m.cfg.Disk.wrote(what, err) {
			m.tellDisk()
		}
		m.cfg.Log.Error("the disk takes no more: nothing is lost, and it is tried again", "what", what, "err", err, "retry_in", wait)
		select {
		case <-m.clock.After(wait):
		case <-m.stop:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}
