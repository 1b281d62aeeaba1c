package duckdb

// extern int duckdb_pending_prepared_streaming(void *prepared, void **pending);
import "C"

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/duckdb/duckdb-go/v2/mapping"
)

// texter is a result turned into text, chunk by chunk.
type texter struct {
	names []string
	types []string // DuckDB's names, upper case as it writes them
	res   mapping.Result
	chunk mapping.DataChunk
	rows  int
	cols  []textColumn
	drop  func()
}

type textColumn struct {
	data  unsafe.Pointer
	valid unsafe.Pointer
}

// asText starts a scan of r in which each column is cast by expr, given the column's name and type.
func (db *DB) asText(ctx context.Context, r *result, expr func(name, typ string) string) (_ *texter, err error) {
	id := db.results.add(r)
	t := &texter{drop: func() { db.results.remove(id) }}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	for i := range mapping.ColumnCount(&r.res) {
		t.names = append(t.names, mapping.ColumnName(&r.res, i))
	}
	if t.types, err = db.typeNames(id); err != nil {
		return nil, err
	}
	casts := make([]string, len(t.names))
	for i := range casts {
		casts[i] = expr(fmt.Sprintf("c%d", i), t.types[i])
	}
	sql := fmt.Sprintf("SELECT %s FROM pgmirror_result(%d)", strings.Join(casts, ", "), id)
	return t, db.stream(ctx, sql, &t.res)
}

// stream starts a query whose chunks come one by one.
func (db *DB) stream(ctx context.Context, sql string, res *mapping.Result) error {
	var prepared mapping.PreparedStatement
	defer mapping.DestroyPrepare(&prepared)
	if mapping.Prepare(db.conn, sql, &prepared) == mapping.StateError {
		return errors.New(mapping.PrepareError(prepared))
	}
	defer db.interruptOn(ctx)()
	var pending mapping.PendingResult
	defer mapping.DestroyPending(&pending)
	// The driver's mapping leaves this one out.
	if C.duckdb_pending_prepared_streaming(prepared.Ptr, &pending.Ptr) != 0 {
		return errors.New(mapping.PendingError(pending))
	}
	if mapping.ExecutePending(pending, res) == mapping.StateError {
		return errors.New(mapping.ResultError(res))
	}
	return nil
}

// typeNames asks DuckDB how it writes the types of a result.
func (db *DB) typeNames(id int64) ([]string, error) {
	rows, err := readStrings(db.conn, fmt.Sprintf("SELECT column_type FROM (DESCRIBE FROM pgmirror_result(%d))", id))
	out := make([]string, len(rows))
	for i, row := range rows {
		out[i] = row[0]
	}
	return out, err
}

// next goes to the next chunk of rows; false at the end.
func (t *texter) next(ctx context.Context) (bool, error) {
	mapping.DestroyDataChunk(&t.chunk)
	if err := ctx.Err(); err != nil {
		return false, context.Cause(ctx)
	}
	t.chunk = mapping.FetchChunk(t.res)
	if t.chunk.Ptr == nil {
		if text := mapping.ResultError(&t.res); text != "" {
			return false, errors.New(text)
		}
		return false, nil
	}
	t.rows = int(mapping.DataChunkGetSize(t.chunk))
	t.cols = t.cols[:0]
	for i := range mapping.DataChunkGetColumnCount(t.chunk) {
		vec := mapping.DataChunkGetVector(t.chunk, i)
		t.cols = append(t.cols, textColumn{mapping.VectorGetData(vec), mapping.VectorGetValidity(vec)})
	}
	return t.rows > 0, nil
}

// value is a value of the current chunk, good until the next; false for NULL.
func (t *texter) value(col, row int) (string, bool) {
	c := t.cols[col]
	if c.valid != nil {
		word := *(*uint64)(unsafe.Add(c.valid, row/64*8))
		if word>>(row%64)&1 == 0 {
			return "", false
		}
	}
	return duckString(unsafe.Add(c.data, row*16)), true
}

func (t *texter) close() {
	mapping.DestroyDataChunk(&t.chunk)
	mapping.DestroyResult(&t.res)
	t.drop()
}

// duckString reads DuckDB's 16-byte string: a length, then up to 12 bytes in place, or a prefix and a pointer.
func duckString(p unsafe.Pointer) string {
	n := *(*uint32)(p)
	if n <= 12 {
		return unsafe.String((*byte)(unsafe.Add(p, 4)), n)
	}
	return unsafe.String(*(**byte)(unsafe.Add(p, 8)), n)
}

// stringAt copies one value of a flat string vector.
func stringAt(vec mapping.Vector, row int) string {
	return strings.Clone(duckString(unsafe.Add(mapping.VectorGetData(vec), row*16)))
}

// Rows is a result set as text.
type Rows struct {
	Columns []string
	Types   []string // DuckDB's names of the types
	values  [][]Text
	at      int
}

// Text is a value in DuckDB's text form.
type Text struct {
	Value string
	Null  bool
}

// Next returns the next row; false at the end. The row is the caller's.
func (r *Rows) Next() ([]Text, bool) {
	if r.at >= len(r.values) {
		return nil, false
	}
	r.at++
	return r.values[r.at-1], true
}

// All returns the rows that Next has not returned.
func (r *Rows) All() [][]Text {
	out := r.values[r.at:]
	r.at = len(r.values)
	return out
}

// collect turns a whole result into text.
func (db *DB) collect(ctx context.Context, r *result) (*Rows, error) {
	if !r.hasRows() {
		return &Rows{}, nil
	}
	t, err := db.asText(ctx, r, castText)
	if err != nil {
		return nil, err
	}
	defer t.close()
	out := &Rows{Columns: t.names, Types: t.types}
	for {
		more, err := t.next(ctx)
		if err != nil || !more {
			return out, err
		}
		for row := range t.rows {
			values := make([]Text, len(t.names))
			for col := range values {
				v, ok := t.value(col, row)
				values[col] = Text{strings.Clone(v), !ok}
			}
			out.values = append(out.values, values)
		}
	}
}

func castText(name, _ string) string { return name + "::VARCHAR" }

// vectorSlice is a flat vector's values.
func vectorSlice[T any](vec mapping.Vector, n int) []T {
	return unsafe.Slice((*T)(mapping.VectorGetData(vec)), n)
}
