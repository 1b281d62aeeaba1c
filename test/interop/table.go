package interop

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pglogrepl"
	_ "modernc.org/sqlite"
)

// LSN is a byte position in PostgreSQL's write-ahead log.
type LSN = pglogrepl.LSN

// Table says where one table of a warehouse is found, in both ways in which readers open it.
type Table struct {
	CatalogDB string // SQLite file in the JDBC catalog layout
	Catalog   string // the catalog's name in it
	Warehouse string // root directory of the tables
	Namespace string
	Name      string
	Metadata  string // the current metadata file, absolute, local
}

// Tables lists the tables in a data directory's catalog.db, sorted by namespace and name.
func Tables(dataDir string) (tables []Table, err error) {
	path := filepath.Join(dataDir, "catalog.db")
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?mode=ro")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.Query(`SELECT catalog_name, table_namespace, table_name, metadata_location
		FROM iceberg_tables ORDER BY table_namespace, table_name`)
	if err != nil {
		return nil, fmt.Errorf("list tables of %s: %w", path, err)
	}
	defer rows.Close()
	for rows.Next() {
		t := Table{CatalogDB: path, Warehouse: filepath.Join(dataDir, "warehouse")}
		if err := rows.Scan(&t.Catalog, &t.Namespace, &t.Name, &t.Metadata); err != nil {
			return nil, err
		}
		t.Metadata = localPath(t.Metadata)
		tables = append(tables, t)
	}
	return tables, rows.Err()
}

// localPath turns file:///a, file:/a and /a into /a.
func localPath(location string) string {
	if rest, ok := strings.CutPrefix(location, "file:"); ok {
		return strings.TrimPrefix(rest, "//")
	}
	return location
}

// Snapshot is one retained snapshot of a table.
type Snapshot struct {
	ID      int64
	LSN     LSN // pgmirror.lsn of its summary; 0 when it has none
	Summary map[string]string
}

// Snapshots lists the snapshots in the table's metadata file in commit order.
func (t Table) Snapshots() ([]Snapshot, error) {
	data, err := os.ReadFile(t.Metadata)
	if err != nil {
		return nil, err
	}
	var metadata struct {
		Snapshots []struct {
			ID      int64             `json:"snapshot-id"`
			Summary map[string]string `json:"summary"`
		} `json:"snapshots"`
	}
	if err := json.Unmarshal(data, &metadata); err != nil {
		return nil, fmt.Errorf("read %s: %w", t.Metadata, err)
	}
	snapshots := make([]Snapshot, len(metadata.Snapshots))
	for i, s := range metadata.Snapshots {
		snapshots[i] = Snapshot{ID: s.ID, Summary: s.Summary}
		if text, ok := s.Summary["pgmirror.lsn"]; ok {
			if snapshots[i].LSN, err = pglogrepl.ParseLSN(text); err != nil {
				return nil, fmt.Errorf("snapshot %d of %s: %w", s.ID, t.Metadata, err)
			}
		}
	}
	return snapshots, nil
}
