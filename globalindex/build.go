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
// set of entries give the same bytes. The whole index is held in memory, and a sorted copy of the entries.
func WriteFileIndex(w io.Writer, h Header, entries []FileEntry) error {
	data, err := encode(h, entries)
	if err != nil {
		return fmt.Errorf("build file index: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write file index: %w", err)
	}
	return nil
}

// BuildFileIndex returns the bytes of the index in which every row has an entry. hashesByFile has the hashes of each of h.Files
// in row order.
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
	entries := make([]FileEntry, 0, total)
	for file, hashes := range hashesByFile {
		for row, hash := range hashes {
			entries = append(entries, FileEntry{Hash: hash, File: uint32(file), Row: uint32(row)})
		}
	}
	data, err := encode(h, entries)
	if err != nil {
		return nil, fmt.Errorf("build file index: %w", err)
	}
	return data, nil
}

// encode checks the header and entries and lays them out.
func encode(h Header, entries []FileEntry) ([]byte, error) {
	h.Entries = uint64(len(entries))
	if err := h.check(); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if uint64(e.File) >= uint64(len(h.Files)) || uint64(e.Row) >= h.Files[e.File].Rows {
			return nil, fmt.Errorf("entry for row %d of file %d is past the end", e.Row, e.File)
		}
	}
	l := h.layout()
	sorted := sortEntries(entries)
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return nil, fmt.Errorf("row %d of file %d has two entries", sorted[i].Row, sorted[i].File)
		}
	}

	content := make([]byte, l.contentSize())
	var sums [sections]uint32
	for i, part := range l.split(content) {
		w := newSection(i, l, bytes.NewBuffer(part[:0])) // fills part, whose size is exact
		for _, e := range sorted {
			w.add(e)
		}
		if err := w.finish(); err != nil {
			return nil, err
		}
		sums[i] = crc32.Checksum(part, castagnoli)
	}
	return append(h.encode(sums), content...), nil
}
