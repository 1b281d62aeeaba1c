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
	"sync"
)

// spillPattern names spill files; removeSpills deletes what matches it.
const spillPattern = "transaction-*.spill"

// spillBuffer is how much is written at once. Every open transaction that is spilled has such a buffer.
const spillBuffer = 64 << 10

// spillRead is how much is read at once: only one transaction is.
const spillRead = 256 << 10

var spillBuffers = sync.Pool{New: func() any { return new([spillBuffer]byte) }}

// spillFile holds the frames of one transaction once they do not fit in memory. It never outlives the process: what a crash
// leaves is deleted at the next connect, and the server sends the transaction again. So nothing is synced.
// It stays readable after its name is gone.
type spillFile struct {
	file    *os.File
	written int64  // bytes of the file
	pending []byte // frames that follow them, whole ones; nil once the transaction is complete
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
	return &spillFile{file: file, pending: spillBuffers.Get().(*[spillBuffer]byte)[:0]}, nil
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

// add appends a frame, whose body is head and tail.
func (f *spillFile) add(relation uint32, head, tail []byte) error {
	size := frameHeader + len(head) + len(tail)
	if len(f.pending)+size > cap(f.pending) {
		if err := f.flush(); err != nil {
			return err
		}
	}
	if size <= cap(f.pending) {
		f.pending = append(append(appendHeader(f.pending, relation, head, tail), head...), tail...)
		return nil
	}
	var header [frameHeader]byte
	for _, part := range [][]byte{appendHeader(header[:0], relation, head, tail), head, tail} {
		if err := f.write(part); err != nil {
			return err
		}
	}
	return nil
}

func (f *spillFile) flush() error {
	err := f.write(f.pending)
	f.pending = f.pending[:0]
	return err
}

// write appends to the file, while nothing is pending.
func (f *spillFile) write(data []byte) error {
	if _, err := f.file.WriteAt(data, f.written); err != nil {
		return fmt.Errorf("%w: %w", ErrSpill, err)
	}
	f.written += int64(len(data))
	return nil
}

// read fills into with bytes of one frame.
func (f *spillFile) read(into []byte, at int64) error {
	if at >= f.written {
		copy(into, f.pending[at-f.written:])
		return nil
	}
	if _, err := f.file.ReadAt(into, at); err != nil {
		return fmt.Errorf("%w: %w", ErrSpill, err)
	}
	return nil
}

// truncate drops the frames that begin at or after to, and gives their disk space back.
func (f *spillFile) truncate(to int64) error {
	if to >= f.written {
		f.pending = f.pending[:to-f.written]
		return nil
	}
	if err := f.file.Truncate(to); err != nil {
		return fmt.Errorf("%w: %w", ErrSpill, err)
	}
	f.written, f.pending = to, f.pending[:0]
	return nil
}

// complete ends writing; each may be called from now on.
func (f *spillFile) complete() error {
	err := f.flush()
	f.recycle()
	return err
}

func (f *spillFile) recycle() {
	if f.pending != nil {
		spillBuffers.Put((*[spillBuffer]byte)(f.pending[:spillBuffer]))
		f.pending = nil
	}
}

// each reads the file from its start and calls change for every frame; body is lent for that call.
func (f *spillFile) each(change func(relation uint32, body []byte) error) error {
	left := f.written
	reader := bufio.NewReaderSize(io.NewSectionReader(f.file, 0, left), spillRead)
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
	f.recycle()
	os.Remove(f.file.Name())
	f.file.Close()
}
