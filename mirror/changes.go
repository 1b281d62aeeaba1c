package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/deletion"
	"pgmirror/readstate"
)

// A change feed lists the row versions of a table that came and went in a range of LSNs. Inside the window every version survives: whatever flush, compaction and
// fold forget was deleted at or below LWM. So the feed is read from the segments of one version of the table, by two facts that each has in memory:
//
//   - rows created in the range are consecutive, [rowsAt(from), rowsAt(to)), because a segment with rows created above LWM is in create order;
//   - rows deleted in the range have entries in the Visibility, because folds stop at LWM; a TRUNCATE has the segment's droppedAt.
//
// A version that was created and deleted by one commit was never visible, and is not listed.

// pinChanges makes the feed's state: one table whose rows are the changes. It holds LWM at the range's beginning until it is released.
func (m *Mirror) pinChanges(ctx context.Context, wait, to LSN, want *readstate.Changes) (*readstate.State, error) {
	if err := m.readable(ctx, wait); err != nil {
		return nil, err
	}
	p, to, err := m.marks.registerRange(want.From, to)
	if err != nil {
		return nil, err
	}
	st := &readstate.State{LSN: to, Pinned: m.clock.Now()}
	m.readers.opened()
	h := &hold{m: m, state: st, unpin: func() { m.marks.release(p) }}
	list := &feedList{m: m}
	drop := sync.OnceFunc(list.drop)
	st.Release = func() { h.release(); drop() }
	st.Settle = func() { h.settle(); drop() } // whoever settles it has read its rows; it names no files
	st.Kept = h.kept
	t, err := m.changeTable(ctx, want.Table, p.LSN, to, list)
	if err != nil {
		st.Release()
		return nil, err
	}
	st.Tables = []*readstate.Table{t}
	h.pin(t)
	return st, nil
}

// feedList counts what the list of one feed's changes takes, in bytes. All lists together take no more than the setting memory, but for one that is
// larger by itself.
type feedList struct {
	m     *Mirror
	bytes int64
}

// add makes room for more changes.
func (l *feedList) add(changes int) error {
	more := int64(changes) * int64(unsafe.Sizeof(changedRow{}))
	l.bytes += more
	if all := l.m.feeds.Add(more); all > l.m.cfg.Memory && all > l.bytes {
		return fmt.Errorf("the lists of all change feeds that are open take %d bytes, more than the setting memory, %d: close some of them, or ask for a shorter range", all, l.m.cfg.Memory)
	}
	return nil
}

func (l *feedList) drop() { l.m.feeds.Add(-l.bytes) }

// changeTable lists the changes of a table above from and at or below to. The caller holds LWM at or below from.
func (m *Mirror) changeTable(ctx context.Context, name readstate.TableName, from, to LSN, list *feedList) (*readstate.Table, error) {
	views := m.shared.views()
	i := slices.IndexFunc(views, func(v *tableView) bool { return v.table.name == name })
	if i < 0 {
		return nil, fmt.Errorf("table %s is not mirrored", name)
	}
	v := views[i].at(to)
	if why := v.unreadable(to, chosen); why != "" {
		return nil, errors.New(why)
	}
	if from < v.table.appears {
		return nil, fmt.Errorf("table %s was copied again at %s: its changes are known up to there, and from there on, but no range may hold it", name, v.table.appears)
	}
	version := v.table.version.Load().at(to)
	if moved := version.moved; from < moved {
		return nil, fmt.Errorf("another Iceberg writer moved rows of table %s to other files at %s: its changes are known up to there, and from there on, but no range may hold it", name, moved)
	}
	out := &readstate.Table{Name: name, Schema: changeSchema(version.shape.arrow)}
	for _, s := range version.segments {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		rows, err := s.changes(from, to)
		if err == nil {
			err = list.add(len(rows))
		}
		if err != nil {
			return nil, fmt.Errorf("changes of %s from %s to %s: %w", name, from, to, err)
		}
		for part := range slices.Chunk(rows, s.changesTogether()) {
			out.Batches = append(out.Batches, readstate.Batch{ID: m.lastFeed.Add(1) + firstFeed, Sealed: true, Rows: len(part),
				Columns: &changeReader{warehouse: m.warehouse, segment: s, shape: version.shape, rows: part}})
		}
	}
	return out, nil
}

// firstFeed keeps the IDs of a feed's batches above those of segments, which have 32 bits.
const firstFeed = 1 << 32

// changeSchema is what a feed shows of a table.
func changeSchema(table *arrow.Schema) *arrow.Schema {
	field := func(name string, typ arrow.DataType, id int) arrow.Field {
		return arrow.Field{Name: name, Type: typ, Metadata: arrow.MetadataFrom(map[string]string{readstate.FieldIDKey: strconv.Itoa(id)})}
	}
	return arrow.NewSchema(append([]arrow.Field{
		field(readstate.ChangeColumn, arrow.BinaryTypes.String, readstate.ChangeFieldID),
		field(readstate.ChangeLSNColumn, arrow.PrimitiveTypes.Int64, readstate.ChangeOrderFieldID),
	}, table.Fields()...), nil)
}

// changeColumns is how many columns a feed has before the table's.
const changeColumns = 2

// changedRow is a row of a segment and what happened to it at an LSN.
type changedRow struct {
	lsn     LSN
	row     uint32
	deleted bool
}

// changes lists what happened to the segment's rows above from and at or below to, by row. Any goroutine may call it that holds LWM at or below from.
func (s *segment) changes(from, to LSN) (list []changedRow, err error) {
	ended := LSN(s.droppedAt.Load())
	if ended != 0 && ended <= from {
		return nil, nil
	}
	if ended > to {
		ended = 0
	}
	old, all := s.rowsAt(from), s.rowsAt(to)
	gone, err := s.vis.Between(from, to)
	if err != nil {
		return nil, err
	}
	created := s.createdAfter(all)
	deletedAt := func(row int) LSN { // in the range; 0 when it was not
		if len(gone) > 0 && int(gone[0].Row) == row {
			return gone[0].At
		}
		return 0
	}
	var dead *deletion.Vector
	if ended != 0 {
		if dead, err = s.vis.At(to, uint32(all)); err != nil {
			return nil, err
		}
	}
	visit := func(row int) {
		end := deletedAt(row)
		if ended != 0 && !dead.Contains(uint32(row)) {
			end = ended
		}
		var begin LSN
		if row >= old {
			begin = created(row)
		}
		if begin == end { // neither, or both at once
			return
		}
		if begin != 0 {
			list = append(list, changedRow{begin, uint32(row), false})
		}
		if end != 0 {
			list = append(list, changedRow{end, uint32(row), true})
		}
	}
	if ended != 0 {
		for row := range all {
			visit(row)
			if deletedAt(row) != 0 {
				gone = gone[1:]
			}
		}
		return list, nil
	}
	for len(gone) > 0 && int(gone[0].Row) < old {
		visit(int(gone[0].Row))
		gone = gone[1:]
	}
	for row := old; row < all; row++ {
		visit(row)
		if deletedAt(row) != 0 {
			gone = gone[1:]
		}
	}
	return list, nil
}

// createdAfter tells the create LSNs of the segment's first rows rows, as far as they are above LWM.
func (s *segment) createdAfter(rows int) func(row int) LSN {
	if s.batch != nil {
		lsns := s.batch.lsns.read(rows)
		return func(row int) LSN { return LSN(lsns[row]) }
	}
	cuts := s.file.cuts.Load()
	if cuts == nil {
		return func(int) LSN { return 0 } // not asked for: no row of the file is new
	}
	return func(row int) LSN {
		return (*cuts)[sort.Search(len(*cuts), func(i int) bool { return (*cuts)[i].rows > row })].lsn
	}
}

const (
	// changesRead is how many rows of a file a client gets at once: they are in memory while they are sent.
	changesRead = 64 << 10
	// changesReadBytes bounds them by what they take in the file, where they are smaller than in memory, by about three times.
	changesReadBytes = 32 << 20
)

// changesTogether is how many of the segment's changes make a batch of the feed. A memory batch is bounded already.
func (s *segment) changesTogether() int {
	if s.batch != nil {
		return changesRead
	}
	return int(max(1, min(changesRead, changesReadBytes*s.file.data.Rows/max(1, s.file.data.Bytes))))
}

// changeReader gives a feed's client the columns of some changes of a segment, by row.
type changeReader struct {
	warehouse Warehouse
	segment   *segment
	shape     *shape
	rows      []changedRow
}

// errEnough ends the reading of a file.
var errEnough = errors.New("enough rows")

func (r *changeReader) Read(columns []int, from, to int) ([]arrow.Array, error) {
	if from < 0 || to < from || to > len(r.rows) {
		return nil, fmt.Errorf("read changes %d to %d of %d", from, to, len(r.rows))
	}
	out := make([]arrow.Array, len(columns))
	var places, wanted []int // of the table's columns
	for i, c := range columns {
		switch {
		case c < 0 || c >= changeColumns+len(r.shape.columns):
			return nil, fmt.Errorf("read column %d of %d", c, changeColumns+len(r.shape.columns))
		case c < changeColumns:
			out[i] = describeChanges(r.rows[from:to], c)
		default:
			places, wanted = append(places, i), append(wanted, c-changeColumns)
		}
	}
	if len(wanted) == 0 {
		return out, nil
	}
	values := make([]*column, len(wanted))
	for i, c := range wanted {
		values[i] = newColumn(r.shape.arrow.Field(c).Type)
	}
	if err := r.gather(values, wanted, r.rows[from:to]); err != nil {
		return nil, err
	}
	for i, place := range places {
		if values[i].full() {
			return nil, fmt.Errorf("column %q of %d changes takes more than 2 GB", r.shape.columns[wanted[i]].name, to-from)
		}
		out[place] = values[i].ownArray()
	}
	return out, nil
}

// describeChanges is one of a feed's own columns.
func describeChanges(rows []changedRow, column int) arrow.Array {
	if column == 1 {
		lsns := make([]uint64, len(rows))
		for i, r := range rows {
			lsns[i] = uint64(r.lsn)
		}
		return lsnArray(lsns)
	}
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	for _, r := range rows {
		if r.deleted {
			b.Append("delete")
		} else {
			b.Append("insert")
		}
	}
	return b.NewArray()
}

// gather appends the wanted columns of the rows that changed.
func (r *changeReader) gather(values []*column, wanted []int, rows []changedRow) error {
	if len(rows) == 0 {
		return nil
	}
	last := int(rows[len(rows)-1].row)
	take := func(arrays []arrow.Array, first, n int) error {
		for len(rows) > 0 && int(rows[0].row) < first+n {
			for i, v := range values {
				if err := v.appendArray(arrays[i], int(rows[0].row)-first); err != nil {
					return fmt.Errorf("column %q: %w", r.shape.columns[wanted[i]].name, err)
				}
			}
			rows = rows[1:]
		}
		return nil
	}
	if b := r.segment.batch; b != nil {
		arrays, err := b.read(r.shape, wanted, 0, last+1)
		if err != nil {
			return err
		}
		return take(arrays, 0, last+1)
	}
	path := r.segment.file.data.Path
	in, err := r.warehouse.OpenData(path)
	if err != nil {
		return err
	}
	defer in.Close()
	fields, ids := r.shape.fields(wanted)
	y, err := newYounger(in, path, fields, ids)
	if err != nil {
		return err
	}
	if len(y.ids) == 0 { // all of them are younger than the file
		arrays, err := y.columns(array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 1))
		for err == nil && len(rows) > 0 {
			first := int(rows[0].row)
			err = take(arrays, first, 1)
		}
		return err
	}
	err = in.Columns(context.Background(), y.ids, func(rec arrow.RecordBatch, first int64) error {
		arrays, err := y.columns(rec)
		if err == nil {
			err = take(arrays, int(first), int(rec.NumRows()))
		}
		if err == nil && len(rows) == 0 {
			err = errEnough
		}
		return err
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
