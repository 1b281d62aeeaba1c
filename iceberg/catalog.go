package iceberg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"

	icetable "github.com/apache/iceberg-go/table"
	"modernc.org/sqlite" // and the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// CatalogName is the name under which PyIceberg's SqlCatalog and Iceberg Java's JdbcCatalog find our tables in catalog.db.
const CatalogName = "pgmirror"

// The first two tables are the JDBC catalog's, as PyIceberg and Java create them. Ours come after; nobody else reads those.
//
// pgmirror_state has one row: the last commit. pgmirror_tables repeats the metadata pointer that we wrote, so that another
// writer's is known. pgmirror_replaced lists files that are out of the current snapshot but may still be named by a retained
// one: as long as the table retains a snapshot with a sequence number from `added` on and below `sequence`. Of a file that none names any more,
// `since` is when that began, in Unix milliseconds; it is deleted some time after.
const catalogSchema = `
CREATE TABLE IF NOT EXISTS iceberg_tables (
	catalog_name VARCHAR(255) NOT NULL,
	table_namespace VARCHAR(255) NOT NULL,
	table_name VARCHAR(255) NOT NULL,
	metadata_location VARCHAR(1000),
	previous_metadata_location VARCHAR(1000),
	iceberg_type VARCHAR(5),
	PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
	catalog_name VARCHAR(255) NOT NULL,
	namespace VARCHAR(255) NOT NULL,
	property_key VARCHAR(255) NOT NULL,
	property_value VARCHAR(1000),
	PRIMARY KEY (catalog_name, namespace, property_key));
CREATE TABLE IF NOT EXISTS pgmirror_state (
	id INTEGER PRIMARY KEY CHECK (id = 1),
	commit_id TEXT NOT NULL,
	lsn INTEGER NOT NULL,
	mirror BLOB);
CREATE TABLE IF NOT EXISTS pgmirror_tables (
	uuid TEXT PRIMARY KEY,
	table_namespace TEXT NOT NULL,
	table_name TEXT NOT NULL,
	metadata_location TEXT NOT NULL,
	UNIQUE (table_namespace, table_name));
CREATE TABLE IF NOT EXISTS pgmirror_replaced (
	path TEXT PRIMARY KEY,
	uuid TEXT NOT NULL,
	sequence INTEGER NOT NULL,
	added INTEGER NOT NULL DEFAULT 0,
	since INTEGER) WITHOUT ROWID;
`

// catalogColumns came later to tables that older data directories have.
var catalogColumns = []struct{ table, column, definition string }{
	{"pgmirror_replaced", "added", "INTEGER NOT NULL DEFAULT 0"},
	{"pgmirror_replaced", "since", "INTEGER"},
}

// catalog is catalog.db.
type catalog struct {
	db   *sql.DB
	once bool // what it says may be read once: nothing tells of later changes
	// Of one that is written to: where it lies, and what lay there when it was opened. A removed file can be written to, and is gone with the process.
	path string
	file os.FileInfo
}

// openCatalog opens or makes the database. A commit is durable when it returns: in WAL mode with synchronous=FULL SQLite
// syncs the log at each one.
func openCatalog(ctx context.Context, path string) (*catalog, error) {
	db, err := openSQLite(path, url.Values{"mode": {"rwc"}})
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, catalogSchema); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare catalog %s: %w", path, torn(err)), db.Close())
	}
	for _, c := range catalogColumns {
		var there bool
		err := db.QueryRowContext(ctx, `SELECT count(*) FROM pragma_table_info(?) WHERE name = ?`, c.table, c.column).Scan(&there)
		if err == nil && !there {
			_, err = db.ExecContext(ctx, "ALTER TABLE "+c.table+" ADD COLUMN "+c.column+" "+c.definition)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("prepare catalog %s: %w", path, err), db.Close())
		}
	}
	file, err := os.Stat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open catalog: %w", err), db.Close())
	}
	return &catalog{db: db, path: path, file: file}, nil
}

// inPlace is an error when the database is not where it was opened any more.
func (c *catalog) inPlace() error {
	switch now, err := os.Stat(c.path); {
	case err != nil:
		return fmt.Errorf("the catalog was removed while it is in use, and nothing that is written to it would last: %w; put the data directory back as it was, or drop the warehouse (pgmirror drop --warehouse)", err)
	case !os.SameFile(now, c.file):
		return fmt.Errorf("another file was put in the place of the catalog %s while it is in use, and nothing that is written would last; put the data directory back as it was, or drop the warehouse (pgmirror drop --warehouse)", c.path)
	}
	return nil
}

// openCatalogReadOnly opens a database that exists. SQLite wants to make files beside a database in WAL mode even to read it. Where
// it may not, and no log is left that would have to be read too, the file is read as one that nobody changes; it is then read once
// only, because a mirror that another user starts does change it.
func openCatalogReadOnly(ctx context.Context, path string) (*catalog, error) {
	c, err := probeCatalog(ctx, path, "mode", "ro")
	if err == nil {
		return c, nil
	}
	switch log, noLog := os.Stat(path + "-wal"); {
	case noLog != nil && !errors.Is(noLog, fs.ErrNotExist):
		return nil, err
	case noLog == nil && log.Size() > 0:
		return nil, fmt.Errorf("%w (the last process on the directory did not end cleanly; reading what it left in %s-wal takes write access to the directory)", err, path)
	}
	once, onceErr := probeCatalog(ctx, path, "immutable", "1")
	if onceErr != nil {
		return nil, err
	}
	once.once = true
	return once, nil
}

// probeCatalog opens a database for reading and looks at its first page.
func probeCatalog(ctx context.Context, path, option, value string) (*catalog, error) {
	db, err := openSQLite(path, url.Values{"mode": {"ro"}, option: {value}})
	if err != nil {
		return nil, err
	}
	var tables int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return nil, errors.Join(fmt.Errorf("open catalog %s: %w", path, torn(err)), db.Close())
	}
	if tables == 0 {
		return nil, errors.Join(fmt.Errorf("open catalog %s: it is an empty database: %s", path, remedyTorn), db.Close())
	}
	return &catalog{db: db}, nil
}

const remedyTorn = "put the data directory back as it was, or drop the warehouse and copy anew (pgmirror drop --warehouse, pgmirror run)"

// torn adds to an error of SQLite that comes of a damaged file what to do; any other it returns as it is.
func torn(err error) error {
	var fault *sqlite.Error
	if errors.As(err, &fault) {
		switch fault.Code() & 0xff { // without the extension
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return fmt.Errorf("it is damaged (%w): %s", err, remedyTorn)
		}
	}
	return err
}

func openSQLite(path string, options url.Values) (*sql.DB, error) {
	pragmas := []string{"busy_timeout(10000)", "synchronous(FULL)"}
	if options.Get("mode") != "ro" {
		pragmas = append(pragmas, "journal_mode(WAL)")
	}
	options["_pragma"], options["_txlock"] = pragmas, []string{"immediate"}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+options.Encode())
	if err != nil {
		return nil, fmt.Errorf("open catalog %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func (c *catalog) close() error { return c.db.Close() }

// pointer is one row of pgmirror_tables joined with what iceberg_tables says now.
type pointer struct {
	name     TableName
	uuid     string
	ours     string // metadata location that we wrote last
	location string // what the catalog says; "" when somebody dropped the table
}

// replacedFile is one row of pgmirror_replaced.
type replacedFile struct {
	path     string
	uuid     string
	added    int64 // sequence number of the snapshot that brought it
	sequence int64 // and of the one that replaced it
	since    int64 // Unix milliseconds: no retained snapshot names it any more; 0: one does
}

// namedBy says whether any of a table's snapshots may name the file.
func (r *replacedFile) namedBy(snapshots []icetable.Snapshot) bool {
	return slices.ContainsFunc(snapshots, func(s icetable.Snapshot) bool { return s.SequenceNumber >= r.added && s.SequenceNumber < r.sequence })
}

// contents is all of the catalog, read in one transaction.
type contents struct {
	commitID string // "" before the first commit
	mirror   []byte
	lsn      LSN
	pointers []pointer
	foreign  []TableName // tables in our catalog that we did not make
	// foreignLocations are their metadata locations.
	foreignLocations []string
}

// document reads the mirror document alone.
func (c *catalog) document(ctx context.Context) (mirror []byte, err error) {
	if err := c.db.QueryRowContext(ctx, `SELECT mirror FROM pgmirror_state`).Scan(&mirror); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read the mirror document: %w", err)
	}
	return mirror, nil
}

func (c *catalog) read(ctx context.Context) (*contents, error) {
	out, err := c.readAll(ctx)
	if err != nil {
		return nil, fmt.Errorf("read catalog: %w", err)
	}
	return out, nil
}

func (c *catalog) readAll(ctx context.Context) (*contents, error) {
	tx, err := c.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	out := &contents{}
	var lsn int64
	if err := tx.QueryRowContext(ctx, `SELECT commit_id, lsn, mirror FROM pgmirror_state`).Scan(&out.commitID, &lsn, &out.mirror); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	out.lsn = LSN(lsn)
	err = query(ctx, tx, `SELECT p.table_namespace, p.table_name, p.uuid, p.metadata_location, coalesce(t.metadata_location, '')
		FROM pgmirror_tables p LEFT JOIN iceberg_tables t
		ON t.catalog_name = ? AND t.table_namespace = p.table_namespace AND t.table_name = p.table_name
		ORDER BY 1, 2`, []any{CatalogName}, func(scan func(...any) error) error {
		var p pointer
		err := scan(&p.name.Schema, &p.name.Name, &p.uuid, &p.ours, &p.location)
		out.pointers = append(out.pointers, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = query(ctx, tx, `SELECT table_namespace, table_name, coalesce(metadata_location, '') FROM iceberg_tables WHERE catalog_name = ?
		AND (table_namespace, table_name) NOT IN (SELECT table_namespace, table_name FROM pgmirror_tables) ORDER BY 1, 2`,
		[]any{CatalogName}, func(scan func(...any) error) error {
			var n TableName
			var location string
			err := scan(&n.Schema, &n.Name, &location)
			out.foreign, out.foreignLocations = append(out.foreign, n), append(out.foreignLocations, location)
			return err
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// replaced lists all replaced files.
func (c *catalog) replaced(ctx context.Context) (list []replacedFile, err error) {
	tx, err := c.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err == nil {
		defer tx.Rollback()
		err = query(ctx, tx, `SELECT path, uuid, added, sequence, coalesce(since, 0) FROM pgmirror_replaced ORDER BY sequence, path`, nil, func(scan func(...any) error) error {
			var r replacedFile
			err := scan(&r.path, &r.uuid, &r.added, &r.sequence, &r.since)
			list = append(list, r)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read catalog: replaced files: %w", err)
	}
	return list, nil
}

func query(ctx context.Context, tx *sql.Tx, text string, args []any, row func(scan func(...any) error) error) error {
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// replacedOf looks files up in the list of replaced ones; those not in it are left out.
func (c *catalog) replacedOf(ctx context.Context, paths []string) (found []replacedFile, err error) {
	tx, err := c.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("look up replaced files: %w", err)
	}
	defer tx.Rollback()
	for _, path := range paths {
		r := replacedFile{path: path}
		err := tx.QueryRowContext(ctx, `SELECT uuid, added, sequence FROM pgmirror_replaced WHERE path = ?`, path).Scan(&r.uuid, &r.added, &r.sequence)
		switch {
		case err == nil:
			found = append(found, r)
		case !errors.Is(err, sql.ErrNoRows):
			return nil, fmt.Errorf("look up replaced files: %w", err)
		}
	}
	return found, nil
}

// forget takes deleted files off the list of replaced ones.
func (c *catalog) forget(ctx context.Context, paths []string) (err error) {
	defer func() { err = noRoom(err) }()
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("forget deleted files: %w", err)
	}
	defer tx.Rollback()
	for _, p := range paths {
		if _, err := tx.ExecContext(ctx, `DELETE FROM pgmirror_replaced WHERE path = ?`, p); err != nil {
			return fmt.Errorf("forget deleted files: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("forget deleted files: %w", err)
	}
	return nil
}
