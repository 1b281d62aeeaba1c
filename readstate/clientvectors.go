package readstate

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/deletion"
)

// remoteTable is a table of a state as a pin's answer describes it.
type remoteTable struct {
	client  *Client
	handle  uint64
	life    *life
	wire    *wireTable
	schema  *arrow.Schema
	batches []*cachedBatch
}

// table makes the Table: an incomplete one when one of its vectors is not among those given.
func (t *remoteTable) table(vectors map[uint64]*deletion.Vector) *Table {
	out := &Table{Name: t.wire.TableName, Schema: t.schema, Err: t.wire.Err}
	for _, v := range t.wire.vectors() {
		if vectors[v.ID] == nil {
			out.Err = fmt.Sprintf("table %s is incomplete: its deleted rows have not been asked for", out.Name)
			out.complete = t.complete
			return out
		}
	}
	in := func(v *wireVector) *deletion.Vector {
		if v == nil {
			return nil
		}
		return vectors[v.ID]
	}
	for _, wf := range t.wire.Files {
		out.Files = append(out.Files, File{Path: wf.Path, Rows: wf.Rows, Bytes: wf.Bytes, Deleted: in(wf.Deleted)})
	}
	for i, wb := range t.wire.Batches {
		out.Batches = append(out.Batches, Batch{
			ID: t.batches[i].localID, Sealed: wb.Sealed, Rows: wb.Rows, Deleted: in(wb.Deleted),
			Columns: &remoteColumns{client: t.client, handle: t.handle, life: t.life, serverID: wb.ID, batch: t.batches[i], schema: t.schema, rows: wb.Rows},
		})
	}
	return out
}

// complete is Table.Complete of a table that has been left incomplete.
func (t *remoteTable) complete(ctx context.Context) (*Table, error) {
	if err := t.life.over(); err != nil {
		return nil, err
	}
	wanted := newVectorList()
	err := wanted.add(t.client, t.wire)
	if err == nil {
		err = wanted.fetch(ctx, t.client, t.handle)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch the deleted rows of table %s: %w", t.wire.TableName, err)
	}
	return t.table(wanted.vectors), nil
}

// vectors lists those that the table names.
func (t *wireTable) vectors() []*wireVector {
	var out []*wireVector
	for _, file := range t.Files {
		if file.Deleted != nil {
			out = append(out, file.Deleted)
		}
	}
	for _, batch := range t.Batches {
		if batch.Deleted != nil {
			out = append(out, batch.Deleted)
		}
	}
	return out
}

// vectorList gathers the vectors that tables name, by the server's IDs: those that came before, and what is missing.
type vectorList struct {
	vectors map[uint64]*deletion.Vector
	rows    map[uint64]uint32
	missing []uint64
}

func newVectorList() *vectorList {
	return &vectorList{vectors: map[uint64]*deletion.Vector{}, rows: map[uint64]uint32{}}
}

// add notes a table's vectors.
func (l *vectorList) add(c *Client, table *wireTable) error {
	for _, v := range table.vectors() {
		known, seen := l.rows[v.ID]
		if seen && known != v.Rows {
			return protocolErrorf("vector %d has %d and %d rows", v.ID, known, v.Rows)
		}
		if seen {
			continue
		}
		l.rows[v.ID] = v.Rows
		vector, ok := c.cache.vector(v.ID)
		switch {
		case !ok:
			l.missing = append(l.missing, v.ID)
		case vector.Rows() != v.Rows:
			return protocolErrorf("vector %d had %d rows and now %d", v.ID, vector.Rows(), v.Rows)
		default:
			l.vectors[v.ID] = vector
		}
	}
	return nil
}

// fetch asks the server for what is missing.
func (l *vectorList) fetch(ctx context.Context, c *Client, handle uint64) error {
	for ids := range slices.Chunk(l.missing, idsPerRequest) {
		e, err := c.do(ctx, request{Op: opVectors, State: handle, Vectors: ids}, nil, nil)
		if err != nil {
			return err
		}
		for i, blob := range e.parts {
			vector, err := deletion.UnmarshalBlob(blob, l.rows[ids[i]])
			if err != nil {
				return protocolErrorf("vector %d: %v", ids[i], err)
			}
			l.vectors[ids[i]] = c.cache.addVector(ids[i], vector)
		}
	}
	l.missing = nil
	return nil
}
