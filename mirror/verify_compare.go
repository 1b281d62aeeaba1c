package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// comparison compares one table of the source, in an exported snapshot, with the mirror's at the snapshot's consistent point.
// Both sides are streamed: a row is encoded, hashed, added to its side's tally and forgotten.
type comparison struct {
	nulled   int64 // values of the source that are compared as NULL, for the mirror cannot hold them
	m        *Mirror
	snapshot pgcdc.ExportedSnapshot
	source   *pgcdc.Table
	ours     *readstate.Table
	columns  []comparedColumn
	key      []int // the columns that name a row; none when the table has no key
	sample   *sample
	tell     *teller
}

type comparedColumn struct {
	name    string
	pg      *pgcdc.Type
	fieldID int32
	primary bool // never NULL
	key     bool
}

// newComparison matches the two sides' columns. unlike says how they differ; it is empty when they do not.
func (m *Mirror) newComparison(snapshot pgcdc.ExportedSnapshot, source *pgcdc.Table, ours *readstate.Table, percent float64, tell *teller) (c *comparison, unlike string, err error) {
	c = &comparison{m: m, snapshot: snapshot, source: source, ours: ours, key: source.Key, tell: tell}
	if len(c.key) == 0 && source.Identity != pgcdc.IdentityFull {
		c.key = source.IdentityKey
	}
	if n := ours.Schema.NumFields(); n != len(source.Columns) {
		return nil, fmt.Sprintf("it has %d columns on the source and %d in the mirror", len(source.Columns), n), nil
	}
	for i, column := range source.Columns {
		field := ours.Schema.Field(i)
		typ, err := arrowType(column.Type)
		if err != nil {
			return nil, fmt.Sprintf("column %q: %s", column.Name, err), nil
		}
		if field.Name != column.Name || !sameType(typ, field.Type) {
			return nil, fmt.Sprintf("column %q of the source is not that of the mirror", column.Name), nil
		}
		id, err := fieldID(field)
		if err != nil {
			return nil, "", err
		}
		c.columns = append(c.columns, comparedColumn{name: column.Name, pg: column.Type, fieldID: int32(id),
			primary: slices.Contains(source.Key, i), key: slices.Contains(c.key, i)})
	}
	if percent > 0 && percent < 100 {
		c.sample = newSample(source, c.key, percent)
	}
	return c, "", nil
}

// rowFunc takes one row of a side.
type rowFunc func(e *rowEncoder) error

// unreadableValue is a value of the source that the mirror cannot hold.
type unreadableValue struct {
	column string
	err    error
}

func (e *unreadableValue) Error() string { return fmt.Sprintf("column %q: %v", e.column, e.err) }
func (e *unreadableValue) Unwrap() error { return e.err }

// readSource calls each with every row that the snapshot sees, or with those of the sample.
func (c *comparison) readSource(ctx context.Context, each rowFunc) error {
	e := &rowEncoder{}
	row := func(tuple pgcdc.Tuple) error {
		if len(tuple) != len(c.columns) {
			return fmt.Errorf("the source sent %d columns, the mirror has %d", len(tuple), len(c.columns))
		}
		e.begin()
		nulled := int64(0)
		for i := range c.columns {
			null, err := c.encode(e, i, tuple[i])
			if err != nil {
				return err
			}
			if null {
				nulled++
			}
		}
		if c.sample != nil && !c.sample.has(e) {
			return nil
		}
		c.nulled += nulled
		return each(e)
	}
	if c.sample != nil {
		return c.m.source.CopySample(ctx, c.snapshot, c.source, c.sample.key, c.sample.limit, row)
	}
	return c.m.source.Copy(ctx, c.snapshot, c.source, row)
}

// encode adds a value of the source; nulled says that the mirror holds NULL in its place.
func (c *comparison) encode(e *rowEncoder, i int, v pgcdc.Value) (nulled bool, err error) {
	column := &c.columns[i]
	begin := len(e.buf)
	e.whole = column.key
	if v.Format == pgcdc.FormatNull {
		e.Null()
	} else if err := column.pg.Decode(v.Format, v.Data, e); errors.Is(err, pgcdc.ErrUnrepresentable) {
		if !c.m.cfg.NullUnrepresentable || column.primary {
			return false, &unreadableValue{column.name, err}
		}
		e.buf = e.buf[:begin]
		e.Null()
		nulled = true
	} else if err != nil {
		return false, fmt.Errorf("column %q: %w", column.name, err)
	}
	e.end()
	return nulled, nil
}

// readMirror calls each with every row of the read state, or with those of the sample.
func (c *comparison) readMirror(ctx context.Context, each rowFunc) error {
	ids, indexes := make([]int32, len(c.columns)), make([]int, len(c.columns))
	for i := range c.columns {
		ids[i], indexes[i] = c.columns[i].fieldID, i
	}
	e := &rowEncoder{}
	for i := range c.ours.Files {
		if err := c.readFile(ctx, &c.ours.Files[i], ids, e, each); err != nil {
			return err
		}
	}
	for _, b := range c.ours.Batches {
		arrays, err := b.Columns.Read(indexes, 0, b.Rows)
		if err != nil {
			return err
		}
		if err := c.encodeRows(arrays, b.Rows, func(row int) bool { return !b.Deleted.Contains(uint32(row)) }, e, each); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// readFile reads the visible rows of a data file. Of a file without a row of the sample it reads only the key.
func (c *comparison) readFile(ctx context.Context, f *readstate.File, ids []int32, e *rowEncoder, each rowFunc) error {
	r, err := c.m.warehouse.OpenData(f.Path)
	if err != nil {
		return err
	}
	defer r.Close()
	if c.sample != nil {
		if skips, err := c.skips(ctx, r, f); err != nil || skips {
			return err
		}
	}
	y, err := newYounger(r, f.Path, c.ours.Schema.Fields(), ids)
	if err != nil {
		return err
	}
	rows := int64(0)
	err = r.Columns(ctx, y.ids, func(rec arrow.RecordBatch, first int64) error {
		rows += rec.NumRows()
		columns, err := y.columns(rec)
		if err != nil {
			return err
		}
		return c.encodeRows(columns, int(rec.NumRows()), func(row int) bool { return !f.Deleted.Contains(uint32(first) + uint32(row)) }, e, each)
	})
	if err == nil && rows != f.Rows {
		err = fmt.Errorf("%w: %s has %d rows, the catalog says %d", iceberg.ErrCorrupt, f.Path, rows, f.Rows)
	}
	return err
}

// encodeRows calls each with the visible ones among the n rows of the columns, or with those of the sample.
func (c *comparison) encodeRows(arrays []arrow.Array, n int, visible func(row int) bool, e *rowEncoder, each rowFunc) error {
	values := make([]valueAppender, len(c.columns))
	for i := range c.columns {
		var err error
		if values[i], err = appenderOf(arrays[i], c.columns[i].key); err != nil {
			return fmt.Errorf("column %q: %w", c.columns[i].name, err)
		}
	}
	chosen := func(int) bool { return true }
	if c.sample != nil {
		key := make([]arrow.Array, len(c.key))
		for i, k := range c.key {
			key[i] = arrays[k]
		}
		var err error
		if chosen, err = c.judge(key); err != nil {
			return err
		}
	}
	for row := range n {
		if !visible(row) || !chosen(row) {
			continue
		}
		e.begin()
		for _, value := range values {
			e.buf = value(e.buf, row)
			e.end()
		}
		if c.sample != nil && len(c.key) == 0 && !c.sample.has(e) {
			continue
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

// bucket is where a row falls: by its key, so that all rows of a key fall into one; without a key, by all of it.
func (c *comparison) bucket(e *rowEncoder, hash xxh3.Uint128, buckets int) int {
	h := hash.Hi
	switch len(c.key) {
	case 0:
	case 1:
		h = xxh3.Hash(e.value(c.key[0]))
	default:
		h = 0
		for _, k := range c.key {
			h = h*0x9E3779B97F4A7C15 + xxh3.Hash(e.value(k))
		}
	}
	return int(h >> 32 & uint64(buckets-1))
}

// visibleRows is how many rows the mirror has.
func (c *comparison) visibleRows() (rows int64) {
	for _, f := range c.ours.Files {
		rows += f.Rows - int64(f.Deleted.Cardinality())
	}
	for _, b := range c.ours.Batches {
		rows += int64(b.Rows) - int64(b.Deleted.Cardinality())
	}
	return rows
}

// tellEvery is how many rows are read between two looks at whether it is time to tell.
const tellEvery = 1 << 10

// sums reads both sides at once.
func (c *comparison) sums(ctx context.Context) (theirs, mine *tally, err error) {
	rows := c.visibleRows()
	buckets := bucketsFor(rows)
	theirs, mine = newTally(buckets), newTally(buckets)
	expected := rows
	if c.sample != nil {
		expected = int64(float64(rows) * c.sample.percent / 100)
	}
	step := "compare " + c.ours.Name.Schema + "." + c.ours.Name.Name
	c.tell.at(step, 0, expected, "rows")
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return c.readSource(gctx, func(e *rowEncoder) error {
			hash := xxh3.Hash128(e.buf)
			theirs.add(hash, c.bucket(e, hash, buckets))
			if theirs.total.rows%tellEvery == 0 {
				c.tell.at(step, theirs.total.rows, expected, "rows")
			}
			return nil
		})
	})
	g.Go(func() error {
		return c.readMirror(gctx, func(e *rowEncoder) error {
			hash := xxh3.Hash128(e.buf)
			mine.add(hash, c.bucket(e, hash, buckets))
			return nil
		})
	})
	return theirs, mine, g.Wait()
}
