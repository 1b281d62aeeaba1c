package iceberg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	icetable "github.com/apache/iceberg-go/table"
)

// A checkpoint is one commit's cut over all tables. What it needs of a table is the table's last snapshot at or below the cut, which for a table
// that did not change is an old one. The newest KeepSnapshots checkpoints, none older than KeepAge, stay readable, and a snapshot stays as long
// as one of them needs it, a tag or branch names it, or somebody holds an LSN that it shows (Hold).
// One that was followed by another at its own cut, as by a compaction while nothing changes, stays as long as the cut: its reader knows it by its id.

// checkpointMark is a checkpoint that changed some table.
type checkpointMark struct {
	cut LSN
	at  int64 // Unix milliseconds
}

// noteCheckpoint takes a commit into the history of checkpoints and forgets those that no policy can keep any more. The caller holds w.mu.
func (w *Warehouse) noteCheckpoint(mark checkpointMark) {
	w.history = append(w.history, mark)
	if n := len(w.history) - w.config.KeepSnapshots; w.config.KeepSnapshots > 0 && n > 0 {
		w.history = slices.Delete(w.history, 0, n)
	}
}

// loadHistory finds the checkpoints again in what the snapshots say of themselves.
func (w *Warehouse) loadHistory() {
	at := map[LSN]int64{}
	for _, t := range w.tables {
		for _, s := range t.meta.Snapshots() {
			if cut, err := snapshotCut(&s); err == nil {
				at[cut] = max(at[cut], s.TimestampMs)
			}
		}
	}
	w.history = nil
	for _, cut := range slices.Sorted(maps.Keys(at)) {
		w.noteCheckpoint(checkpointMark{cut, at[cut]})
	}
}

// retention is which cuts stay readable at one moment.
type retention struct {
	all   bool  // every one
	floor LSN   // and all above
	holds []LSN // and these
}

// retentionWith is the retention once a checkpoint has been added to the history. The caller holds w.mu.
func (w *Warehouse) retentionWith(added ...checkpointMark) retention {
	r := retention{all: w.config.KeepSnapshots < 0}
	marks := slices.Concat(w.history, added)
	if keep := w.config.KeepSnapshots; !r.all && len(marks) > keep {
		marks = marks[len(marks)-keep:]
	}
	if age := w.config.KeepAge; !r.all && age > 0 {
		oldest := w.config.Now().Add(-age).UnixMilli()
		for len(marks) > 1 && marks[0].at < oldest {
			marks = marks[1:]
		}
	}
	if len(marks) > 0 {
		r.floor = marks[0].cut
	}
	w.current.RLock()
	defer w.current.RUnlock()
	for h := range w.holds {
		r.holds = append(r.holds, h.at)
	}
	return r
}

// hold is a promise to keep what shows one LSN.
type hold struct{ at LSN }

// Hold keeps, until release, the snapshots that show an LSN: of each table the last one at or below it. What has expired already does not come
// back; whoever reads looks for its snapshots after Hold has returned. It waits for a commit that is under way. A table that is dropped takes its snapshots
// with it: files are the data files that the LSN shows, for whoever keeps those. release may be called twice.
func (w *Warehouse) Hold(at LSN) (files []DataFile, release func(), err error) {
	w.mu.Lock() // what a commit is about to let go was decided when it began
	defer w.mu.Unlock()
	for _, t := range w.tables {
		snapshot, ok := t.at(at)
		if snapshot == nil || !ok {
			continue
		}
		shown := t
		if snapshot.SnapshotID != t.meta.CurrentSnapshot().SnapshotID {
			shown = &table{name: t.name, uuid: t.uuid, dir: t.dir, meta: t.meta, path: t.path}
			if err := shown.loadSnapshot(w.files, snapshot); err != nil {
				return nil, nil, fmt.Errorf("table %s.%s at %s: %w", t.name.Schema, t.name.Name, at, err)
			}
		}
		for _, f := range shown.files {
			files = append(files, f.file)
		}
	}
	h := &hold{at}
	w.current.Lock()
	defer w.current.Unlock()
	w.holds[h] = true
	return files, func() {
		w.current.Lock()
		defer w.current.Unlock()
		delete(w.holds, h)
	}, nil
}

// shown is a snapshot and the cuts at which it is what its table holds: from cut up to, but not including, until.
type shown struct {
	snapshot   icetable.Snapshot
	cut, until LSN
	// gap: snapshots between this one and the next have expired, so that above cut nobody knows what the table held.
	gap bool
}

// showing lists the snapshots of the line that leads to a table's current one, oldest first. Another writer's snapshot has no cut of its own and
// shows what the one before it showed; one that only moves rows is left out. Snapshots on other branches are left out too.
func showing(snapshots []icetable.Snapshot, current int64) (line []shown) {
	parents := make(map[int64]int64, len(snapshots))
	for _, s := range snapshots {
		if s.ParentSnapshotID != nil {
			parents[s.SnapshotID] = *s.ParentSnapshotID
		}
	}
	main := map[int64]bool{}
	for id, ok := current, true; ok && !main[id]; id, ok = parents[id] {
		main[id] = true
	}
	sorted := slices.Clone(snapshots) // metadata of another writer might list them in any order
	slices.SortFunc(sorted, func(a, b icetable.Snapshot) int { return int(min(1, max(-1, a.SequenceNumber-b.SequenceNumber))) })
	last, before := LSN(0), int64(0) // of the snapshot before
	for _, s := range sorted {
		cut, err := snapshotCut(&s)
		if err != nil {
			if !main[s.SnapshotID] {
				continue
			}
			if len(line) > 0 && isRewrite(&s) && s.ParentSnapshotID != nil && *s.ParentSnapshotID == before {
				before = s.SnapshotID
				continue
			}
			cut = last
		}
		if n := len(line); n > 0 {
			line[n-1].until = cut
			line[n-1].gap = s.ParentSnapshotID == nil || *s.ParentSnapshotID != before
		}
		line, last, before = append(line, shown{snapshot: s, cut: cut, until: math.MaxUint64}), cut, s.SnapshotID
	}
	return line
}

// shownAt is the snapshot of a line that shows a cut; ok is false if it has expired. nil and true: the table did not exist yet.
func shownAt(line []shown, cut LSN) (snapshot *icetable.Snapshot, ok bool) {
	i := len(line)
	for i > 0 && line[i-1].cut > cut {
		i--
	}
	if i == 0 {
		return nil, len(line) == 0 || line[0].snapshot.SequenceNumber == 1
	}
	s := &line[i-1]
	return &s.snapshot, !s.gap || s.cut == cut
}

// holders says what keeps each snapshot of a table; those that are not in it may expire.
func (r retention) holders(snapshots []icetable.Snapshot, current int64, refs map[string]icetable.SnapshotRef) map[int64][]string {
	by := map[int64][]string{}
	keep := func(id int64, why string) { by[id] = append(by[id], why) }
	line := showing(snapshots, current)
	keep(current, "current")
	for _, s := range line {
		switch id := s.snapshot.SnapshotID; {
		case id == current:
		case r.all, s.until > r.floor:
			keep(id, "checkpoint")
		}
		if slices.ContainsFunc(r.holds, func(h LSN) bool { return h >= s.cut && h < s.until }) {
			keep(s.snapshot.SnapshotID, "read state")
		}
	}
	known := make(map[int64]*icetable.Snapshot, len(snapshots))
	for i := range snapshots {
		known[snapshots[i].SnapshotID] = &snapshots[i]
		if r.all && by[snapshots[i].SnapshotID] == nil {
			keep(snapshots[i].SnapshotID, "checkpoint")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		ref := refs[name]
		if name == icetable.MainBranch {
			continue
		}
		least := 1
		if ref.MinSnapshotsToKeep != nil {
			least = max(1, *ref.MinSnapshotsToKeep)
		}
		id := ref.SnapshotID
		for s := known[id]; s != nil && least > 0; least-- {
			keep(s.SnapshotID, string(ref.SnapshotRefType)+" "+name)
			if s.ParentSnapshotID == nil {
				break
			}
			s = known[*s.ParentSnapshotID]
		}
	}
	return by
}

// expired lists the snapshots of a table that nothing needs any more, in a retention. The current one never is.
func (t *table) expired(r retention) (gone []icetable.Snapshot) {
	current := t.meta.CurrentSnapshot()
	if current == nil || r.all {
		return nil
	}
	held := r.holders(t.meta.Snapshots(), current.SnapshotID, maps.Collect(t.meta.Refs()))
	for _, s := range t.meta.Snapshots() {
		if held[s.SnapshotID] == nil {
			gone = append(gone, s)
		}
	}
	return gone
}

// Retained lists the snapshots of a table with what holds each; none for a table that is not known.
func (w *Warehouse) Retained(uuid string) []SnapshotInfo {
	w.mu.Lock()
	r := w.retentionWith()
	t := w.tables[uuid]
	w.mu.Unlock()
	if t == nil {
		return nil
	}
	state := t.state()
	held := r.holders(t.meta.Snapshots(), state.SnapshotID, maps.Collect(t.meta.Refs()))
	for i := range state.Snapshots {
		state.Snapshots[i].HeldBy = held[state.Snapshots[i].ID]
	}
	return state.Snapshots
}

// Expiry is what Expire did, or would do.
type Expiry struct {
	// Tables have snapshots that went, sorted by name.
	Tables []ExpiredTable
	// More says that there are tables left to do.
	More bool
	// Unreachable is as in Result.
	Unreachable []string
}

// ExpiredTable is one table's part of an Expiry.
type ExpiredTable struct {
	State   TableState // after it; of a dry run, as it is
	Expired []SnapshotInfo
}

// Expire takes snapshots that nothing needs any more out of at most so many tables, in one catalog transaction. Commits do so themselves for
// the tables that they change; this is for those that do not change any more. A dry run looks at all tables and changes none. After an error
// nothing has happened, unless the outcome is unknown, as with Commit.
func (w *Warehouse) Expire(ctx context.Context, most int, dryRun bool) (*Expiry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.loaded:
		return nil, errors.New("expire snapshots: the warehouse is not loaded")
	case w.broken != nil:
		return nil, fmt.Errorf("expire snapshots: open the warehouse again: %w", w.broken)
	}
	out, jobs, r := &Expiry{}, []*assembly(nil), w.retentionWith()
	for _, t := range slices.SortedFunc(maps.Values(w.tables), func(a, b *table) int {
		return strings.Compare(a.name.Schema+"\x00"+a.name.Name, b.name.Schema+"\x00"+b.name.Name)
	}) {
		gone := t.expired(r)
		if len(gone) == 0 || w.refused[t.uuid] {
			continue
		}
		if !dryRun && len(jobs) == most {
			out.More = true
			break
		}
		x := ExpiredTable{State: t.state()}
		for _, s := range gone {
			x.Expired = append(x.Expired, snapshotInfo(&s))
		}
		out.Tables = append(out.Tables, x)
		if dryRun {
			continue
		}
		next := *t
		jobs = append(jobs, &assembly{w: w, base: t, next: &next, retention: r})
	}
	if len(jobs) == 0 {
		return out, nil
	}
	if err := w.expire(ctx, jobs); err != nil {
		if errors.Is(err, errUnknownOutcome) {
			w.broken = err
		} else if !isEffect(err) {
			w.discard(jobs)
		}
		return nil, fmt.Errorf("expire snapshots: %w", err)
	}
	for i, a := range jobs {
		w.setTable(a.next)
		out.Tables[i].State = a.next.state()
		out.Unreachable = append(out.Unreachable, a.unreachable...)
	}
	if err := w.effect("expiry committed"); err != nil {
		return nil, err
	}
	return out, w.writeHints(jobs)
}

// expire writes the tables' new metadata files and moves the pointers to them; the mirror's document and cut stay.
func (w *Warehouse) expire(ctx context.Context, jobs []*assembly) (err error) {
	var moves []pointerMove
	for _, a := range jobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.effect("expiry metadata"); err != nil {
			return err
		}
		if a.builder, err = icetable.MetadataBuilderFromBase(a.base.meta, toURI(a.base.path)); err == nil {
			err = a.writeMetadata(nil)
		}
		if err == nil {
			err = w.syncDir(a.next.metadataDir())
		}
		if err != nil {
			return fmt.Errorf("table %s.%s: %w", a.next.name.Schema, a.next.name.Name, err)
		}
		moves = append(moves, a.move())
	}
	if err := w.effect("expiry commit"); err != nil {
		return err
	}
	return w.catalog.commit(ctx, newID(), nil, w.lsn, moves)
}
