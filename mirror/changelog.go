package mirror

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"pgmirror/pgcdc"
)

// changeLog keeps the changes of one table while its rows are being copied, in the order in which they were applied. The first
// logMemory bytes stay in memory, what comes after goes to a file that has no name any more: a crash leaves nothing behind.
//
// A record is the commit's end LSN (8 bytes), the operation, the kind of the old tuple, the relation's place in relations (4 bytes),
// and the old and the new tuple: the number of columns plus one, 0 for no tuple (2 bytes), and for each column its format and, if
// it was sent, its length (4 bytes) and bytes. Numbers are little endian.
type changeLog struct {
	dir       string
	limit     int // logMemory but in tests
	head      []byte
	file      *os.File // nil until the memory is full
	out       *bufio.Writer
	record    []byte // scratch
	relations []*pgcdc.Relation
	changes   int
	err       error // why it could not be kept; it holds nothing then
}

// logMemory is how many bytes of a log stay in memory.
const logMemory = 16 << 20

func newChangeLog(dir string) *changeLog { return &changeLog{dir: dir, limit: logMemory} }

// add appends a change of the commit that ends at lsn. Of a TRUNCATE of several tables only its own place is kept. When the disk is full,
// the log is of no use any more, and lets go of what it has: others need the disk.
func (l *changeLog) add(ch *pgcdc.Change, lsn LSN) {
	if l.err != nil {
		return
	}
	if err := l.append(ch, lsn); err != nil {
		l.err = errors.Join(fmt.Errorf("keep the changes of a table that is being copied: %w", err), l.close())
		l.head, l.file, l.out, l.record, l.relations = nil, nil, nil, nil, nil
	}
}

func (l *changeLog) append(ch *pgcdc.Change, lsn LSN) error {
	le := binary.LittleEndian
	r := le.AppendUint64(l.record[:0], uint64(lsn))
	r = append(r, byte(ch.Op), ch.OldKind)
	r = le.AppendUint32(r, l.relation(ch.Relation))
	r = appendTuple(r, ch.Old)
	r = appendTuple(r, ch.New)
	if l.record = r; cap(r) > recordKept {
		l.record = nil
	}
	l.changes++
	if l.file == nil && len(l.head)+len(r) <= l.limit {
		l.head = append(l.head, r...)
		return nil
	}
	if l.file == nil {
		f, err := os.CreateTemp(l.dir, "join-*")
		if err != nil {
			return err
		}
		l.file, l.out = f, bufio.NewWriterSize(f, logBuffer)
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
	}
	_, err := l.out.Write(r)
	return err
}

// A record's buffer above recordKept bytes is not kept for the next one; a log's file is written and read logBuffer bytes at a time.
const (
	recordKept = 1 << 20
	logBuffer  = 64 << 10
)

// relation is a relation's place in the list, plus one; 0 for nil. The newest is nearly always the one.
func (l *changeLog) relation(r *pgcdc.Relation) uint32 {
	if r == nil {
		return 0
	}
	if n := len(l.relations); n == 0 || l.relations[n-1] != r {
		l.relations = append(l.relations, r)
	}
	return uint32(len(l.relations))
}

func appendTuple(r []byte, t pgcdc.Tuple) []byte {
	if t == nil {
		return append(r, 0, 0)
	}
	r = binary.LittleEndian.AppendUint16(r, uint16(len(t)+1))
	for _, v := range t {
		r = append(r, byte(v.Format))
		if v.Format == pgcdc.FormatText || v.Format == pgcdc.FormatBinary {
			r = binary.LittleEndian.AppendUint32(r, uint32(len(v.Data)))
			r = append(r, v.Data...)
		}
	}
	return r
}

// reader ends the writing and returns what was added, to be read once. Its owner closes it.
func (l *changeLog) reader() (*logReader, error) {
	r := &logReader{head: l.head, relations: l.relations, left: l.changes, file: l.file}
	if l.file == nil {
		return r, nil
	}
	err := l.out.Flush()
	if err == nil {
		_, err = l.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the kept changes of a table: %w", err), l.close())
	}
	r.tail = bufio.NewReaderSize(l.file, logBuffer)
	return r, nil
}

// close gives up a log that nobody reads.
func (l *changeLog) close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// logReader hands the changes of a log out in order.
type logReader struct {
	head      []byte
	file      *os.File
	tail      *bufio.Reader // nil when all is in head
	relations []*pgcdc.Relation
	left      int // changes

	change  pgcdc.Change
	values  []byte // the bytes of a record read from the file
	columns [2]pgcdc.Tuple
}

// next returns the next change and its commit's end LSN. It is valid until the next call. The caller asks only while left > 0.
func (r *logReader) next() (*pgcdc.Change, LSN, error) {
	r.left--
	r.values = r.values[:0]
	const fixed = 14
	head, err := r.bytes(fixed)
	if err != nil {
		return nil, 0, err
	}
	le := binary.LittleEndian
	lsn := LSN(le.Uint64(head))
	r.change = pgcdc.Change{Op: pgcdc.Op(head[8]), OldKind: head[9]}
	if i := le.Uint32(head[10:]); i > 0 {
		r.change.Relation = r.relations[i-1]
	}
	if r.change.Old, err = r.tuple(0); err == nil {
		r.change.New, err = r.tuple(1)
	}
	return &r.change, lsn, err
}

// bytes returns the next n bytes, valid until the next change.
func (r *logReader) bytes(n int) ([]byte, error) {
	if len(r.head) >= n { // a record lies on one side whole
		b := r.head[:n:n]
		r.head = r.head[n:]
		return b, nil
	}
	at := len(r.values)
	if cap(r.values)-at < n { // what was handed out before stays where it is
		r.values, at = make([]byte, 0, max(2*cap(r.values), n, 4096)), 0
	}
	r.values = r.values[:at+n]
	b := r.values[at : at+n : at+n]
	if _, err := io.ReadFull(r.tail, b); err != nil {
		return nil, fmt.Errorf("read the kept changes of a table: %w", err)
	}
	return b, nil
}

func (r *logReader) tuple(which int) (pgcdc.Tuple, error) {
	size, err := r.bytes(2)
	if err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint16(size))
	if n == 0 {
		return nil, nil
	}
	t := r.columns[which][:0]
	for range n - 1 {
		format, err := r.bytes(1)
		if err != nil {
			return nil, err
		}
		v := pgcdc.Value{Format: pgcdc.Format(format[0])}
		if v.Format == pgcdc.FormatText || v.Format == pgcdc.FormatBinary {
			size, err := r.bytes(4)
			if err == nil {
				v.Data, err = r.bytes(int(binary.LittleEndian.Uint32(size)))
			}
			if err != nil {
				return nil, err
			}
		}
		t = append(t, v)
	}
	r.columns[which] = t
	return t, nil
}

// close releases the file. It may be called twice.
func (r *logReader) close() error {
	f := r.file
	r.file, r.head, r.left = nil, nil, 0
	if f == nil {
		return nil
	}
	return f.Close()
}
