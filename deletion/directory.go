package deletion

import (
	"iter"
	"sync/atomic"
)

const (
	chunkRows  = 1 << 16 // as many as a roaring container has
	chunkTiles = chunkRows / tileRows
	chunkBytes = chunkTiles*8 + 32
)

// chunk is the tiles of 65,536 rows.
type chunk struct {
	tiles [chunkTiles]atomic.Pointer[tile] // nil until a row of the tile is deleted
	last  atomic.Uint64                    // the newest entry's LSN − the segment's first LSN; set after the entry is published
	// unfolded is the number of entries; the writer's alone.
	unfolded int
}

// directory finds the chunk of a row. It grows with the highest deleted row, never with the segment.
type directory struct {
	chunks atomic.Pointer[[]atomic.Pointer[chunk]]
}

// tile returns the tile of a row, or nil. For any goroutine.
func (d *directory) tile(row uint32) *tile {
	c := d.chunk(row)
	if c == nil {
		return nil
	}
	return c.tiles[row%chunkRows/tileRows].Load()
}

// empty tells whether no row was ever deleted.
func (d *directory) empty() bool { return d.chunks.Load() == nil }

func (d *directory) chunk(row uint32) *chunk {
	chunks := d.chunks.Load()
	if chunks == nil || int(row/chunkRows) >= len(*chunks) {
		return nil
	}
	return (*chunks)[row/chunkRows].Load()
}

// all goes through the chunks that exist, with the first row of each. For any goroutine.
func (d *directory) all() iter.Seq2[uint32, *chunk] {
	return func(yield func(uint32, *chunk) bool) {
		chunks := d.chunks.Load()
		if chunks == nil {
			return
		}
		for i := range *chunks {
			if c := (*chunks)[i].Load(); c != nil && !yield(uint32(i)*chunkRows, c) {
				return
			}
		}
	}
}

// makeTile returns the chunk and tile of a row, made now if they were not there, and the bytes allocated. For the writer.
func (d *directory) makeTile(row uint32) (c *chunk, t *tile, bytes int64) {
	if c = d.chunk(row); c == nil {
		bytes += d.grow(int(row/chunkRows) + 1)
		c = new(chunk)
		(*d.chunks.Load())[row/chunkRows].Store(c)
		bytes += chunkBytes
	}
	slot := &c.tiles[row%chunkRows/tileRows]
	if t = slot.Load(); t == nil {
		t = new(tile)
		slot.Store(t)
		bytes += tileBytes
	}
	return c, t, bytes
}

// grow makes room for n chunks: readers keep the shorter directory, which leads to the same chunks.
func (d *directory) grow(n int) (bytes int64) {
	var old []atomic.Pointer[chunk]
	if p := d.chunks.Load(); p != nil {
		old = *p
	}
	if n <= len(old) {
		return 0
	}
	size := len(old) * 5 / 4
	if size < n {
		size = n
	}
	grown := make([]atomic.Pointer[chunk], size)
	for i := range old {
		grown[i].Store(old[i].Load())
	}
	d.chunks.Store(&grown)
	return int64(size-len(old)) * 8
}
