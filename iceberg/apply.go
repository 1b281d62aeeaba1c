package iceberg

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	icelib "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"pgmirror/deletion"
)

// apply carries the change over to a.next in memory and refuses what would make an illegal snapshot.
func (a *assembly) apply() error {
	if err := a.applySchema(); err != nil {
		return err
	}
	for _, path := range a.change.Remove {
		f := a.next.files[path]
		if f == nil {
			return fmt.Errorf("%w: remove %s: not a live file of the table", ErrIllegalCommit, path)
		}
		delete(a.next.files, path)
		a.removed[path] = f
		a.drop(path, f.sequence)
		if f.vector != nil {
			a.oldVectors = append(a.oldVectors, removedVector{path, f.vector})
		}
	}
	for _, file := range a.change.Add {
		if err := a.add(file); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(a.change.Vectors)) {
		if err := a.setVector(path, a.change.Vectors[path]); err != nil {
			return err
		}
	}
	return nil
}

// applySchema prepares the metadata builder with the schema that the snapshot has.
func (a *assembly) applySchema() (err error) {
	schema := a.change.Schema
	if schema != nil {
		a.icebergSchema, err = icebergSchema(schema)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrIllegalCommit, err)
		}
		if a.next.schema, err = arrowSchema(a.icebergSchema); err != nil {
			return err
		}
	}
	if a.base == nil {
		a.builder, err = newMetadataBuilder(a.next.uuid, a.next.dir, a.icebergSchema)
	} else {
		a.builder, err = icetable.MetadataBuilderFromBase(a.base.meta, toURI(a.base.path))
		if err == nil && schema != nil {
			if err = checkEvolution(a.base.schema, a.next.schema, a.base.meta.LastColumnID()); err == nil {
				err = setSchema(a.builder, a.icebergSchema)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("prepare table metadata: %w", err)
	}
	a.icebergSchema = a.builder.CurrentSchema()
	return nil
}

func setSchema(b *icetable.MetadataBuilder, schema *icelib.Schema) error {
	if err := b.AddSchema(schema); err != nil {
		return err
	}
	return b.SetCurrentSchemaID(-1) // the one added last
}

// checkEvolution refuses a schema under which older files would be read wrong: a field id keeps its type for ever, except
// for the widenings of https://iceberg.apache.org/spec/#schema-evolution, and a dropped column's id is never used again.
func checkEvolution(old, new *arrow.Schema, last int) error {
	types := map[int]arrow.Field{}
	for _, f := range old.Fields() {
		id, err := fieldIDOf(f)
		if err != nil {
			return err
		}
		types[id] = f
	}
	for _, f := range new.Fields() {
		id, err := fieldIDOf(f)
		if err != nil {
			return err
		}
		before, known := types[id]
		switch {
		case !known && id <= last:
			return fmt.Errorf("%w: column %q has field id %d, which another column had", ErrIllegalCommit, f.Name, id)
		case !known && !f.Nullable:
			return fmt.Errorf("%w: column %q is new and required, but older files do not have it", ErrIllegalCommit, f.Name)
		case known && before.Nullable && !f.Nullable:
			return fmt.Errorf("%w: column %q becomes required, but older files may hold NULL", ErrIllegalCommit, f.Name)
		case known && !arrow.TypeEqual(before.Type, f.Type, arrow.CheckMetadata()) && !widens(before.Type, f.Type):
			return fmt.Errorf("%w: column %q changes from %s to %s", ErrIllegalCommit, f.Name, before.Type, f.Type)
		}
	}
	return nil
}

func widens(from, to arrow.DataType) bool {
	switch from := from.(type) {
	case *arrow.Int32Type:
		return to.ID() == arrow.INT64
	case *arrow.Float32Type:
		return to.ID() == arrow.FLOAT64
	case *arrow.Decimal128Type:
		to, ok := to.(*arrow.Decimal128Type)
		return ok && to.Scale == from.Scale && to.Precision > from.Precision
	}
	return false
}

func (a *assembly) add(file DataFile) error {
	switch {
	case file.entry == nil || file.Rows < 1:
		return fmt.Errorf("%w: add %s: it does not come from Writer.Close", ErrIllegalCommit, file.Path)
	case filepath.Dir(file.Path) != a.next.dataDir():
		return fmt.Errorf("%w: add %s: it belongs to another table", ErrIllegalCommit, file.Path)
	case a.next.files[file.Path] != nil || a.removed[file.Path] != nil || file.entry.FirstRowID() != nil:
		return fmt.Errorf("%w: add %s: it is or was in the table", ErrIllegalCommit, file.Path)
	}
	file.Deleted = nil
	f := &liveFile{file: file, sequence: a.sequence, snapshotID: a.snapshotID}
	a.next.files[file.Path] = f
	a.added = append(a.added, f)
	return nil
}

func (a *assembly) setVector(path string, vector *deletion.Vector) error {
	old := a.next.files[path]
	if old == nil {
		return fmt.Errorf("%w: deletion vector for %s: not a live file of the table", ErrIllegalCommit, path)
	}
	before := old.file.Deleted
	switch {
	case vector.ID() == 0:
		return fmt.Errorf("%w: deletion vector for %s: it is not frozen", ErrIllegalCommit, path)
	case int64(vector.Rows()) != old.file.Rows:
		return fmt.Errorf("%w: deletion vector for %s: made for %d rows, the file has %d", ErrIllegalCommit, path, vector.Rows(), old.file.Rows)
	case !contains(vector, before):
		// PyIceberg unites all blobs of a file it opens, and a deleted row never comes back.
		return fmt.Errorf("%w: deletion vector for %s: it lacks positions that the vector before had", ErrIllegalCommit, path)
	case vector.Cardinality() == before.Cardinality():
		return nil // nothing new
	}
	f := *old
	f.file.Deleted = vector
	if old.vector != nil {
		a.oldVectors = append(a.oldVectors, removedVector{path, old.vector})
		f.vector = nil
	}
	a.next.files[path] = &f
	if i := slices.Index(a.added, old); i >= 0 {
		a.added[i] = &f
	}
	a.newVectors = append(a.newVectors, &f)
	return nil
}

// contains says whether every position of part, which may be nil, is in all.
func contains(all, part *deletion.Vector) bool {
	if part.Cardinality() > all.Cardinality() {
		return false
	}
	for pos := range part.Positions() {
		if !all.Contains(pos) {
			return false
		}
	}
	return true
}

// count fills the snapshot's operation and summary (https://iceberg.apache.org/spec/#optional-snapshot-summary-fields).
func (a *assembly) count(c *Commit) {
	s := map[string]string{}
	maps.Copy(s, c.Summary)
	lsn := a.change.lsn(c)
	s[summaryLSN], s[summaryCut] = lsn.String(), c.LSN.String()
	set := func(key string, n int64) {
		if n > 0 {
			s[key] = strconv.FormatInt(n, 10)
		}
	}
	var addedRows, addedBytes, removedRows, removedBytes, newPositions, oldPositions int64
	for _, f := range a.added {
		addedRows, addedBytes = addedRows+f.file.Rows, addedBytes+f.file.Bytes
	}
	for _, f := range a.removed {
		removedRows, removedBytes = removedRows+f.file.Rows, removedBytes+f.file.Bytes
	}
	for _, f := range a.newVectors {
		newPositions += int64(f.file.Deleted.Cardinality())
	}
	for _, r := range a.oldVectors {
		oldPositions += r.vector.entry.Count()
	}
	set("added-data-files", int64(len(a.added)))
	set("added-records", addedRows)
	set("added-files-size", addedBytes)
	set("deleted-data-files", int64(len(a.removed)))
	set("deleted-records", removedRows)
	set("removed-files-size", removedBytes)
	set("added-delete-files", int64(len(a.newVectors)))
	set("added-dvs", int64(len(a.newVectors)))
	set("added-position-deletes", newPositions)
	set("removed-delete-files", int64(len(a.oldVectors)))
	set("removed-dvs", int64(len(a.oldVectors)))
	set("removed-position-deletes", oldPositions)
	var rows, bytes, vectors, positions int64
	for _, f := range a.next.files {
		rows, bytes = rows+f.file.Rows, bytes+f.file.Bytes
		if f.file.Deleted != nil {
			vectors, positions = vectors+1, positions+int64(f.file.Deleted.Cardinality())
		}
	}
	for key, n := range map[string]int64{"total-data-files": int64(len(a.next.files)), "total-records": rows, "total-files-size": bytes,
		"total-delete-files": vectors, "total-position-deletes": positions, "total-equality-deletes": 0} {
		s[key] = strconv.FormatInt(n, 10)
	}
	a.summary, a.next.lsn = s, lsn
	switch removes := len(a.removed) > 0 || len(a.newVectors) > 0; {
	case removes && len(a.added) > 0:
		a.operation = icetable.OpOverwrite
	case removes:
		a.operation = icetable.OpDelete
	default:
		a.operation = icetable.OpAppend
	}
}

// newMetadataBuilder starts the metadata of a table. There is no name mapping: our files carry field ids, and a stale mapping
// would keep DuckDB from skipping files.
func newMetadataBuilder(id, dir string, schema *icelib.Schema) (*icetable.MetadataBuilder, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return nil, err
	}
	b, err := icetable.NewMetadataBuilder(3)
	if err != nil {
		return nil, err
	}
	order := icetable.UnsortedSortOrder
	for _, step := range []func() error{
		func() error { return b.SetUUID(parsed) },
		func() error { return b.SetLoc(toURI(dir)) },
		func() error { return setSchema(b, schema) },
		func() error { return b.AddSortOrder(&order) },
		func() error { return b.SetDefaultSortOrderID(-1) },
		func() error { return b.AddPartitionSpec(icelib.UnpartitionedSpec, true) },
		func() error { return b.SetDefaultSpecID(-1) },
		func() error {
			return b.SetProperties(icelib.Properties{
				icetable.MetadataPreviousVersionsMaxKey: strconv.Itoa(keepMetadata),
				// Only the mirror knows which files its readers hold: no other engine may expire or purge them.
				"gc.enabled":                      "false",
				"write.parquet.compression-codec": "zstd",
			})
		},
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return b, nil
}
