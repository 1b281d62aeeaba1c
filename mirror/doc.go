// Package mirror keeps PostgreSQL tables queryable from the moment a commit reaches it, and durable in Iceberg a little later.
//
//	pgcdc ──transactions──▶ apply ──▶ open batch ─seal─▶ sealed batches ─flush─▶ Parquet file ─checkpoint─▶ Iceberg snapshot
//	   ▲                     │                                   │                   │                           │
//	   │                     ├─ MemIndex of each batch ──────────┴─ FileIndex of each file: where is the row with this key
//	   │                     ├─ Visibility of each segment: when was each of its rows deleted                     │
//	   │                     └─ publish HWM ──▶ Pin(X) ──▶ read state: every table's rows at X                   │
//	   └──────────────────────────────── acknowledge the cut, once it is committed ◀─────────────────────────────┘
//
// A commit is known by its end LSN E (DESIGN, The clock). A row is visible at X when it was created at or before X and not
// deleted at or before X. A transaction is applied when its commit has arrived, change by change; all of it gets E, which lies
// above HWM until the last change is applied. So no reader ever sees half of one, in one table or in several.
//
// # Invariants
//
// Check examines them; the model test calls it.
//
//   - received ≥ applied ≥ visible (HWM) ≥ durable ≥ acknowledged, and LWM ≤ every registered reader ≤ HWM. LWM never goes back.
//   - A segment is a batch or a file. Its rows are in create order, so what a reader at X sees of it is its first rows up to
//     a cut-off, less its deletions at X. A batch's rows below its published count, and a file, never change. A file that another engine
//     has made may have any order: its readers are above all of its rows (foreign).
//   - A tableVersion never changes. Any version installed after a reader registered at X gives it the same rows at X: a
//     rewrite leaves out only what was deleted at or below LWM, and carries every later deletion over (carry.go).
//   - Each live row of a table that has an identity is in exactly one index, under its own key's hash. A location found there is
//     used before the next change or install, never after.
//   - A file's rows all lie on one side of every cut that is not committed yet, and all were committed, or all not, when its flush
//     began. So the snapshot at C is made of whole files, and of their deletions at C.
//   - A batch and a file have one shape, that of the table when they were begun. Readers below a change of columns have the version before
//     it; a commit has the shape of its cut (evolve).
//   - A failed table is frozen at its last good LSN: nothing of it folds, and what it has above that is never committed.
//
// # Goroutines
//
//   - The applier (applyLoop) owns all tables' state. It takes the stream's events one by one and, between them or inside a large
//     transaction, turns that others hand it: inTurn for what needs a commit boundary (a checkpoint's cut, folding,
//     judging the catalogue), inAnyTurn for what does not (beginning and installing a flush). It looks at the source's catalogue
//     itself when the stream brings other columns of a table (takeOver).
//   - The flusher picks tables with many sealed batches, or the largest when memory is short, and flushes each on a goroutine
//     of its own (flush). It merges FileIndexes in tiers (mergeIndexes), which the applier goes on asking meanwhile. The compactor makes few
//     files of many. One flush at a time works on a table (table.jobs), and beside it one compaction (table.tidying) and one
//     merge (table.merging).
//   - diskLoop looks at what is free on the disk, and pauses the source's reader while that is too little (Disk). slotLoop looks at the WAL that
//     the slot keeps, and asks for early checkpoints (slotwal.go).
//   - checkpointLoop makes a checkpoint when one is due; one runs at a time. foldLoop folds deletions and drops what nobody sees.
//   - follow connects to the source, copies what was never copied (a goroutine a table), and runs its Stream; it connects again
//     when the connection is lost. watch looks at the source's catalogue. joinLoop copies tables that are new, failed or changed,
//     while the applier logs their changes; the applier replays the log and installs the content (join).
//   - Pin, Status, Call and the metrics may be called by any goroutine. A read state's columns are read with no lock: see vec.
//   - Verify works on its caller's goroutine and, for each table, on one a side, and joins them; it pins a state as a query does.
//
// Run joins them all. On its end the applier first stops taking events, then a last checkpoint is made and acknowledged.
//
// # What survives a crash
//
// The warehouse's last commit and the slot are the truth; FileIndexes are caches. The document stored with each commit says where
// the mirror stands.
//
//	before the intent is stored      nothing was done
//	intent stored, slot made or not  the next start drops the slot and copies from the beginning
//	copying                          the same: the copy's files are orphans and are removed
//	copy committed                   streaming from the slot's consistent point
//	rows applied, sealed, flushed    lost; the slot is behind them and the source sends them again. The files are orphans
//	checkpoint committed             everything up to its cut is there; commits at or below it that come again are passed over
//	checkpoint acknowledged          the source may forget what is committed here
//	version installed, files deleted nothing more: only files that no retained snapshot names are ever deleted
//
// A FileIndex that is missing, torn, or of another file is built again from the file's key columns. A table that failed is
// stored as failed with the commit that holds its last good content; one that failed since the last commit fails again. Of a join only
// the wish for it is stored.
package mirror
