package duckdb

/*
#include <stdint.h>
#include <stdlib.h>

extern void pgmirrorDrop(void *);
extern void pgmirrorSQL(void *, void *, void *);
extern void pgmirrorColumns(void *, void *, void *);
extern void pgmirrorChanges(void *, void *, void *);
extern void pgmirrorLiveBind(void *);
extern void *pgmirrorLiveCopy(void *);
extern void pgmirrorMemoryBind(void *);
extern void pgmirrorMemoryInit(void *);
extern void pgmirrorMemoryLocal(void *);
extern void pgmirrorMemoryFill(void *, void *);
extern void pgmirrorRowsInit(void *);
extern void pgmirrorResultBind(void *);
extern void pgmirrorResultInit(void *);
extern void pgmirrorResultFill(void *, void *);

// DuckDB takes C function pointers; these are the exported Go functions below.
static void *at_drop(void) { return (void *)pgmirrorDrop; }
static void *at_sql(void) { return (void *)pgmirrorSQL; }
static void *at_columns(void) { return (void *)pgmirrorColumns; }
static void *at_changes(void) { return (void *)pgmirrorChanges; }
static void *at_live_bind(void) { return (void *)pgmirrorLiveBind; }
static void *at_live_copy(void) { return (void *)pgmirrorLiveCopy; }
static void *at_memory_bind(void) { return (void *)pgmirrorMemoryBind; }
static void *at_memory_init(void) { return (void *)pgmirrorMemoryInit; }
static void *at_memory_local(void) { return (void *)pgmirrorMemoryLocal; }
static void *at_memory_fill(void) { return (void *)pgmirrorMemoryFill; }
static void *at_rows_init(void) { return (void *)pgmirrorRowsInit; }
static void *at_result_bind(void) { return (void *)pgmirrorResultBind; }
static void *at_result_init(void) { return (void *)pgmirrorResultInit; }
static void *at_result_fill(void) { return (void *)pgmirrorResultFill; }
*/
import "C"

import (
	"fmt"
	"runtime/cgo"
	"unsafe"

	"github.com/duckdb/duckdb-go/v2/mapping"
)

// box puts a Go value behind a pointer that C may keep. pgmirrorDrop, DuckDB's delete callback for it, frees it and calls
// the value's dropped method if it has one.
func box(v any) unsafe.Pointer {
	p := C.malloc(C.size_t(unsafe.Sizeof(cgo.Handle(0))))
	*(*cgo.Handle)(p) = cgo.NewHandle(v)
	return p
}

func unbox(p unsafe.Pointer) any { return (*(*cgo.Handle)(p)).Value() }

type dropper interface{ dropped() }

//export pgmirrorDrop
func pgmirrorDrop(p unsafe.Pointer) {
	h := *(*cgo.Handle)(p)
	if d, ok := h.Value().(dropper); ok {
		d.dropped()
	}
	h.Delete()
	C.free(p)
}

// binding is the bind data of pgmirror_memory, pgmirror_rows and pgmirror_live: a plan's hold on a handle.
type binding struct {
	db *DB
	h  *handle
}

func (b *binding) dropped() { b.db.handles.release(b.h) }

func (t *memoryThread) dropped() { t.close() }

// guard turns a panic, which must not cross into C, into an error.
func guard(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("internal error: %v", r)
	}
}

//export pgmirrorSQL
func pgmirrorSQL(info, in, out unsafe.Pointer) { scalarCall(info, in, out, (*DB).sqlCall) }

//export pgmirrorColumns
func pgmirrorColumns(info, in, out unsafe.Pointer) { scalarCall(info, in, out, (*DB).fileColumns) }

//export pgmirrorChanges
func pgmirrorChanges(info, in, out unsafe.Pointer) { scalarCall(info, in, out, (*DB).changesCall) }

func scalarCall(infoPtr, in, out unsafe.Pointer, call func(*DB, mapping.DataChunk, mapping.Vector) error) {
	info := mapping.FunctionInfo{Ptr: infoPtr}
	db := unbox(mapping.ScalarFunctionGetExtraInfo(info)).(*DB)
	err := func() (err error) {
		defer guard(&err)
		return call(db, mapping.DataChunk{Ptr: in}, mapping.Vector{Ptr: out})
	}()
	if err != nil {
		mapping.ScalarFunctionSetError(info, err.Error())
	}
}

//export pgmirrorLiveBind
func pgmirrorLiveBind(infoPtr unsafe.Pointer) {
	info := mapping.BindInfo{Ptr: infoPtr}
	db := unbox(mapping.ScalarFunctionBindGetExtraInfo(info)).(*DB)
	h, err := db.liveBind(info)
	if err != nil {
		mapping.ScalarFunctionBindSetError(info, err.Error())
		return
	}
	mapping.ScalarFunctionSetBindData(info, boxPlan(&binding{db: db, h: h}), C.at_drop())
	mapping.ScalarFunctionSetBindDataCopy(info, C.at_live_copy())
}

// pgmirrorLiveCopy is for the optimizer, which copies expressions.
//
//export pgmirrorLiveCopy
func pgmirrorLiveCopy(p unsafe.Pointer) unsafe.Pointer {
	b := unbox(p).(*binding)
	b.db.handles.again(b.h)
	return boxPlan(&binding{db: b.db, h: b.h})
}

//export pgmirrorMemoryBind
func pgmirrorMemoryBind(infoPtr unsafe.Pointer) {
	info := mapping.BindInfo{Ptr: infoPtr}
	db := unbox(mapping.BindGetExtraInfo(info)).(*DB)
	id := bigintParameter(info)
	h, ok := db.memoryBind(info, id)
	if !ok {
		mapping.BindSetError(info, fmt.Sprintf("there is no read handle %d", id))
		return
	}
	mapping.BindSetBindData(info, box(&binding{db: db, h: h}), C.at_drop())
}

//export pgmirrorMemoryInit
func pgmirrorMemoryInit(infoPtr unsafe.Pointer) {
	info := mapping.InitInfo{Ptr: infoPtr}
	b := unbox(mapping.InitGetBindData(info)).(*binding)
	mapping.InitSetInitData(info, box(newMemoryScan(info, b.h)), C.at_drop())
}

//export pgmirrorRowsInit
func pgmirrorRowsInit(infoPtr unsafe.Pointer) {
	info := mapping.InitInfo{Ptr: infoPtr}
	rowsInit(info, unbox(mapping.InitGetBindData(info)).(*binding).h)
}

//export pgmirrorMemoryLocal
func pgmirrorMemoryLocal(infoPtr unsafe.Pointer) {
	mapping.InitSetInitData(mapping.InitInfo{Ptr: infoPtr}, box(&memoryThread{}), C.at_drop())
}

//export pgmirrorMemoryFill
func pgmirrorMemoryFill(infoPtr, out unsafe.Pointer) {
	info := mapping.FunctionInfo{Ptr: infoPtr}
	db := unbox(mapping.FunctionGetExtraInfo(info)).(*DB)
	scan := unbox(mapping.FunctionGetInitData(info)).(*memoryScan)
	thread := unbox(mapping.FunctionGetLocalInitData(info)).(*memoryThread)
	err := func() (err error) {
		defer guard(&err)
		return db.fill(scan, thread, mapping.DataChunk{Ptr: out})
	}()
	if err != nil {
		mapping.FunctionSetError(info, err.Error())
	}
}

//export pgmirrorResultBind
func pgmirrorResultBind(infoPtr unsafe.Pointer) {
	info := mapping.BindInfo{Ptr: infoPtr}
	db := unbox(mapping.BindGetExtraInfo(info)).(*DB)
	if !db.results.bind(info, bigintParameter(info)) {
		mapping.BindSetError(info, "pgmirror_result: there is no such result")
		return
	}
	mapping.BindSetBindData(info, box(bigintParameter(info)), C.at_drop())
}

//export pgmirrorResultInit
func pgmirrorResultInit(infoPtr unsafe.Pointer) {
	info := mapping.InitInfo{Ptr: infoPtr}
	mapping.InitSetMaxThreads(info, 1)
	mapping.InitSetInitData(info, box(&resultScan{id: unbox(mapping.InitGetBindData(info)).(int64)}), C.at_drop())
}

//export pgmirrorResultFill
func pgmirrorResultFill(infoPtr, out unsafe.Pointer) {
	info := mapping.FunctionInfo{Ptr: infoPtr}
	db := unbox(mapping.FunctionGetExtraInfo(info)).(*DB)
	if !db.results.fill(unbox(mapping.FunctionGetInitData(info)).(*resultScan), mapping.DataChunk{Ptr: out}) {
		mapping.FunctionSetError(info, "pgmirror_result: the result is gone")
	}
}

func bigintParameter(info mapping.BindInfo) int64 {
	v := mapping.BindGetParameter(info, 0)
	defer mapping.DestroyValue(&v)
	return mapping.GetInt64(v)
}

// register makes the functions known to the DB's instance.
func (db *DB) register() error {
	scalar := func(name string, fn, bind unsafe.Pointer, result mapping.LogicalType, args ...mapping.Type) error {
		f := mapping.CreateScalarFunction()
		defer mapping.DestroyScalarFunction(&f)
		mapping.ScalarFunctionSetName(f, name)
		for _, a := range args {
			t := mapping.CreateLogicalType(a)
			mapping.ScalarFunctionAddParameter(f, t)
			mapping.DestroyLogicalType(&t)
		}
		mapping.ScalarFunctionSetReturnType(f, result)
		mapping.ScalarFunctionSetExtraInfo(f, box(db), C.at_drop())
		if bind != nil {
			mapping.ScalarFunctionSetBind(f, bind)
		}
		mapping.ScalarFunctionSetFunction(f, fn)
		if mapping.RegisterScalarFunction(db.admin, f) == mapping.StateError {
			return fmt.Errorf("register %s with DuckDB", name)
		}
		return nil
	}
	table := func(name string, projects bool, bind, init, local, fill unsafe.Pointer) error {
		f := mapping.CreateTableFunction()
		defer mapping.DestroyTableFunction(&f)
		mapping.TableFunctionSetName(f, name)
		t := mapping.CreateLogicalType(mapping.TypeBigInt)
		mapping.TableFunctionAddParameter(f, t)
		mapping.DestroyLogicalType(&t)
		mapping.TableFunctionSetExtraInfo(f, box(db), C.at_drop())
		mapping.TableFunctionSetBind(f, bind)
		mapping.TableFunctionSetInit(f, init)
		if local != nil {
			mapping.TableFunctionSetLocalInit(f, local)
		}
		mapping.TableFunctionSupportsProjectionPushdown(f, projects)
		mapping.TableFunctionSetFunction(f, fill)
		if mapping.RegisterTableFunction(db.admin, f) == mapping.StateError {
			return fmt.Errorf("register %s with DuckDB", name)
		}
		return nil
	}
	yesNo := mapping.CreateLogicalType(mapping.TypeBoolean)
	defer mapping.DestroyLogicalType(&yesNo)
	columns := newFileColumnsType()
	defer columns.destroy()
	for _, err := range []error{
		scalar("pgmirror_sql", C.at_sql(), nil, columns.text, mapping.TypeVarchar, mapping.TypeUBigInt),
		scalar("pgmirror_changes_sql", C.at_changes(), nil, columns.text, mapping.TypeVarchar, mapping.TypeVarchar, mapping.TypeVarchar, mapping.TypeUBigInt),
		scalar("pgmirror_columns", C.at_columns(), nil, columns.all, mapping.TypeBigInt),
		scalar("pgmirror_live", liveFunction(), C.at_live_bind(), yesNo, mapping.TypeBigInt, mapping.TypeUInteger, mapping.TypeBigInt),
		table("pgmirror_memory", true, C.at_memory_bind(), C.at_memory_init(), C.at_memory_local(), C.at_memory_fill()),
		table("pgmirror_rows", true, C.at_memory_bind(), C.at_rows_init(), nil, rowsFunction()),
		table("pgmirror_result", false, C.at_result_bind(), C.at_result_init(), nil, C.at_result_fill()),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}
