package crash

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	icelib "github.com/apache/iceberg-go"
	iceio "github.com/apache/iceberg-go/io"
	icetable "github.com/apache/iceberg-go/table"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"pgmirror/globalindex"
	"pgmirror/iceberg"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
	"pgmirror/test/harness"
	"pgmirror/test/interop"
)

// contents are the rows of tables by name.
type contents map[string][]interop.Row

// diff says where got differs, or "".
func (want contents) diff(got contents) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if rows, ok := got[name]; !ok {
			fmt.Fprintf(&b, "table %s is not there\n", name)
		} else if d := interop.Diff(want[name], rows); d != "" {
			fmt.Fprintf(&b, "table %s: %s", name, d)
		}
	}
	if len(got) != len(want) {
		fmt.Fprintf(&b, "%d tables, want %d\n", len(got), len(want))
	}
	return b.String()
}

// sourceContents asks PostgreSQL.
func sourceContents(session *harness.Session, catalog *pgcdc.Catalog) (contents, error) {
	all := contents{}
	for _, t := range catalog.Tables {
		var columns []string
		for _, c := range t.Columns {
			columns = append(columns, interop.PostgresText(harness.Ident(c.Name), c.Type))
		}
		answer, err := session.Query(fmt.Sprintf("SELECT %s FROM %s.%s", strings.Join(columns, ", "), harness.Ident(t.Schema), harness.Ident(t.Name)))
		if err != nil {
			return nil, err
		}
		all[t.Name] = nil
		for _, row := range answer {
			all[t.Name] = append(all[t.Name], row)
		}
	}
	return all, nil
}

// stateContents reads a pinned state as a client does, Parquet files through Arrow's own reader.
func stateContents(state *readstate.State) (contents, error) {
	all := contents{}
	for _, t := range state.Tables {
		if t.Err != "" {
			return nil, errors.New(t.Err)
		}
		name := t.Name.Name
		all[name] = nil
		for _, f := range t.Files {
			rows, err := fileRows(t, f, state.LSN)
			if err != nil {
				return nil, fmt.Errorf("read %s of table %s: %w", f.Path, name, err)
			}
			all[name] = append(all[name], rows...)
		}
		columns := make([]int, t.Schema.NumFields())
		for i := range columns {
			columns[i] = i
		}
		for _, b := range t.Batches {
			values, err := b.Columns.Read(columns, 0, b.Rows)
			if err != nil {
				return nil, fmt.Errorf("read batch %d of table %s: %w", b.ID, name, err)
			}
			rows, err := interop.ArrowRows(array.NewRecordBatch(t.Schema, values, int64(b.Rows)))
			if err != nil {
				return nil, err
			}
			for i, row := range rows {
				if !b.Deleted.Contains(uint32(i)) {
					all[name] = append(all[name], row)
				}
			}
		}
	}
	return all, nil
}

// fileRows reads the live rows of a data file. None of them may be younger than the state.
func fileRows(t *readstate.Table, f readstate.File, at readstate.LSN) ([]interop.Row, error) {
	in, err := file.OpenParquetFile(f.Path, false)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	reader, err := pqarrow.NewFileReader(in, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	whole, err := reader.ReadTable(context.Background())
	if err != nil {
		return nil, err
	}
	defer whole.Release()
	if whole.NumRows() != f.Rows {
		return nil, fmt.Errorf("it has %d rows", whole.NumRows())
	}
	var rows []interop.Row
	batches := array.NewTableReader(whole, 0)
	defer batches.Release()
	position := 0
	for batches.Next() {
		batch := batches.RecordBatch()
		last := int(batch.NumCols()) - 1
		lsns, ok := batch.Column(last).(*array.Int64)
		if !ok {
			return nil, fmt.Errorf("its last column has type %s", batch.Schema().Field(last).Type)
		}
		shown, err := under(batch, t.Schema)
		if err != nil {
			return nil, err
		}
		texts, err := interop.ArrowRows(shown)
		if err != nil {
			return nil, err
		}
		for i, row := range texts {
			if f.Deleted.Contains(uint32(position)) {
				position++
				continue
			}
			if created := iceberg.LSN(lsns.Value(i)); created > at {
				return nil, fmt.Errorf("row %d was created at %s, after %s", position, created, at)
			}
			rows = append(rows, row)
			position++
		}
	}
	return rows, batches.Err()
}

// under is a file's batch in a table's columns, which the file may lack or have more of.
func under(batch arrow.RecordBatch, schema *arrow.Schema) (arrow.RecordBatch, error) {
	columns := make([]arrow.Array, schema.NumFields())
	for i, want := range schema.Fields() {
		id, _ := want.Metadata.GetValue(readstate.FieldIDKey)
		for at, f := range batch.Schema().Fields() {
			if has, _ := f.Metadata.GetValue(readstate.FieldIDKey); has == id {
				columns[i] = batch.Column(at)
			}
		}
		if columns[i] != nil {
			continue
		}
		missing, err := iceberg.Missing(want, int(batch.NumRows()))
		if err != nil {
			return nil, err
		}
		columns[i] = missing
	}
	fields := schema.Fields()
	for i := range fields {
		fields[i].Type = columns[i].DataType()
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, batch.NumRows()), nil
}

// warehouseContents reads every retained snapshot of every table with iceberg-go and returns what the newest ones show.
func warehouseContents(dir string) (contents, error) {
	tables, err := interop.Tables(dir)
	if err != nil {
		return nil, err
	}
	all := contents{}
	for _, t := range tables {
		all[t.Name] = nil
		snapshots, err := t.Snapshots()
		if err != nil {
			return nil, err
		}
		for _, s := range snapshots {
			result, err := interop.IcebergGo.Read(interop.Query{Table: t, Snapshot: s.ID})
			if err != nil {
				return nil, fmt.Errorf("read table %s at %s: %w", t.Name, s.LSN, err)
			}
			all[t.Name] = nil
			for _, row := range result.Rows {
				all[t.Name] = append(all[t.Name], row[:len(row)-1])
			}
		}
	}
	return all, nil
}

// checkFiles says which files of a mirror at rest nobody needs, by what iceberg-go finds in the metadata.
func checkFiles(dir string) error {
	tables, err := interop.Tables(dir)
	if err != nil {
		return err
	}
	needed, live := map[string]bool{}, map[string]bool{}
	for _, t := range tables {
		if err := reach(t, needed, live); err != nil {
			return fmt.Errorf("table %s: %w", t.Name, err)
		}
	}
	var faults []error
	err = filepath.WalkDir(filepath.Join(dir, "warehouse"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !needed[path] {
			faults = append(faults, fmt.Errorf("no snapshot needs %s", path))
		}
		delete(needed, path)
		return err
	})
	if err != nil {
		return err
	}
	for path := range needed {
		faults = append(faults, fmt.Errorf("a snapshot needs %s, which is gone", path))
	}
	indexes, err := filepath.Glob(filepath.Join(dir, "index", "*"))
	if err != nil {
		return err
	}
	for _, path := range indexes {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		x, err := globalindex.OpenFileIndex(data)
		if err != nil {
			return fmt.Errorf("index %s: %w", path, err)
		}
		for _, f := range x.Header().Files {
			if !live[f.Path] {
				faults = append(faults, fmt.Errorf("the index %s covers %s, which is gone", path, f.Path))
			}
		}
	}
	return errors.Join(faults...)
}

// reach adds the files that a table's snapshots name, and the base names of the current one's data files.
func reach(t interop.Table, needed, live map[string]bool) error {
	files := iceio.LocalFS{}
	local := func(context.Context) (iceio.IO, error) { return files, nil }
	table, err := icetable.NewFromLocation(context.Background(), icetable.Identifier{t.Namespace, t.Name}, t.Metadata, local, nil)
	if err != nil {
		return err
	}
	add := func(location string) { needed[strings.TrimPrefix(location, "file://")] = true }
	add(t.Metadata)
	add(filepath.Join(filepath.Dir(t.Metadata), "version-hint.text"))
	for entry := range table.Metadata().PreviousFiles() {
		add(entry.MetadataFile)
	}
	current := table.CurrentSnapshot()
	for _, s := range table.Metadata().Snapshots() {
		add(s.ManifestList)
		manifests, err := s.Manifests(files)
		if err != nil {
			return err
		}
		for _, m := range manifests {
			add(m.FilePath())
			for entry, err := range m.Entries(files, true) {
				if err != nil {
					return err
				}
				data := entry.DataFile()
				add(data.FilePath())
				if s.SnapshotID == current.SnapshotID && data.ContentType() == icelib.EntryContentData {
					live[filepath.Base(data.FilePath())] = true
				}
			}
		}
	}
	return nil
}
