package readstate

import (
	"bufio"
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/cespare/xxhash/v2"

	"pgmirror/deletion"
)

// settled is what a state that has been held for long sees of deletion vectors and memory rows, in a file of this process: a sequence of
// pieces, each a deletion-vector-v1 blob under a Huffman code (a bitmap of which a fifth is set takes a bit a row; so, three quarters of one), or a
// column as it goes over the socket. Where each lies is known to this process
// alone, so a file of an earlier life is of no use to anybody.
//
// Its methods may be called by several goroutines until remove.
type settled struct {
	path    string
	size    int64 // bytes
	vectors map[uint64]piece
	batches map[uint64]settledBatch
}

// piece is size bytes at an offset of the file.
type piece struct {
	at, size int64
	sum      uint64 // xxhash64
}

type settledBatch struct {
	table   *Table
	rows    int
	columns []piece // of the table's schema
}

const (
	settledPrefix = "state-"
	settledBuffer = 64 << 10
)

// errTooLarge: a state needs more bytes than it may hold.
var errTooLarge = errors.New("too large")

// settle writes vectors and batches to a new file in dir. It gives up with errTooLarge at more than most bytes. After an error there is no file.
func settle(dir string, vectors map[uint64]*deletion.Vector, batches map[uint64]pinnedBatch, most int64) (_ *settled, err error) {
	f, err := os.CreateTemp(dir, settledPrefix+"*")
	if err != nil {
		return nil, err
	}
	s := &settled{path: f.Name(), vectors: make(map[uint64]piece, len(vectors)), batches: make(map[uint64]settledBatch, len(batches))}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(s.path))
		}
	}()
	out := bufio.NewWriterSize(f, settledBuffer)
	var packed bytes.Buffer
	pack, err := flate.NewWriter(&packed, flate.HuffmanOnly)
	if err != nil {
		return nil, err
	}
	add := func(parts ...[]byte) (piece, error) {
		p := piece{at: s.size}
		sum := xxhash.New()
		for _, part := range parts {
			if s.size += int64(len(part)); s.size > most {
				return p, errTooLarge
			}
			sum.Write(part)
			if _, err := out.Write(part); err != nil {
				return p, err
			}
		}
		p.size, p.sum = s.size-p.at, sum.Sum64()
		return p, nil
	}
	for id, vector := range vectors {
		blob, err := vector.MarshalBlob()
		if err != nil {
			return nil, err
		}
		packed.Reset()
		pack.Reset(&packed)
		if _, err := pack.Write(blob); err != nil {
			return nil, err
		}
		if err := pack.Close(); err != nil {
			return nil, err
		}
		if s.vectors[id], err = add(packed.Bytes()); err != nil {
			return nil, err
		}
	}
	for id, b := range batches {
		kept := settledBatch{table: b.table, rows: b.Rows}
		for i, field := range b.table.Schema.Fields() {
			// One column at a time: the rows are in memory already, and this is to win some.
			arrays, err := b.Columns.Read([]int{i}, 0, b.Rows)
			if err != nil {
				return nil, err
			}
			column, err := encodeColumn(field.Type, arrays[0])
			if err != nil {
				return nil, err
			}
			p, err := add(column.pieces...)
			if err != nil {
				return nil, err
			}
			kept.columns = append(kept.columns, p)
		}
		s.batches[id] = kept
	}
	return s, out.Flush()
}

// read returns the bytes of some pieces, whose order it keeps.
func (s *settled) read(pieces ...piece) (bodies [][]byte, err error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, p := range pieces {
		body := alignedBytes(int(p.size))
		if _, err := f.ReadAt(body, p.at); err != nil {
			return nil, fmt.Errorf("read what a read state keeps: %w", err)
		}
		if xxhash.Sum64(body) != p.sum {
			return nil, fmt.Errorf("what a read state keeps in %s is damaged", s.path)
		}
		bodies = append(bodies, body)
	}
	return bodies, nil
}

// blobs are the deletion-vector-v1 blobs of vectors that the state names.
func (s *settled) blobs(ids []uint64) (blobs [][]byte, err error) {
	pieces := make([]piece, len(ids))
	for i, id := range ids {
		pieces[i] = s.vectors[id]
	}
	bodies, err := s.read(pieces...)
	if err != nil {
		return nil, err
	}
	for _, body := range bodies {
		blob, err := io.ReadAll(flate.NewReader(bytes.NewReader(body)))
		if err != nil {
			return nil, fmt.Errorf("read what a read state keeps in %s: %w", s.path, err)
		}
		blobs = append(blobs, blob)
	}
	return blobs, nil
}

// read is ColumnReader's Read of a batch; the caller has checked what it asks for.
func (b settledBatch) read(s *settled, columns []int, from, to int) ([]arrow.Array, error) {
	pieces := make([]piece, len(columns))
	for i, c := range columns {
		pieces[i] = b.columns[c]
	}
	bodies, err := s.read(pieces...)
	if err != nil {
		return nil, err
	}
	out := make([]arrow.Array, len(columns))
	for i, c := range columns {
		whole, err := decodeColumn(b.table.Schema.Field(c).Type, b.rows, bodies[i])
		if err != nil {
			return nil, err
		}
		out[i] = rowsOf(whole.Data(), from, to)
	}
	return out, nil
}

// remove deletes the file.
func (s *settled) remove() error { return os.Remove(s.path) }

// removeSettled deletes what an earlier life left in dir, which is made if it is absent.
func removeSettled(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), settledPrefix) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
