package iceberg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Commit publishes one cut: one new snapshot for each table named, then all pointers and the mirror document in one catalog
// transaction. It is durable when Commit returns without an error. After an error nothing of it is visible, unless the error
// says that the outcome is unknown; then the warehouse must be opened again. A commit that failed for another reason may be
// tried again with the same data files. A MovedError names the tables that another writer has changed: the others can be committed without them.
func (w *Warehouse) Commit(ctx context.Context, c Commit) (*Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.loaded {
		return nil, errors.New("commit: the warehouse is not loaded")
	}
	if w.broken != nil {
		return nil, fmt.Errorf("commit: open the warehouse again: %w", w.broken)
	}
	jobs, dropped, err := w.assemblies(c)
	if err != nil {
		return nil, fmt.Errorf("commit at %s: %w", c.LSN, err)
	}
	mark := checkpointMark{c.LSN, w.config.Now().UnixMilli()}
	if len(jobs) > 0 {
		retention := w.retentionWith(mark)
		for _, a := range jobs {
			a.retention = retention
		}
	}
	err = w.assembleAll(ctx, jobs, &c)
	if err == nil {
		err = w.publish(ctx, c, jobs, dropped)
	}
	if err != nil {
		if errors.Is(err, errUnknownOutcome) {
			w.broken = err
		} else if !isEffect(err) {
			w.discard(jobs)
		}
		return nil, fmt.Errorf("commit at %s: %w", c.LSN, err)
	}
	if w.lsn = c.LSN; len(jobs) > 0 {
		w.noteCheckpoint(mark)
	}
	result := w.install(jobs, dropped)
	if err := w.effect("sqlite committed"); err != nil {
		return nil, err
	}
	return result, w.writeHints(jobs)
}

// assemblies pairs every change with the table it changes.
func (w *Warehouse) assemblies(c Commit) (jobs []*assembly, dropped []droppedTable, err error) {
	names, uuids, places := map[TableName]string{}, map[string]bool{}, map[string]bool{}
	for _, change := range c.Tables {
		if change.Drop {
			names[change.Name] = "dropped"
		}
	}
	for i := range c.Tables {
		change := &c.Tables[i]
		where := fmt.Sprintf("table %s.%s", change.Name.Schema, change.Name.Name)
		if !uuidForm.MatchString(change.UUID) || uuids[change.UUID] {
			return nil, nil, fmt.Errorf("%w: %s: uuid %q is malformed or comes twice", ErrIllegalCommit, where, change.UUID)
		}
		uuids[change.UUID] = true
		if change.At > c.LSN {
			return nil, nil, fmt.Errorf("%w: %s: its snapshot at %s is above the commit's %s", ErrIllegalCommit, where, change.At, c.LSN)
		}
		base := w.tables[change.UUID]
		if change.Create {
			holder := w.names[change.Name]
			switch {
			case base != nil || change.Schema == nil || change.Drop || len(change.Remove) > 0:
				return nil, nil, fmt.Errorf("%w: %s: it exists, or a table to create has no schema", ErrIllegalCommit, where)
			case holder != nil && names[change.Name] != "dropped", names[change.Name] == "created":
				return nil, nil, fmt.Errorf("%w: %s: another table has this name", ErrIllegalCommit, where)
			case change.Name.Schema == "" || change.Name.Name == "":
				return nil, nil, fmt.Errorf("%w: a table without a name", ErrIllegalCommit)
			}
			names[change.Name] = "created"
			a := &assembly{w: w, change: change}
			a.begin(change.Name, change.UUID, w.tableDir(change.Name, change.UUID))
			if w.places[a.next.dir] != nil || places[a.next.dir] {
				return nil, nil, fmt.Errorf("%w: %s: its directory %s is another table's; give it another uuid", ErrIllegalCommit, where, a.next.dir)
			}
			places[a.next.dir] = true
			jobs = append(jobs, a)
			continue
		}
		if p, ok := w.faulty[change.UUID]; ok && change.Drop && p.name == change.Name {
			dropped = append(dropped, droppedTable{name: p.name, uuid: p.uuid, dir: filepath.Dir(filepath.Dir(strings.TrimPrefix(p.ours, uriScheme)))})
			continue
		}
		if base == nil || base.name != change.Name {
			return nil, nil, fmt.Errorf("%w: %s: no such table with uuid %s", ErrIllegalCommit, where, change.UUID)
		}
		if change.lsn(&c) < base.lsn {
			return nil, nil, fmt.Errorf("%w: %s: its snapshot is at %s already", ErrIllegalCommit, where, base.lsn)
		}
		if change.Drop {
			dropped = append(dropped, droppedTable{base.name, base.uuid, base.dir, base})
			continue
		}
		a := &assembly{w: w, change: change, base: base}
		a.begin(base.name, base.uuid, base.dir)
		jobs = append(jobs, a)
	}
	return jobs, dropped, nil
}

// droppedTable is a table that leaves the catalog. table is nil for one that Load found damaged: what files it has is not known, and they
// are orphans for the next start.
type droppedTable struct {
	name  TableName
	uuid  string
	dir   string
	table *table
}

// assemblers is how many tables' metadata are written at once. Nearly all of the time goes into waiting for fsync, and the file system makes those that
// wait together durable in one step.
const assemblers = 16

// assembleAll writes the tables' files, several tables at once.
func (w *Warehouse) assembleAll(ctx context.Context, jobs []*assembly, c *Commit) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(assemblers)
	for _, a := range jobs {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := a.run(c); err != nil {
				return fmt.Errorf("table %s.%s: %w", a.next.name.Schema, a.next.name.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (w *Warehouse) publish(ctx context.Context, c Commit, jobs []*assembly, dropped []droppedTable) error {
	if err := w.effect("sqlite commit"); err != nil {
		return err
	}
	var moves []pointerMove
	now := w.config.Now().UnixMilli()
	for _, d := range dropped {
		m := pointerMove{name: d.name, uuid: d.uuid, dir: d.dir}
		if d.table != nil {
			for _, path := range d.table.allFiles() {
				m.replaced = append(m.replaced, replacedFile{path: path, uuid: d.uuid, since: now})
			}
		}
		moves = append(moves, m)
	}
	for _, a := range jobs {
		moves = append(moves, a.move())
	}
	return w.catalog.commit(ctx, newID(), c.Mirror, c.LSN, moves)
}

// move is what the catalog is to do for the table.
func (a *assembly) move() pointerMove {
	m := pointerMove{name: a.next.name, uuid: a.next.uuid, to: toURI(a.next.path), replaced: a.listed}
	if a.base != nil {
		m.from = toURI(a.base.path)
	}
	return m
}

// install makes the committed tables the current ones.
func (w *Warehouse) install(jobs []*assembly, dropped []droppedTable) *Result {
	result := &Result{Tables: map[TableName]TableState{}}
	for _, d := range dropped {
		if d.table == nil {
			w.forgetFaulty(d.uuid)
			continue
		}
		w.forgetTable(d.table)
		result.Unreachable = append(result.Unreachable, d.table.allFiles()...)
	}
	for _, a := range jobs {
		w.setTable(a.next)
		for _, f := range a.added {
			w.pending.Delete(f.file.Path)
		}
		result.Tables[a.next.name] = a.next.state()
		result.Unreachable = append(result.Unreachable, a.unreachable...)
	}
	return result
}

// discard removes what a failed commit wrote, as far as that goes: what stays is an orphan.
func (w *Warehouse) discard(jobs []*assembly) {
	for _, a := range jobs {
		for _, path := range a.written {
			if err := w.files.Remove(path); err != nil {
				w.log.Warn("file of a failed commit stays until the next start", "path", path, "err", err)
			}
		}
	}
}

// writeHints tells DuckDB's iceberg_scan(<table directory>) which metadata file is current. The commit has happened: a hint
// that cannot be written stays old, and Load repairs it.
func (w *Warehouse) writeHints(jobs []*assembly) error {
	var group errgroup.Group
	group.SetLimit(assemblers)
	for _, a := range jobs {
		group.Go(func() error {
			if err := w.effect("version hint"); err != nil {
				return err
			}
			if err := w.writeHint(a.next); err != nil {
				w.log.Warn("version hint is old until the next checkpoint of the table", "relation", a.next.name, "err", err)
			}
			return nil
		})
	}
	return group.Wait()
}

func hintOf(t *table) string {
	return strings.TrimSuffix(filepath.Base(t.path), metadataSuffix)
}

func (w *Warehouse) writeHint(t *table) error {
	temp := filepath.Join(t.metadataDir(), "version-hint-"+newID()+".text")
	if err := w.writeFile(temp, []byte(hintOf(t))); err != nil {
		return errors.Join(err, w.files.Remove(temp))
	}
	if err := w.files.Rename(temp, filepath.Join(t.metadataDir(), hintName)); err != nil {
		return errors.Join(fmt.Errorf("write version hint: %w", err), w.files.Remove(temp))
	}
	return w.syncDir(t.metadataDir())
}

// allFiles lists every file that any retained snapshot of the table needs, and its metadata files.
func (t *table) allFiles() []string {
	all := map[string]bool{t.path: true, filepath.Join(t.metadataDir(), hintName): true}
	for path, f := range t.files {
		all[path] = true
		if f.vector != nil {
			all[f.vector.path] = true
		}
	}
	for _, m := range t.manifests {
		all[m.path] = true
	}
	if t.deletes != nil {
		all[t.deletes.path] = true
	}
	for _, r := range slices.Concat(t.replaced, t.unlisted) {
		all[r.path] = true
	}
	for _, s := range t.meta.Snapshots() {
		if path, err := toPath(s.ManifestList); err == nil {
			all[path] = true
		}
	}
	for _, path := range previousMetadata(t.meta) {
		all[path] = true
	}
	paths := make([]string, 0, len(all))
	for path := range maps.Keys(all) {
		paths = append(paths, path)
	}
	return paths
}
