// Package deletion. (Contract sketch; the package's author replaces this file.)
package deletion

/*
type LSN = pglogrepl.LSN

// Vector: frozen set of positions of one segment that are deleted at one LSN (roaring, 64-bit positions in the blob; positions < 2^32 in memory).
func NewVector(rows uint32) *Vector ; (v) Set(pos uint32); SetRange(from, to uint32); Freeze() *Vector
(v) ID() uint64              // process-wide unique, given by Freeze; a client caches vectors by it
(v) Contains(pos) bool; Cardinality() uint64; Rows() uint32; Positions() iter.Seq[uint32]; Rank(pos) uint32 (set bits strictly below pos)
(v) Or(other) / Clone / Equal
(v) MarshalBlob() ([]byte, error)       // deletion-vector-v1 blob bytes exactly as Puffin spec
UnmarshalBlob([]byte, rows uint32) (*Vector, error)

// Visibility of one segment.
func NewVisibility(first LSN) *Visibility            // first: the segment's first LSN, deltas are against it
func FromVector(v *Vector, at LSN) *Visibility       // recovered: base = v, valid from at
(v) Delete(row uint32, at LSN) error                 // single writer; at never decreases; error: row ≥ 2^32, delta > 52 bits, already deleted
(v) Deleted(row uint32) bool                         // newest state, writer's goroutine
(v) DeletedAt(row uint32, x LSN) bool
(v) At(x LSN, rows uint32) *Vector                   // any goroutine; nil when nothing is deleted at x; frozen, shared, cached between calls
(v) Fold(upTo LSN)                                   // writer's goroutine
(v) Beyond(at *Vector) iter.Seq2[uint32, LSN]        // what is deleted now and is not in `at`: folded-since bits first (LSN = the base's LSN), then entries in LSN order
(v) Count() int   (deleted rows now) ; Bytes() int64 ; Base() LSN
*/
