package iceberg

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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
		return nil, errors.Join(err, cat.close())
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

// Pin makes the state of the newest cut, or of an older one if every table retains its snapshot of then. It never waits:
// what is not committed cannot come while no mirror runs.
func (c *Committed) Pin(ctx context.Context, req readstate.PinRequest) (*readstate.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refresh(ctx); err != nil {
		return nil, fmt.Errorf("read committed snapshots: %w", err)
	}
	newest := c.contents.lsn
	if req.WaitSource || req.WaitLSN > newest || req.At > newest {
		return nil, fmt.Errorf("the mirror is not running: the newest committed lsn is %s", newest)
	}
	at := newest
	if req.At != 0 {
		at = req.At
		if err := c.checkCut(at); err != nil {
			if frozen := c.frozenAt(at); frozen != nil {
				return frozen, nil
			}
			return nil, err
		}
	}
	state := &readstate.State{LSN: at, Pinned: time.Now(), Release: func() {}}
	for i, p := range c.contents.pointers {
		state.Tables = append(state.Tables, c.table(i, p.name, at, req.At == 0))
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
		out.Err = fmt.Sprintf("the table did not exist in the mirror at %s", at)
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
	cuts := []LSN{c.contents.lsn}
	lines := make([][]shown, 0, len(c.tables))
	for _, t := range c.tables {
		if t == nil {
			continue
		}
		line := showing(t.meta.Snapshots(), t.meta.CurrentSnapshot().SnapshotID)
		lines = append(lines, line)
		for _, s := range line {
			cuts = append(cuts, s.cut)
		}
	}
	slices.Sort(cuts)
	cuts = slices.DeleteFunc(slices.Compact(cuts), func(cut LSN) bool {
		return slices.ContainsFunc(lines, func(line []shown) bool { _, ok := shownAt(line, cut); return !ok })
	})
	if slices.Contains(cuts, at) {
		return nil
	}
	distance := func(cut LSN) LSN { return max(cut, at) - min(cut, at) }
	nearest := c.contents.lsn // it is always there
	for _, cut := range cuts {
		if distance(cut) < distance(nearest) {
			nearest = cut
		}
	}
	return fmt.Errorf("%w: the mirror is not running, and %s is not a retained checkpoint; the nearest is %s", ErrNotRetained, at, nearest)
}
