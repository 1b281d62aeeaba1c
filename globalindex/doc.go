// Package globalindex finds where a row is from its key.
//
//	key columns ─▶ canonical bytes ─▶ 64-bit hash ─┬▶ MemIndex, one a memory batch:  hash ─▶ rows of the batch
//	 (docs/formats/keys.md)                        └▶ FileIndex, one a flush or merge: hash ─▶ (file, row)
//
//	FileIndex   header │ filter │ directory: first entry of each bucket │ entries, sorted by hash, file, row
//	            hash = bucket (high N bits, not stored) · low 64−N bits (stored)      (docs/formats/file-index.md)
//
// A lookup asks the filter first, which stops most hashes that are not there. As files come, Tiers says which neighbouring
// indexes to make one of, and Merge does it. Probe looks many hashes up in one pass.
//
// Invariants:
//   - An index has no versions: only the applier looks keys up, in commit order. A MemIndex holds live rows only; a FileIndex
//     holds the rows of its files, so the caller asks the file's visibility whether one was deleted since.
//   - The hash of an integer-like key (KeyInt) names the key. Any other hash (KeyBytes) may be shared by keys: the caller
//     compares the key columns when it must be sure.
//   - The bytes of a FileIndex depend on its header and its set of entries, not on their order, nor on whether it was built or merged.
//   - The filter lets every hash pass that has an entry.
//   - A FileIndex never changes. Reading one never leaves its bytes, whatever they are.
//
// Goroutines: the package starts none. A MemIndex belongs to one goroutine. A FileIndex may be read by any number at once, until
// its owner unmaps the bytes; a Merge is one more reader.
//
// A FileIndex is a cache: what a crash tears is found by its checksum when it is opened (ErrCorrupt) and built again from the key
// columns of the data files, with the same bytes.
package globalindex
