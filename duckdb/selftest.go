package duckdb

import (
	"context"
	"fmt"
	"path/filepath"
)

// writeNothing makes the Parquet file without rows that readFiles needs.
func (db *DB) writeNothing(ctx context.Context) error {
	db.nothing = filepath.Join(db.scratch.dir, "nothing.parquet")
	sql := "COPY (SELECT NULL::INTEGER AS nothing WHERE false) TO " + literal(db.nothing) + " (FORMAT parquet)"
	if err := db.exec(ctx, sql); err != nil {
		return fmt.Errorf("write an empty file: %w", err)
	}
	return nil
}

// selfTest checks what DuckDB does not document: file_index is a file's place in the list given, also when statistics
// leave other files out, and file_row_number counts the file's rows from 0, also when row groups are left out.
func (db *DB) selfTest(ctx context.Context) error {
	var paths [3]string
	for i := range paths {
		paths[i] = literal(filepath.Join(db.scratch.dir, fmt.Sprintf("selftest-%d.parquet", i)))
		// Row r of file i holds (i, r); two row groups.
		sql := fmt.Sprintf("COPY (SELECT %d::INTEGER AS a, range::INTEGER AS b FROM range(4096)) TO %s "+
			"(FORMAT parquet, ROW_GROUP_SIZE 2048, FIELD_IDS {a: 1, b: 2})", i, paths[i])
		if err := db.exec(ctx, sql); err != nil {
			return fmt.Errorf("self-test: %w", err)
		}
	}
	read := fmt.Sprintf("read_parquet([%s, %s, %s], schema=MAP{1: {name: 'f1', type: 'INTEGER', default_value: NULL}, "+
		"2: {name: 'f2', type: 'INTEGER', default_value: NULL}}, hive_partitioning=false)", paths[2], paths[0], paths[1])
	const wrong = "(file_index + 2) % 3 <> f1 OR file_row_number <> f2"
	for _, where := range []string{"true", "f1 = 1", "f1 <> 0 AND f2 >= 3000"} {
		sql := fmt.Sprintf("SELECT CASE WHEN count(*) > 0 AND count(*) FILTER (%s) = 0 THEN 0 "+
			"ELSE error('file_index and file_row_number are not what this program expects of DuckDB') END FROM %s WHERE %s", wrong, read, where)
		if err := db.exec(ctx, sql); err != nil {
			return fmt.Errorf("self-test: %w", err)
		}
	}
	return nil
}
