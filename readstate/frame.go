package readstate

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"
	"unsafe"
)

// Limits of a frame (docs/formats/readstate.md).
const (
	framePrefix = 12      // u32 header length, u64 body length
	maxHeader   = 1 << 16 // a header is small; everything that grows with the tables is in the body
	maxArgs     = 1 << 20 // body of a request: the arguments of a call
	// maxAnswer bounds the body of an answer. The largest is a column of one batch: Arrow's 32-bit offsets reach 2 GiB of
	// text, and beside them stand offsets and bitmap.
	maxAnswer = 2<<30 + 256<<20
	// trustedBody is allocated on the word of a frame's prefix; what lies beyond grows as its bytes arrive. A batch's
	// column is almost always smaller (8,192 rows of 8 bytes are 64 KiB), so that it is read in place.
	trustedBody = 4 << 20
	bodyAlign   = 64 // Arrow's recommended alignment
	writeChunk  = 1 << 20
)

// readFrame reads one frame. The body is the caller's own, 64-byte aligned; nil when empty. io.EOF means the connection
// ended between frames.
func readFrame(r io.Reader, maxBody int64) (header, body []byte, err error) {
	var prefix [framePrefix]byte
	if _, err := io.ReadFull(r, prefix[:1]); err != nil {
		return nil, nil, err
	}
	if _, err := io.ReadFull(r, prefix[1:]); err != nil {
		return nil, nil, noEOF(err)
	}
	headerLen := binary.LittleEndian.Uint32(prefix[:])
	bodyLen := binary.LittleEndian.Uint64(prefix[4:])
	if headerLen == 0 || headerLen > maxHeader {
		return nil, nil, protocolErrorf("header of %d bytes, allowed are 1 to %d", headerLen, maxHeader)
	}
	if bodyLen > uint64(maxBody) {
		return nil, nil, protocolErrorf("body of %d bytes, allowed are %d", bodyLen, maxBody)
	}
	header = make([]byte, headerLen)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, nil, noEOF(err)
	}
	body, err = readBody(r, int(bodyLen))
	return header, body, err
}

// readBody reads n bytes into memory that grows as they arrive.
func readBody(r io.Reader, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	body := alignedBytes(min(n, trustedBody))
	for have := 0; ; {
		if _, err := io.ReadFull(r, body[have:]); err != nil {
			return nil, noEOF(err)
		}
		if have = len(body); have == n {
			return body, nil
		}
		grown := alignedBytes(min(n, 2*have))
		copy(grown, body)
		body = grown
	}
}

// alignedBytes allocates n bytes that start at a multiple of bodyAlign.
func alignedBytes(n int) []byte {
	raw := make([]byte, n+bodyAlign-1)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(raw)))) & (bodyAlign - 1)
	return raw[skip : skip+n : skip+n]
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// writeFrame writes one frame whose body is the given pieces one after the other.
func writeFrame(w *bufio.Writer, header any, body ...[]byte) error {
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	if len(text) > maxHeader {
		return protocolErrorf("header of %d bytes, allowed are %d", len(text), maxHeader)
	}
	var size uint64
	for _, piece := range body {
		size += uint64(len(piece))
	}
	var prefix [framePrefix]byte
	binary.LittleEndian.PutUint32(prefix[:], uint32(len(text)))
	binary.LittleEndian.PutUint64(prefix[4:], size)
	if _, err := w.Write(prefix[:]); err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	for _, piece := range body {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return w.Flush()
}

// stallWriter fails a write when the peer takes nothing for the length of stall. It writes in chunks, each with a deadline
// of its own, so that a slow peer that still reads is served whatever the frame's size.
type stallWriter struct {
	conn  net.Conn
	stall time.Duration
}

func (w stallWriter) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		if err := w.conn.SetWriteDeadline(time.Now().Add(w.stall)); err != nil {
			return written, err
		}
		n, err := w.conn.Write(b[written:min(len(b), written+writeChunk)])
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
