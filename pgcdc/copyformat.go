package pgcdc

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// copySignature begins every binary copy. https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format".
var copySignature = []byte("PGCOPY\n\xff\r\n\x00")

const (
	copyHeader = 11 + 4 + 4 // signature, flags, length of the extension
	// copyFieldMax is more than the server ever sends: a field is below 1 GiB (MaxAllocSize).
	copyFieldMax = 1 << 30
)

// copyParser takes a binary copy in pieces that may end anywhere and hands out its tuples. A tuple is lent until row
// returns. It keeps only the bytes of the tuple that is not yet complete.
type copyParser struct {
	formats []Format // by column, for the values that are not NULL
	row     func(Tuple) error

	pending []byte // received and not parsed
	tuple   Tuple
	began   bool // the header was read
	ended   bool // the trailer was read
	rows    int64
	skip    uint64 // bytes of the header's extension still to be passed over
}

func newCopyParser(formats []Format, row func(Tuple) error) *copyParser {
	return &copyParser{formats: formats, row: row, tuple: make(Tuple, len(formats))}
}

// Write takes the next piece. An error of row comes back as it is.
func (p *copyParser) Write(piece []byte) (int, error) {
	data := piece
	if len(p.pending) > 0 {
		p.pending = append(p.pending, piece...)
		data = p.pending
	}
	rest, err := p.parse(data)
	if err != nil {
		return 0, err
	}
	// rest may lie in pending; append moves it to the front as copy does.
	p.pending = append(p.pending[:0], rest...)
	return len(piece), nil
}

// finish says whether the copy was complete.
func (p *copyParser) finish() error {
	if !p.ended || len(p.pending) > 0 {
		return malformedf("a copy that ends after %d rows without its trailer", p.rows)
	}
	return nil
}

// parse consumes whole elements and returns what is left.
func (p *copyParser) parse(data []byte) ([]byte, error) {
	if !p.began {
		if len(data) < copyHeader {
			return data, nil
		}
		if !bytes.HasPrefix(data, copySignature) {
			return nil, malformedf("a copy without its signature")
		}
		if flags := binary.BigEndian.Uint32(data[11:]); flags&0xffff0000 != 0 { // critical ones, OIDs among them
			return nil, malformedf("a copy with unknown flags %#x", flags)
		}
		p.skip = uint64(binary.BigEndian.Uint32(data[15:]))
		p.began = true
		data = data[copyHeader:]
	}
	if p.skip > 0 {
		n := min(p.skip, uint64(len(data)))
		p.skip -= n
		data = data[n:]
	}
	for len(data) > 0 && p.skip == 0 {
		if p.ended {
			return nil, malformedf("a copy with data after its trailer")
		}
		rest, complete, err := p.next(data)
		if err != nil || !complete {
			return rest, err
		}
		data = rest
	}
	return data, nil
}

// next reads one tuple or the trailer. When data holds only a part of it, complete is false and data comes back.
func (p *copyParser) next(data []byte) (rest []byte, complete bool, err error) {
	if len(data) < 2 {
		return data, false, nil
	}
	count := int16(binary.BigEndian.Uint16(data))
	rest = data[2:]
	if count == -1 {
		p.ended = true
		return rest, true, nil
	}
	if int(count) != len(p.formats) {
		return nil, false, malformedf("a copied row of %d columns, not %d", count, len(p.formats))
	}
	for i, format := range p.formats {
		if len(rest) < 4 {
			return data, false, nil
		}
		size := int32(binary.BigEndian.Uint32(rest))
		rest = rest[4:]
		if size == -1 {
			p.tuple[i] = Value{Format: FormatNull}
			continue
		}
		if size < 0 || size >= copyFieldMax {
			return nil, false, malformedf("a copied value of %d bytes", size)
		}
		if len(rest) < int(size) {
			return data, false, nil
		}
		p.tuple[i] = Value{Format: format, Data: rest[:size:size]}
		rest = rest[size:]
	}
	p.rows++
	if err := p.row(p.tuple); err != nil {
		return nil, false, fmt.Errorf("row %d: %w", p.rows, err)
	}
	return rest, true, nil
}
