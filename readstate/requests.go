package readstate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// pin makes a state and describes it.
func (s *session) pin(ctx context.Context, req request) (uint64, []byte, error) {
	if req.TimeoutUS < 0 || req.TimeoutUS > int64(1<<63-1)/int64(time.Microsecond) {
		return 0, nil, fmt.Errorf("pin with a timeout of %d µs", req.TimeoutUS)
	}
	wanted := PinRequest{At: LSN(req.At), WaitLSN: LSN(req.WaitLSN), WaitSource: req.WaitSource, Timeout: time.Duration(req.TimeoutUS) * time.Microsecond}
	if req.AtTimeUS != nil {
		wanted.AtTime = time.UnixMicro(*req.AtTimeUS)
	}
	if c := req.Changes; c != nil {
		wanted.Changes = &Changes{Table: c.TableName, From: LSN(c.From)}
	}
	s.mu.Lock()
	full := s.reserved >= s.server.config.MaxPins
	if !full {
		s.reserved++
	}
	s.mu.Unlock()
	if full {
		return 0, nil, fmt.Errorf("this client holds %d read states already", s.server.config.MaxPins)
	}
	state, err := s.server.provider.Pin(ctx, wanted)
	if err != nil {
		s.mu.Lock()
		s.reserved--
		s.mu.Unlock()
		return 0, nil, err
	}
	s.server.counters.openStates.Add(1)
	s.server.counters.statesPinned.Add(1)
	p := newPin(state)
	p.session = s
	s.mu.Lock()
	s.lastPin++
	id := s.lastPin
	p.id = id
	s.pins[id] = p
	s.mu.Unlock()

	wire, err := stateToWire(state, s.server.provider.SearchPath(), s.nameSchemas(state))
	if err == nil {
		var body []byte
		if body, err = json.Marshal(wire); err == nil {
			s.server.watch(p)
			return id, body, nil
		}
	}
	s.release(id)
	return 0, nil, err
}

// nameSchemas returns the ID of each table's schema: that of the pin before if it is the same, so that the client need not
// ask for it again.
func (s *session) nameSchemas(state *State) []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := make(map[TableName]namedSchema, len(state.Tables))
	ids := make([]uint64, len(state.Tables))
	for i, table := range state.Tables {
		if table.Schema == nil {
			continue
		}
		known, ok := s.schemas[table.Name]
		if !ok || known.schema != table.Schema && !known.schema.Equal(table.Schema) {
			s.lastID++
			known = namedSchema{table.Schema, s.lastID}
		}
		fresh[table.Name] = known
		ids[i] = known.id
	}
	s.schemas = fresh
	return ids
}

// sendSchemas sends a part for each table, in the order asked.
func (s *session) sendSchemas(req request) error {
	p, err := s.use(req.State)
	if err != nil {
		return err
	}
	defer p.leave()
	for _, at := range req.Tables {
		if at < 0 || at >= len(p.state.Tables) || p.state.Tables[at].Schema == nil {
			return fmt.Errorf("the read state has no schema of table %d", at)
		}
		table := p.state.Tables[at]
		columns, err := schemaToWire(table.Schema)
		if err != nil {
			return fmt.Errorf("describe table %s: %w", table.Name, err)
		}
		text, err := json.Marshal(columns)
		if err != nil {
			return fmt.Errorf("describe table %s: %w", table.Name, err)
		}
		if err := s.send(answer{ID: req.ID, Kind: kindPart}, false, text); err != nil {
			return err
		}
	}
	return nil
}

// sendVectors sends a part for each vector, in the order asked.
func (s *session) sendVectors(req request) error {
	p, err := s.use(req.State)
	if err != nil {
		return err
	}
	defer p.leave()
	blobs, err := p.blobs(req.Vectors)
	if err != nil {
		return err
	}
	for _, blob := range blobs {
		s.server.counters.vectors.Add(1)
		if err := s.send(answer{ID: req.ID, Kind: kindPart}, false, blob); err != nil {
			return err
		}
	}
	return nil
}

// sendColumns sends a part for each column, in the order asked.
func (s *session) sendColumns(req request) error {
	p, err := s.use(req.State)
	if err != nil {
		return err
	}
	defer p.leave()
	table, rows, err := p.batch(req.Batch)
	if err != nil {
		return err
	}
	fields := table.Schema.Fields()
	if len(req.Columns) > maxColumns {
		return fmt.Errorf("%d columns in one request, allowed are %d", len(req.Columns), maxColumns)
	}
	if req.From < 0 || req.From > req.To || req.To > rows {
		return fmt.Errorf("rows %d to %d of a batch of %d", req.From, req.To, rows)
	}
	for _, column := range req.Columns {
		if column < 0 || column >= len(fields) {
			return fmt.Errorf("column %d of a table of %d", column, len(fields))
		}
	}
	arrays, err := p.read(req.Batch, req.Columns, req.From, req.To)
	if err != nil {
		return fmt.Errorf("read columns of table %s: %w", table.Name, err)
	}
	if len(arrays) != len(req.Columns) {
		return fmt.Errorf("read columns of table %s: %d came for %d", table.Name, len(arrays), len(req.Columns))
	}
	for i, array := range arrays {
		field := fields[req.Columns[i]]
		if array.Len() != req.To-req.From {
			return fmt.Errorf("read column %s of table %s: %d rows came for %d", field.Name, table.Name, array.Len(), req.To-req.From)
		}
		encoded, err := encodeColumn(field.Type, array)
		if err != nil {
			return fmt.Errorf("send column %s of table %s: %w", field.Name, table.Name, err)
		}
		if encoded.size > maxAnswer {
			return fmt.Errorf("send column %s of table %s: %d bytes, allowed are %d", field.Name, table.Name, encoded.size, int64(maxAnswer))
		}
		s.server.counters.columns.Add(1)
		s.server.counters.columnBytes.Add(encoded.size)
		if err := s.send(answer{ID: req.ID, Kind: kindPart}, false, encoded.pieces...); err != nil {
			return err
		}
	}
	return nil
}
