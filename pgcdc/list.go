package pgcdc

import (
	"bytes"
	"encoding/binary"
	"math"
)

const (
	reasonDimensions = "the array has more than one dimension"
	reasonLowerBound = "the array does not begin at 1, and what finds the row would not tell it from one that does"
)

// asKey is the type of a column that rows are found by: values that differ on the source may not be one.
func (t *Type) asKey() *Type {
	if t.Kind != KindList {
		return t
	}
	other := *t
	other.exact = true
	return &other
}

// binaryList reads what array_send writes: the number of dimensions, whether there are NULLs, the element type's OID, for
// each dimension its length and lower bound, and the elements, each with its length or −1 for NULL.
func (t *Type) binaryList(data []byte, s Sink) error {
	const head, dimension = 12, 8
	if len(data) < head || binary.BigEndian.Uint32(data[4:]) > 1 {
		return t.malformed(FormatBinary)
	}
	if oid := binary.BigEndian.Uint32(data[8:]); oid != t.Elem.OID && oid != t.Elem.base {
		return t.malformed(FormatBinary)
	}
	switch dimensions := binary.BigEndian.Uint32(data); {
	case dimensions == 0 && len(data) == head:
		s.BeginList(0)
		s.EndList()
		return nil
	case dimensions > 1:
		return t.unrepresentable(reasonDimensions)
	case dimensions == 0 || len(data) < head+dimension:
		return t.malformed(FormatBinary)
	}
	if t.exact && binary.BigEndian.Uint32(data[head+4:]) != 1 {
		return t.unrepresentable(reasonLowerBound)
	}
	elements := binary.BigEndian.Uint32(data[head:])
	data = data[head+dimension:]
	if uint64(elements)*4 > uint64(len(data)) {
		return t.malformed(FormatBinary)
	}
	s.BeginList(int(elements))
	for range elements {
		if len(data) < 4 {
			return t.malformed(FormatBinary)
		}
		size := binary.BigEndian.Uint32(data)
		data = data[4:]
		if size == math.MaxUint32 {
			s.Null()
			continue
		}
		if uint64(size) > uint64(len(data)) {
			return t.malformed(FormatBinary)
		}
		if err := t.Elem.decodeBinary(data[:size:size], s); err != nil {
			return err
		}
		data = data[size:]
	}
	if len(data) != 0 {
		return t.malformed(FormatBinary)
	}
	s.EndList()
	return nil
}

// textList reads what array_out prints: {1,NULL,"a \"quoted\" one"}, after [from:to]= when the lower bound is not 1.
func (t *Type) textList(data []byte, s Sink) error {
	bounds := int64(-1) // how many elements the prefix promises
	if len(data) > 0 && data[0] == '[' {
		var ok bool
		if bounds, data, ok = cutBounds(data); !ok {
			return t.malformed(FormatText)
		}
		if len(data) > 0 && data[0] == '[' {
			return t.unrepresentable(reasonDimensions)
		}
		if data, ok = bytes.CutPrefix(data, []byte("=")); !ok {
			return t.malformed(FormatText)
		}
		if t.exact {
			return t.unrepresentable(reasonLowerBound)
		}
	}
	if len(data) < 2 || data[0] != '{' || data[len(data)-1] != '}' {
		return t.malformed(FormatText)
	}
	if data[1] == '{' {
		return t.unrepresentable(reasonDimensions)
	}
	delim := t.delim
	if delim == 0 {
		delim = ','
	}
	elements, ok := 0, len(data) == 2
	for rest := data[1:]; !ok; elements++ {
		var elem listElement
		if elem, rest, ok = cutElement(rest, delim); !ok {
			return t.malformed(FormatText)
		}
		ok = elem.last
	}
	if bounds >= 0 && bounds != int64(elements) {
		return t.malformed(FormatText)
	}
	s.BeginList(elements)
	rest := data[1:]
	for range elements {
		var elem listElement
		elem, rest, _ = cutElement(rest, delim)
		if err := elem.decode(t.Elem, s); err != nil {
			return err
		}
	}
	s.EndList()
	return nil
}

// cutBounds cuts [from:to] off and says how many elements that makes.
func cutBounds(data []byte) (elements int64, rest []byte, ok bool) {
	end := bytes.IndexByte(data, ']')
	colon := bytes.IndexByte(data, ':')
	if colon < 0 || end < colon {
		return 0, nil, false
	}
	from, fromOK := parseInteger(data[1:colon])
	to, toOK := parseInteger(data[colon+1 : end])
	if !fromOK || !toOK || from != int64(int32(from)) || to != int64(int32(to)) || to < from {
		return 0, nil, false
	}
	return to - from + 1, data[end+1:], true
}

// listElement is one element of an array's text, as it stands there.
type listElement struct {
	raw     []byte // without its quotes
	quoted  bool
	escaped bool // raw has backslashes
	last    bool // the closing brace follows
}

// cutElement cuts an element and what separates it from the next off data, which begins at the element. The array's last
// byte is data's last.
func cutElement(data []byte, delim byte) (elem listElement, rest []byte, ok bool) {
	end := 0
	if len(data) > 0 && data[0] == '"' {
		elem.quoted = true
		for end = 1; ; end++ {
			if end >= len(data) {
				return elem, nil, false
			}
			if data[end] == '"' {
				break
			}
			if data[end] == '\\' {
				elem.escaped = true
				end++
			}
		}
		elem.raw = data[1:end]
		end++
	} else {
		for ; end < len(data) && data[end] != delim && data[end] != '}'; end++ {
			if c := data[end]; c == '"' || c == '\\' || c == '{' {
				return elem, nil, false
			}
		}
		elem.raw = data[:end]
		if end == 0 {
			return elem, nil, false
		}
	}
	if end >= len(data) {
		return elem, nil, false
	}
	switch data[end] {
	case delim:
		return elem, data[end+1:], true
	case '}':
		elem.last = true
		return elem, nil, end == len(data)-1
	}
	return elem, nil, false
}

func (e *listElement) decode(t *Type, s Sink) error {
	if !e.quoted && string(e.raw) == "NULL" {
		s.Null()
		return nil
	}
	if !e.escaped {
		return t.decodeText(e.raw, s)
	}
	b := takeScratch()
	defer b.release()
	b.buf = b.buf[:0]
	for i := 0; i < len(e.raw); i++ {
		if e.raw[i] == '\\' {
			i++ // cutElement saw to it that a byte follows
		}
		b.buf = append(b.buf, e.raw[i])
	}
	return t.decodeText(b.buf, s)
}
