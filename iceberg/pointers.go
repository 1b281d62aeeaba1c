package iceberg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// pointerMove is what a commit does to one table's rows.
type pointerMove struct {
	name     TableName
	uuid     string
	from, to string // "" to: drop; else "" from: create
	dir      string // of a drop: the table's directory
	replaced []replacedFile
}

// commit moves all pointers and stores the mirror document in one transaction. The error is errUnknownOutcome only if the
// transaction may have been committed and that cannot be read back, and a MovedError if pointers are not where they were.
func (c *catalog) commit(ctx context.Context, commitID string, mirror []byte, lsn LSN, moves []pointerMove) (err error) {
	defer func() { err = noRoom(err) }()
	if err := c.inPlace(); err != nil {
		return err
	}
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin catalog transaction: %w", err)
	}
	defer tx.Rollback()
	// Drops first: a commit may drop a table and create another of the same name.
	slices.SortStableFunc(moves, func(a, b pointerMove) int { return strings.Compare(dropFirst(a), dropFirst(b)) })
	moved := &MovedError{}
	for _, m := range moves {
		err := m.apply(ctx, tx)
		if errors.Is(err, ErrForeignSnapshot) {
			moved.Tables = append(moved.Tables, MovedTable{m.name, m.uuid})
		} else if err != nil {
			return fmt.Errorf("table %s.%s: %w", m.name.Schema, m.name.Name, err)
		}
	}
	if len(moved.Tables) > 0 {
		return moved
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO pgmirror_state (id, commit_id, lsn, mirror) VALUES (1, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET commit_id = excluded.commit_id, lsn = excluded.lsn, mirror = coalesce(excluded.mirror, mirror)`,
		commitID, int64(lsn), mirror)
	if err != nil {
		return fmt.Errorf("store the mirror document: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return c.outcome(commitID, err)
	}
	return nil
}

func dropFirst(m pointerMove) string {
	if m.to == "" {
		return "0"
	}
	return "1"
}

// noRoom makes an error of SQLite that comes of a full disk syscall.ENOSPC too; any other it returns as it is.
func noRoom(err error) error {
	var fault *sqlite.Error
	if errors.As(err, &fault) {
		switch fault.Code() {
		case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE:
			return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
		}
	}
	return err
}

// errUnknownOutcome means that nobody can say whether a commit happened.
var errUnknownOutcome = errors.New("outcome of the catalog commit is unknown")

// outcome finds out whether a commit that returned an error happened all the same.
func (c *catalog) outcome(commitID string, cause error) error {
	var stored string
	err := c.db.QueryRow(`SELECT commit_id FROM pgmirror_state`).Scan(&stored)
	switch {
	case err == nil && stored == commitID:
		return nil
	case err == nil || errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("commit the catalog: %w", cause)
	}
	return fmt.Errorf("%w: %w; then reading it back: %w", errUnknownOutcome, cause, err)
}

func (m *pointerMove) apply(ctx context.Context, tx *sql.Tx) error {
	where := []any{CatalogName, m.name.Schema, m.name.Name}
	switch {
	case m.to == "":
		// Whatever another writer has committed to the table goes with it; another table that has its name now stays.
		below := toURI(m.dir) + "/"
		if _, err := tx.ExecContext(ctx, `DELETE FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?
			AND substr(metadata_location, 1, length(?)) = ?`, append(where, below, below)...); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM pgmirror_tables WHERE uuid = ?`, m.uuid); err != nil {
			return err
		}
		var shared bool // somebody has renamed it, or registered it once more
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM iceberg_tables WHERE substr(metadata_location, 1, length(?)) = ?`, below, below).Scan(&shared); err != nil || shared {
			return err
		}
	case m.from == "":
		_, err := tx.ExecContext(ctx, `INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
			VALUES (?, ?, 'exists', 'true') ON CONFLICT DO NOTHING`, CatalogName, m.name.Schema)
		if err != nil {
			return err
		}
		if err := one(tx.ExecContext(ctx, `INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type)
			VALUES (?, ?, ?, ?, 'TABLE') ON CONFLICT DO NOTHING`, append(where, m.to)...)); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO pgmirror_tables (uuid, table_namespace, table_name, metadata_location) VALUES (?, ?, ?, ?)`,
			m.uuid, m.name.Schema, m.name.Name, m.to); err != nil {
			return err
		}
	default:
		args := append([]any{m.to, m.from}, append(where, m.from)...)
		if err := one(tx.ExecContext(ctx, `UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?
			WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?`, args...)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE pgmirror_tables SET metadata_location = ? WHERE uuid = ?`, m.to, m.uuid); err != nil {
			return err
		}
	}
	for _, r := range m.replaced {
		if _, err := tx.ExecContext(ctx, `INSERT INTO pgmirror_replaced (path, uuid, added, sequence, since) VALUES (?, ?, ?, ?, nullif(?, 0))
			ON CONFLICT (path) DO UPDATE SET sequence = min(sequence, excluded.sequence), since = coalesce(since, excluded.since)`,
			r.path, r.uuid, r.added, r.sequence, r.since); err != nil {
			return err
		}
	}
	return nil
}

// one is ErrForeignSnapshot when a statement found no row of ours to change.
func one(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return ErrForeignSnapshot
}
