package pgcdc

import (
	"encoding/binary"
	"math"
	"sync"
)

// A frame is how one change is staged, in memory and in a spill file alike: the number of its relation in
// staging.relations (4 bytes, big-endian), the length of the body (4 bytes), and the body, which is the message as it
// came. A Relation is a frame without a body; a Truncate has noRelation in place of the number.
const (
	frameHeader = 8
	noRelation  = math.MaxUint32
)

// Chunks are taken from pools in two sizes: most transactions are a few rows, and the rest are large. A message that
// fits in neither has a chunk of its own. A chunk is left when the next frame does not fit, so at least half of it is used.
const (
	smallChunk = 8 << 10
	largeChunk = 256 << 10
)

var (
	stagings    = sync.Pool{New: func() any { return new(staging) }}
	smallChunks = sync.Pool{New: func() any { return new([smallChunk]byte) }}
	largeChunks = sync.Pool{New: func() any { return new([largeChunk]byte) }}
)

// staging holds the changes of one transaction, open or committed: first in chunks of memory, then, from spillBytes on,
// in a spill file. One goroutine at a time may use it.
type staging struct {
	chunks    [][]byte // frames, none of which lies in two chunks
	bytes     int64    // in chunks
	relations []*Relation
	spill     *spillFile // nil while everything is in memory
	decoder   changeDecoder
}

func newStaging() *staging { return stagings.Get().(*staging) }

// add appends a frame with a copy of body.
func (s *staging) add(relation uint32, body []byte, spillDir string, spillBytes int64) error {
	if len(body) > math.MaxInt32 {
		return malformedf("a message of %d bytes", len(body))
	}
	size := frameHeader + len(body)
	if s.spill == nil && s.bytes+int64(size) > spillBytes {
		spill, err := createSpill(spillDir)
		if err != nil {
			return err
		}
		s.spill = spill
	}
	if s.spill != nil {
		return s.spill.add(relation, body)
	}
	chunk := s.room(size)
	header := len(*chunk)
	*chunk = (*chunk)[:header+size]
	binary.BigEndian.PutUint32((*chunk)[header:], relation)
	binary.BigEndian.PutUint32((*chunk)[header+4:], uint32(len(body)))
	copy((*chunk)[header+frameHeader:], body)
	s.bytes += int64(size)
	return nil
}

// room returns a chunk with space for size more bytes.
func (s *staging) room(size int) *[]byte {
	if n := len(s.chunks); n > 0 {
		if last := &s.chunks[n-1]; cap(*last)-len(*last) >= size {
			return last
		}
	}
	var chunk []byte
	switch {
	case size <= smallChunk && len(s.chunks) == 0:
		chunk = smallChunks.Get().(*[smallChunk]byte)[:0]
	case size <= largeChunk:
		chunk = largeChunks.Get().(*[largeChunk]byte)[:0]
	default:
		chunk = make([]byte, 0, size)
	}
	s.chunks = append(s.chunks, chunk)
	return &s.chunks[len(s.chunks)-1]
}

// each calls change for every frame, in order. It may be called again.
func (s *staging) each(change func(relation uint32, body []byte) error) error {
	for _, chunk := range s.chunks {
		for len(chunk) > 0 {
			end := frameHeader + int(binary.BigEndian.Uint32(chunk[4:]))
			if err := change(binary.BigEndian.Uint32(chunk), chunk[frameHeader:end]); err != nil {
				return err
			}
			chunk = chunk[end:]
		}
	}
	if s.spill != nil {
		return s.spill.each(change)
	}
	return nil
}

// decode turns a frame into a Change, which is valid until the next call.
func (s *staging) decode(relation uint32, body []byte) (*Change, error) {
	if relation == noRelation {
		return s.decoder.truncate(body)
	}
	if int64(relation) >= int64(len(s.relations)) {
		return nil, malformedf("a staged row of relation number %d of %d", relation, len(s.relations))
	}
	if len(body) == 0 {
		return s.decoder.relation(s.relations[relation]), nil
	}
	return s.decoder.row(body, s.relations[relation])
}

// release gives the memory back and deletes the spill file. s must not be used afterwards.
func (s *staging) release() {
	for _, chunk := range s.chunks {
		switch cap(chunk) {
		case smallChunk:
			smallChunks.Put((*[smallChunk]byte)(chunk[:smallChunk]))
		case largeChunk:
			largeChunks.Put((*[largeChunk]byte)(chunk[:largeChunk]))
		}
	}
	if s.spill != nil {
		s.spill.remove()
	}
	clear(s.chunks)
	clear(s.relations)
	// The tuples point into chunks that now belong to somebody else.
	clear(s.decoder.old[:cap(s.decoder.old)])
	clear(s.decoder.new[:cap(s.decoder.new)])
	*s = staging{
		chunks:    s.chunks[:0],
		relations: s.relations[:0],
		decoder:   changeDecoder{old: s.decoder.old, new: s.decoder.new, truncated: s.decoder.truncated},
	}
	stagings.Put(s)
}
