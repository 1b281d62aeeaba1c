package readstate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/deletion"
)

// idsPerRequest keeps a request's header below maxHeader: an ID has at most 20 digits and a comma.
const idsPerRequest = 2000

// Pin makes a state. Vectors that came before are not sent again; memory columns come when they are read.
func (c *Client) Pin(ctx context.Context, req PinRequest) (*State, error) {
	timeout := req.Timeout.Microseconds()
	if req.Timeout%time.Microsecond > 0 {
		timeout++ // 0 would mean the default
	}
	e, err := c.do(ctx, request{
		Op: opPin, At: wireLSN(req.At), WaitLSN: wireLSN(req.WaitLSN), WaitSource: req.WaitSource, TimeoutUS: timeout,
	}, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("pin a read state: %w", err)
	}
	state, err := c.build(ctx, e.state, e.body)
	if err != nil {
		c.post(request{Op: opRelease, State: e.state}, nil)
		return nil, fmt.Errorf("pin a read state: %w", err)
	}
	return state, nil
}

// build makes the State of a pin's answer.
func (c *Client) build(ctx context.Context, handle uint64, body []byte) (*State, error) {
	wire, err := parseState(body)
	if err != nil {
		return nil, err
	}
	schemas, err := c.fetchSchemas(ctx, handle, wire)
	if err != nil {
		return nil, err
	}
	vectors, err := c.fetchVectors(ctx, handle, wire)
	if err != nil {
		return nil, err
	}
	var serverIDs []uint64
	for _, table := range wire.Tables {
		for _, batch := range table.Batches {
			serverIDs = append(serverIDs, batch.ID)
		}
	}
	batches := c.cache.pin(serverIDs)
	released := new(atomic.Bool)
	state := &State{LSN: LSN(wire.LSN), Pinned: wire.Pinned, Tables: make([]*Table, len(wire.Tables))}
	state.Release = sync.OnceFunc(func() {
		released.Store(true)
		c.cache.unpin(batches)
		c.post(request{Op: opRelease, State: handle}, nil)
	})
	next := 0
	for i, wt := range wire.Tables {
		table := &Table{Name: wt.TableName, Schema: schemas[i], Err: wt.Err}
		for _, wf := range wt.Files {
			table.Files = append(table.Files, File{Path: wf.Path, Rows: wf.Rows, Bytes: wf.Bytes, Deleted: wf.Deleted.in(vectors)})
		}
		for _, wb := range wt.Batches {
			cached := batches[next]
			next++
			table.Batches = append(table.Batches, Batch{
				ID: cached.localID, Sealed: wb.Sealed, Rows: wb.Rows, Deleted: wb.Deleted.in(vectors),
				Columns: &remoteColumns{client: c, handle: handle, released: released, serverID: wb.ID, batch: cached, schema: table.Schema, rows: wb.Rows},
			})
		}
		state.Tables[i] = table
	}
	c.mu.Lock()
	c.searchPath = wire.SearchPath
	c.mu.Unlock()
	return state, nil
}

// fetchSchemas returns the schema of each table, nil for one without. Most pins name what the one before named, and the
// same ID gives the same *Schema.
func (c *Client) fetchSchemas(ctx context.Context, handle uint64, wire *wireState) ([]*arrow.Schema, error) {
	c.mu.Lock()
	known := c.schemas
	c.mu.Unlock()
	fresh := make(map[uint64]*arrow.Schema, len(wire.Tables))
	out := make([]*arrow.Schema, len(wire.Tables))
	var missing []int
	for i, table := range wire.Tables {
		out[i] = known[table.SchemaID]
		if out[i] == nil && table.SchemaID != 0 {
			missing = append(missing, i)
		}
	}
	for tables := range slices.Chunk(missing, idsPerRequest) {
		e, err := c.do(ctx, request{Op: opSchemas, State: handle, Tables: tables}, nil, nil)
		if err != nil {
			return nil, err
		}
		for i, part := range e.parts {
			if out[tables[i]], err = schemaFromWire(part); err != nil {
				return nil, fmt.Errorf("table %s: %w", wire.Tables[tables[i]].TableName, err)
			}
		}
	}
	for i, table := range wire.Tables {
		if out[i] != nil {
			fresh[table.SchemaID] = out[i]
		}
	}
	c.mu.Lock()
	c.schemas = fresh
	c.mu.Unlock()
	return out, nil
}

// in finds a vector among those of its state; nil stays nil.
func (v *wireVector) in(vectors map[uint64]*deletion.Vector) *deletion.Vector {
	if v == nil {
		return nil
	}
	return vectors[v.ID]
}

// fetchVectors returns all vectors that a state names, by the server's IDs.
func (c *Client) fetchVectors(ctx context.Context, handle uint64, wire *wireState) (map[uint64]*deletion.Vector, error) {
	vectors := map[uint64]*deletion.Vector{}
	rows := map[uint64]uint32{}
	var missing []uint64
	note := func(v *wireVector) error {
		if v == nil {
			return nil
		}
		known, seen := rows[v.ID]
		if seen && known != v.Rows {
			return protocolErrorf("vector %d has %d and %d rows", v.ID, known, v.Rows)
		}
		if seen {
			return nil
		}
		rows[v.ID] = v.Rows
		vector, ok := c.cache.vector(v.ID)
		switch {
		case !ok:
			missing = append(missing, v.ID)
		case vector.Rows() != v.Rows:
			return protocolErrorf("vector %d had %d rows and now %d", v.ID, vector.Rows(), v.Rows)
		default:
			vectors[v.ID] = vector
		}
		return nil
	}
	for _, table := range wire.Tables {
		for _, file := range table.Files {
			if err := note(file.Deleted); err != nil {
				return nil, err
			}
		}
		for _, batch := range table.Batches {
			if err := note(batch.Deleted); err != nil {
				return nil, err
			}
		}
	}
	for ids := range slices.Chunk(missing, idsPerRequest) {
		e, err := c.do(ctx, request{Op: opVectors, State: handle, Vectors: ids}, nil, nil)
		if err != nil {
			return nil, err
		}
		for i, blob := range e.parts {
			vector, err := deletion.UnmarshalBlob(blob, rows[ids[i]])
			if err != nil {
				return nil, protocolErrorf("vector %d: %v", ids[i], err)
			}
			vectors[ids[i]] = c.cache.addVector(ids[i], vector)
		}
	}
	return vectors, nil
}

// remoteColumns reads a batch of one state through the client's cache.
type remoteColumns struct {
	client   *Client
	handle   uint64
	released *atomic.Bool
	serverID uint64
	batch    *cachedBatch
	schema   *arrow.Schema
	rows     int
}

// Read fetches a column's rows that are not here yet up to the batch's last, whatever part of them is read: scans take
// all, and later reads find them.
func (r *remoteColumns) Read(columns []int, from, to int) ([]arrow.Array, error) {
	if r.released.Load() {
		return nil, ErrReleased
	}
	if from < 0 || from > to || to > r.rows {
		return nil, fmt.Errorf("read rows %d to %d of a batch of %d", from, to, r.rows)
	}
	fields := make([]arrow.Field, len(columns))
	for i, column := range columns {
		if column < 0 || column >= r.schema.NumFields() {
			return nil, fmt.Errorf("read column %d of %d", column, r.schema.NumFields())
		}
		fields[i] = r.schema.Field(column)
	}
	found := make([]arrow.ArrayData, len(columns))
	for {
		mine, others := r.client.cache.lookUp(r.batch, fields, to, found)
		if mine != nil {
			if err := r.fetch(mine, columns, fields, found); err != nil {
				return nil, fmt.Errorf("read memory columns: %w", err)
			}
			continue
		}
		if others == nil {
			break
		}
		select {
		case <-others:
		case <-r.client.done:
			return nil, r.client.reason()
		}
	}
	out := make([]arrow.Array, len(columns))
	for i, data := range found {
		out[i] = rowsOf(data, from, to)
	}
	return out, nil
}

// fetch asks the server for a fetch's rows and stores them.
func (r *remoteColumns) fetch(f *fetch, columns []int, fields []arrow.Field, found []arrow.ArrayData) error {
	got, err := r.receive(f, columns, fields)
	if err != nil {
		r.client.cache.abandon(f)
		return err
	}
	return r.client.cache.store(r.batch, f, got, found)
}

func (r *remoteColumns) receive(f *fetch, columns []int, fields []arrow.Field) ([]received, error) {
	asked := make([]int, len(f.places))
	for i, place := range f.places {
		asked[i] = columns[place]
	}
	e, err := r.client.do(context.Background(), request{
		Op: opColumns, State: r.handle, Batch: r.serverID, Columns: asked, From: f.from, To: r.rows,
	}, nil, nil)
	if err != nil {
		return nil, err
	}
	got := make([]received, len(asked))
	for i, part := range e.parts {
		column, err := decodeColumn(fields[f.places[i]].Type, r.rows-f.from, part)
		if err != nil {
			return nil, err
		}
		got[i] = received{column.Data(), int64(len(part))}
	}
	return got, nil
}
