package iceberg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"time"

	icetable "github.com/apache/iceberg-go/table"

	"pgmirror/readstate"
)

// Committed answers queries from the committed snapshots while no mirror runs. Its methods may be called by several
// goroutines.
type Committed struct {
	config  Config
	root    string
	files   FileSystem
	catalog *catalog

	mu       sync.Mutex
	commitID string
	contents *contents
	tables   []*table // current snapshots; nil where faults has an entry
	faults   []error
}

// OpenReadOnly opens a data directory that a mirror has written. It changes nothing there. Config.Files, TableErr and
// SearchPath are used.
func OpenReadOnly(ctx context.Context, config Config) (*Committed, error) {
	if err := checkDir(config.Dir); err != nil {
		return nil, err
	}
	if config.Files == nil {
		config.Files = OS
	}
	cat, err := openCatalogReadOnly(ctx, filepath.Join(config.Dir, "catalog.db"))
	if err != nil {
		return nil, err
	}
	c := &Committed{config: config, root: filepath.Join(config.Dir, "warehouse"), files: config.Files, catalog: cat}
	if err := c.refresh(ctx); err != nil {
		return nil, errors.Join(torn(err), cat.close())
	}
	return c, nil
}

// Close closes the catalog. States stay valid.
func (c *Committed) Close() error { return c.catalog.close() }

// LastCommit is the document stored with the newest commit, nil before the first, and the time of the newest snapshot, zero
// when there is none.
func (c *Committed) LastCommit() (document []byte, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tables {
		if t == nil {
			continue
		}
		if s := t.meta.CurrentSnapshot(); s != nil {
			if made := time.UnixMilli(s.TimestampMs); made.After(at) {
				at = made
			}
		}
	}
	return c.contents.mirror, at
}

// SearchPath is what Config.SearchPath makes of the mirror document, else public.
func (c *Committed) SearchPath() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.config.SearchPath != nil {
		if path := c.config.SearchPath(c.contents.mirror); len(path) > 0 {
			return path
		}
	}
	return []string{"public"}
}

// refresh loads the current snapshots if there was a commit since.
func (c *Committed) refresh(ctx context.Context) error {
	if c.catalog.once && c.contents != nil {
		return nil
	}
	contents, err := c.catalog.read(ctx)
	if err != nil {
		return err
	}
	if c.contents != nil && contents.commitID == c.commitID {
		return nil
	}
	c.tables, c.faults, err = loadTables(ctx, c.files, contents.pointers, c.root)
	if err != nil {
		return err
	}
	c.contents, c.commitID = contents, contents.commitID
	return nil
}

// Pin makes the state of the newest cut, or of an older one if every table retains its snapshot of then: that with the LSN asked for, or the newest that was
// committed at or before the time asked for. It never waits: what is not committed cannot come from here.
func (c *Committed) Pin(ctx context.Context, req readstate.PinRequest) (*readstate.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refresh(ctx); err != nil {
		return nil, fmt.Errorf("read committed snapshots: %w", err)
	}
	newest := c.contents.lsn
	switch {
	case req.Changes != nil:
		return nil, errors.New("changes of a table are known to a running mirror only; the committed snapshots have the rows at each checkpoint")
	case req.WaitSource || req.WaitLSN > newest || req.At > newest:
		return nil, fmt.Errorf("the mirror is not running: the newest committed lsn is %s", newest)
	}
	at, asked := newest, req.At != 0 || !req.AtTime.IsZero()
	switch {
	case req.At != 0:
		at = req.At
		if err := c.checkCut(at); err != nil {
			if frozen := c.frozenAt(at); frozen != nil {
				return frozen, nil
			}
			return nil, err
		}
	case asked && req.AtTime.After(time.Now()): // what will be committed by then is not known
		return nil, fmt.Errorf("%s lies in the future", req.AtTime.UTC().Format(time.RFC3339Nano))
	case asked:
		var err error
		if at, err = c.cutAt(req.AtTime); err != nil {
			return nil, err
		}
	}
	state := &readstate.State{LSN: at, Pinned: time.Now(), Release: func() {}}
	for i, p := range c.contents.pointers {
		state.Tables = append(state.Tables, c.table(i, p.name, at, !asked))
	}
	return state, nil
}

// frozenAt is a state of only those tables that failed and were good last at this LSN, which is no cut; nil when there is none.
func (c *Committed) frozenAt(at LSN) *readstate.State {
	state := &readstate.State{LSN: at, Pinned: time.Now(), Release: func() {}}
	found := false
	for i, p := range c.contents.pointers {
		if t := c.tables[i]; t != nil && t.lsn == at {
			state.Tables = append(state.Tables, c.table(i, p.name, at, false))
			found = true
			continue
		}
		state.Tables = append(state.Tables, &readstate.Table{Name: p.name, Err: fmt.Sprintf("table %s cannot be read at %s, which is no checkpoint", p.name, at)})
	}
	if !found {
		return nil
	}
	return state
}

// table is one table at a cut; newest says that no LSN was asked for.
func (c *Committed) table(i int, name TableName, at LSN, newest bool) *readstate.Table {
	out := &readstate.Table{Name: name}
	if c.config.TableErr != nil {
		asked := at
		if newest {
			asked = Newest
		}
		out.Err = c.config.TableErr(c.contents.mirror, name, asked)
	}
	if out.Err == "" && c.faults[i] != nil {
		out.Err = fmt.Sprintf("table %s: %s; restore what is named from a copy, or start anew (pgmirror drop --warehouse, pgmirror run)", name, c.faults[i])
	}
	if out.Err != "" {
		return out
	}
	t := c.tables[i]
	if snapshot, ok := t.at(at); snapshot == nil || !ok {
		out.Err = fmt.Sprintf("the table as it is now was not in the mirror at %s: it was copied, or copied again, later", at)
		if !ok {
			out.Err = fmt.Sprintf("the table's snapshot of %s has expired", at)
		}
		return out
	} else if snapshot.SnapshotID != t.meta.CurrentSnapshot().SnapshotID {
		past := &table{name: t.name, uuid: t.uuid, dir: t.dir, meta: t.meta, path: t.path}
		if err := past.loadSnapshot(c.files, snapshot); err != nil {
			out.Err = err.Error()
			return out
		}
		t = past
	}
	out.Schema = t.schema
	for _, f := range t.inOrder() {
		out.Files = append(out.Files, readstate.File{Path: f.file.Path, Rows: f.file.Rows, Bytes: f.file.Bytes, Deleted: f.file.Deleted})
	}
	return out
}

// at is the snapshot that shows a table at a cut; ok is false if it has expired. nil and true: the table did not exist in the mirror yet. A table that failed
// is shown at its last good LSN too.
func (t *table) at(cut LSN) (snapshot *icetable.Snapshot, ok bool) {
	current := t.meta.CurrentSnapshot()
	if t.lsn == cut {
		return current, true
	}
	return shownAt(showing(t.meta.Snapshots(), current.SnapshotID), cut)
}

// checkCut says whether all tables can be shown at an LSN: it must be a cut, and no table may have expired what it needs.
func (c *Committed) checkCut(at LSN) error {
	cuts := c.cuts()
	i := sort.Search(len(cuts), func(i int) bool { return cuts[i].lsn >= at })
	if i < len(cuts) && cuts[i].lsn == at {
		return nil
	}
	return fmt.Errorf("%w: %s is no retained checkpoint; %s", ErrNotRetained, at, nearest(cuts, i))
}

// cutAt is the newest cut that was committed at or before a time.
func (c *Committed) cutAt(t time.Time) (LSN, error) {
	cuts := slices.DeleteFunc(c.cuts(), func(c cut) bool { return c.at.IsZero() })
	i := sort.Search(len(cuts), func(i int) bool { return cuts[i].at.After(t) })
	if i == 0 {
		return 0, fmt.Errorf("%w: no retained checkpoint is as old as %s; %s", ErrNotRetained, t.UTC().Format(time.RFC3339Nano), nearest(cuts, 0))
	}
	return cuts[i-1].lsn, nil
}

// cut is a checkpoint at which all tables can be read, and when it was committed: zero when no snapshot came of it.
type cut struct {
	lsn LSN
	at  time.Time
}

func (c cut) String() string {
	if c.at.IsZero() {
		return c.lsn.String()
	}
	return fmt.Sprintf("%s (%s)", c.lsn, c.at.UTC().Format(time.RFC3339Nano))
}

// nearest names the cuts before and from place i on.
func nearest(cuts []cut, i int) string {
	switch {
	case len(cuts) == 0:
		return "there is none"
	case i == 0:
		return fmt.Sprintf("the oldest is %s", cuts[0])
	case i == len(cuts):
		return fmt.Sprintf("the newest is %s", cuts[i-1])
	}
	return fmt.Sprintf("the nearest are %s and %s", cuts[i-1], cuts[i])
}

// cuts lists the checkpoints at which all tables can be read, oldest first. Their times rise with them.
func (c *Committed) cuts() []cut {
	times := map[LSN]time.Time{c.contents.lsn: {}}
	lines := make([][]shown, 0, len(c.tables))
	for _, t := range c.tables {
		if t == nil {
			continue
		}
		line := showing(t.meta.Snapshots(), t.meta.CurrentSnapshot().SnapshotID)
		lines = append(lines, line)
		for _, s := range line {
			lsn, err := snapshotCut(&s.snapshot)
			if err != nil { // another writer's: it shows the cut before it
				continue
			}
			if at := time.UnixMilli(s.snapshot.TimestampMs); at.After(times[lsn]) {
				times[lsn] = at
			}
		}
	}
	var out []cut
	for lsn, at := range times {
		if !slices.ContainsFunc(lines, func(line []shown) bool { _, ok := shownAt(line, lsn); return !ok }) {
			out = append(out, cut{lsn, at})
		}
	}
	slices.SortFunc(out, func(a, b cut) int { return cmp.Compare(a.lsn, b.lsn) })
	for i := 1; i < len(out); i++ { // a clock that was set back
		if !out[i].at.IsZero() && out[i].at.Before(out[i-1].at) {
			out[i].at = out[i-1].at
		}
	}
	return out
}
