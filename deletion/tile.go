package deletion

import (
	"math/bits"
	"slices"
	"sync/atomic"
)

const (
	tileRows   = 4096 // leaves 12 of an entry's 64 bits for the offset in the tile
	tileWords  = tileRows / 64
	offsetMask = tileRows - 1
	deltaBits  = 52 // 4 PB of WAL after the segment's first LSN
	deltaMask  = 1<<deltaBits - 1

	// bitmapWords is the length of a base that is a bitmap, in words of 16 bits. A shorter base is a sorted list, so a base
	// never takes more than 512 bytes and its length tells which of both it is.
	bitmapWords = tileRows / 16

	blockEntries = 8 // 64 bytes, one cache line of entries
	// scanEntries is how many entries Deleted reads one by one. With more, a tile gets a bitmap for the writer (512 bytes
	// until the next fold), because every delete asks whether the row is deleted already.
	scanEntries = 4 * blockEntries
)

// entry is one deletion: offset in the tile in the high 12 bits, LSN − the segment's first LSN below.
type entry uint64

func makeEntry(offset uint16, delta uint64) entry { return entry(offset)<<deltaBits | entry(delta) }
func (e entry) offset() uint16                    { return uint16(e >> deltaBits) }
func (e entry) delta() uint64                     { return uint64(e) & deltaMask }

// block is 8 entries in LSN order and the block before. The writer fills a slot, then publishes it by raising used.
type block struct {
	slots [blockEntries]entry
	older *block // full, or nil
	used  atomic.Uint32
}

// log is the deletions of a tile that are not folded.
type log struct {
	newest atomic.Pointer[block]
	// The writer's alone:
	entries int
	now     *[tileWords]uint64 // base and entries; nil up to scanEntries entries
}

// tile is the deletions of 4,096 rows. A fold replaces it.
type tile struct {
	base []uint16            // never changes: sorted offsets, or a bitmap if it has bitmapWords elements
	log  atomic.Pointer[log] // nil until the first entry
}

// append publishes one more entry and returns the bytes allocated for it.
func (t *tile) append(e entry) (bytes int64) {
	l := t.log.Load()
	if l == nil {
		l = new(log)
		l.newest.Store(&block{})
		t.log.Store(l)
		bytes += logBytes + blockBytes
	}
	b := l.newest.Load()
	if used := b.used.Load(); used < blockEntries {
		b.slots[used] = e
		b.used.Store(used + 1)
	} else {
		next := &block{older: b}
		next.slots[0] = e
		next.used.Store(1)
		l.newest.Store(next)
		bytes += blockBytes
	}
	l.entries++
	switch {
	case l.now != nil:
		l.now[e.offset()/64] |= 1 << (e.offset() % 64)
	case l.entries > scanEntries:
		l.now = new([tileWords]uint64)
		t.addBaseTo(l.now[:])
		t.addEntriesTo(l.now[:], deltaMask)
		bytes += nowBytes
	}
	return bytes
}

// entries goes through the published entries, newest first.
func (t *tile) entries(yield func(entry) bool) {
	l := t.log.Load()
	if l == nil {
		return
	}
	for b := l.newest.Load(); b != nil; b = b.older {
		for i := int(b.used.Load()) - 1; i >= 0; i-- {
			if !yield(b.slots[i]) {
				return
			}
		}
	}
}

// contains tells whether a row is deleted in the newest state. For the writer.
func (t *tile) contains(offset uint16) bool {
	if l := t.log.Load(); l != nil {
		if l.now != nil {
			return l.now[offset/64]>>(offset%64)&1 != 0
		}
		for b := l.newest.Load(); b != nil; b = b.older {
			for _, e := range b.slots[:b.used.Load()] {
				if e.offset() == offset {
					return true
				}
			}
		}
	}
	return t.baseContains(offset)
}

// containsAt tells whether a row is deleted at the LSN that lies delta above the segment's first.
func (t *tile) containsAt(offset uint16, delta uint64) bool {
	if t.baseContains(offset) {
		return true
	}
	for e := range t.entries {
		if e.offset() == offset {
			return e.delta() <= delta
		}
	}
	return false
}

func (t *tile) baseContains(offset uint16) bool {
	if len(t.base) == bitmapWords {
		return t.base[offset/16]>>(offset%16)&1 != 0
	}
	_, found := slices.BinarySearch(t.base, offset)
	return found
}

// addEntriesTo sets a bit in words for each entry up to delta.
func (t *tile) addEntriesTo(words []uint64, delta uint64) {
	for e := range t.entries {
		if e.delta() <= delta {
			words[e.offset()/64] |= 1 << (e.offset() % 64)
		}
	}
}

// addBaseTo sets a bit in words for each offset of the base.
func (t *tile) addBaseTo(words []uint64) {
	if len(t.base) == bitmapWords {
		for i, w := range t.base {
			words[i/4] |= uint64(w) << (i % 4 * 16)
		}
		return
	}
	for _, offset := range t.base {
		words[offset/64] |= 1 << (offset % 64)
	}
}

// baseOffsets goes through the offsets of the base, ascending.
func (t *tile) baseOffsets(yield func(uint16) bool) {
	if len(t.base) != bitmapWords {
		for _, offset := range t.base {
			if !yield(offset) {
				return
			}
		}
		return
	}
	for i, w := range t.base {
		for ; w != 0; w &= w - 1 {
			if !yield(uint16(i*16 + bits.TrailingZeros16(w))) {
				return
			}
		}
	}
}

// fold returns the tile with every entry up to delta in its base, and the bytes the new tile takes beyond t's.
// It returns t itself if there is no such entry.
func (t *tile) fold(delta uint64) (folded *tile, bytes int64) {
	var kept []entry
	var words [tileWords]uint64
	moved := false
	for e := range t.entries {
		if e.delta() > delta {
			kept = append(kept, e)
			continue
		}
		moved = true
		words[e.offset()/64] |= 1 << (e.offset() % 64)
	}
	if !moved {
		return t, 0
	}
	t.addBaseTo(words[:])
	folded = &tile{base: makeBase(&words)}
	bytes = folded.bytes() - t.bytes()
	for _, e := range slices.Backward(kept) {
		bytes += folded.append(e)
	}
	return folded, bytes
}

// makeBase packs the offsets set in words.
func makeBase(words *[tileWords]uint64) []uint16 {
	count := 0
	for _, w := range words {
		count += bits.OnesCount64(w)
	}
	if count >= bitmapWords {
		base := make([]uint16, bitmapWords)
		for i := range base {
			base[i] = uint16(words[i/4] >> (i % 4 * 16))
		}
		return base
	}
	base := make([]uint16, 0, count)
	for i, w := range words {
		for ; w != 0; w &= w - 1 {
			base = append(base, uint16(i*64+bits.TrailingZeros64(w)))
		}
	}
	return base
}

// What the parts take in Go's allocation size classes (see TestBytesMatchesTheHeap).
const (
	tileBytes  = 32
	logBytes   = 24
	blockBytes = 80
	nowBytes   = tileWords * 8
)

// bytes is what the tile takes.
func (t *tile) bytes() int64 {
	n := tileBytes + (int64(len(t.base))*2+15)&^15
	l := t.log.Load()
	if l == nil {
		return n
	}
	n += logBytes
	if l.now != nil {
		n += nowBytes
	}
	for b := l.newest.Load(); b != nil; b = b.older {
		n += blockBytes
	}
	return n
}
