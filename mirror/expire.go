package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"pgmirror/iceberg"
	"pgmirror/readstate"
)

const (
	// expireTables is how many tables lose snapshots in one catalog transaction: each has a metadata file to be written and synced, and a checkpoint
	// that becomes due meanwhile waits for them.
	expireTables = 16
	// expirePause lies between two such transactions when nobody waits for them.
	expirePause = time.Second
	// expireInterval is the time between two looks for tables that do not change any more, and so do not expire anything by themselves.
	expireInterval = time.Minute
)

// ExpireRequest asks for what the mirror does from time to time by itself.
type ExpireRequest struct {
	// DryRun changes nothing and says what would go.
	DryRun bool `json:"dry_run,omitempty"`
	// Orphans looks for files that nothing names too.
	Orphans bool `json:"orphans,omitempty"`
}

// ExpireReport is what came of it.
type ExpireReport struct {
	Tables []ExpireTable `json:"tables"` // that lost snapshots
	// Deleted counts files that no snapshot named any more for longer than the grace period; Waiting counts those that are left, for it or for a reader.
	Deleted int `json:"files_deleted"`
	Waiting int `json:"files_waiting"`
	// Orphans are files that nothing names, older than the grace period.
	Orphans []string `json:"orphans,omitempty"`
}

// ExpireTable is one table's part: its snapshots that went and that are left.
type ExpireTable struct {
	Name    string `json:"name"`
	Expired int    `json:"snapshots_expired"`
	Kept    int    `json:"snapshots_kept"`
}

// Expire takes the snapshots that no checkpoint needs any more out of all tables, and deletes files that nobody needs for longer than the
// grace period.
func (m *Mirror) Expire(ctx context.Context, req ExpireRequest) (*ExpireReport, error) {
	if opening := m.shared.opening(); opening != "" {
		return nil, fmt.Errorf("expire: %s", opening)
	}
	rep := &ExpireReport{Tables: []ExpireTable{}}
	for more := true; more; {
		x, err := m.expire(ctx, req.DryRun)
		if err != nil {
			return nil, err
		}
		for _, t := range x.Tables {
			kept := len(t.State.Snapshots)
			if req.DryRun {
				kept -= len(t.Expired)
			}
			rep.Tables = append(rep.Tables, ExpireTable{Name: t.State.Name.Schema + "." + t.State.Name.Name, Expired: len(t.Expired), Kept: kept})
		}
		more = x.More
	}
	err := m.inAnyTurn(ctx, func() error {
		due, waiting := m.dueGarbage(m.marks.low())
		rep.Deleted, rep.Waiting = len(due), waiting
		return nil
	})
	if err == nil && !req.DryRun {
		err = m.reap(context.WithoutCancel(ctx))
	}
	if err == nil && req.Orphans {
		rep.Orphans, err = m.warehouse.Orphans(ctx, m.clock.Now().Add(-m.cfg.Grace), req.DryRun)
	}
	if err != nil {
		return nil, fmt.Errorf("expire: %w", err)
	}
	return rep, nil
}

// expire takes snapshots out of some tables. Like a checkpoint it is alone, so that m.durable is the newest cut at which a file can have become
// garbage.
func (m *Mirror) expire(ctx context.Context, dryRun bool) (*iceberg.Expiry, error) {
	m.checkpointing.Lock()
	defer m.checkpointing.Unlock()
	// Whoever asked may give up, but what was committed must be noted.
	ctx = context.WithoutCancel(ctx)
	x, err := m.warehouse.Expire(ctx, expireTables, dryRun)
	var moved *iceberg.MovedError
	if errors.As(err, &moved) {
		return &iceberg.Expiry{More: true}, m.settleForeign(ctx, moved.Tables, "")
	}
	if err != nil || dryRun {
		return x, err
	}
	return x, m.inTurn(ctx, func() error { m.addGarbage(x.Unreachable, m.durable); return nil })
}

// HoldRequest asks that the retained checkpoint at an LSN stays readable for as long as the call lasts.
type HoldRequest struct {
	LSN string `json:"lsn"`
}

// holdCheckpoint says one line when the checkpoint is held, and holds it until the caller gives up or the mirror stops.
func (m *Mirror) holdCheckpoint(ctx context.Context, req HoldRequest, progress func(string)) error {
	at, err := pglogrepl.ParseLSN(req.LSN)
	if err != nil {
		return fmt.Errorf("hold: %q is not an LSN", req.LSN)
	}
	files, release, err := m.warehouse.Hold(at)
	if err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	defer release()
	named := make([]readstate.File, len(files)) // their tables may be dropped
	for i, f := range files {
		named[i] = readstate.File{Path: f.Path, Bytes: f.Bytes}
	}
	m.deleting.Lock()
	m.settled.add(named)
	m.deleting.Unlock()
	defer m.settled.drop(named)
	progress("held")
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-m.stop:
		return ErrStopped
	}
}

// expireLoop looks for snapshots that have become too old, a few tables at a time, and for what other writers have done.
func (m *Mirror) expireLoop(ctx context.Context) error {
	wait := expireInterval
	for {
		select {
		case <-m.clock.After(wait):
		case <-m.stop:
			return nil
		case <-ctx.Done():
			return nil
		}
		wait = expireInterval
		if m.shared.opening() != "" {
			continue
		}
		err := m.lookForForeign(ctx)
		var x *iceberg.Expiry
		if err == nil {
			x, err = m.expire(ctx, false)
		}
		if isDiskFull(err) {
			m.cfg.Log.Error("the disk takes no more: snapshots expire later", "err", err)
			continue
		}
		if err != nil {
			return ignoreStop(ctx, err)
		}
		if x.More {
			wait = expirePause
		}
		if n := len(x.Tables); n > 0 {
			m.cfg.Log.Debug("snapshots expired", "tables", n, "files", len(x.Unreachable))
		}
	}
}

// garbage is files that no retained snapshot names. A reader that registered at or before serial may still use them, and so may
// one that comes later with an LSN below the cut at which they went, and until the grace period is over, one that reads Iceberg's files without us.
type garbage struct {
	paths  []string
	cut    LSN
	serial uint64
	since  time.Time
}

// addGarbage notes files that a commit has made unreachable. The applier's turn.
func (m *Mirror) addGarbage(paths []string, cut LSN) {
	if len(paths) > 0 {
		m.garbage = append(m.garbage, garbage{paths: paths, cut: cut, serial: m.marks.lastSerial(), since: m.clock.Now()})
	}
}

// inheritGarbage notes what an earlier life has left to be deleted; no reader of this one needs it.
func (m *Mirror) inheritGarbage(files []iceberg.UnreachableFile) {
	now := m.clock.Now()
	for _, f := range files {
		since := f.Since
		if since.After(now) { // the clock went back
			since = now
		}
		if n := len(m.garbage); n > 0 && m.garbage[n-1].since.Equal(since) {
			m.garbage[n-1].paths = append(m.garbage[n-1].paths, f.Path)
			continue
		}
		m.garbage = append(m.garbage, garbage{paths: []string{f.Path}, since: since})
	}
}

// due says whether nobody needs the files any more.
func (g *garbage) due(low LSN, oldest uint64, now time.Time, grace time.Duration) bool {
	return low >= g.cut && oldest > g.serial && now.Sub(g.since) >= grace
}

// dueGarbage lists the files that may be deleted, and counts the others. The applier's turn.
func (m *Mirror) dueGarbage(low LSN) (due []string, waiting int) {
	_, oldest := m.marks.readerCount()
	now := m.clock.Now()
	for i := range m.garbage {
		if g := &m.garbage[i]; g.due(low, oldest, now, m.cfg.Grace) {
			gone, stay := m.settled.split(g.paths)
			due = append(due, gone...)
			waiting += len(stay)
		} else {
			waiting += len(g.paths)
		}
	}
	return due, waiting
}

// takeGarbage takes the files that may be deleted off the list. The applier's turn.
func (m *Mirror) takeGarbage(low LSN) (taken []string) {
	_, oldest := m.marks.readerCount()
	now := m.clock.Now()
	keep := m.garbage[:0]
	for _, g := range m.garbage {
		if g.due(low, oldest, now, m.cfg.Grace) {
			var gone []string
			gone, g.paths = m.settled.split(g.paths)
			taken = append(taken, gone...)
		}
		if len(g.paths) > 0 {
			keep = append(keep, g)
		}
	}
	clear(m.garbage[len(keep):])
	m.garbage = keep
	return taken
}
