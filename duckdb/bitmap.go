package duckdb

import (
	"container/list"
	"iter"
	"sync"
)

// deletedRows is what is asked of a read state's deletion vector; a nil vector has nothing deleted.
type deletedRows interface {
	ID() uint64 // the same for the same vector only
	Rows() uint32
	Cardinality() uint64
	Positions() iter.Seq[uint32]
}

// bitmapCache keeps deletion vectors in the form pgmirror_live reads: one bit a row, set when the row is deleted. A
// vector is frozen, so its bitmap is good for as long as it is cached; least recently used goes first.
type bitmapCache struct {
	limit int64

	mu     sync.Mutex
	used   int64
	byID   map[uint64]*list.Element // of *bitmap, by the vector's ID
	recent list.List                // most recently used first
}

type bitmap struct {
	id    uint64
	words []uint64
}

func (b *bitmap) bytes() int64 { return int64(len(b.words)) * 8 }

func newBitmapCache(limit int64) *bitmapCache {
	return &bitmapCache{limit: limit, byID: make(map[uint64]*list.Element)}
}

// get returns the bitmap of a vector over rows rows; nil when nothing is deleted.
func (c *bitmapCache) get(v deletedRows, rows int) []uint64 {
	if v.Cardinality() == 0 {
		return nil
	}
	need := (max(rows, int(v.Rows())) + 63) / 64
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.byID[v.ID()]; ok {
		if b := at.Value.(*bitmap); len(b.words) >= need {
			c.recent.MoveToFront(at)
			return b.words
		}
		c.dropLocked(at)
	}
	b := &bitmap{id: v.ID(), words: make([]uint64, need)}
	for p := range v.Positions() {
		b.words[p>>6] |= 1 << (p & 63)
	}
	c.byID[b.id] = c.recent.PushFront(b)
	c.used += b.bytes()
	for c.used > c.limit {
		c.dropLocked(c.recent.Back())
	}
	return b.words
}

func (c *bitmapCache) dropLocked(at *list.Element) {
	b := c.recent.Remove(at).(*bitmap)
	delete(c.byID, b.id)
	c.used -= b.bytes()
}
