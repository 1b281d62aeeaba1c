package duckdb

/*
// The loops below are written to be vectorized.
#cgo CFLAGS: -O3
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// The part of DuckDB's C API that a scalar function needs while it runs; the library itself is linked by the driver.
extern void *duckdb_scalar_function_get_bind_data(void *info);
extern void duckdb_scalar_function_set_error(void *info, const char *error);
extern uint64_t duckdb_data_chunk_get_size(void *chunk);
extern void *duckdb_data_chunk_get_vector(void *chunk, uint64_t column);
extern void *duckdb_vector_get_data(void *vector);

// pgmirror_file is one file of a read: its number of rows, and its deleted rows as a bitmap of at least so many bits, NULL when
// every row is visible.
typedef struct {
	const uint64_t *dead;
	uint64_t rows;
} pgmirror_file;

// pgmirror_plan is a bound call's hold on a handle. The first member is what pgmirrorDrop expects of a box.
typedef struct {
	uintptr_t go;
	const pgmirror_file *files;
	uint64_t count;
} pgmirror_plan;

// Eight bits become eight bytes, the lowest bit first, each 1 where the bit is 0. Little-endian, as all that DuckDB runs on.
static inline uint64_t pgmirror_eight(uint64_t bits) {
	uint64_t apart = ((bits & 0xFF) * 0x0101010101010101u) & 0x8040201008040201u;
	return (((apart + 0x7F7F7F7F7F7F7F7Fu) >> 7) & 0x0101010101010101u) ^ 0x0101010101010101u;
}

// Rows first, first+1, … of a file. The caller has checked that the last is in it.
static void pgmirror_in_order(const uint64_t *dead, uint64_t first, uint8_t *alive, uint64_t n) {
	uint64_t i = 0;
	// The word that holds row first+i+63 exists, because that row is below first+n.
	for (; i + 64 <= n; i += 64) {
		uint64_t at = first + i, shift = at & 63, word = dead[at >> 6] >> shift;
		if (shift != 0)
			word |= dead[(at >> 6) + 1] << (64 - shift);
		for (int b = 0; b < 8; b++) {
			uint64_t eight = pgmirror_eight(word >> (8 * b));
			memcpy(alive + i + 8 * b, &eight, 8);
		}
	}
	for (; i < n; i++)
		alive[i] = !(dead[(first + i) >> 6] >> ((first + i) & 63) & 1);
}

// pgmirror_run looks n rows of one file up. It returns false for a row that the file does not have.
static bool pgmirror_run(const pgmirror_file *file, const int64_t *rows, uint8_t *alive, uint64_t n) {
	uint64_t first = (uint64_t)rows[0], strayed = 0, beyond = 0;
#pragma GCC unroll 8
	for (uint64_t i = 0; i < n; i++)
		strayed |= (uint64_t)rows[i] ^ (first + i);
	if (strayed == 0) { // a whole vector of the file, as a scan without a filter of its own gives it
		if (first >= file->rows || n > file->rows - first)
			return false;
		if (file->dead == NULL)
			memset(alive, 1, n);
		else
			pgmirror_in_order(file->dead, first, alive, n);
		return true;
	}
	for (uint64_t i = 0; i < n; i++)
		beyond |= (uint64_t)rows[i] >= file->rows;
	if (beyond)
		return false;
	if (file->dead == NULL) {
		memset(alive, 1, n);
		return true;
	}
	for (uint64_t i = 0; i < n; i++)
		alive[i] = !(file->dead[(uint64_t)rows[i] >> 6] >> ((uint64_t)rows[i] & 63) & 1);
	return true;
}

// pgmirror_live is the function itself, over one chunk. DuckDB flattens the arguments, so each is a plain array.
static void pgmirror_live(void *info, void *in, void *out) {
	const pgmirror_plan *plan = duckdb_scalar_function_get_bind_data(info);
	uint64_t n = duckdb_data_chunk_get_size(in);
	if (n == 0)
		return;
	if (plan == NULL) {
		duckdb_scalar_function_set_error(info, "pgmirror_live: the call was not bound");
		return;
	}
	const uint32_t *files = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, 1));
	const int64_t *rows = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, 2));
	uint8_t *alive = duckdb_vector_get_data(out);
	uint32_t differ = 0;
#pragma GCC unroll 8
	for (uint64_t i = 0; i < n; i++)
		differ |= files[i] ^ files[0];
	for (uint64_t from = 0, to; from < n; from = to) {
		if (differ == 0) // as always with a scan's own vectors
			to = n;
		else
			for (to = from + 1; to < n && files[to] == files[from]; to++)
				;
		if (files[from] >= plan->count) {
			duckdb_scalar_function_set_error(info, "pgmirror_live: the read has no such file");
			return;
		}
		if (!pgmirror_run(&plan->files[files[from]], rows + from, alive + from, to - from)) {
			duckdb_scalar_function_set_error(info, "pgmirror_live: a row beyond the end of its file");
			return;
		}
	}
}

static void *pgmirror_at_live(void) { return (void *)pgmirror_live; }

static void pgmirror_plan_set(void *plan, uintptr_t go, void *files, uint64_t count) {
	pgmirror_plan *p = plan;
	p->go = go;
	p->files = files;
	p->count = count;
}

static void pgmirror_file_set(void *files, uint64_t i, const uint64_t *dead, uint64_t rows) {
	pgmirror_file *f = (pgmirror_file *)files + i;
	f->dead = dead;
	f->rows = rows;
}
*/
import "C"

import (
	"runtime"
	"runtime/cgo"
	"unsafe"
)

// liveFunction is pgmirror_live(handle, file_index, file_row_number): whether a row of a file is visible. It runs for every row
// that a scan brings, so all of it is C, and what it needs is bound to the plan beforehand. A row number beyond the file, or a
// file that is not in the list, is an error: it would mean that the virtual columns are not what the self-test found.
func liveFunction() unsafe.Pointer { return C.pgmirror_at_live() }

// liveFiles is a handle's files as pgmirror_live reads them, in C's memory. The bitmaps stay in Go's, pinned.
type liveFiles struct {
	files unsafe.Pointer
	count int
	pins  runtime.Pinner
}

func newLiveFiles(h *handle) *liveFiles {
	l := &liveFiles{count: h.filtered}
	l.files = C.calloc(C.size_t(l.count), C.size_t(unsafe.Sizeof(C.pgmirror_file{})))
	for i, f := range h.files[:h.filtered] {
		var dead *uint64
		if h.dead[i] != nil {
			dead = unsafe.SliceData(h.dead[i])
			l.pins.Pin(dead)
		}
		C.pgmirror_file_set(l.files, C.uint64_t(i), (*C.uint64_t)(unsafe.Pointer(dead)), C.uint64_t(f.Rows))
	}
	return l
}

func (l *liveFiles) close() {
	C.free(l.files)
	l.pins.Unpin()
}

// boxPlan is a box of a binding that pgmirror_live can read.
func boxPlan(b *binding) unsafe.Pointer {
	p := C.malloc(C.size_t(unsafe.Sizeof(C.pgmirror_plan{})))
	C.pgmirror_plan_set(p, C.uintptr_t(cgo.NewHandle(b)), b.h.live.files, C.uint64_t(b.h.live.count))
	return p
}
