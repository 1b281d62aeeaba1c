// Package crash takes the power away from a mirror under test.
//
//	mirror, iceberg ──▶ FS ──▶ a real directory      Crash(seed): the directory as a power loss may have left it
//	       │            │
//	       └─ Effects ◀─┘      fails one chosen effect and every later one: the process is dead from there on
//
// FS remembers which bytes and which directory entries were synced. A synced byte of a durable entry survives every crash;
// of the rest, Crash keeps what the seed says. What the tests do with it: let one effect fail, stop all goroutines, Crash,
// make a new FS over the same directory, start again, and compare.
//
// TestWarehouseSurvivesPowerLoss does so with a warehouse alone, at each of its effects in turn.
//
// TestMirrorSurvivesCrashes does so with the whole mirror on a real PostgreSQL. A chain is a run of lives over one data
// directory and one slot:
//
//	transactions ──▶ PostgreSQL ◀─ wire ─▶ mirror ──▶ FS        one life: drawn effect fails ─▶ wire cut, Crash ─▶ inspect
//	                                                            chain: lives … ─▶ catch up, compare ─▶ restart, compare
//
// Tables are copied again meanwhile, on request and because their columns change without a row event. Each life draws the effect at which it
// dies from a deck in which all have the same share. In that moment the wire to
// PostgreSQL is cut too, so that no goodbye leaves a dead process. The goroutines that are left run into the dead FS, the
// dead hook or the dead wire; when all have ended, the disk loses what was not synced. Two deaths in a row strike recovery
// itself, or the first copy in any of its stored phases. After each death the slot must not be confirmed beyond the stored
// cut, and that cut must not have gone back; at the end of the chain the rows must be PostgreSQL's, read through a pinned
// state, by mirror.Verify, and from the Iceberg snapshots by iceberg-go; mirror.Check must find nothing; every retained
// snapshot must be readable; and after a restart no file may be left that nobody needs.
//
// A chain's transactions, settings, effects and losses follow from its seed; which goroutine reaches the n-th effect of a name
// first does not, so a failing seed may have to be run more than once.
//
// Files written past FS (SQLite's, sockets, locks, spilled transactions) are left alone: SQLite is trusted to its own settings,
// and spills are emptied at each connect.
package crash
