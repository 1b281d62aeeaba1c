// Package crash takes the power away from a mirror under test.
//
//	mirror, iceberg ──▶ FS ──▶ a real directory      Crash(seed): the directory as a power loss may have left it
//	       │            │
//	       └─ Effects ◀─┘      fails the n-th effect and every later one: the process is dead from there on
//
// FS remembers which bytes and which directory entries were synced. A synced byte of a durable entry survives every crash;
// of the rest, Crash keeps what the seed says. What the tests do with it: run with Effects that never fail, to count the
// effects; for each n up to the count, or for seeded ones, run again with the n-th failing, stop all goroutines, Crash, make
// a new FS over the same directory, start again, and compare with PostgreSQL.
//
// TestWarehouseSurvivesPowerLoss does so with a warehouse alone.
//
// Files written past FS (SQLite's, sockets, locks) are left alone: SQLite is trusted to its own settings.
package crash
