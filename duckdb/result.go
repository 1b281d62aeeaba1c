package duckdb

import (
	"fmt"
	"sync"

	"github.com/duckdb/duckdb-go/v2/mapping"
)

// result is a materialized result of one statement.
type result struct {
	res  mapping.Result
	kind mapping.StatementType
}

func (r *result) close() { mapping.DestroyResult(&r.res) }

// hasRows says whether the statement answers with a result set; DDL and counts of changed rows are not shown.
func (r *result) hasRows() bool {
	return mapping.ResultReturnType(r.res) == mapping.ResultTypeQueryResult
}

// results lets pgmirror_result(number) read a result as a table, so that DuckDB itself turns values into text.
type results struct {
	mu   sync.Mutex
	next int64
	open map[int64]*result
}

// resultScan is one run of pgmirror_result.
type resultScan struct {
	id   int64
	last mapping.DataChunk // the chunk that was handed out last
}

func (s *resultScan) dropped() { mapping.DestroyDataChunk(&s.last) }

func (rs *results) add(r *result) int64 {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.open == nil {
		rs.open = make(map[int64]*result)
	}
	rs.next++
	rs.open[rs.next] = r
	return rs.next
}

func (rs *results) remove(id int64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.open, id)
}

func (rs *results) get(id int64) (*result, bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r, ok := rs.open[id]
	return r, ok
}

// bind announces the result's columns as c0, c1, ….
func (rs *results) bind(info mapping.BindInfo, id int64) bool {
	r, ok := rs.get(id)
	if !ok {
		return false
	}
	for i := range mapping.ColumnCount(&r.res) {
		logical := mapping.ColumnLogicalType(&r.res, i)
		mapping.BindAddResultColumn(info, fmt.Sprintf("c%d", i), logical)
		mapping.DestroyLogicalType(&logical)
	}
	return true
}

// fill hands the result's next chunk out by reference.
func (rs *results) fill(s *resultScan, out mapping.DataChunk) bool {
	r, ok := rs.get(s.id)
	if !ok {
		return false
	}
	mapping.DestroyDataChunk(&s.last)
	s.last = mapping.FetchChunk(r.res)
	if s.last.Ptr == nil {
		mapping.DataChunkSetSize(out, 0)
		return true
	}
	for i := range mapping.DataChunkGetColumnCount(s.last) {
		mapping.VectorReferenceVector(mapping.DataChunkGetVector(out, i), mapping.DataChunkGetVector(s.last, i))
	}
	mapping.DataChunkSetSize(out, mapping.DataChunkGetSize(s.last))
	return true
}
