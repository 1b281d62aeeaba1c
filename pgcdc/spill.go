package pgcdc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// spillPattern names spill files; removeSpills deletes what matches it.
const spillPattern = "transaction-*.spill"

// spillBuffer is how much is read and written at once.
const spillBuffer = 256 << 10

// spillFile holds the frames of one transaction that did not fit in memory. It never outlives the process: what a crash
// leaves is deleted at the next connect, and the server sends the transaction again. So nothing is synced.
// It stays readable after its name is gone.
type spillFile struct {
	file   *os.File
	writer *bufio.Writer // nil once the transaction is complete
	size   int64
}

// createSpill makes a file in dir, and dir if need be. An empty dir is the system's directory for temporary files.
func createSpill(dir string) (*spillFile, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSpill, err)
		}
	}
	file, err := os.CreateTemp(dir, spillPattern)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpill, err)
	}
	return &spillFile{file: file, writer: bufio.NewWriterSize(file, spillBuffer)}, nil
}

// removeSpills deletes the spill files in dir, whoever left them.
func removeSpills(dir string) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("empty spill directory: %w", err)
	}
	for _, entry := range entries {
		if ours, _ := filepath.Match(spillPattern, entry.Name()); !ours {
			continue
		}
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("empty spill directory: %w", err)
		}
	}
	return nil
}

func (f *spillFile) add(relation uint32, body []byte) error {
	var header [frameHeader]byte
	binary.BigEndian.PutUint32(header[:], relation)
	binary.BigEndian.PutUint32(header[4:], uint32(len(body)))
	if _, err := f.writer.Write(header[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrSpill, err)
	}
	if _, err := f.writer.Write(body); err != nil {
		return fmt.Errorf("%w: %w", ErrSpill, err)
	}
	f.size += frameHeader + int64(len(body))
	return nil
}

// complete ends writing; each may be called from now on.
func (f *spillFile) complete() error {
	if err := f.writer.Flush(); err != nil {
		return fmt.Errorf("%w: %w", ErrSpill, err)
	}
	f.writer = nil
	return nil
}

// each reads the file from its start and calls change for every frame; body is lent for that call.
func (f *spillFile) each(change func(relation uint32, body []byte) error) error {
	left := f.size
	reader := bufio.NewReaderSize(io.NewSectionReader(f.file, 0, f.size), spillBuffer)
	var header [frameHeader]byte
	var body []byte
	for left > 0 {
		if _, err := io.ReadFull(reader, header[:]); err != nil {
			return fmt.Errorf("read spilled transaction: %w", err)
		}
		size := int64(binary.BigEndian.Uint32(header[4:]))
		if left -= frameHeader + size; left < 0 {
			return errors.New("read spilled transaction: a frame ends after its file")
		}
		if int64(cap(body)) < size {
			body = make([]byte, size)
		}
		body = body[:size]
		if _, err := io.ReadFull(reader, body); err != nil {
			return fmt.Errorf("read spilled transaction: %w", err)
		}
		if err := change(binary.BigEndian.Uint32(header[:]), body); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the file. A name that is left behind, say because its directory became read-only, goes with the next
// removeSpills, so errors are dropped here.
func (f *spillFile) remove() {
	os.Remove(f.file.Name())
	f.file.Close()
}
