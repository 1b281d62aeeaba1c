package pgcdc

import "strconv"

// rowReader reads the columns of one text row in turn. The first fault is kept in err; later reads give zero values.
type rowReader struct {
	row [][]byte
	err error
}

func (r *rowReader) next() []byte {
	if r.err != nil {
		return nil
	}
	if len(r.row) == 0 {
		r.err = malformedf("a row with too few columns")
		return nil
	}
	value := r.row[0]
	r.row = r.row[1:]
	return value
}

// text reads a string; NULL is empty.
func (r *rowReader) text() string { return string(r.next()) }

// optional reads a string, nil for NULL.
func (r *rowReader) optional() *string {
	value := r.next()
	if value == nil {
		return nil
	}
	text := string(value)
	return &text
}

func (r *rowReader) bool() bool { return string(r.next()) == "t" }

// char reads a "char", whose zero is sent as an empty string.
func (r *rowReader) char() byte {
	if value := r.next(); len(value) > 0 {
		return value[0]
	}
	return 0
}

// int reads an integer that must fit in bits.
func (r *rowReader) int(bits int) int64 {
	text := r.text()
	if r.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		r.err = malformedf("a catalogue number that is none")
	}
	return n
}

func (r *rowReader) oid() uint32 {
	text := r.text()
	if r.err != nil {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		r.err = malformedf("an OID that is none")
	}
	return uint32(n)
}

func (r *rowReader) lsn() LSN {
	text := r.text()
	if r.err != nil {
		return 0
	}
	lsn, err := parseLSN(text)
	r.err = err
	return lsn
}
