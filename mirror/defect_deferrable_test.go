package mirror

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/deletion"
	"pgmirror/iceberg"
	"pgmirror/pgcdc"
)

// TestDeferrableKeySwapped: UPDATE t SET id = 3 - id, which a deferrable primary key lets through, has two rows of one key in
// between; under REPLICA IDENTITY FULL the mirror must take the right one.
func TestDeferrableKeySwapped(t *testing.T) {
	def := tableDef(1, "swap", 'f', []int{0}, []int{0, 1}, oidInt4, oidText)
	def.KeyDeferrable = true
	s, err := newShape(&def, func(a *arrow.Schema) *arrow.Schema { ids, _ := iceberg.AssignFieldIDs(a, 0); return ids })
	if err != nil {
		t.Fatal(err)
	}
	m := &Mirror{}
	tab := &table{state: stateStreaming}
	tab.setShape(s)
	tab.open = &segment{vis: deletion.NewVisibility(1), batch: newBatch(s)}
	row := func(id, name string) pgcdc.Tuple {
		return pgcdc.Tuple{{Format: pgcdc.FormatText, Data: []byte(id)}, {Format: pgcdc.FormatText, Data: []byte(name)}}
	}
	for _, ch := range []*pgcdc.Change{
		{Op: pgcdc.OpInsert, New: row("1", "a")},
		{Op: pgcdc.OpInsert, New: row("2", "b")},
		{Op: pgcdc.OpUpdate, OldKind: 'O', Old: row("1", "a"), New: row("2", "a")},
		{Op: pgcdc.OpUpdate, OldKind: 'O', Old: row("2", "b"), New: row("1", "b")},
	} {
		if err := m.changeRow(tab, ch, 10); err != nil {
			t.Fatal(err)
		}
	}
	tab.open.batch.publish()
	id, name := tab.open.batch.column(0, 0, 4), tab.open.batch.column(1, 0, 4)
	got := map[string]string{}
	for r := range 4 {
		if !tab.open.vis.Deleted(uint32(r)) {
			got[id.ValueStr(r)] = name.ValueStr(r)
		}
	}
	if len(got) != 2 || got["2"] != "a" || got["1"] != "b" {
		t.Errorf("after the swap: %v", got)
	}
}
