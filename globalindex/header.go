package globalindex

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"
)

// Header says what a FileIndex covers.
type Header struct {
	KeyKind KeyKind
	HashID  HashID    // KeyKind.Hash()
	Columns []int32   // Iceberg field ids of the columns hashed, in key order
	Files   []FileRef // the data files covered; an entry names one by its position here
	Entries uint64    // set by the writer
}

// FileRef is a data file that a FileIndex covers.
type FileRef struct {
	Path string
	Rows uint64 // at most 2^32 − 1
}

// The header's layout, all numbers little endian; docs/formats/file-index.md has the whole format.
const (
	magic   = "pgmindex"
	version = 2

	versionAt     = 8  // uint32
	headerSizeAt  = 12 // uint32: with padding and checksum
	entriesAt     = 16 // uint64
	contentSizeAt = 24 // uint64: filter, directory and entries
	sumsAt        = 32 // uint32 each: CRC-32C of filter, directory and entries
	keyKindAt     = 44 // uint8
	hashIDAt      = 45 // uint8
	bucketBitsAt  = 46 // uint8
	rowBitsAt     = 47 // uint8
	columnCountAt = 48 // uint32
	fileCountAt   = 52 // uint32
	fixedSize     = 56 // then columns: int32 each; files: rows uint64, length uint32, path

	sumSize    = 4
	fileFixed  = 12
	headerUnit = filterBlock // a header is a multiple of it, so that filter blocks are cache lines of a mapped file
	maxEntries = 1 << 40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// layout is the widths and sizes that follow from a header.
type layout struct {
	entries      uint64
	filterBlocks uint64
	bucketBits   uint // N: a hash's high bits that choose the bucket
	fileBits     uint
	rowBits      uint
	offsetBits   uint // of a directory element
}

// bucketBits is log2 of the number of buckets: the next power of two at or above entries/4 + 2, about 2 to 4 entries a bucket.
func bucketBits(entries uint64) uint { return uint(bits.Len64(entries/4 + 1)) }

func (h *Header) layout() layout {
	rows := uint64(0)
	for _, f := range h.Files {
		rows = max(rows, f.Rows)
	}
	return layout{
		entries:      h.Entries,
		filterBlocks: filterBlocks(h.Entries),
		bucketBits:   bucketBits(h.Entries),
		fileBits:     widthBelow(uint64(len(h.Files))),
		rowBits:      widthBelow(rows),
		offsetBits:   uint(bits.Len64(h.Entries)),
	}
}

// widthBelow is the number of bits that hold every number below n.
func widthBelow(n uint64) uint {
	if n == 0 {
		return 0
	}
	return uint(bits.Len64(n - 1))
}

func (l layout) lowBits() uint             { return 64 - l.bucketBits }
func (l layout) entryBits() uint           { return l.lowBits() + l.fileBits + l.rowBits }
func (l layout) buckets() uint64           { return 1 << l.bucketBits }
func (l layout) bucket(hash uint64) uint64 { return hash >> l.lowBits() }
func (l layout) low(hash uint64) uint64    { return hash & (1<<l.lowBits() - 1) }

// sizes are the bytes of each section, whole 64-bit words.
func (l layout) sizes() [sections]uint64 {
	return [sections]uint64{
		filterSection:    l.filterBlocks * filterBlock,
		directorySection: wordBytes((l.buckets() + 1) * uint64(l.offsetBits)),
		entriesSection:   wordBytes(l.entries * uint64(l.entryBits())), // no overflow: 2^40 times 127
	}
}

func (l layout) contentSize() uint64 {
	total := uint64(0)
	for _, size := range l.sizes() {
		total += size
	}
	return total
}

// split cuts a content of the right size into its sections.
func (l layout) split(content []byte) (parts [sections][]byte) {
	for i, size := range l.sizes() {
		parts[i], content = content[:size:size], content[size:]
	}
	return parts
}

// Size is the bytes of an index file with this header: of h.Entries entries, whatever they are.
func (h *Header) Size() uint64 {
	return uint64(len(h.encode([sections]uint32{}))) + h.layout().contentSize()
}

func wordBytes(bits uint64) uint64 { return (bits + 63) / 64 * 8 }

// check tells what is wrong with a header that is to be written or was read.
func (h *Header) check() error {
	if h.KeyKind.Hash() == 0 || h.KeyKind.Hash() != h.HashID {
		return fmt.Errorf("key kind %d with hash %d", h.KeyKind, h.HashID)
	}
	if len(h.Columns) == 0 || h.KeyKind == KeyInt && len(h.Columns) != 1 {
		return fmt.Errorf("%d columns for key kind %d", len(h.Columns), h.KeyKind)
	}
	total := uint64(0)
	for _, f := range h.Files {
		if f.Rows > math.MaxUint32 {
			return fmt.Errorf("file %s has %d rows, more than a row number can hold", f.Path, f.Rows)
		}
		total += f.Rows
	}
	if h.Entries > total || h.Entries >= maxEntries {
		return fmt.Errorf("%d entries for %d rows", h.Entries, total)
	}
	return nil
}

// encode returns the header of an index whose sections have those checksums.
func (h *Header) encode(sums [sections]uint32) []byte {
	l := h.layout()
	le := binary.LittleEndian
	var dst []byte
	dst = append(dst, magic...)
	dst = le.AppendUint32(dst, version)
	dst = le.AppendUint32(dst, 0) // the size, below
	dst = le.AppendUint64(dst, h.Entries)
	dst = le.AppendUint64(dst, l.contentSize())
	for _, sum := range sums {
		dst = le.AppendUint32(dst, sum)
	}
	dst = append(dst, byte(h.KeyKind), byte(h.HashID), byte(l.bucketBits), byte(l.rowBits))
	dst = le.AppendUint32(dst, uint32(len(h.Columns)))
	dst = le.AppendUint32(dst, uint32(len(h.Files)))
	for _, id := range h.Columns {
		dst = le.AppendUint32(dst, uint32(id))
	}
	for _, f := range h.Files {
		dst = le.AppendUint64(dst, f.Rows)
		dst = le.AppendUint32(dst, uint32(len(f.Path)))
		dst = append(dst, f.Path...)
	}
	for (len(dst)+sumSize)%headerUnit != 0 {
		dst = append(dst, 0)
	}
	le.PutUint32(dst[headerSizeAt:], uint32(len(dst)+sumSize))
	return le.AppendUint32(dst, crc32.Checksum(dst, castagnoli))
}

// readHeader reads the header of data, checks it against the length of data, and returns the content.
func readHeader(data []byte) (h Header, content []byte, err error) {
	le := binary.LittleEndian
	if len(data) < fixedSize+sumSize {
		return h, nil, fmt.Errorf("%w: %d bytes", ErrCorrupt, len(data))
	}
	if string(data[:len(magic)]) != magic {
		return h, nil, fmt.Errorf("%w: magic %x", ErrCorrupt, data[:len(magic)])
	}
	if v := le.Uint32(data[versionAt:]); v != version {
		return h, nil, fmt.Errorf("%w: version %d, known is %d", ErrVersion, v, version)
	}
	size := uint64(le.Uint32(data[headerSizeAt:]))
	if size < fixedSize+sumSize || size > uint64(len(data)) || size%headerUnit != 0 {
		return h, nil, fmt.Errorf("%w: header of %d in %d bytes", ErrCorrupt, size, len(data))
	}
	sum := le.Uint32(data[size-sumSize:])
	header := data[:size-sumSize]
	content = data[size:]
	if got := crc32.Checksum(header, castagnoli); got != sum {
		return h, nil, fmt.Errorf("%w: header checksum %08x, content has %08x", ErrCorrupt, sum, got)
	}

	h.Entries = le.Uint64(header[entriesAt:])
	h.KeyKind, h.HashID = KeyKind(header[keyKindAt]), HashID(header[hashIDAt])
	if err := h.readLists(header); err != nil {
		return h, nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err := h.check(); err != nil {
		return h, nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	l := h.layout()
	if header[bucketBitsAt] != byte(l.bucketBits) || header[rowBitsAt] != byte(l.rowBits) {
		return h, nil, fmt.Errorf("%w: bucket bits %d, row bits %d; want %d, %d", ErrCorrupt, header[bucketBitsAt], header[rowBitsAt], l.bucketBits, l.rowBits)
	}
	if n := le.Uint64(header[contentSizeAt:]); n != uint64(len(content)) || n != l.contentSize() {
		return h, nil, fmt.Errorf("%w: content of %d bytes, %d are there", ErrCorrupt, n, len(content))
	}
	return h, content, nil
}

// readLists reads the columns and files, and sees that nothing else follows but zeros.
func (h *Header) readLists(header []byte) error {
	le := binary.LittleEndian
	columns, files := uint64(le.Uint32(header[columnCountAt:])), uint64(le.Uint32(header[fileCountAt:]))
	rest := header[fixedSize:]
	if columns*4+files*fileFixed > uint64(len(rest)) {
		return fmt.Errorf("%d columns and %d files in %d bytes", columns, files, len(rest))
	}
	h.Columns = make([]int32, columns)
	for i := range h.Columns {
		h.Columns[i] = int32(le.Uint32(rest[i*4:]))
	}
	rest = rest[columns*4:]
	h.Files = make([]FileRef, files)
	for i := range h.Files {
		if len(rest) < fileFixed {
			return fmt.Errorf("file %d of %d is cut off", i, files)
		}
		rows, length := le.Uint64(rest), uint64(le.Uint32(rest[8:]))
		rest = rest[fileFixed:]
		if length > uint64(len(rest)) {
			return fmt.Errorf("path of file %d is cut off", i)
		}
		h.Files[i] = FileRef{Path: string(rest[:length]), Rows: rows}
		rest = rest[length:]
	}
	if len(rest) >= headerUnit || len(bytes.Trim(rest, "\x00")) != 0 {
		return fmt.Errorf("%d bytes follow the files", len(rest))
	}
	return nil
}

// clone returns a header that shares nothing with h.
func (h Header) clone() Header {
	h.Columns, h.Files = slices.Clone(h.Columns), slices.Clone(h.Files)
	return h
}
