package mirror

import (
	"bytes"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/pgcdc"
)

// TestFetchedBytesCount: a value that an update left out and that is fetched from the old row's place counts for the size of
// the batch it goes to, as one that arrives does; else 32-bit offsets end.
func TestFetchedBytesCount(t *testing.T) {
	s := &shape{resolved: true, mode: keyed, key: []int{0}}
	var fields []arrow.Field
	for _, name := range []string{"id", "body"} {
		s.columns = append(s.columns, shapeColumn{name: name, pg: pgcdc.BuiltinType(25, -1), typ: arrow.BinaryTypes.String})
		fields = append(fields, arrow.Field{Name: name, Type: arrow.BinaryTypes.String})
	}
	s.arrow = arrow.NewSchema(fields, nil)
	m := &Mirror{}
	tab := &table{state: stateStreaming}
	tab.setShape(s)
	tab.open = &segment{batch: newBatch(s)}
	body := bytes.Repeat([]byte("x"), 1000)
	value := func(v []byte) pgcdc.Value { return pgcdc.Value{Format: pgcdc.FormatText, Data: v} }
	left := pgcdc.Value{Format: pgcdc.FormatUnchanged}
	if err := tab.add(m, pgcdc.Tuple{value([]byte("1")), value(body)}, nil, location{}, 10); err != nil {
		t.Fatal(err)
	}
	before := tab.open.batch.added
	if err := tab.add(m, pgcdc.Tuple{value([]byte("1")), left}, nil, location{tab.open, 0}, 20); err != nil {
		t.Fatal(err)
	}
	if grown := tab.open.batch.added - before; grown < 1000 {
		t.Errorf("a row of 1,001 bytes counts as %d", grown)
	}
}

// TestColumnEnds: a column that cannot hold a value because 32-bit offsets do not reach says so instead of wrapping around.
func TestColumnEnds(t *testing.T) {
	c := newColumn(arrow.BinaryTypes.String)
	c.limit = 10
	c.Binary([]byte("0123456"))
	if c.over {
		t.Fatal("7 bytes do not fit in 10")
	}
	c.Binary([]byte("789a"))
	if !c.over || c.data.len() != 7 {
		t.Fatalf("11 bytes in 10: over is %v, %d bytes", c.over, c.data.len())
	}
	c.truncate(1)
	if c.over {
		t.Fatal("over although nothing is")
	}
	list := newColumn(arrow.ListOf(arrow.BinaryTypes.String))
	list.child.limit = 3
	list.BeginList(1)
	list.Binary([]byte("0123"))
	list.EndList()
	if !list.full() {
		t.Fatal("a list's element passed its limit unseen")
	}
	if newColumn(arrow.BinaryTypes.Binary).limit != math.MaxInt32 {
		t.Fatal("the limit is not that of 32-bit offsets")
	}
}
