package interop

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/uuid"
)

// Query names the rows to read.
type Query struct {
	Table    Table
	Snapshot int64
	// Above, if not nil, keeps the rows with _pgmirror_lsn above it.
	Above *LSN
	// Match, if not nil, keeps the rows that have a value in a column. It takes the place of Above.
	Match *Match
}

// Match is a condition: this column, of type uuid, has this value.
type Match struct {
	Column string    `json:"column"`
	UUID   uuid.UUID `json:"uuid"`
}

// Result is what a reader found.
type Result struct {
	Columns []string // in the order of the snapshot's schema
	Rows    []Row    // sorted
	Files   int      // how many data files the reader opened, or would open
}

// Reader is one implementation of Iceberg. Its methods may be called by several goroutines.
type Reader interface {
	Name() string
	Read(Query) (Result, error)
}

// Readers holds every reader and the processes they run in.
type Readers struct {
	All       []Reader
	Digesters []Digester // of All, those that are one
	processes []*process
}

// Start starts the readers, installing them first where that was not done yet. The caller ends them with Close.
func Start() (*Readers, error) {
	venv, err := setup("venv.sh")
	if err != nil {
		return nil, err
	}
	classPath, err := setup("interop-java.sh")
	if err != nil {
		return nil, err
	}
	python, err := startProcess("python", filepath.Join(venv, "bin", "python"), filepath.Join(packageDir(), "reader.py"))
	if err != nil {
		return nil, err
	}
	java, err := startProcess("java", "java", "-XX:TieredStopAtLevel=1", "-cp", classPath, "Reader")
	if err != nil {
		return nil, errors.Join(err, python.close())
	}
	pyiceberg, duck := inPython{foreign{"pyiceberg", python}}, inPython{foreign{"duckdb", python}}
	return &Readers{
		All:       []Reader{pyiceberg, duck, foreign{"java", java}, IcebergGo},
		Digesters: []Digester{pyiceberg, duck, IcebergGo},
		processes: []*process{python, java},
	}, nil
}

// Close ends the processes. A second call does nothing.
func (r *Readers) Close() error {
	var errs []error
	for _, p := range r.processes {
		errs = append(errs, p.close())
	}
	r.processes = nil
	return errors.Join(errs...)
}

// Named returns the reader of that name: pyiceberg, duckdb, java or iceberg-go.
func (r *Readers) Named(name string) Reader {
	return r.All[slices.IndexFunc(r.All, func(one Reader) bool { return one.Name() == name })]
}

// Check reads the snapshot with every reader and fails the test for each that does not show exactly these columns and
// rows, in whatever order the rows come.
func (r *Readers) Check(t testing.TB, table Table, snapshot int64, columns []string, rows []Row) {
	t.Helper()
	r.check(t, Query{Table: table, Snapshot: snapshot}, columns, rows)
}

// CheckAbove does the same for WHERE _pgmirror_lsn > lsn, and fails for a reader that opens more than maxFiles data files.
func (r *Readers) CheckAbove(t testing.TB, table Table, snapshot int64, lsn LSN, columns []string, rows []Row, maxFiles int) {
	t.Helper()
	for name, got := range r.check(t, Query{Table: table, Snapshot: snapshot, Above: &lsn}, columns, rows) {
		if got.Files > maxFiles {
			t.Errorf("%s opened %d files of %s.%s above %s, want at most %d", name, got.Files, table.Namespace, table.Name, lsn, maxFiles)
		}
	}
}

func (r *Readers) check(t testing.TB, q Query, columns []string, rows []Row) map[string]Result {
	t.Helper()
	results := make(map[string]Result)
	for _, reader := range r.All {
		what := fmt.Sprintf("%s reads snapshot %d of %s.%s", reader.Name(), q.Snapshot, q.Table.Namespace, q.Table.Name)
		if q.Above != nil {
			what += fmt.Sprintf(" above %s", *q.Above)
		}
		got, err := reader.Read(q)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if !slices.Equal(got.Columns, columns) {
			t.Errorf("%s: columns %q, want %q", what, got.Columns, columns)
		}
		if d := Diff(rows, got.Rows); d != "" {
			t.Errorf("%s: %s", what, d)
		}
		results[reader.Name()] = got
	}
	return results
}

// foreign is a reader that lives in another process.
type foreign struct {
	name    string
	process *process
}

func (f foreign) Name() string { return f.name }

func (f foreign) request(table Table) request {
	return request{
		Reader:      f.name,
		CatalogDB:   table.CatalogDB,
		CatalogName: table.Catalog,
		Warehouse:   table.Warehouse,
		Namespace:   table.Namespace,
		Name:        table.Name,
		Metadata:    table.Metadata,
	}
}

func (f foreign) Read(q Query) (Result, error) {
	r := f.request(q.Table)
	r.Snapshot, r.Match = q.Snapshot, q.Match
	if q.Above != nil {
		above := int64(*q.Above)
		r.Above = &above
	}
	a, err := f.process.call(r)
	if err != nil {
		return Result{}, err
	}
	SortRows(a.Rows)
	return Result{Columns: a.Columns, Rows: a.Rows, Files: a.Files}, nil
}
