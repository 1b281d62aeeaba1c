// Package deletion knows which rows of a segment are deleted, and since when.
//
// A segment's Visibility takes deletions in LSN order and answers for any LSN that may still be read. A Vector is one such
// answer: the positions deleted at one LSN, frozen, shared, and written to disk as an Iceberg deletion vector.
//
//	Delete(row, LSN) ──▶ Visibility ──At(X)──▶ Vector ──MarshalBlob──▶ Puffin (deletion-vector-v1)
//	                        │   ▲
//	                  Fold(LWM) └── FromVector, Carry (recovery, rewrites)
//
//	Visibility
//	  directory: one chunk per 65,536 rows, made when its first row is deleted
//	    chunk: 16 tiles of 4,096 rows, each made when its first row is deleted
//	      tile: base ─ offsets deleted at or before the base LSN: none, a sorted list, or a bitmap; never changes
//	            log ─▶ block ─▶ block ─▶ nil          newest first, 8 entries of 64 bits a block
//	                   offset (12 bits) │ delete LSN − the segment's first LSN (52 bits)
//
// Invariants:
//   - The entries of a tile are in LSN order, and so are all Delete calls on one Visibility.
//   - A tile's base holds exactly the deletions at or before the base LSN; its entries are all above it.
//   - No row is deleted twice.
//   - A published entry, a full block, a base and a frozen Vector never change.
//
// Goroutines: the package starts none. One goroutine, the writer, calls Delete, Deleted, Fold and Count. Any number
// of others call At, DeletedAt, Base and Bytes meanwhile and take no lock: the writer stores an entry and then
// publishes the block's count; Fold builds new tiles and swaps their pointers. Whoever still holds an old tile goes on reading it
// until the garbage collector takes it. A reader at X must know that every deletion at or below X was made before it asks
// (the mirror's high watermark says so), and no reader below the fold's LSN may be left (the low watermark says so).
//
// Nothing here survives a crash. Recovery starts from the last committed deletion vector (FromVector).
package deletion
