package duckdb

import "github.com/duckdb/duckdb-go/v2/mapping"

// Version is that of the DuckDB that is linked in, such as v1.5.6.
func Version() string { return mapping.LibraryVersion() }
