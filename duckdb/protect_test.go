package duckdb

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A statement that writes a file into the mirror's data directory is refused, however the path is put; elsewhere it is not, and
// reading is allowed everywhere.
func TestOwnFilesAreProtected(t *testing.T) {
	root := t.TempDir()
	data := filepath.Join(root, "data")
	if err := os.MkdirAll(filepath.Join(data, "warehouse"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(data, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(data)
	db, err := Open(context.Background(), Config{Source: fixed(), ScratchDir: filepath.Join(root, "scratch"), Protect: data})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, sql := range []string{
		"COPY (SELECT 1) TO '" + data + "/catalog.db' (FORMAT csv)", "SELECT 1; copy (select 1) to\n'warehouse/x.parquet'",
		"COPY (SELECT 1) TO '" + root + "/link/new/x.csv'", "COPY (SELECT 1) TO '../data/x.csv'", "EXPORT DATABASE '" + data + "/out'",
		"ATTACH '" + data + "/x.duckdb' AS x", "ATTACH IF NOT EXISTS 'x.duckdb'", "COPY (SELECT 1) TO 'file://" + data + "/x.csv'",
		"SET temp_directory = '" + data + "/tmp'", "set global \"log_query_path\" to 'queries.log'", "PRAGMA profiling_output='" + data + "/profile.json'",
		"COPY (SELECT 1) TO'" + data + "/x'", "COPY (SELECT 1) TO/* here */'" + data + "/x'", "COPY (SELECT 1) TO -- here\n '" + data + "/x'", `COPY (SELECT 1) TO "` + data + `/x"`,
		"COPY (SELECT 1) TO $$" + data + "/x$$", "ATTACH $$" + data + "/x$$", "EXPORT DATABASE $$" + data + "/x$$", "COPY (SELECT 1) TO 'file:" + data + "/x'",
		"COPY (SELECT 1) TO 'file://localhost" + data + "/x'", "SET temp_directory=$$" + data + "/tmp$$", "COPY (SELECT '--') TO '" + data + "/x'",
		"CALL enable_logging(storage = 'file', storage_path := '" + data + "')",
	} {
		if _, err := db.Query(context.Background(), sql); err == nil || !strings.Contains(err.Error(), "data directory") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if left, err := os.ReadDir(data); err != nil || len(left) != 1 {
		t.Errorf("in the data directory are %v, %v", left, err)
	}
	out := filepath.Join(root, "data2")
	if err := os.Mkdir(out, 0o700); err != nil {
		t.Fatal(err)
	}
	query(t, db, "SET temp_directory = '"+out+"/tmp'; SET search_path = 'main'")
	query(t, db, "COPY (SELECT 1 AS a) TO '"+out+"/it''s.parquet'; ATTACH '"+out+"/x.duckdb' AS x")
	if err := os.Link(filepath.Join(out, "it's.parquet"), filepath.Join(data, "f.parquet")); err != nil {
		t.Fatal(err)
	}
	query(t, db, "COPY (SELECT * FROM read_parquet('"+data+"/f.parquet')) TO '"+out+"/copy.parquet'")
}
