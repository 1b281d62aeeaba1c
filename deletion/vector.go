package deletion

import (
	"iter"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/jackc/pglogrepl"
)

// LSN is a byte position in PostgreSQL's write-ahead log.
type LSN = pglogrepl.LSN

// Vector records which rows of one segment are deleted at one LSN. A set bit means deleted. Positions count rows from 0
// in file order, as in https://iceberg.apache.org/puffin-spec (deletion-vector-v1). Every set position is below Rows.
// One goroutine may change a Vector until Freeze; a frozen Vector is safe to share. A nil Vector has no position set.
type Vector struct {
	rows    uint32
	id      uint64 // 0 until Freeze
	bitmap  *roaring.Bitmap
	holders atomic.Int64
}

// lastID is the newest id that Freeze gave. Ids are unique in the process, because a client caches vectors of all tables by them.
var lastID atomic.Uint64

// NewVector returns an empty vector for a segment of rows rows.
func NewVector(rows uint32) *Vector {
	return &Vector{rows: rows, bitmap: roaring.New()}
}

// Set marks pos as deleted. A position at or past Rows, or a frozen vector, is a fault of the caller and panics.
func (v *Vector) Set(pos uint32) {
	v.SetRange(pos, pos+1)
}

// SetRange marks the positions from ≤ pos < to as deleted. It panics where Set does.
func (v *Vector) SetRange(from, to uint32) {
	if v.id != 0 {
		panic("deletion: a frozen vector was changed")
	}
	if to > v.rows || from > to {
		panic("deletion: position past the vector's rows")
	}
	if to == from+1 {
		v.bitmap.Add(from)
		return
	}
	v.bitmap.AddRange(uint64(from), uint64(to))
}

// Or marks everything that is marked in other, which may be nil. other's positions must be below v's Rows.
func (v *Vector) Or(other *Vector) {
	if other.Cardinality() == 0 {
		return
	}
	if v.id != 0 {
		panic("deletion: a frozen vector was changed")
	}
	if other.bitmap.Maximum() >= v.rows {
		panic("deletion: position past the vector's rows")
	}
	v.bitmap.Or(other.bitmap)
}

// Freeze ends all change and returns v. Freezing again does nothing.
func (v *Vector) Freeze() *Vector {
	if v.id == 0 {
		v.id = lastID.Add(1)
	}
	return v
}

// ID names a frozen vector within the life of the process; 0 before Freeze and for a nil vector. Two vectors with one ID are
// the same vector, so a client may keep what it received under an ID.
func (v *Vector) ID() uint64 {
	if v == nil {
		return 0
	}
	return v.id
}

// Rows is the number of rows of the segment. 0 for a nil vector.
func (v *Vector) Rows() uint32 {
	if v == nil {
		return 0
	}
	return v.rows
}

// Contains tells whether pos is deleted.
func (v *Vector) Contains(pos uint32) bool {
	return v != nil && v.bitmap.Contains(pos)
}

// Cardinality is the number of deleted positions.
func (v *Vector) Cardinality() uint64 {
	if v == nil {
		return 0
	}
	return v.bitmap.GetCardinality()
}

// Rank is the number of deleted positions strictly below pos: pos − Rank(pos) live rows come before pos.
func (v *Vector) Rank(pos uint32) uint32 {
	if v == nil || pos == 0 {
		return 0
	}
	return uint32(v.bitmap.Rank(pos - 1))
}

// Positions goes through the deleted positions in ascending order.
func (v *Vector) Positions() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if v != nil {
			v.bitmap.Iterate(yield)
		}
	}
}

// Without returns the positions that are marked in v and not in other, to be changed; nil when there are none. Either may be nil.
func (v *Vector) Without(other *Vector) *Vector {
	if v == nil {
		return nil
	}
	left := v.bitmap.Clone()
	if other != nil {
		left.AndNot(other.bitmap)
	}
	if left.IsEmpty() {
		return nil
	}
	return &Vector{rows: v.rows, bitmap: left}
}

// Clone returns a copy that may be changed. v must not be nil.
func (v *Vector) Clone() *Vector {
	return &Vector{rows: v.rows, bitmap: v.bitmap.Clone()}
}

// Equal tells whether both mark the same positions, whatever their Rows. A nil vector equals an empty one.
func (v *Vector) Equal(other *Vector) bool {
	if v == nil || other == nil {
		return v.Cardinality() == other.Cardinality()
	}
	return v.bitmap.Equals(other.bitmap)
}

// Hold counts a holder of a frozen vector, and returns its Bytes when it is the only one, else 0: an account that adds this, and subtracts what LetGo
// returns, has each vector once. A nil vector has no holders. Any goroutine.
func (v *Vector) Hold() (bytes int64) {
	if v == nil || v.holders.Add(1) > 1 {
		return 0
	}
	return v.Bytes()
}

// LetGo takes a Hold back, and returns the vector's Bytes when it was the last, else 0.
func (v *Vector) LetGo() (bytes int64) {
	if v == nil || v.holders.Add(-1) > 0 {
		return 0
	}
	return v.Bytes()
}

// Bytes is about how much memory the vector takes.
func (v *Vector) Bytes() int64 {
	if v == nil {
		return 0
	}
	return int64(v.bitmap.GetSizeInBytes()) + vectorBytes
}

// vectorBytes is a Vector and its empty roaring.Bitmap, rounded up to Go's allocation sizes.
const vectorBytes = 32 + 112
