// Package globalindex. (Contract sketch; the package's author replaces this file.)
package globalindex

/*
type Location struct { Segment, Row uint32 }

// Hashing (docs/formats/keys.md)
func HashInt(v int64) uint64                                  // splitmix64 bijection
type KeyKind uint8 (KeyInt: one integer-like column of at most 8 bytes; KeyBytes: canonical encoding, xxhash64)
func AppendNull(dst []byte) []byte
func AppendFixed(dst, raw []byte) []byte                      // little-endian physical value, width known by the column's type
func AppendBytes(dst, raw []byte) []byte                      // variable length: uvarint length then bytes
func AppendList(dst []byte, elements int) []byte              // then each element
func HashBytes(canonical []byte) uint64

// MemIndex: open addressing, one writer, no concurrent readers (only the applier looks keys up).
func NewMemIndex(rows int) *MemIndex; Put(hash uint64, row uint32); Remove(hash uint64, row uint32) bool
(m) Candidates(hash uint64, dst []uint32) []uint32 ; Len() ; Bytes()

// FileIndex
type FileEntry struct { Hash uint64; File uint32; Row uint32 }
type Header struct { KeyKind; HashID; Columns []int32 (field ids hashed, in key order); Files []FileRef{Path string; Rows uint64} ; Entries uint64 }
func WriteFileIndex(w io.Writer, h Header, entries []FileEntry /* any order; sorted inside */) error      // deterministic bytes
func BuildFileIndex(h Header, hashesByFile [][]uint64) ([]byte, error)   // hashes in row order
func OpenFileIndex(data []byte) (*FileIndex, error)           // data stays mapped by the caller until Close; ErrCorrupt, ErrNewerVersion
(x) Candidates(hash uint64, dst []FileLocation) []FileLocation ; Header() ; Bytes()
func Merge(...) comes later, but the iterator in hash order (x.All() iter.Seq[FileEntry]) exists now
*/
