package readstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// idsPerRequest keeps a request's header below maxHeader: an ID has at most 20 digits and a comma.
const idsPerRequest = 2000

// Pin makes a state. Vectors that came before are not sent again; memory columns come when they are read, and with VectorsLater
// vectors when a table is completed.
func (c *Client) Pin(ctx context.Context, req PinRequest) (*State, error) {
	timeout := req.Timeout.Microseconds()
	if req.Timeout%time.Microsecond > 0 {
		timeout++ // 0 would mean the default
	}
	header := request{Op: opPin, At: wireLSN(req.At), WaitLSN: wireLSN(req.WaitLSN), WaitSource: req.WaitSource, TimeoutUS: timeout}
	if !req.AtTime.IsZero() {
		us := req.AtTime.UnixMicro()
		header.AtTimeUS = &us
	}
	if f := req.Changes; f != nil {
		header.Changes = &wireChanges{f.Table, wireLSN(f.From)}
	}
	if (header.AtTimeUS != nil || header.Changes != nil) && !c.past { // it would take the request for one without them
		return nil, errors.New("the running pgmirror is an older program, which knows neither times nor change feeds")
	}
	e, err := c.do(ctx, header, nil, nil)
	var answered *RemoteError
	if errors.As(err, &answered) {
		return nil, answered // the mirror's own words
	}
	if err != nil {
		return nil, fmt.Errorf("pin a read state: %w", err)
	}
	state, err := c.build(ctx, e.state, e.life, e.body, req.VectorsLater)
	if err != nil {
		c.giveUp(e.state)
		return nil, fmt.Errorf("pin a read state: %w", err)
	}
	return state, nil
}

// build makes the State of a pin's answer.
func (c *Client) build(ctx context.Context, handle uint64, life *life, body []byte, later bool) (*State, error) {
	wire, err := parseState(body)
	if err != nil {
		return nil, err
	}
	schemas, err := c.fetchSchemas(ctx, handle, wire)
	if err != nil {
		return nil, err
	}
	var serverIDs []uint64
	for _, table := range wire.Tables {
		for _, batch := range table.Batches {
			serverIDs = append(serverIDs, batch.ID)
		}
	}
	tables := make([]*remoteTable, len(wire.Tables))
	wanted := newVectorList()
	for i := range wire.Tables {
		tables[i] = &remoteTable{client: c, handle: handle, life: life, wire: &wire.Tables[i], schema: schemas[i]}
		if err := wanted.add(c, tables[i].wire); err != nil {
			return nil, err
		}
	}
	if !later {
		if err := wanted.fetch(ctx, c, handle); err != nil {
			return nil, err
		}
	}
	batches := c.cache.pin(serverIDs)
	state := &State{LSN: LSN(wire.LSN), Pinned: wire.Pinned, Tables: make([]*Table, len(wire.Tables)), ended: life.ended, lost: c.reason}
	state.Release = sync.OnceFunc(func() {
		life.end(ErrReleased)
		c.cache.unpin(batches)
		c.giveUp(handle)
	})
	next := 0
	for i, t := range tables {
		t.batches = batches[next : next+len(t.wire.Batches)]
		next += len(t.wire.Batches)
		state.Tables[i] = t.table(wanted.vectors)
	}
	c.mu.Lock()
	c.searchPath = wire.SearchPath
	c.mu.Unlock()
	return state, nil
}

// life says whether a state that was pinned can be read.
type life struct{ reason atomic.Pointer[error] }

// end is heard once: the first reason stays.
func (l *life) end(reason error) { l.reason.CompareAndSwap(nil, &reason) }

// over is why the state cannot be read any more; nil while it can.
func (l *life) over() error {
	if reason := l.reason.Load(); reason != nil {
		return *reason
	}
	return nil
}

// ended is State.Ended.
func (l *life) ended() error {
	if err := l.over(); errors.Is(err, ErrEnded) {
		return err
	}
	return nil
}

// giveUp releases a state on the server.
func (c *Client) giveUp(handle uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lives, handle)
	c.postLocked(request{Op: opRelease, State: handle}, nil)
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

// remoteColumns reads a batch of one state through the client's cache.
type remoteColumns struct {
	client   *Client
	handle   uint64
	life     *life
	serverID uint64
	batch    *cachedBatch
	schema   *arrow.Schema
	rows     int
}

// Read fetches a column's rows that are not here yet up to the batch's last, whatever part of them is read: scans take
// all, and later reads find them.
func (r *remoteColumns) Read(columns []int, from, to int) ([]arrow.Array, error) {
	if err := r.life.over(); err != nil {
		return nil, err
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
