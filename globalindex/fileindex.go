package globalindex

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
)

// FileIndex finds rows of data files by hash, in the bytes of one index file. Any number of goroutines may read it.
type FileIndex struct {
	header    Header
	layout    layout
	rows      []uint64 // of each file
	filter    []byte
	blocks    uint64 // of the filter
	directory []byte
	packed    []byte
	size      int64
}

// OpenFileIndex reads the header and checks the checksums of the whole file, which reads every byte once (about 0.1 ms a
// megabyte when they are in memory); so a torn file is found here. The bytes must stay as they are while the index is used.
// The errors are ErrCorrupt and ErrVersion.
//
// The checksums find damage, not malice: bytes made to pass them may hold wrong entries, but no lookup reads outside the
// bytes or returns a location outside the files. Verify looks at every entry.
func OpenFileIndex(data []byte) (*FileIndex, error) {
	h, content, err := readHeader(data)
	if err != nil {
		return nil, fmt.Errorf("open file index: %w", err)
	}
	l := h.layout()
	parts := l.split(content)
	for i, part := range parts {
		want, got := binary.LittleEndian.Uint32(data[sumsAt+i*sumSize:]), crc32.Checksum(part, castagnoli)
		if want != got {
			return nil, fmt.Errorf("open file index: %w: checksum %08x of section %d, content has %08x", ErrCorrupt, want, i, got)
		}
	}
	x := &FileIndex{
		header: h, layout: l, size: int64(len(data)),
		filter: parts[filterSection], blocks: l.filterBlocks, directory: parts[directorySection], packed: parts[entriesSection],
	}
	for _, f := range h.Files {
		x.rows = append(x.rows, f.Rows)
	}
	return x, nil
}

// Header returns what the index covers.
func (x *FileIndex) Header() Header { return x.header.clone() }

// Bytes is the size of the index file.
func (x *FileIndex) Bytes() int64 { return x.size }

// Candidates appends to dst the locations of all rows with a hash, by file and row. It allocates nothing if dst has room.
// A row may have been deleted after the index was written.
func (x *FileIndex) Candidates(hash uint64, dst []FileLocation) []FileLocation {
	return x.CandidatesFrom(hash, 0, math.MaxInt, dst)
}

// CandidatesFrom appends what Candidates would, without the first skip locations and no more than limit: fewer are appended when there
// are no more. Skipping costs the same however far it goes. So a caller that takes the live rows of one hash one by one, as for equal rows
// without a key, notes how many of the first ones it knows to be deleted and starts after them; nothing revives a deleted row.
// A negative skip or limit is 0. Bytes that Verify refuses may count entries that Candidates leaves out.
func (x *FileIndex) CandidatesFrom(hash uint64, skip, limit int, dst []FileLocation) []FileLocation {
	if !x.mayHave(hash) {
		return dst
	}
	low := x.layout.low(hash)
	lowBits, width := x.layout.lowBits(), uint64(x.layout.entryBits())
	start, end := x.bucket(x.layout.bucket(hash))
	i := x.firstAtLeast(low, start, end) + uint64(max(skip, 0))
	for ; i < end && limit > 0; i++ {
		if readBits(x.packed, i*width, lowBits) != low {
			break
		}
		if loc := x.location(i * width); x.valid(loc) {
			dst = append(dst, loc)
			limit--
		}
	}
	return dst
}

// firstAtLeast returns the first of a bucket's entries whose low bits are not below low; end if there is none. Few entries are gone
// through; a bucket has many only where rows share a hash, and there halving is faster.
func (x *FileIndex) firstAtLeast(low, start, end uint64) uint64 {
	const few = 8
	lowBits, width := x.layout.lowBits(), uint64(x.layout.entryBits())
	for end-start > few {
		middle := start + (end-start)/2
		if readBits(x.packed, middle*width, lowBits) < low {
			start = middle + 1
		} else {
			end = middle
		}
	}
	for start < end && readBits(x.packed, start*width, lowBits) < low {
		start++
	}
	return start
}

// bucket returns where a bucket's entries are; nowhere, if the directory says what cannot be.
func (x *FileIndex) bucket(b uint64) (start, end uint64) {
	n := x.layout.offsetBits
	start, end = readBits(x.directory, b*uint64(n), n), readBits(x.directory, (b+1)*uint64(n), n)
	if end > x.header.Entries || start > end {
		return 0, 0
	}
	return start, end
}

// location reads the file and row of the entry that begins at a bit.
func (x *FileIndex) location(at uint64) FileLocation {
	at += uint64(x.layout.lowBits())
	file := readBits(x.packed, at, x.layout.fileBits)
	row := readBits(x.packed, at+uint64(x.layout.fileBits), x.layout.rowBits)
	return FileLocation{File: uint32(file), Row: uint32(row)}
}

func (x *FileIndex) valid(loc FileLocation) bool {
	return uint64(loc.File) < uint64(len(x.rows)) && uint64(loc.Row) < x.rows[loc.File]
}

// All goes through the entries by hash, file and row. Entries of bytes that Verify refuses may be left out.
func (x *FileIndex) All() iter.Seq[FileEntry] {
	return func(yield func(FileEntry) bool) {
		for c := (cursor{index: x}); c.next(); {
			if !yield(c.entry) {
				return
			}
		}
	}
}

// cursor goes through the entries of an index in their order.
type cursor struct {
	index   *FileIndex
	bucket  uint64 // the one after that of the entry
	at, end uint64 // the next entry and the end of its bucket
	entry   FileEntry
	read    uint64 // entries so far
}

// next moves to the next entry that names a row of a file, and tells whether there is one.
func (c *cursor) next() bool {
	l := c.index.layout
	for {
		for c.at == c.end {
			if c.bucket == l.buckets() {
				return false
			}
			c.at, c.end = c.index.bucket(c.bucket)
			c.bucket++
		}
		at := c.at * uint64(l.entryBits())
		c.at++
		if loc := c.index.location(at); c.index.valid(loc) {
			hash := (c.bucket-1)<<l.lowBits() | readBits(c.index.packed, at, l.lowBits())
			c.entry = FileEntry{Hash: hash, File: loc.File, Row: loc.Row}
			c.read++
			return true
		}
	}
}

// Verify looks at every entry: the directory ascends over all of them, they are sorted, none comes twice, each names a row of a
// file, and the filter lets each hash pass. Its error is ErrCorrupt.
func (x *FileIndex) Verify() error {
	width, n := uint64(x.layout.entryBits()), x.layout.offsetBits
	expected := uint64(0)
	for b := range x.layout.buckets() {
		start, end := readBits(x.directory, b*uint64(n), n), readBits(x.directory, (b+1)*uint64(n), n)
		if start != expected || end < start || end > x.header.Entries {
			return fmt.Errorf("verify file index: %w: bucket %d is entries %d to %d of %d", ErrCorrupt, b, start, end, x.header.Entries)
		}
		expected = end
		var previous FileEntry
		for i := start; i < end; i++ {
			loc := x.location(i * width)
			e := FileEntry{Hash: readBits(x.packed, i*width, x.layout.lowBits()), File: loc.File, Row: loc.Row}
			if !x.valid(loc) {
				return fmt.Errorf("verify file index: %w: entry %d is for row %d of file %d", ErrCorrupt, i, e.Row, e.File)
			}
			if !x.mayHave(b<<x.layout.lowBits() | e.Hash) {
				return fmt.Errorf("verify file index: %w: the filter keeps entry %d from being found", ErrCorrupt, i)
			}
			if i > start && compareEntries(previous, e) >= 0 {
				return fmt.Errorf("verify file index: %w: entry %d is out of order", ErrCorrupt, i)
			}
			previous = e
		}
	}
	if expected != x.header.Entries {
		return fmt.Errorf("verify file index: %w: the buckets have %d of %d entries", ErrCorrupt, expected, x.header.Entries)
	}
	return nil
}
