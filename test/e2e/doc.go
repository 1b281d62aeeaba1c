// Package e2e holds a real pgmirror against a real PostgreSQL and a real DuckDB.
//
//	PostgreSQL (test/harness) ──▶ pgmirror run ──▶ pgmirror sql --format csv
//	    │                              │      └──▶ catalog.db, warehouse ──▶ iceberg-go, PyIceberg, DuckDB (test/interop)
//	    └────── SELECT … as text ──────┴───────── compared as multisets of rows at one LSN
//
// Snapshots that were committed while clients wrote are compared later, with a replica of the source that replays its WAL to the
// LSN of each.
//
// The program is built once a test run, or taken from PGMIRROR_BIN. It runs in processes of its own, as a role with LOGIN,
// REPLICATION and SELECT only, and is killed, stopped and started again while clients write.
//
// TestRandomChanges makes its runs from seeds and prints them: PGMIRROR_E2E_SEED=7 go test -run TestRandomChanges ./test/e2e
// makes the seventh again, and any other number is a run of its own. What each connection sends is the same each time; how the
// server interleaves them, and how far pgmirror has come when it is killed, is not.
package e2e
