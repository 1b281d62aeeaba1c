//go:build tools

// Package tools keeps the modules that code still to come needs in go.mod.
package tools

import (
	_ "github.com/RoaringBitmap/roaring/v2/roaring64"
	_ "github.com/apache/arrow-go/v18/parquet/pqarrow"
	_ "github.com/apache/iceberg-go/table"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/duckdb/duckdb-go/v2"
	_ "github.com/google/uuid"
	_ "github.com/jackc/pglogrepl"
	_ "github.com/jackc/pgx/v5"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/spf13/cobra"
	_ "go.uber.org/goleak"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
)
