package globalindex

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
)

// FileIndex finds rows of data files by hash, in the bytes of one index file. Any number of goroutines may read it.
type FileIndex struct {
	header    Header
	layout    layout
	rows      []uint64 // of each file
	directory []byte
	packed    []byte
	size      int64
}

// OpenFileIndex reads the header and checks the checksums of the whole file, which reads every byte once (about 0.1 ms a
// megabyte when they are in memory); so a torn file is found here. The bytes must stay as they are while the index is used.
// The errors are ErrCorrupt and ErrNewerVersion.
//
// The checksums find damage, not malice: bytes made to pass them may hold wrong entries, but no lookup reads outside the
// bytes or returns a location outside the files. Verify looks at every entry.
func OpenFileIndex(data []byte) (*FileIndex, error) {
	h, content, err := readHeader(data)
	if err != nil {
		return nil, fmt.Errorf("open file index: %w", err)
	}
	want, got := binary.LittleEndian.Uint32(data[contentSumAt:]), crc32.Checksum(content, castagnoli)
	if want != got {
		return nil, fmt.Errorf("open file index: %w: checksum %08x, content has %08x", ErrCorrupt, want, got)
	}
	l := h.layout()
	x := &FileIndex{
		header: h, layout: l, size: int64(len(data)),
		directory: content[:l.directorySize()], packed: content[l.directorySize():],
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
	low := x.layout.low(hash)
	lowBits, width := x.layout.lowBits(), uint64(x.layout.entryBits())
	start, end := x.bucket(x.layout.bucket(hash))
	for at := start * width; at < end*width; at += width {
		stored := readBits(x.packed, at, lowBits)
		if stored > low {
			break
		}
		if stored == low {
			if loc := x.location(at); x.valid(loc) {
				dst = append(dst, loc)
			}
		}
	}
	return dst
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

// All goes through the entries by hash, file and row: merging indexes is merging these sequences. Entries of bytes that Verify refuses may
// be left out.
func (x *FileIndex) All() iter.Seq[FileEntry] {
	return func(yield func(FileEntry) bool) {
		width := uint64(x.layout.entryBits())
		for b := range x.layout.buckets() {
			start, end := x.bucket(b)
			for i := start; i < end; i++ {
				loc := x.location(i * width)
				if !x.valid(loc) {
					continue
				}
				hash := b<<x.layout.lowBits() | readBits(x.packed, i*width, x.layout.lowBits())
				if !yield(FileEntry{Hash: hash, File: loc.File, Row: loc.Row}) {
					return
				}
			}
		}
	}
}

// Verify looks at every entry: the directory ascends over all of them, they are sorted, none comes twice, and each names a row of a
// file. Its error is ErrCorrupt.
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
