package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
)

// copyBatchRows is the number of rows encoded at once: a row group.
const copyBatchRows = iceberg.RowGroupRows

// copyRows collects the rows of a copy, batch after batch in the same memory. What record returns is valid until reset.
type copyRows struct {
	m       *Mirror
	part    *table
	batch   *batch
	varying []int // columns whose values differ in size
	fixed   int64 // bytes of a row in all others
	at      LSN
}

func newCopyRows(m *Mirror, part *table, at LSN) *copyRows {
	r := &copyRows{m: m, part: part, batch: newBatch(part.shape), at: at}
	r.batch.index = nil // nothing looks rows up
	for i, c := range r.batch.cols {
		if c.child == nil && c.width > 0 {
			r.fixed += int64(c.width)
		} else {
			r.varying = append(r.varying, i)
		}
	}
	return r
}

// full says that it is time to write the rows.
func (r *copyRows) full() bool {
	return int64(r.batch.rows) >= min(copyBatchRows, r.m.cfg.FileRows) || r.batch.added >= r.m.copyBytes
}

// copyLeast is the size of values from which a worker writes its rows, however little memory there is.
const copyLeast = 1 << 20

// copyBytes is the size of values from which a worker of a copy writes its rows: all workers' together take a quarter of the bound of memory.
func copyBytes(c *Config) int64 {
	return min(batchBytes, max(copyLeast, c.Memory/4/int64(c.CopyWorkers)))
}

// weigh brings the account up to date with what the rows take, which is kept for the next ones, and the hashes of those written to a file.
func (r *copyRows) weigh(hashes []uint64) {
	w := r.batch.bytes() + int64(cap(hashes))*8
	r.m.copyRows.Add(w - r.batch.weight)
	r.batch.weight = w
}

// free takes the rows off the account.
func (r *copyRows) free() {
	r.m.copyRows.Add(-r.batch.weight)
	r.batch.weight = 0
}

// reset forgets the rows and keeps their memory.
func (r *copyRows) reset() {
	b := r.batch
	for _, c := range b.cols {
		c.truncate(0)
	}
	b.hashes, b.rows, b.added = b.hashes[:0], 0, 0
}

// record is the rows collected, for a data file.
func (r *copyRows) record(schema *arrow.Schema) arrow.RecordBatch {
	for r.batch.lsns.len() < r.batch.rows {
		r.batch.lsns.push(uint64(r.at))
	}
	return r.batch.record(schema, r.batch.rows)
}

// add appends a row. After an error the batch is of no use.
func (r *copyRows) add(tuple pgcdc.Tuple) error {
	b := r.batch
	if len(tuple) != len(b.cols) {
		return fmt.Errorf("the row has %d columns, the table %d", len(tuple), len(b.cols))
	}
	columns := r.part.shape.columns
	for i, c := range b.cols {
		v := &tuple[i]
		if v.Format == pgcdc.FormatBinary && c.child == nil {
			if c.width > 0 {
				if bits, ok := columns[i].pg.Word(v.Data); ok {
					c.word(bits)
					continue
				}
			} else if columns[i].pg.Verbatim(v.Data) {
				c.Binary(v.Data)
				continue
			}
		}
		if err := r.part.put(r.m, c, i, b.rows, *v); err != nil {
			return err
		}
	}
	b.added += r.fixed
	for _, i := range r.varying {
		c := b.cols[i]
		if c.full() {
			return &rowError{columns[i].name, errors.New("the value takes more than 2 GB in the mirror's form")}
		}
		b.added += c.rowBytes(b.rows)
	}
	if r.part.shape.mode != insertOnly {
		b.hashes = append(b.hashes, r.part.hash(b.keys, b.rows))
	}
	b.rows++
	return nil
}

// put appends a value that a tuple holds to column i, which has rows rows.
func (t *table) put(m *Mirror, c *column, i, rows int, v pgcdc.Value) error {
	col := &t.shape.columns[i]
	if v.Format == pgcdc.FormatNull {
		if col.key {
			return &rowError{col.name, errors.New("NULL in the primary key")}
		}
		c.Null()
		return nil
	}
	err := col.pg.Decode(v.Format, v.Data, c)
	if err == nil {
		return nil
	}
	if !m.cfg.NullUnrepresentable || col.key || !errors.Is(err, pgcdc.ErrUnrepresentable) {
		return &rowError{col.name, err}
	}
	c.truncate(rows)
	c.Null()
	t.unrepresentable++
	return nil
}

// word appends a number of the column's width, 4 or 8 bytes.
func (c *column) word(bits uint64) {
	if c.width == 4 {
		c.data.reserve(4)
		n := len(c.data.own)
		c.data.own = c.data.own[:n+4]
		binary.LittleEndian.PutUint32(c.data.own[n:], uint32(bits))
	} else {
		c.data.reserve(8)
		n := len(c.data.own)
		c.data.own = c.data.own[:n+8]
		binary.LittleEndian.PutUint64(c.data.own[n:], bits)
	}
	c.finish()
}
