package iceberg

import "fmt"

// check is our own look at the snapshot that is about to be committed, whatever built it: every live file is named by one
// live entry, every vector by one, vectors belong to live files, and the numbers agree.
func (t *table) check() error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%w: snapshot of %s.%s: %s", ErrIllegalCommit, t.name.Schema, t.name.Name, fmt.Sprintf(format, args...))
	}
	named := map[string]bool{}
	for _, m := range t.manifests {
		if n := int(m.file.AddedDataFiles() + m.file.ExistingDataFiles()); n != len(m.live) {
			return fault("manifest %s has %d live entries where %d are known", m.path, n, len(m.live))
		}
		for _, path := range m.live {
			f := t.files[path]
			if f == nil || named[path] {
				return fault("manifest %s names %s, which is not live or named twice", m.path, path)
			}
			named[path] = true
			if f.firstRowID < 0 || f.firstRowID+f.file.Rows > t.meta.NextRowID() {
				return fault("row ids of %s end past the table's", path)
			}
		}
	}
	if len(named) != len(t.files) {
		return fault("%d of %d files are in no manifest", len(t.files)-len(named), len(t.files))
	}
	vectors := map[string]bool{}
	if t.deletes != nil {
		if n := int(t.deletes.file.AddedDataFiles() + t.deletes.file.ExistingDataFiles()); n != len(t.deletes.live) {
			return fault("delete manifest %s has %d live entries where %d are known", t.deletes.path, n, len(t.deletes.live))
		}
		for _, path := range t.deletes.live {
			f := t.files[path]
			if f == nil || f.vector == nil || vectors[path] {
				return fault("a deletion vector of %s, which is not live or has two", path)
			}
			vectors[path] = true
			if ref := f.vector.entry.ReferencedDataFile(); ref == nil || *ref != toURI(path) {
				return fault("the deletion vector of %s refers to another file", path)
			}
			if f.vector.entry.Count() != int64(f.file.Deleted.Cardinality()) || f.vector.sequence < f.sequence {
				return fault("the deletion vector of %s has the wrong count or sequence number", path)
			}
		}
	}
	for path, f := range t.files {
		if (f.vector != nil) != vectors[path] || (f.file.Deleted != nil) != vectors[path] {
			return fault("the deletion vector of %s is in no manifest", path)
		}
	}
	return nil
}
