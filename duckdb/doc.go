package duckdb
