// Package iceberg keeps the warehouse: Iceberg v3 tables on local disk in an embedded catalog, readable by any Iceberg client.
//
//	rows ─▶ Writer ─▶ data/<uuid>.parquet ─┐
//	                                       ├─▶ Commit: per table  vectors ─▶ data/<uuid>.puffin
//	deletions, removals, schemas, document ┘                      manifests, list, metadata.json
//	                                                 all tables   one SQLite transaction ─▶ version hints
//	catalog.db ─▶ Load ─▶ State            OpenData ─▶ columns, single rows            OpenReadOnly ─▶ read states
//
// Snapshots are assembled here, not by iceberg-go's transactions: those read every manifest of a table twice for a deletion.
// What a commit needs of a table is in memory (table.go), and a commit touches only the tables it names.
//
// Invariants:
//   - A file that a committed snapshot names was synced, and its directory entry with it, before the catalog moved.
//   - All pointers of a commit and the mirror's document move in one transaction. A pointer moves only from where we left it:
//     otherwise ErrForeignSnapshot, and nothing happens.
//   - A snapshot names every live data file once, and at most one deletion vector for each. A vector holds all that the one
//     before held. A row id, a path and a field id mean the same thing for ever (check.go).
//   - No path is used twice, so that readers may cache by path.
//   - A file leaves the disk only when no retained snapshot names it and the caller says that no reader does.
//
// Goroutines: none outlives a call. Commit works on several tables at once and takes one commit at a time; Load, Expire and
// RemoveOrphans exclude it. Writers and Readers belong to one goroutine each.
//
// After a crash the last catalog transaction counts. What it does not name is an orphan (RemoveOrphans); files that it took
// out of the current snapshots are listed in the catalog until they are deleted (State.Unreachable); version hints are repaired by Load.
package iceberg
