package iceberg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// DeleteUnreachable deletes files that Result.Unreachable listed, when no reader uses them any more. It may be called again
// for the same files, in any life. It deletes nothing that the catalog does not list as replaced, and refuses what a retained
// snapshot names. It does not wait for a commit that is being assembled.
func (w *Warehouse) DeleteUnreachable(ctx context.Context, paths []string) error {
	listed, err := w.catalog.replacedOf(ctx, paths)
	if err != nil {
		return err
	}
	for _, r := range listed {
		if w.retained(r) {
			return fmt.Errorf("delete %s: a retained snapshot names it", r.path)
		}
	}
	paths = paths[:0:0]
	for _, r := range listed {
		paths = append(paths, r.path)
	}
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.remove(path, "file deleted"); err != nil {
			return err
		}
	}
	// Forgotten last: a crash before leaves the names, and deleting an absent file is no error.
	return w.catalog.forget(ctx, paths)
}

// Discard deletes a data file that a Writer of this life closed and that was never committed. One that a snapshot names, now or
// before, is refused.
func (w *Warehouse) Discard(ctx context.Context, path string) error {
	listed, err := w.catalog.replacedOf(ctx, []string{path})
	if err != nil {
		return err
	}
	w.current.RLock()
	named := len(listed) > 0
	for _, t := range w.tables {
		named = named || t.files[path] != nil
	}
	w.current.RUnlock()
	if named {
		return fmt.Errorf("discard %s: a snapshot names it", path)
	}
	if err := w.remove(path, "file deleted"); err != nil {
		return err
	}
	w.pending.Delete(path)
	return nil
}

// wasCommitted says whether a commit once published the table in a directory: the version hint is written after it.
func (w *Warehouse) wasCommitted(dir string) (bool, error) {
	names, err := w.files.ReadDir(filepath.Join(dir, "metadata"))
	if err != nil {
		return false, err
	}
	return slices.Contains(names, hintName), nil
}

// retained says whether a retained snapshot may name a replaced file. Of a damaged table nobody knows.
func (w *Warehouse) retained(r replacedFile) bool {
	w.current.RLock()
	defer w.current.RUnlock()
	if _, unknown := w.faulty[r.uuid]; unknown {
		return true
	}
	t := w.tables[r.uuid]
	return t != nil && r.namedBy(t.meta.Snapshots())
}

func (w *Warehouse) remove(path, effect string) error {
	if err := w.effect(effect); err != nil {
		return err
	}
	if err := w.files.Remove(path); err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

// RemoveOrphans deletes what an earlier life left behind: files of our naming that no retained snapshot needs and that no commit ever
// named, in the directories of known and of forgotten tables. It is for the start, after Load: open Writers would lose their files.
// State.Unreachable stays: readers of older snapshots may have those files open.
// Anything that we could not have made is left alone, and so are tables that are damaged, and everything when the catalog is new:
// it was lost.
func (w *Warehouse) RemoveOrphans(ctx context.Context) (removed []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.loaded {
		return nil, errors.New("remove orphans: the warehouse is not loaded")
	}
	c, err := w.catalog.read(ctx)
	if err != nil {
		return nil, err
	}
	listed, err := w.catalog.replaced(ctx)
	if err != nil {
		return nil, err
	}
	keep, dirs := map[string]bool{}, map[string]bool{}
	for _, r := range listed {
		keep[r.path] = true
	}
	for _, t := range w.tables {
		dirs[t.dir] = true
		for _, path := range t.allFiles() {
			keep[path] = true
		}
	}
	schemas, err := w.files.ReadDir(w.root)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", w.root, err)
	}
	for _, schema := range schemas {
		tables, err := w.files.ReadDir(filepath.Join(w.root, schema))
		if err != nil {
			return removed, fmt.Errorf("list %s: %w", filepath.Join(w.root, schema), err)
		}
		for _, name := range tables {
			dir := filepath.Join(w.root, schema, name)
			if !tableDirForm.MatchString(name) || foreignDir(c.foreignLocations, dir) || w.isFaulty(dir) || w.isMoved(c.pointers, dir) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return removed, err
			}
			if committed, err := w.wasCommitted(dir); err != nil {
				return removed, err
			} else if c.commitID == "" && committed {
				return nil, fmt.Errorf("%w: %s holds a table, but the catalog was never written to: catalog.db was lost; restore it, or drop the warehouse (pgmirror drop --warehouse)", ErrCorrupt, dir)
			}
			gone, err := w.removeFrom(dir, keep, !dirs[dir])
			removed = append(removed, gone...)
			if err != nil {
				return removed, err
			}
		}
	}
	return removed, nil
}

// Orphans lists the files of our naming, in the directories of known and of forgotten tables, that nothing names and that did not change since a
// time, and deletes them unless it is a dry run: what an earlier life, or a write that failed, left behind. It may be called while others write
// and commit. Files that are being written or wait for their commit are none, and neither is what waits for DeleteUnreachable.
func (w *Warehouse) Orphans(ctx context.Context, before time.Time, dryRun bool) (found []string, err error) {
	c, err := w.catalog.read(ctx)
	if err != nil {
		return nil, err
	}
	schemas, err := w.files.ReadDir(w.root)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", w.root, err)
	}
	for _, schema := range schemas {
		tables, err := w.files.ReadDir(filepath.Join(w.root, schema))
		if err != nil {
			return found, fmt.Errorf("list %s: %w", filepath.Join(w.root, schema), err)
		}
		for _, name := range tables {
			dir := filepath.Join(w.root, schema, name)
			if !tableDirForm.MatchString(name) || foreignDir(c.foreignLocations, dir) || w.isMoved(c.pointers, dir) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return found, err
			}
			orphans, err := w.orphansIn(ctx, dir, before, dryRun)
			found = append(found, orphans...)
			if err != nil {
				return found, err
			}
		}
	}
	return found, nil
}

// orphansIn is Orphans in one table's directory. No commit comes between the look and the deletion.
func (w *Warehouse) orphansIn(ctx context.Context, dir string, before time.Time, dryRun bool) (found []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.loaded {
		return nil, errors.New("look for orphans: the warehouse is not loaded")
	}
	if w.isFaulty(dir) {
		return nil, nil
	}
	keep := map[string]bool{}
	if t := w.places[dir]; t != nil {
		for _, path := range t.allFiles() {
			keep[path] = true
		}
	}
	for sub, form := range map[string]*regexp.Regexp{"data": dataFileForm, "metadata": metadataFileForm} {
		names, err := w.files.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", filepath.Join(dir, sub), err)
		}
		for _, name := range names {
			path := filepath.Join(dir, sub, name)
			if _, pending := w.pending.Load(path); pending || keep[path] || !form.MatchString(name) {
				continue
			}
			if old, err := w.unchangedSince(path, before); err != nil {
				return nil, err
			} else if old {
				found = append(found, path)
			}
		}
	}
	slices.Sort(found)
	listed, err := w.catalog.replacedOf(ctx, found)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(path string) bool {
		return slices.ContainsFunc(listed, func(r replacedFile) bool { return r.path == path })
	})
	if dryRun {
		return found, nil
	}
	for i, path := range found {
		if err := w.remove(path, "orphan deleted"); err != nil {
			return found[:i], err
		}
	}
	return found, nil
}

// unchangedSince says whether a file is there and was written last before a time.
func (w *Warehouse) unchangedSince(path string, before time.Time) (bool, error) {
	f, err := w.files.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoFile) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	defer f.Close()
	return f.ModTime().Before(before), nil
}

// isFaulty says whether a directory is that of a table that Load found damaged.
func (w *Warehouse) isFaulty(dir string) bool {
	for _, p := range w.faulty {
		if foreignDir([]string{p.ours, p.location}, dir) {
			return true
		}
	}
	return false
}

// isMoved says whether another writer has changed the table in a directory: files there may be its own.
func (w *Warehouse) isMoved(pointers []pointer, dir string) bool {
	w.current.RLock()
	t := w.places[dir]
	w.current.RUnlock()
	return t != nil && slices.ContainsFunc(pointers, func(p pointer) bool { return p.uuid == t.uuid && p.location != toURI(t.path) })
}

func foreignDir(locations []string, dir string) bool {
	for _, location := range locations {
		if strings.HasPrefix(strings.TrimPrefix(location, uriScheme), dir+"/") {
			return true
		}
	}
	return false
}

// removeFrom deletes the orphans in one table's directory, and the directory itself if nobody knows the table.
func (w *Warehouse) removeFrom(dir string, keep map[string]bool, unknown bool) (removed []string, err error) {
	for _, sub := range []string{"data", "metadata"} {
		form := dataFileForm
		if sub == "metadata" {
			form = metadataFileForm
		}
		names, err := w.files.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			return removed, fmt.Errorf("list %s: %w", filepath.Join(dir, sub), err)
		}
		left := len(names)
		for _, name := range names {
			path := filepath.Join(dir, sub, name)
			if keep[path] || !form.MatchString(name) {
				continue
			}
			if err := w.remove(path, "orphan deleted"); err != nil {
				return removed, err
			}
			removed = append(removed, path)
			left--
		}
		if unknown && left == 0 {
			if err := w.removeDir(filepath.Join(dir, sub)); err != nil {
				return removed, err
			}
		}
	}
	if names, err := w.files.ReadDir(dir); unknown && err == nil && len(names) == 0 {
		return removed, w.removeDir(dir)
	}
	return removed, nil
}

func (w *Warehouse) removeDir(dir string) error {
	if err := w.files.Remove(dir); err != nil {
		return fmt.Errorf("delete directory %s: %w", dir, err)
	}
	w.dirs.Delete(dir)
	return nil
}
