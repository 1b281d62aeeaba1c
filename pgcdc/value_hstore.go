package pgcdc

import (
	"encoding/binary"
	"math"
)

// appendHstore prints an hstore as hstore_out does: "key"=>"value", "other"=>NULL. hstore_send writes the number of pairs
// and, in the order in which they are printed, for each the key and the value, both after their lengths; −1 is a NULL value
// (contrib/hstore/hstore_io.c).
func appendHstore(to, data []byte) ([]byte, bool) {
	const pair = 8 // two lengths
	if len(data) < 4 {
		return to, false
	}
	pairs := binary.BigEndian.Uint32(data)
	if data = data[4:]; uint64(pairs)*pair > uint64(len(data)) {
		return to, false
	}
	for i := range pairs {
		if i > 0 {
			to = append(to, ", "...)
		}
		key, rest, ok := cutSized(data)
		if !ok || key == nil {
			return to, false
		}
		value, rest, ok := cutSized(rest)
		if !ok {
			return to, false
		}
		to = append(appendQuoted(to, key), "=>"...)
		if value == nil {
			to = append(to, "NULL"...)
		} else {
			to = appendQuoted(to, value)
		}
		data = rest
	}
	return to, len(data) == 0
}

// cutSized cuts a length and as many bytes off data. Length −1 is nil.
func cutSized(data []byte) (value, rest []byte, ok bool) {
	if len(data) < 4 {
		return nil, nil, false
	}
	size := binary.BigEndian.Uint32(data)
	data = data[4:]
	if size == math.MaxUint32 {
		return nil, data, true
	}
	if uint64(size) > uint64(len(data)) {
		return nil, nil, false
	}
	return data[:size:size], data[size:], true
}

// appendQuoted puts text in quotes, with a backslash before each quote and backslash in it.
func appendQuoted(to, text []byte) []byte {
	to = append(to, '"')
	for _, c := range text {
		if c == '"' || c == '\\' {
			to = append(to, '\\')
		}
		to = append(to, c)
	}
	return append(to, '"')
}
