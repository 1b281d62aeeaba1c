// Package e2e holds a real pgmirror against a real PostgreSQL and a real DuckDB.
//
//	PostgreSQL (test/harness) ──▶ pgmirror run ──▶ pgmirror sql --format csv
//	    │                              │      └──▶ catalog.db, warehouse ──▶ iceberg-go, PyIceberg, DuckDB (test/interop)
//	    └────── SELECT … as text ──────┴───────── compared as multisets of rows at one LSN
//
// The program is built once a test run, or taken from PGMIRROR_BIN. It runs in processes of its own, as a role with LOGIN,
// REPLICATION and SELECT only, and is killed, stopped and started again while clients write.
package e2e
