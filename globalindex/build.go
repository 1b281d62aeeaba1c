package globalindex

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/crc32"
	"io"
)

// FileEntry says that the row at a position of a file has a key with this hash.
type FileEntry struct {
	Hash uint64
	File uint32 // position in Header.Files
	Row  uint32
}

func compareEntries(a, b FileEntry) int {
	return cmp.Or(cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.File, b.File), cmp.Compare(a.Row, b.Row))
}

// WriteFileIndex writes the index of entries, which may come in any order and stay as they are. h.Entries is ignored. The same header and
// set of entries give the same bytes. It takes the memory that BuildFileIndex does.
func WriteFileIndex(w io.Writer, h Header, entries []FileEntry) error {
	for _, e := range entries {
		if uint64(e.File) >= uint64(len(h.Files)) || uint64(e.Row) >= h.Files[e.File].Rows {
			return fmt.Errorf("build file index: entry for row %d of file %d is past the end", e.Row, e.File)
		}
	}
	data, err := encode(h, entryList(entries), len(entries))
	if err != nil {
		return fmt.Errorf("build file index: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write file index: %w", err)
	}
	return nil
}

// BuildFileIndex returns the bytes of the index in which every row has an entry. hashesByFile has the hashes of each of h.Files
// in row order; they are only read.
//
// Besides the hashes, it takes the memory of the index, about 11 bytes a row, and 2 bytes a row to sort an eighth of the entries at a time.
// Rows that share a hash are sorted together: where most of them do, that is up to 16 bytes a row.
func BuildFileIndex(h Header, hashesByFile [][]uint64) ([]byte, error) {
	if len(hashesByFile) != len(h.Files) {
		return nil, fmt.Errorf("build file index: hashes of %d files, the header has %d", len(hashesByFile), len(h.Files))
	}
	total := 0
	for i, hashes := range hashesByFile {
		if uint64(len(hashes)) != h.Files[i].Rows {
			return nil, fmt.Errorf("build file index: %d hashes for file %s of %d rows", len(hashes), h.Files[i].Path, h.Files[i].Rows)
		}
		total += len(hashes)
	}
	data, err := encode(h, hashList(hashesByFile), total)
	if err != nil {
		return nil, fmt.Errorf("build file index: %w", err)
	}
	return data, nil
}

// encode checks the header and lays out the n entries of from, each of which names a row of the header's files.
func encode(h Header, from entrySource, n int) ([]byte, error) {
	h.Entries = uint64(n)
	if err := h.check(); err != nil {
		return nil, err
	}
	l := h.layout()
	header := h.encode([sections]uint32{}) // as long as it will be with the sums
	data := make([]byte, uint64(len(header))+l.contentSize())
	parts := l.split(data[len(header):])
	var writers [sections]sectionWriter
	for i, part := range parts {
		writers[i] = newSection(i, l, bytes.NewBuffer(part[:0])) // fills part, whose size is exact
	}
	if err := eachSorted(from, n, func(sorted []FileEntry) error {
		for i := 1; i < len(sorted); i++ {
			if sorted[i] == sorted[i-1] {
				return fmt.Errorf("row %d of file %d has two entries", sorted[i].Row, sorted[i].File)
			}
		}
		for _, w := range writers {
			for _, e := range sorted {
				w.add(e)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var sums [sections]uint32
	for i, w := range writers {
		if err := w.finish(); err != nil {
			return nil, err
		}
		sums[i] = crc32.Checksum(parts[i], castagnoli)
	}
	copy(data, h.encode(sums))
	return data, nil
}
