package duckdb

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/readstate"
)

func stringsReader(s string) io.Reader { return strings.NewReader(s) }

func intTable(t testing.TB) *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{col("id", 1, arrow.PrimitiveTypes.Int32), col("name", 2, arrow.BinaryTypes.String)}, nil)
}

func TestSmoke(t *testing.T) {
	s := intTable(t)
	f := fileOf(t, record(t, s, `[{"id":1,"name":"a"},{"id":2,"name":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbb"},{"id":3}]`), []uint32{0}, 100)
	b := batchOf(record(t, s, `[{"id":11,"name":"aa"},{"id":12,"name":"cccccccccccccccccccccccccccccc"},{"id":13}]`), []uint32{2})
	p := fixed(table("orders", s, []readstate.File{f}, []readstate.Batch{b}))
	db := openTest(t, p)
	fmt.Println(query(t, db, "select * from orders"))
	fmt.Println(query(t, db, "select count(*) from public.orders"))
	fmt.Println(query(t, db, "explain select count(*) from public.orders"))
	fmt.Println(query(t, db, "prepare x as select count(*) from public.orders; execute x; deallocate x;begin; select * from orders; "))
}
