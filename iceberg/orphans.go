package iceberg

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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
		if err := w.remove(path); err != nil {
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
	return w.remove(path)
}

// wasCommitted says whether a commit once published the table in a directory: the version hint is written after it.
func (w *Warehouse) wasCommitted(dir string) (bool, error) {
	names, err := w.files.ReadDir(filepath.Join(dir, "metadata"))
	if err != nil {
		return false, err
	}
	return slices.Contains(names, hintName), nil
}

// retained says whether a retained snapshot of a known table may name a replaced file.
func (w *Warehouse) retained(r replacedFile) bool {
	w.current.RLock()
	defer w.current.RUnlock()
	if _, unknown := w.faulty[r.uuid]; unknown {
		return true
	}
	t := w.tables[r.uuid]
	return t != nil && r.sequence > oldestSequence(t.meta)
}

func (w *Warehouse) remove(path string) error {
	if err := w.effect("file deleted"); err != nil {
		return err
	}
	if err := w.files.Remove(path); err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

// RemoveOrphans deletes what an earlier life left behind: files of our naming that no retained snapshot needs, in the
// directories of known and of forgotten tables. It is for the start, after Load: open Writers would lose their files.
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
	keep, dirs := map[string]bool{}, map[string]bool{}
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
			if !tableDirForm.MatchString(name) || foreignDir(c.foreignLocations, dir) || w.isFaulty(dir) {
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
	// What was unreachable is gone now; what is still reachable stays listed.
	var forget []string
	for _, r := range c.replaced {
		if _, unknown := w.faulty[r.uuid]; !unknown && !keep[r.path] {
			forget = append(forget, r.path)
		}
	}
	return removed, w.catalog.forget(ctx, forget)
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
			if err := w.remove(path); err != nil {
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
