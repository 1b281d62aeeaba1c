package duckdb

/*
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern uint64_t duckdb_data_chunk_get_column_count(void *chunk);
extern void *duckdb_data_chunk_get_vector(void *chunk, uint64_t column);
extern void duckdb_data_chunk_set_size(void *chunk, uint64_t size);
extern void *duckdb_function_get_init_data(void *info);
extern void *duckdb_vector_get_data(void *vector);

// pgmirror_rows_scan is one run of pgmirror_rows: how many rows are still to come. Threads take them in vectors.
typedef struct {
	uint64_t left;
} pgmirror_rows_scan;

static void *pgmirror_rows_new(uint64_t rows) {
	pgmirror_rows_scan *scan = malloc(sizeof *scan);
	scan->left = rows;
	return scan;
}

// The only column that can be projected is k, whose values are all true.
static void pgmirror_rows_fill(void *info, void *out) {
	pgmirror_rows_scan *scan = duckdb_function_get_init_data(info);
	uint64_t left = __atomic_load_n(&scan->left, __ATOMIC_RELAXED), n;
	do {
		n = left < 2048 ? left : 2048;
	} while (!__atomic_compare_exchange_n(&scan->left, &left, left - n, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	for (uint64_t i = 0; i < duckdb_data_chunk_get_column_count(out); i++)
		memset(duckdb_vector_get_data(duckdb_data_chunk_get_vector(out, i)), 1, n);
	duckdb_data_chunk_set_size(out, n);
}

static void *pgmirror_at_rows_fill(void) { return (void *)pgmirror_rows_fill; }
static void *pgmirror_at_free(void) { return (void *)free; }
*/
import "C"

import (
	"fmt"
	"regexp"
	"unsafe"

	"github.com/duckdb/duckdb-go/v2/mapping"
)

// How many rows a table has is known without reading them. A statement that looks as if it asked for just that is bound with
// countSQL in place of the union read. pgmirror_rows gives the right number of rows and refuses to give a column, so such a
// statement has the right answer or none; after a refusal it is bound again with the union read. A wrong guess costs time only.

// countQuestion is SELECT count(*) FROM one relation.
var countQuestion = func() *regexp.Regexp {
	const name = `(?:[a-z_][a-z0-9_]*|"(?:[^"]|"")+")`
	return regexp.MustCompile(`(?is)^\s*select\s+count\s*\(\s*\*?\s*\)(?:\s+(?:as\s+)?` + name + `)?\s+from\s+` +
		name + `(?:\.` + name + `){0,2}(?:\s+(?:as\s+)?` + name + `)?[\s;]*$`)
}()

// countSQL is a read of as many rows as the table has.
func (h *handle) countSQL() string {
	return fmt.Sprintf("%s FROM pgmirror_rows(%d)", h.selectList(), h.id)
}

// allRows is the number of visible rows.
func (h *handle) allRows() int64 {
	n := h.rows
	for _, f := range h.files {
		n += f.Rows
		if f.Deleted != nil {
			n -= int64(f.Deleted.Cardinality())
		}
	}
	return n
}

// rowsFunction is what pgmirror_rows does for each vector; all of it is C.
func rowsFunction() unsafe.Pointer { return C.pgmirror_at_rows_fill() }

// rowsInit begins a run of pgmirror_rows.
func rowsInit(info mapping.InitInfo, h *handle) {
	for i := range mapping.InitGetColumnCount(info) {
		if c := uint64(mapping.InitGetColumnIndex(info, i)); c > 0 && c <= uint64(len(h.table.cols)) {
			h.refused.Store(true)
			mapping.InitSetError(info, "pgmirror_rows: it counts only")
			return
		}
	}
	mapping.InitSetMaxThreads(info, mapping.IdxT(1+h.allRows()/rowsPerThread))
	mapping.InitSetInitData(info, C.pgmirror_rows_new(C.uint64_t(h.allRows())), C.pgmirror_at_free())
}

// rowsPerThread is when a further thread counts too: one is through so many rows in about a millisecond.
const rowsPerThread = 10 << 20
