package pgcdc

import (
	"encoding/binary"
	"math"
	"sync"
)

// A frame is how one change is staged, in memory and in a spill file alike: the number of its relation in
// staging.relations (4 bytes, big-endian), the length of the body (4 bytes), and the body, which is the message as a
// transaction that is not streamed has it. A Relation is a frame without a body; a Truncate has noRelation in place of the
// number, a mark of a streamed transaction (staging_runs.go) runMark.
const (
	frameHeader = 8
	noRelation  = math.MaxUint32
	runMark     = math.MaxUint32 - 1
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

// staging holds the changes of one transaction, open or committed: in chunks of memory or, once spillTo was called, in a
// spill file. A position in it counts the bytes of frames before, and is the same in both. One goroutine at a time may use
// it.
type staging struct {
	chunks    [][]byte // frames, none of which lies in two chunks
	memory    int64    // bytes in chunks
	relations []*Relation
	spill     *spillFile // nil while everything is in memory
	runs      runs
	decoder   changeDecoder
}

func newStaging() *staging {
	s := stagings.Get().(*staging)
	s.runs.last = noMark
	return s
}

// end is the position after the last frame.
func (s *staging) end() int64 {
	if s.spill != nil {
		return s.spill.written + int64(len(s.spill.pending))
	}
	return s.memory
}

// add appends a frame whose body is a copy of head and tail.
func (s *staging) add(relation uint32, head, tail []byte) error {
	if len(head)+len(tail) > math.MaxInt32 {
		return malformedf("a message of %d bytes", len(head)+len(tail))
	}
	if s.spill != nil {
		return s.spill.add(relation, head, tail)
	}
	size := frameHeader + len(head) + len(tail)
	chunk := s.room(size)
	*chunk = append(append(appendHeader(*chunk, relation, head, tail), head...), tail...)
	s.memory += int64(size)
	return nil
}

func appendHeader(to []byte, relation uint32, head, tail []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(to, relation), uint32(len(head)+len(tail)))
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

// spillTo moves the frames to a file in dir, where those to come go too.
func (s *staging) spillTo(dir string) error {
	spill, err := createSpill(dir)
	if err != nil {
		return err
	}
	s.spill = spill
	for _, chunk := range s.chunks {
		if err := spill.write(chunk); err != nil {
			return err
		}
	}
	s.freeChunks(0)
	s.memory = 0
	return nil
}

// read fills into with bytes of one frame.
func (s *staging) read(into []byte, at int64) error {
	if s.spill != nil {
		return s.spill.read(into, at)
	}
	i, start := s.chunkOf(at)
	copy(into, s.chunks[i][at-start:])
	return nil
}

// truncate drops the frames that begin at or after to, which is a frame's position.
func (s *staging) truncate(to int64) error {
	if s.spill != nil {
		return s.spill.truncate(to)
	}
	i, start := s.chunkOf(to)
	s.chunks[i] = s.chunks[i][:to-start]
	s.freeChunks(i + 1)
	s.memory = to
	return nil
}

// chunkOf finds the chunk that holds the frame at a position, and the chunk's own. It looks from the end: what is asked for is near.
func (s *staging) chunkOf(at int64) (i int, start int64) {
	start = s.memory
	for i = len(s.chunks) - 1; ; i-- {
		if start -= int64(len(s.chunks[i])); start <= at {
			return i, start
		}
	}
}

// freeChunks gives back the chunks from a number on.
func (s *staging) freeChunks(from int) {
	for _, chunk := range s.chunks[from:] {
		switch cap(chunk) {
		case smallChunk:
			smallChunks.Put((*[smallChunk]byte)(chunk[:smallChunk]))
		case largeChunk:
			largeChunks.Put((*[largeChunk]byte)(chunk[:largeChunk]))
		}
	}
	clear(s.chunks[from:])
	s.chunks = s.chunks[:from]
}

// each calls change for every frame that is a change, in order. It may be called again.
func (s *staging) each(change func(relation uint32, body []byte) error) error {
	if s.spill != nil {
		return s.spill.each(func(relation uint32, body []byte) error {
			if relation == runMark {
				return nil
			}
			return change(relation, body)
		})
	}
	for _, chunk := range s.chunks {
		for len(chunk) > 0 {
			end := frameHeader + int(binary.BigEndian.Uint32(chunk[4:]))
			if relation := binary.BigEndian.Uint32(chunk); relation != runMark {
				if err := change(relation, chunk[frameHeader:end]); err != nil {
					return err
				}
			}
			chunk = chunk[end:]
		}
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
	s.freeChunks(0)
	if s.spill != nil {
		s.spill.remove()
	}
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
