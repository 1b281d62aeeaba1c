package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"pgmirror/test/harness"
	"pgmirror/test/interop"
)

// iceberg holds the readers that all tests share. They start with their first use and end with the test run.
var iceberg struct {
	start   sync.Once
	readers *interop.Readers
	err     error
}

func readers() (*interop.Readers, error) {
	iceberg.start.Do(func() { iceberg.readers, iceberg.err = interop.Start() })
	return iceberg.readers, iceberg.err
}

func closeReaders() error {
	if iceberg.readers == nil {
		return nil
	}
	return iceberg.readers.Close()
}

// quietPoint is what PostgreSQL held while nothing wrote, and the snapshots that were committed there.
type quietPoint struct {
	lsn       interop.LSN // durable when the snapshots were looked up
	nextXID   string      // rows that were made later have at least this xmin
	want      content
	snapshots map[string]interop.Query // by the driven table's name
}

// icebergName is the identifier under which the catalog holds a driven table.
func icebergName(t *driven) (namespace, name string) {
	unquoted := strings.ReplaceAll(strings.ReplaceAll(t.name, `""`, "\x00"), `"`, "")
	unquoted = strings.ReplaceAll(unquoted, "\x00", `"`)
	if schema, table, ok := strings.Cut(unquoted, "."); ok {
		return schema, table
	}
	return "public", unquoted
}

// markQuietPoint commits what the mirror holds to Iceberg and remembers each table's current snapshot. Nothing may write.
func markQuietPoint(m *Mirror, pg *harness.Postgres, tables []*driven) (*quietPoint, error) {
	point := &quietPoint{snapshots: map[string]interop.Query{}}
	var err error
	if point.want, err = sourceContent(pg, tables, ""); err != nil {
		return nil, err
	}
	rows, err := pg.Query("SELECT pg_snapshot_xmax(pg_current_snapshot()), pg_current_wal_insert_lsn()")
	if err != nil {
		return nil, err
	}
	point.nextXID = rows[0][0]
	if point.lsn, err = parseLSN(rows[0][1]); err != nil {
		return nil, err
	}
	if _, errs, code := m.Command("checkpoint"); code != 0 {
		return nil, fmt.Errorf("checkpoint: exit code %d: %s", code, errs)
	}
	// The server may have written something that is no change (running transactions, every 15 s).
	end, err := parseLSN(pg.QueryRow("SELECT pg_current_wal_insert_lsn()"))
	if err != nil {
		return nil, err
	}
	found, err := interop.Tables(m.Data())
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		namespace, name := icebergName(t)
		for _, table := range found {
			if table.Namespace != namespace || table.Name != name {
				continue
			}
			snapshots, err := table.Snapshots()
			if err != nil {
				return nil, err
			}
			if len(snapshots) == 0 {
				return nil, fmt.Errorf("%s has no snapshot", t.name)
			}
			last := snapshots[len(snapshots)-1]
			if last.LSN == 0 || last.LSN > end {
				return nil, fmt.Errorf("the last snapshot of %s is of %s, PostgreSQL is at %s", t.name, last.LSN, end)
			}
			point.snapshots[t.name] = interop.Query{Table: table, Snapshot: last.ID}
		}
		if _, ok := point.snapshots[t.name]; !ok {
			return nil, fmt.Errorf("the catalog has no table %s.%s", namespace, name)
		}
	}
	return point, nil
}

// checkSnapshots reads each remembered snapshot with each reader and compares it with what PostgreSQL held. The metadata is the
// current one, which may be newer than the snapshot.
func checkSnapshots(m *Mirror, tables []*driven, point *quietPoint, which ...interop.Reader) error {
	found, err := interop.Tables(m.Data())
	if err != nil {
		return err
	}
	var errs []error
	for _, table := range tables {
		query := point.snapshots[table.name]
		for _, now := range found {
			if now.Namespace == query.Table.Namespace && now.Name == query.Table.Name {
				query.Table = now
			}
		}
		for _, reader := range which {
			errs = append(errs, checkSnapshot(reader, table, query, point.want[table.name]))
		}
	}
	return errors.Join(errs...)
}

// checkSnapshot compares the rows that a reader shows, but for the hidden column, with rows of a content.
func checkSnapshot(reader interop.Reader, table *driven, query interop.Query, want []string) error {
	what := fmt.Sprintf("%s reads snapshot %d of %s", reader.Name(), query.Snapshot, table.name)
	if query.Above != nil {
		what += fmt.Sprintf(" above %s", *query.Above)
	}
	got, err := reader.Read(query)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if want := append(columnNames(table), "_pgmirror_lsn"); !slices.Equal(got.Columns, want) {
		return fmt.Errorf("%s: columns %q, want %q", what, got.Columns, want)
	}
	rows := make([]interop.Row, len(got.Rows))
	for i, row := range got.Rows {
		rows[i] = row[:len(row)-1]
		lsn, err := strconv.ParseInt(row[len(row)-1], 10, 64)
		if err != nil || query.Above != nil && interop.LSN(lsn) <= *query.Above {
			return fmt.Errorf("%s: a row has the LSN %s", what, row[len(row)-1])
		}
	}
	if d := interop.Diff(asRows(want), rows); d != "" {
		return fmt.Errorf("%s: %s", what, shorten(d))
	}
	return nil
}

// checkAbove holds WHERE _pgmirror_lsn > (the LSN of an earlier point) on the later point's snapshots against the rows whose
// xmin says that PostgreSQL made them after the earlier point. Where equal rows of different age may be deleted, nothing says
// which of them the source and the mirror keep: such tables are left out.
func checkAbove(pg *harness.Postgres, tables []*driven, earlier, later *quietPoint, which ...interop.Reader) error {
	want, err := sourceContent(pg, tables, " WHERE xmin::text::bigint >= "+earlier.nextXID)
	if err != nil {
		return err
	}
	var errs []error
	for _, table := range tables {
		if !table.unique && !table.insertOnly {
			continue
		}
		query := later.snapshots[table.name]
		query.Above = &earlier.lsn
		for _, reader := range which {
			errs = append(errs, checkSnapshot(reader, table, query, want[table.name]))
		}
	}
	return errors.Join(errs...)
}

// checkOldMetadata opens each snapshot through the metadata file that was current when it was committed.
func checkOldMetadata(tables []*driven, point *quietPoint, reader interop.Reader) error {
	var errs []error
	for _, table := range tables {
		errs = append(errs, checkSnapshot(reader, table, point.snapshots[table.name], point.want[table.name]))
	}
	return errors.Join(errs...)
}

// checkByDirectory opens tables as DuckDB does when it is given a directory only: through version-hint.text.
func checkByDirectory(tables []*driven, point *quietPoint, duck interop.Reader) error {
	var errs []error
	for _, table := range tables {
		query := point.snapshots[table.name]
		query.Table.Metadata = filepath.Dir(filepath.Dir(query.Table.Metadata))
		errs = append(errs, checkSnapshot(duck, table, query, point.want[table.name]))
	}
	return errors.Join(errs...)
}
