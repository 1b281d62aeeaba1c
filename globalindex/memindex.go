package globalindex

import (
	"iter"
	"math/bits"
)

// MemIndex finds the rows of one memory batch by hash: an open-addressing table with one slot for each hash. Rows that share a
// hash are linked. It belongs to one goroutine. The zero value is not ready; use NewMemIndex.
type MemIndex struct {
	slots  []slot
	shift  uint // 64 − log2(len(slots)): a hash's high bits choose its slot
	used   int  // slots in use
	length int  // rows
	rows   int  // as NewMemIndex was told

	// next links the rows of one hash: next[r] is the row after row r, plus one. nil until two rows share a hash.
	next []uint32
}

// slot is 12 bytes, so that a probe touches one cache line.
type slot struct {
	high, low uint32 // of the hash
	head      uint32 // the newest row with this hash, plus one; 0 is a free slot
}

func (s slot) hash() uint64 { return uint64(s.high)<<32 | uint64(s.low) }

const (
	slotBytes = 12
	minSlots  = 8 // 96 bytes: most of a thousand small tables hold a row or two
)

// NewMemIndex returns an empty index for a batch that will have about rows rows, 0 if that is not known. No space is taken for
// them yet, but the table grows faster up to there.
func NewMemIndex(rows int) *MemIndex { return &MemIndex{rows: rows} }

// Put adds a row. A row is put once; row is at most 2^32 − 2.
func (m *MemIndex) Put(hash uint64, row uint32) {
	if m.used >= len(m.slots)/4*3 {
		m.grow()
	}
	s := m.slot(hash)
	m.length++
	if s.head == 0 {
		m.used++
		*s = slot{high: uint32(hash >> 32), low: uint32(hash), head: row + 1}
		if int(row) < len(m.next) {
			m.next[row] = 0
		}
		return
	}
	m.link(row, s.head)
	s.head = row + 1
}

// link notes that the row with number after − 1 comes after row.
func (m *MemIndex) link(row, after uint32) {
	if n := int(max(row+1, after)); n > len(m.next) {
		m.next = append(m.next, make([]uint32, n-len(m.next))...)
	}
	m.next[row] = after
}

// slot returns the slot of a hash, or the free one where it belongs. There is always a free one.
func (m *MemIndex) slot(hash uint64) *slot { return &m.slots[m.find(hash)] }

func (m *MemIndex) find(hash uint64) int {
	high, low := uint32(hash>>32), uint32(hash)
	mask := len(m.slots) - 1
	for i := int(hash >> m.shift); ; i = (i + 1) & mask {
		s := &m.slots[i]
		if s.head == 0 || s.high == high && s.low == low {
			return i
		}
	}
}

func (m *MemIndex) grow() {
	size := max(minSlots, len(m.slots)*2)
	if len(m.slots) > 0 && size*2 <= m.rows {
		size *= 2 // fewer steps, but no space for rows that may never come
	}
	old := m.slots
	m.slots = make([]slot, size)
	m.shift = uint(64 - bits.TrailingZeros(uint(size)))
	for _, s := range old {
		if s.head != 0 {
			*m.slot(s.hash()) = s
		}
	}
}

// Rows goes through the rows with a hash, the newest first. The index must not change meanwhile.
func (m *MemIndex) Rows(hash uint64) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if m.length == 0 {
			return
		}
		for link := m.slot(hash).head; link != 0; link = m.after(link - 1) {
			if !yield(link - 1) {
				return
			}
		}
	}
}

// after is the link that follows a row.
func (m *MemIndex) after(row uint32) uint32 {
	if int(row) < len(m.next) {
		return m.next[row]
	}
	return 0
}

// Candidates appends to dst all rows with a hash, the newest first.
func (m *MemIndex) Candidates(hash uint64, dst []uint32) []uint32 {
	for row := range m.Rows(hash) {
		dst = append(dst, row)
	}
	return dst
}

// Remove takes a row out and tells whether it was there. It takes time for each newer row with the hash.
func (m *MemIndex) Remove(hash uint64, row uint32) bool {
	if m.length == 0 {
		return false
	}
	i := m.find(hash)
	link := &m.slots[i].head
	for *link != row+1 {
		if *link == 0 || int(*link-1) >= len(m.next) {
			return false
		}
		link = &m.next[*link-1]
	}
	*link = m.after(row)
	m.length--
	if m.slots[i].head == 0 {
		m.used--
		m.closeGap(i)
	}
	return true
}

// closeGap moves later slots of the run up, so that no probe stops at the freed slot before it reaches its own.
func (m *MemIndex) closeGap(gap int) {
	mask := len(m.slots) - 1
	for i := (gap + 1) & mask; m.slots[i].head != 0; i = (i + 1) & mask {
		home := int(m.slots[i].hash() >> m.shift)
		if (i-home)&mask >= (i-gap)&mask { // its home is not after the gap
			m.slots[gap] = m.slots[i]
			gap = i
		}
	}
	m.slots[gap] = slot{}
}

// Len is the number of rows.
func (m *MemIndex) Len() int { return m.length }

// Bytes is how much memory the index takes.
func (m *MemIndex) Bytes() int64 {
	return memIndexBytes + int64(cap(m.slots))*slotBytes + int64(cap(m.next))*4
}

const memIndexBytes = 80
